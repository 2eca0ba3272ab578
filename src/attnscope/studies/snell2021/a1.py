"""Is attention best off where β is large? The optimal attention against the lexical probe. (snell2021 A.1)

Not always: with the logits of eq. 29 the best attention leaves out the position with the largest β. But mostly: the
paper's network with p = σ(W(c + d)), whose loss is convex in the attention, has A(α^opt, β) = .53 on Multi30k.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import PRESETS, EncoderDecoder
from attnscope.models.inference import evaluating
from attnscope.probes.agreement import Agreement, AgreementAccumulator
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.optimal import OptimalAttention, minimise, one_head, solve_optimal_attention
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, always, at_least, at_most, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, published_by
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import PAPER
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import Batch, Translation
from attnscope.training.evaluation import bleu, sample_sentences

if TYPE_CHECKING:
    from matplotlib.figure import Figure

published = published_by("snell2021")

EXAMPLE, CORPUS = "counter-example", "Multi30k"
TOGETHER = 16  # sentences in a batch
ZERO = 1e-4  # what counts as no attention


@dataclass(frozen=True)
class CounterExample:
    """γ of three positions for three output words, of which the first is right (eq. 29)."""

    logits: tuple[tuple[float, ...], ...] = ((0.0, 0.0, 0.0), (0.0, -10.0, 5.0), (0.0, 5.0, -10.0))


@dataclass(frozen=True)
class Optimised:
    """How many validation sentences are measured, and whether the network was trained as long as the paper's."""

    sentences: int
    whole: bool


def experiments(sizes: Sizes) -> dict[str, Case]:
    chosen = sizes.counting.optimal
    network = Experiment(chosen.task, chosen.network(PRESETS["translation_linear"]), chosen.training)
    whole = (chosen.units, chosen.steps) == (PAPER.optimal.units, PAPER.optimal.steps)
    return {
        EXAMPLE: Case(settings=CounterExample()),
        CORPUS: Case({"network": network}, Optimised(chosen.sentences, whole)),
    }


# What is measured ---------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    if isinstance(subject.settings, CounterExample):
        return solved(subject.settings)
    return agreed(subject.runs["network"], subject.settings)


def solved(example: CounterExample) -> Measurement:
    """The best attention of the counter-example, and β."""
    places = torch.tensor(example.logits)
    gold, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, len(places), dtype=torch.bool)
    problem = one_head(places[None], torch.zeros(1, 1, places.shape[1]), gold, mask)
    weights, _ = minimise(problem, torch.ones_like(gold, dtype=torch.bool))
    probe = places.softmax(-1)[:, 0]
    numbers = {f"attention_{i}": weights[0, 0, i - 1].item() for i in range(1, len(places) + 1)}
    return numbers | {f"lexical_{i}": probe[i - 1].item() for i in range(1, len(places) + 1)}


def agreed(run: Run, settings: Optimised) -> Measurement:
    model, task = run.model(decoding="teacher_forced"), run.task
    assert isinstance(model, EncoderDecoder)
    assert isinstance(task, Translation)
    best, own, losses = AgreementAccumulator(), AgreementAccumulator(), list[Any]()
    for batch in batches(task, settings.sentences):
        with evaluating(model):
            trace = model(batch.to(run.experiment.device))
        found, probe = solve_optimal_attention(model, trace), lexical_scores(model, trace).log_odds.double()
        best.update(found.scores().values, probe, trace)
        own.update(trace.attention.mean(1).double(), probe, trace)
        losses.append(sums(found))
    translated = bleu(model, task, most=settings.sentences)
    return {
        "whole": settings.whole,
        **named(best.result(), own.result()),
        **averages(losses),
        "bleu": translated.score,
        "signature": translated.signature,
        "sentences": translated.sentences,
    }


def batches(task: Translation, count: int) -> Iterator[Batch]:
    """Validation sentences of similar length together."""
    part = task.part("validation")
    chosen = sample_sentences(part, count)
    for start in range(0, len(chosen), TOGETHER):
        yield part.batch(chosen[start : start + TOGETHER])


def named(best: Agreement, own: Agreement) -> dict[str, float]:
    return {"agreement": best.top, "chance": best.chance, "kendall": best.kendall, "attention_lexical": own.top}


def sums(found: OptimalAttention) -> tuple[float, float, int, float]:
    words = int(found.target_mask.sum())
    gap = float(found.gap.nan_to_num(0.0).max())
    return found.loss.nansum().item(), found.own_loss.nansum().item(), words, gap


def averages(losses: list[tuple[float, float, int, float]]) -> dict[str, float]:
    best, own, words, gaps = zip(*losses, strict=True)
    return {"loss": sum(best) / sum(words), "own_loss": sum(own) / sum(words), "gap": max(gaps)}


# What is claimed and shown ------------------------------------------------------------------------------------------

IN_EXAMPLE = {f"attention_{i}": f"α^opt of position {i}" for i in (1, 2, 3)} | {
    f"lexical_{i}": f"β of position {i}" for i in (1, 2, 3)
}
IN_CORPUS = {
    "agreement": "A(α^opt, β)",
    "chance": "A(α^opt, β) by chance",
    "kendall": "Kendall's τ of α^opt and β",
    "attention_lexical": "A(α, β)",
    "loss": "loss with α^opt, nats a word",
    "own_loss": "loss with the network's own α",
    "gap": "largest gap to the least loss, nats",
    "sentences": "validation sentences",
}
SHOWN = {"agreement": "A(α^opt, β)", "attention_lexical": "A(α, β)", "chance": "by chance"}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        always(
            "counter-example: the best attention is (0, ½, ½)",
            [
                max(abs(m[f"attention_{i}"] - value) for i, value in ((1, 0.0), (2, 0.5), (3, 0.5))) <= ZERO
                for m in measured[EXAMPLE]
            ],
        ),
        always(
            "counter-example: the position with the largest β gets no attention",
            [
                m["lexical_1"] > max(m["lexical_2"], m["lexical_3"]) and m["attention_1"] <= ZERO
                for m in measured[EXAMPLE]
            ],
        ),
        more_than(
            "Multi30k: β agrees with the optimal attention more than by chance",
            measured.values(CORPUS, "agreement"),
            measured.values(CORPUS, "chance"),
        ),
        *as_published(measured),
    ]


def as_published(measured: Measurements) -> list[ClaimVerdict]:
    """The paper's two numbers, which a network of half the size or a tenth of the steps cannot be asked for."""
    asked = [
        (at_least, "Multi30k: A(α^opt, β) is about .53 (at least .48)", "agreement", 0.48),
        (at_most, "Multi30k: A(α^opt, β) is about .53 (at most .58)", "agreement", 0.58),
        (at_least, "Multi30k: BLEU is comparable to 38.2 (at least 35.2)", "bleu", 35.2),
    ]
    if not all(m["whole"] for m in measured[CORPUS]):
        return [untested(text, "this profile trains a smaller network for fewer steps") for _, text, _, _ in asked]
    return [judge(text, measured.values(CORPUS, name), threshold) for judge, text, name, threshold in asked]


def table(measured: Measurements) -> list[Row]:
    signatures = {m["signature"] for m in measured[CORPUS]}
    return [
        *measured.only(EXAMPLE).table(IN_EXAMPLE, lambda _, name: published("counter_example", name)),
        *measured.only(CORPUS).table(IN_CORPUS, lambda _, name: published("optimal_multi30k", name)),
        row(
            model=CORPUS,
            quantity=f"BLEU ({'; '.join(signatures)})" if signatures else "BLEU",
            values=measured.values(CORPUS, "bleu"),
            **published("optimal_multi30k", "bleu"),
        ),
    ]


def figure(measured: Measurements) -> Any:
    return {
        "example": measured.first(EXAMPLE),
        "corpus": {text: measured.values(CORPUS, name) for name, text in SHOWN.items()},
        "published": {SHOWN["agreement"]: published("optimal_multi30k", "agreement")["published"]},
    }


def draw(data: Any) -> "Figure":
    picture, (left, right) = plots.panels(1, 2, size=(5.0, 3.4))
    example = {
        name: {f"position {i}": data["example"][f"{key}_{i}"] for i in (1, 2, 3)}
        for key, name in {"lexical": "β", "attention": "α^opt"}.items()
    }
    plots.bars(pd.DataFrame(example), ax=left, ylabel="probability")
    left.set_title("the counter-example of eq. 29")
    theirs = {name: {"published": value} for name, value in data["published"].items()}
    agreements = {name: {"ours": bar_values(seeds, theirs.get(name))} for name, seeds in data["corpus"].items()}
    draw_bars(agreements, right, "agreement", dots=True)
    right.set_title("Multi30k, p = σ(W(c + d))")
    return picture


A1 = Finding(
    name="a1",
    title="The optimal attention and the lexical probe",
    section="A.1",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "α^opt of every output word is found by an interior-point method whose remaining gap to the least loss is "
        "proven; gold words before it are given. Agreement is top-5 % (eq. 10), start and end tokens included; "
        "positions are compared by γ, which orders them as β does.",
        "The author's code and the paper do not say which sentences were measured; ours are of the validation set. "
        "BLEU is that of greedy translations.",
        "What this does not show: that attention learns to be optimal; the rows of losses say how far it is from that.",
    ),
)  # fmt: skip
