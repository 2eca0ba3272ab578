"""Does the proxy begin to learn by counting? Its first derivative against the count table. (snell2021 §4.1, A.2)

With every e_i and W_o from N(0, I / d), gradient flow on the summed loss begins with d(We)/dτ = 2 (C − mean C) as d
grows (eq. 53; the mean is over output words). θ is the softmax of We, uniform at first, so dθ/dτ is that over the
number |O| of output words. Equation 15 prints it without |O|.
"""

# TODO(docstring) join:
#   In which direction does the bag-of-words proxy begin to learn? (snell2021 §4.1, A.2)
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope import plots
from attnscope.models import BagOfWords, BagOfWordsSettings
from attnscope.models.ibm import Bags, Pair
from attnscope.plots.style import axes, legend, name_axes
from attnscope.studies.claims import ClaimVerdict, always, at_least, at_most
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import MULTI30K, identified, in_words
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import Batch, Copying, Task, TextTask, pad

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MADE_UP, REAL = "made up", "Multi30k"
POINTS = 200  # entries of the tables in a picture: the largest, and others

ERRORS = {
    "logits": "d(We)/dτ against 2 (C − mean C), eq. 53",
    "probabilities": "dθ/dτ against 2 (C − mean C) / |O|",
    "printed": "dθ/dτ against 2 (C − mean C), eq. 15 as printed",
}


@dataclass(frozen=True)
class Flow:
    """The first sentence pairs of a task, and the widths d of the proxies that meet them."""

    task: Task
    pairs: int
    widths: tuple[int, ...]


def experiments(sizes: Sizes) -> dict[str, Case]:
    """Five words of twenty, copied; and sentences of a corpus, in words."""

    def flow(task: Task) -> Case:
        return Case(settings=Flow(task, sizes.counting.pairs, sizes.counting.widths))

    return {
        MADE_UP: flow(Copying(distribution="sampled", num_words=20, length=5)),
        REAL: case_unless_missing(lambda: flow(identified(in_words(MULTI30K)))),
    }


# What is measured ---------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    flow: Flow = subject.settings
    pairs, sources, targets = renumbered(first_pairs(flow.task, flow.pairs))
    counts = torch.from_numpy(Bags.of(pairs, sources, targets).cooccurrences().toarray()).to(subject.device)
    expected = 2 * (counts - counts.mean(1, keepdim=True))  # source words x target words
    found = [compared(pairs, expected, width, subject) for width in flow.widths]
    return {
        "widths": list(flow.widths),
        "outputs": targets,
        **{name: [each[name] for each in found] for name in (*ERRORS, "correlation")},
        "slope": {name: slope(flow.widths, [each[name] for each in found]) for name in ERRORS},
        "points": {str(width): found[i]["points"] for i, width in ((0, flow.widths[0]), (-1, flow.widths[-1]))},
    }


def compared(
    pairs: list[Pair], expected: Float[Tensor, "sources targets"], width: int, subject: TrainedCase
) -> dict[str, Any]:
    """How far the derivatives of one proxy are from what is expected, relative to it (Frobenius norm)."""
    torch.manual_seed(subject.seed)
    proxy = BagOfWords(BagOfWordsSettings(size=width), *expected.shape).double().to(subject.device)
    logits = first_derivative(proxy, pairs)
    probabilities = through_softmax(proxy.translations(), logits)
    outputs = expected.shape[1]
    both = torch.stack([expected.flatten(), logits.flatten()])
    return {
        "logits": relative_error(logits, expected),
        "probabilities": relative_error(probabilities, expected / outputs),
        "printed": relative_error(probabilities, expected),
        "correlation": both.corrcoef()[0, 1].item(),
        "points": both.cpu()[:, shown(expected.flatten().cpu().numpy())],
    }


def shown(expected: Float[np.ndarray, " entries"]) -> Int[np.ndarray, " shown"]:
    """The largest entries, most of all being close to zero, and as many at random."""
    random = np.random.default_rng(0).permutation(len(expected))
    return np.unique([*np.argsort(-np.abs(expected))[:POINTS], *random[:POINTS]])


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def slope(widths: tuple[int, ...], errors: list[float]) -> float:
    """The power of d that the error falls with: −1/2, by the central limit theorem (eq. 47 to 49)."""
    return float(np.polyfit(np.log(widths), np.log(errors), 1)[0])


def first_pairs(task: Task, count: int) -> list[Pair]:
    """The first training sentences, without end tokens; a made-up task makes as many."""
    if isinstance(task, TextTask):
        part = task.part("training")
        return [(x[:-1], y[:-1]) for x, y in zip(part.source[:count], part.target[:count], strict=True)]
    batch = task.training_batch(0, 0, count)
    return [(x[:-1], y[:-1]) for x, y in zip(batch.source.numpy(), batch.target.numpy(), strict=True)]


def renumbered(pairs: list[Pair]) -> tuple[list[Pair], int, int]:
    """The same pairs with numbers for the words that they hold only, and how many these are on either side."""
    (source, sources), (target, targets) = (numbers_of([pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(source, target, strict=True)), sources, targets


def numbers_of(sentences: list[Any]) -> tuple[list[np.ndarray], int]:
    words, numbers = np.unique(np.concatenate(sentences), return_inverse=True)
    return np.split(numbers, np.cumsum([len(sentence) for sentence in sentences])[:-1]), len(words)


# What is claimed and shown ------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [verdict for label in measured for verdict in claims_of(label, measured)]


def claims_of(label: str, measured: Measurements) -> list[ClaimVerdict]:
    found = measured[label]
    falls = f"{label}: the error of eq. 53 falls with every doubling of d"
    alike = f"{label}: at the largest d, d(We)/dτ and the counts correlate by at least 0.95"
    printed = (
        f"{label}: without the softmax, as eq. 15 is printed, dθ/dτ does not converge (relative error at the largest d "
        "at least 0.9)"
    )
    return [
        always(falls, [bool((np.diff(m["logits"]) < 0).all()) for m in found]),
        *(
            verdict
            for name in ("logits", "probabilities")
            for verdict in like_a_root(f"{label}: {ERRORS[name]}", [m["slope"][name] for m in found])
        ),
        at_least(alike, [m["correlation"][-1] for m in found], 0.95),
        at_least(printed, [m["printed"][-1] for m in found], 0.9),
    ]


def like_a_root(what: str, slopes: list[float]) -> list[ClaimVerdict]:
    text = f"{what}: the error falls like 1/√d"
    return [
        at_most(f"{text} (as d to a power of at most −0.4)", slopes, -0.4),
        at_least(f"{text} (as d to a power of at least −0.6)", slopes, -0.6),
    ]


def table(measured: Measurements) -> list[Row]:
    rows = []
    for label in measured:
        rows += [row(corpus=label, d="", quantity="output words", values=[m["outputs"] for m in measured[label]])]
        for name, text in {**ERRORS, "correlation": "correlation of d(We)/dτ with 2 (C − mean C)"}.items():
            said = f"relative error: {text}" if name in ERRORS else text
            for i, width in ((0, "smallest"), (-1, "largest")):
                d = f"{measured.first(label)['widths'][i]:,}" if measured[label] else width
                rows.append(row(corpus=label, d=d, quantity=said, values=[m[name][i] for m in measured[label]]))
            if name in ERRORS:
                slopes = [m["slope"][name] for m in measured[label]]
                rows.append(row(corpus=label, d="all", quantity=f"power of d: {text}", values=slopes))
    return rows


def figure(measured: Measurements) -> Any:
    return {
        label: {
            "widths": measured.first(label)["widths"],
            "errors": {name: np.mean([m[name] for m in measured[label]], 0) for name in ERRORS},
            "points": measured.first(label)["points"],
        }
        for label in measured
    }


def draw(data: Any) -> "Figure":
    picture, panels = plots.panels(len(data), 2, size=(5.6, 3.8))
    for label, left, right in zip(data, panels[::2], panels[1::2], strict=True):
        draw_errors(data[label], left, label)
        draw_points(data[label]["points"], right, label)
    return picture


def draw_errors(found: Any, ax: Any, label: str) -> None:
    widths = np.array(found["widths"], dtype=float)
    short = {"logits": "d(We)/dτ, eq. 53", "probabilities": "dθ/dτ, over |O|", "printed": "dθ/dτ, eq. 15"}
    curves = {short[name]: np.array(errors) for name, errors in found["errors"].items()}
    guide = curves[short["logits"]][0] * np.sqrt(widths[0] / widths)
    plots.profiles(widths, {**curves, "1/√d": guide}, ax=ax, xlabel="d", ylabel="relative error (Frobenius)")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_title(f"{label}: how far from the counts")


def draw_points(points: Any, ax: Any, label: str) -> None:
    ends = {f"d = {width}": np.array(both) for width, both in points.items()}
    paint = plots.colours(ends)
    dots = [ax.scatter(*both, s=9, color=paint[name], alpha=0.6, linewidths=0) for name, both in ends.items()]
    expected = np.concatenate([both[0] for both in ends.values()])
    reach = [expected.min(), expected.max()]
    ax.plot(reach, reach, color="black", linewidth=1, linestyle="--")
    with plots.style():
        axes(ax)
        legend(ax, dots, list(ends))
    name_axes(ax, "2 (C − mean C)", "d(We)/dτ at τ = 0")
    ax.set_title(f"{label}: entries of the two tables")


EQ15 = Finding(
    name="eq15",
    title="The proxy begins by counting which words occur together",
    section="§4.1, eq. 15; A.2, eq. 53",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "Double precision; the derivative is exact, at τ = 0, of the loss summed over all sentence pairs. C is the "
        "count table of IBM Model 1 (eq. 16), over the words that these pairs hold; end tokens are left out.",
        "Equation 15 gives for dθ/dτ what equation 53 gives for the logits We: the step from eq. 53 to 54 leaves out "
        "the softmax, whose derivative at the uniform θ is 1/|O|. Both are shown.",
        "What this does not show: how long the proxy keeps to its first direction, or how a network with attention "
        "does; figure 2 and table 2 are about that.",
    ),
    seeds=lambda sizes: int(sizes.counting.initialisations),
)  # fmt: skip


AT_A_TIME = 1 << 24  # numbers in the embeddings of the sentences that are held at a time


def first_derivative(proxy: BagOfWords, pairs: list[Pair]) -> Float[Tensor, "sources targets"]:
    """d(We)/dτ under gradient flow: de/dτ = −dL/de and dW/dτ = −dL/dW, for the loss summed over all pairs."""
    e, w = proxy.embedding, proxy.output.weight
    of_e, of_w = torch.zeros_like(e), torch.zeros_like(w)
    for batch in pair_batches(pairs, proxy.settings.size):
        of_one = torch.autograd.grad(proxy.total_loss(batch.to(e.device)), (e, w))
        of_e, of_w = of_e + of_one[0], of_w + of_one[1]
    return -(of_e @ w.T + e @ of_w.T).detach()


def through_softmax(
    probabilities: Float[Tensor, "sources targets"], logits: Float[Tensor, "sources targets"]
) -> Float[Tensor, "sources targets"]:
    """dθ/dτ, given θ and the derivative of its logits."""
    return probabilities * (logits - (probabilities * logits).sum(1, keepdim=True))


def pair_batches(pairs: list[Pair], width: int) -> Iterator[Batch]:
    """All pairs, as many at a time as memory allows."""
    longest = max(len(source) for source, _ in pairs)
    size = max(1, AT_A_TIME // (width * longest))
    for start in range(0, len(pairs), size):
        sources, targets = zip(*pairs[start : start + size], strict=True)
        yield Batch(*pad(sources), *pad(targets))
