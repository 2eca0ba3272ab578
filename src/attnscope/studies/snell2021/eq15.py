"""Does the proxy begin to learn by counting? Its first derivative against the count table. (snell2021 §4.1, A.2)

With every e_i and W_o from N(0, I / d), gradient flow on the summed loss begins with d(We)/dτ = 2 (C − mean C) as d
grows (eq. 53; the mean is over output words). θ is the softmax of We, uniform at first, so dθ/dτ is that over the
number |O| of output words. Equation 15 prints it without |O|.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.models import BagOfWords, BagOfWordsSettings
from attnscope.models.ibm import Bags, Pair
from attnscope.plots.style import axes, legend, name_axes
from attnscope.studies.claims import ClaimVerdict, at_least, at_most, proportion
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, TrainedCase, cases
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import MULTI30K, in_words, with_checksum
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import Batch, Copying, Task, TextTask, pad

ARTIFICIAL, REAL = "made up", "Multi30k"
POINTS = 200  # entries of the tables in a picture: the largest, and others
MAX_NUMBERS = 1 << 24  # in the embeddings of the sentences of one batch

ERRORS = {
    "logits": "d(We)/dτ against 2 (C − mean C), eq. 53",
    "probabilities": "dθ/dτ against 2 (C − mean C) / |O|",
    "printed": "dθ/dτ against 2 (C − mean C), eq. 15 as printed",
}
SHORT = {"logits": "d(We)/dτ, eq. 53", "probabilities": "dθ/dτ, over |O|", "printed": "dθ/dτ, eq. 15"}


@dataclass(frozen=True)
class FlowSettings:
    """The number of sentence pairs of a task, and the widths d of the proxies."""

    task: Task
    pairs: int
    widths: tuple[int, ...]


def experiments(sizes: Sizes) -> dict[str, Case]:
    """Five words of twenty, copied; and sentences of a corpus, in words."""

    def case(label: str) -> Case:
        artificial = Copying(distribution="sampled", num_words=20, length=5)
        task: Task = artificial if label == ARTIFICIAL else with_checksum(in_words(MULTI30K))
        return Case(settings=FlowSettings(task, sizes.counting.pairs, sizes.counting.widths))

    return cases((ARTIFICIAL, REAL), case)


# Measurement ---------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[FlowSettings]) -> Measurement:
    widths = subject.settings.widths
    pairs, sources, targets = renumber(first_pairs(subject.settings.task, subject.settings.pairs))
    counts = torch.from_numpy(Bags.of(pairs, sources, targets).cooccurrences().toarray()).to(subject.device)
    expected = 2 * (counts - counts.mean(1, keepdim=True))  # source words x target words
    errors = [compare(pairs, expected, width, subject.seed) for width in widths]
    curves = {name: [each[name] for each in errors] for name in ERRORS}
    return {
        "widths": list(widths),
        "outputs": targets,
        **curves,
        "correlation": [each["correlation"] for each in errors],
        "slope": {name: slope(widths, curves[name]) for name in ERRORS},
        "points": {str(widths[end]): errors[end]["points"] for end in (0, -1)},
    }


def compare(pairs: list[Pair], expected: Float[Tensor, "sources targets"], width: int, seed: int) -> Measurement:
    """Return relative errors of the derivatives of one proxy (Frobenius norm), their correlation, and some entries."""
    torch.manual_seed(seed)
    proxy = BagOfWords(BagOfWordsSettings(size=width), *expected.shape).double().to(expected.device)
    logits = first_derivative(proxy, pairs)
    probabilities = through_softmax(proxy.translations(), logits)
    both = torch.stack([expected.flatten(), logits.flatten()])
    return {
        "logits": relative_error(logits, expected),
        "probabilities": relative_error(probabilities, expected / expected.shape[1]),
        "printed": relative_error(probabilities, expected),
        "correlation": both.corrcoef()[0, 1].item(),
        "points": both.cpu()[:, shown_entries(expected.flatten().cpu().numpy())],
    }


def slope(widths: Sequence[int], errors: Sequence[float]) -> float:
    """Return the power of d that the error falls with: −1/2, by the central limit theorem (eq. 47 to 49)."""
    return float(np.polyfit(np.log(widths), np.log(errors), 1)[0])


def relative_error(derivative: Tensor, expected: Tensor) -> float:
    return float((derivative - expected).norm() / expected.norm())


def first_derivative(proxy: BagOfWords, pairs: list[Pair]) -> Float[Tensor, "sources targets"]:
    """Return d(We)/dτ under gradient flow: de/dτ = −dL/de and dW/dτ = −dL/dW, for the loss summed over all pairs."""
    e, w = proxy.embedding, proxy.output.weight
    of_e, of_w = torch.zeros_like(e), torch.zeros_like(w)
    for batch in pair_batches(pairs, proxy.settings.size):
        gradients = torch.autograd.grad(proxy.total_loss(batch.to(e.device)), (e, w))
        of_e, of_w = of_e + gradients[0], of_w + gradients[1]
    return -(of_e @ w.T + e @ of_w.T).detach()


def through_softmax(
    probabilities: Float[Tensor, "sources targets"], logits: Float[Tensor, "sources targets"]
) -> Float[Tensor, "sources targets"]:
    """Return dθ/dτ, given θ and the derivative of its logits."""
    return probabilities * (logits - (probabilities * logits).sum(1, keepdim=True))


def pair_batches(pairs: list[Pair], width: int) -> Iterator[Batch]:
    """Yield all pairs, as many at a time as memory allows."""
    longest = max(len(source) for source, _ in pairs)
    size = max(1, MAX_NUMBERS // (width * longest))
    for start in range(0, len(pairs), size):
        sources, targets = zip(*pairs[start : start + size], strict=True)
        yield Batch(*pad(sources), *pad(targets))


def shown_entries(expected: Float[np.ndarray, " entries"]) -> Int[np.ndarray, " shown"]:
    """Return the largest entries, since most are close to zero, and as many at random."""
    random = np.random.default_rng(0).permutation(len(expected))
    return np.unique([*np.argsort(-np.abs(expected))[:POINTS], *random[:POINTS]])


def first_pairs(task: Task, count: int) -> list[Pair]:
    """Return the first training sentences, without end tokens; an artificial task makes as many."""
    if isinstance(task, TextTask):
        part = task.part("training")
        return [(x[:-1], y[:-1]) for x, y in zip(part.source[:count], part.target[:count], strict=True)]
    batch = task.training_batch(0, 0, count)
    return [(x[:-1], y[:-1]) for x, y in zip(batch.source.numpy(), batch.target.numpy(), strict=True)]


def renumber(pairs: list[Pair]) -> tuple[list[Pair], int, int]:
    """Return the pairs with ids for the words that occur in them, and the number of words on either side."""
    (source, sources), (target, targets) = (compact_ids([pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(source, target, strict=True)), sources, targets


def compact_ids(sentences: Sequence[Sequence[int] | np.ndarray]) -> tuple[list[np.ndarray], int]:
    words, ids = np.unique(np.concatenate(sentences), return_inverse=True)
    return np.split(ids, np.cumsum([len(sentence) for sentence in sentences])[:-1]), len(words)


# Claims and table ----------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts: list[ClaimVerdict] = []
    for label in measured:
        seeds = measured[label]
        falls = f"{label}: the error of eq. 53 falls with every doubling of d"
        verdicts.append(proportion(falls, [bool((np.diff(m["logits"]) < 0).all()) for m in seeds]))
        for name in ("logits", "probabilities"):
            text, slopes = f"{label}: {ERRORS[name]}: the error falls like 1/√d", [m["slope"][name] for m in seeds]
            verdicts.append(at_most(f"{text} (as d to a power of at most −0.4)", slopes, -0.4))
            verdicts.append(at_least(f"{text} (as d to a power of at least −0.6)", slopes, -0.6))
        alike = f"{label}: at the largest d, d(We)/dτ and the counts correlate by at least 0.95"
        printed = f"{label}: as eq. 15 is printed, without the softmax, dθ/dτ does not converge"
        verdicts.append(at_least(alike, [m["correlation"][-1] for m in seeds], 0.95))
        ends = [m["printed"][-1] for m in seeds]
        verdicts.append(at_least(f"{printed} (relative error at the largest d at least 0.9)", ends, 0.9))
    return verdicts


def table(measured: Measurements) -> list[Row]:
    rows: list[Row] = []
    for label in measured:
        seeds = measured[label]
        rows.append(row(corpus=label, d="", quantity="output words", values=[m["outputs"] for m in seeds]))
        for name, text in {**ERRORS, "correlation": "correlation of d(We)/dτ with 2 (C − mean C)"}.items():
            quantity = f"relative error: {text}" if name in ERRORS else text
            for i, width in ((0, "smallest"), (-1, "largest")):
                d = f"{seeds[0]['widths'][i]:,}" if seeds else width
                rows.append(row(corpus=label, d=d, quantity=quantity, values=[m[name][i] for m in seeds]))
            if name in ERRORS:
                slopes = [m["slope"][name] for m in seeds]
                rows.append(row(corpus=label, d="all", quantity=f"power of d: {text}", values=slopes))
    return rows


# Drawing -------------------------------------------------------------------------------------------------------------


def figure(measured: Measurements) -> FigureData:
    """Return, by corpus, mean errors by width, and entries of the two tables by width."""
    return {
        label: {
            "widths": measured.first(label)["widths"],
            "errors": {name: np.mean(measured.per_seed(label, name), 0) for name in ERRORS},
            "points": measured.first(label)["points"],
        }
        for label in measured
    }


def draw(data: FigureData) -> Figure:
    picture, panels = plots.panels(len(data), 2, size=(5.6, 3.8))
    for (label, panel), left, right in zip(data.items(), panels[::2], panels[1::2], strict=True):
        draw_errors(panel, left)
        left.set_title(f"{label}: distance from the counts")
        draw_points({f"d = {width}": np.array(both) for width, both in panel["points"].items()}, right)
        right.set_title(f"{label}: entries of the two tables")
    return picture


def draw_errors(panel: FigureData, ax: Axes) -> None:
    widths = np.array(panel["widths"], dtype=float)
    curves = {SHORT[name]: np.array(errors) for name, errors in panel["errors"].items()}
    reference = curves[SHORT["logits"]][0] * np.sqrt(widths[0] / widths)
    plots.profiles(widths, {**curves, "1/√d": reference}, ax=ax, xlabel="d", ylabel="relative error (Frobenius)")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")


def draw_points(points: Mapping[str, np.ndarray], ax: Axes) -> None:
    paint = plots.colours(points)
    dots = [
        ax.scatter(both[0], both[1], s=9, color=paint[name], alpha=0.6, linewidths=0) for name, both in points.items()
    ]
    expected = np.concatenate([both[0] for both in points.values()])
    ends = [expected.min(), expected.max()]
    ax.plot(ends, ends, color="black", linewidth=1, linestyle="--")
    with plots.style():
        legend(axes(ax), dots, list(points))
    name_axes(ax, "2 (C − mean C)", "d(We)/dτ at τ = 0")


EQ15 = Finding(
    name="eq15",
    title="The proxy begins by counting which words occur together",
    section="§4.1, eq. 15; A.2, eq. 53",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "Double precision; the derivative is exact, at τ = 0, of the loss summed over all sentence pairs. C is the "
        "count table of IBM Model 1 (eq. 16), over the words of these pairs; end tokens are left out.",
        "Equation 15 gives for dθ/dτ what equation 53 gives for the logits We: the step from eq. 53 to 54 leaves out "
        "the softmax, whose derivative at the uniform θ is 1/|O|. Both are shown.",
        "What this does not show: how long the proxy keeps to its first direction, or how a network with attention "
        "does; figure 2 and table 2 are about that.",
    ),
    seeds=lambda sizes: int(sizes.counting.initialisations),
)  # fmt: skip
