"""Does optimal attention put its weight where β is large? (snell2021 A.1)

Not always: with the logits of eq. 29 the best attention leaves out the position with the largest β. But mostly: the
paper's network with p = σ(W(c + d)), whose loss is convex in the attention, has A(α^opt, β) = .53 on Multi30k. The
paper finds α^opt by gradient descent; that of a few steps stands beside the optimum.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import PRESETS, EncoderDecoder
from attnscope.models.inference import evaluating
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.optimal import Problem, as_problem, gradient, minimise, one_head, solve_optimal_attention
from attnscope.probes.scores import over_words
from attnscope.studies.bars import BarValues, draw_bars
from attnscope.studies.claims import ClaimVerdict, at_least, at_most, equivalent, exact, untested
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, TrainedCase
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import PAPER
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.tasks import Batch, Translation
from attnscope.training.evaluation import bleu, sample_sentences

EXAMPLE, CORPUS = "counter-example", "Multi30k"
BATCH_SIZE = 16
ZERO = 1e-4  # attention below this counts as none
DESCENT_STEPS = (10, 100, 1000)  # of gradient descent from uniform attention; the paper gives neither steps nor rate
DESCENT_RATE = 1.0


@dataclass(frozen=True)
class CounterExample:
    """γ of three positions for three output words, of which the first is right (eq. 29)."""

    logits: tuple[tuple[float, ...], ...] = ((0.0, 0.0, 0.0), (0.0, -10.0, 5.0), (0.0, 5.0, -10.0))


@dataclass(frozen=True)
class OptimalSettings:
    """The number of validation sentences, and whether the network is trained as the paper's."""

    sentences: int
    whole: bool


def experiments(sizes: Sizes) -> dict[str, Case]:
    optimal = sizes.counting.optimal
    network = Experiment(optimal.task, optimal.network(PRESETS["translation_linear"]), optimal.training)
    whole = (optimal.units, optimal.steps) == (PAPER.optimal.units, PAPER.optimal.steps)
    return {
        EXAMPLE: Case(settings=CounterExample()),
        CORPUS: Case({"network": network}, OptimalSettings(optimal.sentences, whole)),
    }


# Measurement ---------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[CounterExample | OptimalSettings]) -> Measurement:
    if isinstance(subject.settings, CounterExample):
        return solve_example(subject.settings)
    return optimal_on_corpus(subject.runs["network"], subject.settings)


def solve_example(example: CounterExample) -> Measurement:
    """Return the optimal attention of the counter-example, and β."""
    logits = torch.tensor(example.logits)
    gold, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, len(logits), dtype=torch.bool)
    problem = one_head(logits[None], torch.zeros(1, 1, logits.shape[1]), gold, mask)
    weights, _ = minimise(problem, torch.ones_like(gold, dtype=torch.bool))
    scores = {"attention": weights[0, 0], "lexical": logits.softmax(-1)[:, 0]}
    return {f"{name}_{i}": value for name, values in scores.items() for i, value in enumerate(values.tolist(), 1)}


def optimal_on_corpus(run: Run, settings: OptimalSettings) -> Measurement:
    """Return the agreement of optimal attention with β, both losses per word, and BLEU."""
    model, task = run.model(decoding="teacher_forced"), run.task
    assert isinstance(model, EncoderDecoder)
    assert isinstance(task, Translation)
    best, own = AgreementAccumulator(), AgreementAccumulator()
    by_descent = {steps: AgreementAccumulator() for steps in DESCENT_STEPS}
    losses, own_losses, words, gaps = list[float](), list[float](), 0, list[float]()
    for batch in validation_batches(task, settings.sentences):
        with evaluating(model):
            trace = model(batch.to(run.experiment.device))
        solution, probe = solve_optimal_attention(model, trace), lexical_scores(model, trace).log_odds.double()
        best.update(solution.scores().values, probe, trace)
        own.update(trace.attention.mean(1).double(), probe, trace)
        for steps, weights in descend(as_problem(model, trace)):
            by_descent[steps].update(over_words(weights, trace.source_mask, trace.target_mask), probe, trace)
        losses.append(solution.loss.nansum().item())
        own_losses.append(solution.own_loss.nansum().item())
        words += int(solution.target_mask.sum())
        gaps.append(float(solution.gap.nan_to_num(0.0).max()))
    agreement, translations = best.result(), bleu(model, task, max_sentences=settings.sentences)
    return {
        "whole": settings.whole,
        "agreement": agreement.top,
        "chance": agreement.chance,
        "kendall": agreement.kendall,
        "attention_lexical": own.result().top,
        **{f"agreement_{steps}": by_descent[steps].result().top for steps in DESCENT_STEPS},
        "loss": sum(losses) / words,
        "own_loss": sum(own_losses) / words,
        "gap": max(gaps),
        "bleu": translations.score,
        "signature": translations.signature,
        "sentences": translations.sentences,
    }


@torch.no_grad()
def descend(problem: Problem) -> Iterator[tuple[int, Float[Tensor, "batch target places"]]]:
    """Yield attention after some steps of gradient descent on its logits, which start at zero."""
    closed = ~problem.open[:, None]
    logits = problem.fixed.new_zeros(*problem.fixed.shape[:2], problem.places.shape[1])
    for step in range(1, max(DESCENT_STEPS) + 1):
        weights = logits.masked_fill(closed, -torch.inf).softmax(-1)
        slope = gradient(problem, weights)
        logits = logits - DESCENT_RATE * weights * (slope - (weights * slope).sum(-1, keepdim=True))
        if step in DESCENT_STEPS:
            yield step, logits.masked_fill(closed, -torch.inf).softmax(-1)


def validation_batches(task: Translation, count: int) -> Iterator[Batch]:
    """Yield validation sentences in batches of similar length."""
    part = task.part("validation")
    sentences = sample_sentences(part, count)
    for start in range(0, len(sentences), BATCH_SIZE):
        yield part.batch(sentences[start : start + BATCH_SIZE])


# Claims, table and figure --------------------------------------------------------------------------------------------

EXAMPLE_QUANTITIES = {f"attention_{i}": f"α^opt of position {i}" for i in (1, 2, 3)} | {
    f"lexical_{i}": f"β of position {i}" for i in (1, 2, 3)
}
CORPUS_QUANTITIES = {
    "agreement": "A(α^opt, β)",
    "chance": "A(α^opt, β) by chance",
    "kendall": "Kendall's τ of α^opt and β",
    "attention_lexical": "A(α, β)",
    **{f"agreement_{steps}": f"A(α, β) after {steps} steps of gradient descent" for steps in DESCENT_STEPS},
    "loss": "loss with α^opt, nats per word",
    "own_loss": "loss with the network's own α",
    "gap": "largest gap to the minimal loss, nats",
    "sentences": "validation sentences",
}
SHOWN = {"agreement": "A(α^opt, β)", "attention_lexical": "A(α, β)", "chance": "by chance"}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    best = [
        max(abs(m[f"attention_{i}"] - value) for i, value in ((1, 0.0), (2, 0.5), (3, 0.5))) <= ZERO
        for m in measured[EXAMPLE]
    ]
    ignored = [
        m["lexical_1"] > max(m["lexical_2"], m["lexical_3"]) and m["attention_1"] <= ZERO for m in measured[EXAMPLE]
    ]
    above = "Multi30k: β agrees with the optimal attention more than by chance"
    return [
        exact("counter-example: the best attention is (0, ½, ½)", best),
        exact("counter-example: the position with the largest β gets no attention", ignored),
        measured.greater(above, CORPUS, "agreement", "chance"),
        *claims_as_published(measured),
    ]


def claims_as_published(measured: Measurements) -> list[ClaimVerdict]:
    """Claim the paper's two numbers, which need a network of its size and training."""
    thresholds = [
        (at_least, "Multi30k: A(α^opt, β) is about .53 (at least .48)", "agreement", 0.48),
        (at_most, "Multi30k: A(α^opt, β) is about .53 (at most .58)", "agreement", 0.58),
        (at_least, "Multi30k: BLEU is comparable to 38.2 (at least 35.2)", "bleu", 35.2),
    ]
    stopped = {f"agreement_{n}": f"Multi30k: A(α, β) is .53 ± .05 after {n} steps of descent" for n in DESCENT_STEPS}
    if not all(measured.flags(CORPUS, "whole")):
        texts = [*(text for _, text, _, _ in thresholds), *stopped.values()]
        return [untested(text, "this profile trains a smaller network for fewer steps") for text in texts]
    return [
        *(judge(text, measured.values(CORPUS, name), threshold) for judge, text, name, threshold in thresholds),
        *(equivalent(text, measured.values(CORPUS, name), 0.53, 0.05) for name, text in stopped.items()),
    ]


def table(measured: Measurements) -> list[Row]:
    signatures = set(measured.per_seed(CORPUS, "signature"))
    return [
        *measured.only(EXAMPLE).table(EXAMPLE_QUANTITIES, lambda _, name: published("counter_example", name)),
        *measured.only(CORPUS).table(CORPUS_QUANTITIES, lambda _, name: published("optimal_multi30k", name)),
        row(
            model=CORPUS,
            quantity=f"BLEU ({'; '.join(signatures)})" if signatures else "BLEU",
            values=measured.values(CORPUS, "bleu"),
            **published("optimal_multi30k", "bleu"),
        ),
    ]


def figure(measured: Measurements) -> FigureData:
    """Return the counter-example; agreements of each seed, and the published one."""
    return {
        "example": measured.first(EXAMPLE),
        "corpus": {text: measured.values(CORPUS, name) for name, text in SHOWN.items()},
        "published": {SHOWN["agreement"]: published("optimal_multi30k", "agreement")["published"]},
    }


def draw(data: FigureData) -> Figure:
    picture, (left, right) = plots.panels(1, 2, size=(5.0, 3.4))
    example = {
        text: {f"position {i}": data["example"][f"{name}_{i}"] for i in (1, 2, 3)}
        for name, text in {"lexical": "β", "attention": "α^opt"}.items()
    }
    plots.bars(pd.DataFrame(example), ax=left, ylabel="probability")
    left.set_title("the counter-example of eq. 29")
    agreements = {
        name: {"ours": BarValues(ours=seeds, published=data["published"].get(name))}
        for name, seeds in data["corpus"].items()
    }
    draw_bars(agreements, right, "agreement", dots=True)
    right.set_title("Multi30k, p = σ(W(c + d))")
    return picture


A1 = Finding(
    name="a1",
    title="The optimal attention and the lexical probe",
    section="A.1",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "α^opt of every output word is found by an interior-point method with a proven bound on its gap to the "
        "minimum, under teacher forcing. Agreement is top-5 % (eq. 10), start and end tokens included; positions are "
        "compared by γ, which orders them as β does.",
        f"The paper finds α^opt by gradient descent and says no more of it. Ours is that of logits of the attention, "
        f"from uniform attention, at a rate of {DESCENT_RATE:g}; rows and claims on it were added after the optimum "
        "had been seen and before any descent was run.",
        "The author's code and the paper do not say which sentences were measured; ours are of the validation set. "
        "BLEU is that of greedy translations.",
        "What this does not show: that attention learns to be optimal; the rows of losses say how far it is from that.",
    ),
)  # fmt: skip
