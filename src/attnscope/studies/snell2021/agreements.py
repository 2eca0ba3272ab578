"""Agreement of attention, lexical probe, saliency and proxies on one corpus. (snell2021 §3.1, §3.2, §5.1, A.6, A.10)

One measurement per corpus and seed: tables 2 to 8, 10 and 11 and figure 2 are read from it. Each checkpoint is loaded
once and evaluated on the sentences of both splits; scores that do not change during training are computed once.

A number is called `<split>.<metric>.<name>`. The name is a pair such as attention_uniform, for A(α, β^uf); with the
prefix chance_, its random baseline; with xi_, its ξ in accuracy; with bleu_, its ξ in BLEU; with starred_, whether that
ξ has an asterisk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from threadpoolctl import threadpool_limits
from torch import Tensor

from attnscope.lab.experiment import Run
from attnscope.models import BagOfWords, EncoderDecoder, Model, Trace
from attnscope.models.inference import traces
from attnscope.models.logistic import Regression, logistic_regression
from attnscope.probes.agreement import Agreement, AgreementAccumulator
from attnscope.probes.learning_curve import LearningCurve, OverTraining
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores, attention_scores
from attnscope.studies.finding import Measurement, TrainedCase
from attnscope.tasks import SPECIALS, Batch, Classification, TextTask, Translation
from attnscope.tasks.task import trimmed
from attnscope.training.evaluation import Bleu, bleu

METRICS = ("top", "kendall")  # the top 5 % of eq. 10; Kendall's τ

# What ξ is given of: the pairs of the paper's columns, and those that the author's code has in their place.
IN_CONTEXT = (
    "attention_uniform", "uniform_proxy", "saliency_uniform", "attention_lexical",
    "proxy_uniform", "saliency_uniform_most", "attention_lexical_again",
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A network during training: how what it says agrees with what is fixed, and how well it does."""

    step: int
    agreements: Mapping[str, Agreement]  # by pair
    accuracy: float
    bleu: Bleu | None = None


@dataclass(frozen=True)
class Answers:
    """All agreements on one split of a corpus."""

    courses: Mapping[str, Sequence[Checkpoint]]  # by part
    at_the_end: Mapping[str, Agreement]  # of finished networks
    with_uniform: Mapping[str, Mapping[str, Agreement]]  # with β^uf where it agrees best with α, by metric; and "last"

    def pairs(self, metric: str) -> dict[str, Agreement]:
        """Every pair; what was measured during training where it is highest (A.6, A.7), and two of them at the end."""
        highest = {
            pair: best(course, pair, metric).agreements[pair]
            for course in self.courses.values()
            for pair in course[0].agreements
        }
        return {
            **highest,
            "attention_again": self.courses["again"][-1].agreements["attention_again"],
            "attention_uniform_last": self.courses["uniform"][-1].agreements["attention_uniform"],
            **self.at_the_end,
            **self.with_uniform[metric],
            **{f"{pair}_last": agreement for pair, agreement in self.with_uniform["last"].items()},
        }

    def curve(self, part: str, metric: str) -> tuple[float, ...]:
        """How α and what this part says agree in the course of its training."""
        return tuple(value(checkpoint.agreements[f"attention_{part}"], metric) for checkpoint in self.courses[part])

    def steps(self, part: str) -> tuple[int, ...]:
        return tuple(checkpoint.step for checkpoint in self.courses[part])

    def learning_curves(self, metric: str) -> dict[str, LearningCurve]:
        """Another seed, its performance p̂(τ) as accuracy, and in translation also as BLEU."""
        again = self.courses["again"]
        performances = {"xi": [checkpoint.accuracy for checkpoint in again]}
        scores = [checkpoint.bleu.score for checkpoint in again if checkpoint.bleu]
        performances |= {"bleu": scores} if scores else {}
        steps, agreement = self.steps("again"), self.curve("again", metric)
        return {name: LearningCurve(steps, agreement, tuple(values)) for name, values in performances.items()}


def readings(answers: Mapping[str, Answers]) -> Measurement:
    """All numbers, and the curves for pictures."""
    named = {
        f"{split}.{metric}.{what}": number
        for split, on_split in answers.items()
        for metric in METRICS
        for what, number in numbers(on_split, metric).items()
    }
    counted = [c.bleu.signature for on_split in answers.values() for c in on_split.courses["again"] if c.bleu]
    pictures = {split: curves(on_split) for split, on_split in answers.items()}
    return named | {"curves": pictures, "signature": counted[0] if counted else ""}


def numbers(answers: Answers, metric: str) -> dict[str, Any]:
    pairs = answers.pairs(metric)
    uniform = OverTraining(answers.steps("uniform"), answers.curve("uniform", metric))
    return {
        **{pair: value(agreement, metric) for pair, agreement in pairs.items()},
        **{f"chance_{pair}": chance(agreement, metric) for pair, agreement in pairs.items()},
        "best_step": uniform.best_step,
        "rises_then_falls": rises_then_falls(uniform),
        **in_context(answers, metric),
    }


def in_context(answers: Answers, metric: str) -> dict[str, Any]:
    """ξ of the pairs, ξ* when training ended, and how the network did before it began."""
    found: dict[str, Any] = {}
    pairs = answers.pairs(metric)
    for name, learning in answers.learning_curves(metric).items():
        found |= {f"{name}_final": learning.final, f"{name}_untrained": learning.performance[0]}
        for pair in IN_CONTEXT:
            context = learning.contextualise(value(pairs[pair], metric))
            found |= {f"{name}_{pair}": context.value, f"starred_{pair}": not context.exceeded}
    return found


def curves(answers: Answers) -> dict[str, Any]:
    """What goes on during training, for pictures."""
    return {
        "steps": answers.steps("again"),
        **{name: learning.performance for name, learning in answers.learning_curves("top").items()},
        **{f"{part}_{metric}": answers.curve(part, metric) for part in ("again", "uniform") for metric in METRICS},
    }


def rises_then_falls(uniform: OverTraining) -> bool:
    """Is it best between the first and the last checkpoint, and at both ends lower? (A.7)"""
    return max(uniform.agreement[0], uniform.last) < uniform.best


def best(course: Sequence[Checkpoint], pair: str, metric: str) -> Checkpoint:
    """The checkpoint at which a pair agrees best, of equals the first."""
    return max(course, key=lambda checkpoint: value(checkpoint.agreements[pair], metric))


def value(agreement: Agreement, metric: str) -> float:
    return agreement.top if metric == "top" else agreement.kendall


def chance(agreement: Agreement, metric: str) -> float:
    """Â: in closed form for the top 5 %; zero for τ."""
    return agreement.chance if metric == "top" else 0.0


SPLITS = ("validation", "training")
TOGETHER = 128  # sentences in a batch
SAMPLE_SEED = 0  # the seed of the sentences that are measured on: the same for all seeds of training

Values = list[Tensor]  # a score of every sentence, batch x target x source, a batch after the other
Scored = Mapping[str, Values]  # by the name of the score
Samples = Mapping[str, Sequence[Batch]]  # by split, as the next two
Fixed = Mapping[str, Scored]
Course = Mapping[str, Sequence[Checkpoint]]
Ask = Callable[[Model, Trace], TokenScores]


def measure(subject: TrainedCase) -> Measurement:
    """Everything that the tables say about a corpus, for one seed."""
    samples = {split: sample(subject, split) for split in SPLITS}
    finished = most_accurate(subject.runs["standard"], samples["validation"])
    fixed = {split: fixed_scores(subject, finished, batches) for split, batches in samples.items()}
    courses = {part: course(part, subject, samples, fixed) for part in WATCHED if part in subject.runs}
    answers = {
        split: answers_on(subject, samples[split], fixed[split], {part: courses[part][split] for part in courses})
        for split in SPLITS
    }
    return {"as_published": subject.settings.as_published, "finished": finished, **readings(answers)}


# The sentences, and what a network says of them ----------------------------------------------------------------------


def sample(subject: TrainedCase, split: str) -> list[Batch]:
    """Sentences drawn by seed, in batches of similar lengths."""
    drawn = task_of(subject).draw(split, subject.settings.sentences, SAMPLE_SEED)
    order = (drawn.source_mask.sum(1) + drawn.target_mask.sum(1)).argsort(stable=True)
    ordered = replace(drawn, **{name: value[order] for name, value in drawn.tensors().items()})
    starts = range(0, len(ordered), TOGETHER)
    return [trimmed(ordered, slice(start, start + TOGETHER)).to(subject.device) for start in starts]


def task_of(subject: TrainedCase) -> TextTask:
    task = subject.runs["standard"].task
    assert isinstance(task, TextTask)
    return task


@dataclass(frozen=True)
class Shown:
    """What a network says of a sample: a score, and the share of output words that it gets right, hearing gold ones."""

    values: Values
    accuracy: float


def shown(model: Model, batches: Sequence[Batch], ask: Ask, **forward: Any) -> Shown:
    values, right, words = list[Tensor](), 0, 0
    for batch, trace in traces(model, batches, **forward):
        values.append(ask(model, trace).values)
        right += int((trace.predictions == batch.target)[batch.target_mask].sum())
        words += int(batch.target_mask.sum())
    return Shown(values, right / words)


def by_attention(_: Model, trace: Trace) -> TokenScores:
    return attention_scores(trace)


def agreed(u: Values, v: Values, batches: Sequence[Batch], specials: bool = True) -> Agreement:
    """A(u, v), its chance level and Kendall's τ; start and end tokens can be pointed at, as in the paper, or not."""
    agree = AgreementAccumulator(source_specials=specials)
    for first, second, batch in zip(u, v, batches, strict=True):
        agree.update(first, second, batch)
    return agree.result()


# What stays as it is -------------------------------------------------------------------------------------------------


def most_accurate(run: Run, batches: Sequence[Batch]) -> int:
    """The checkpoint whose attention is α: the one with the best validation accuracy (author's code)."""
    accuracies = {
        step: shown(run.model(step, "teacher_forced"), batches, by_attention).accuracy for step in run.checkpoints
    }
    return max(accuracies, key=accuracies.__getitem__)


def fixed_scores(subject: TrainedCase, finished: int, batches: Sequence[Batch]) -> dict[str, Values]:
    """α, β and Δ of the standard network; β^px; and, of classes, β^log."""
    standard, proxy = subject.runs["standard"].model(finished, "teacher_forced"), subject.runs["proxy"].model()
    assert not isinstance(standard, BagOfWords)
    scores = {
        "attention": shown(standard, batches, by_attention).values,
        "lexical": shown(standard, batches, lexical_scores).values,
        "saliency": [influence(standard, batch).values for batch in batches],
        "proxy": shown(proxy, batches, lexical_scores).values,
    }
    if isinstance(task := task_of(subject).resolved(), Classification):
        regression = regression_of(task)
        scores["logistic"] = [regression.token_scores(classes(batch)).to(subject.device) for batch in batches]
    return scores


@lru_cache(maxsize=8)
def regression_of(task: Classification) -> Regression:
    """Fitted once for all seeds that one process measures: it depends on the corpus alone."""
    training, validation = (map(classes, task.batches(split, size=512)) for split in ("training", "validation"))
    with threadpool_limits(1):  # its vectors are too short to share among cores: with several it is six times slower
        return logistic_regression(training, validation, len(task.source_vocabulary), len(task.classes))


def classes(batch: Batch) -> Batch:
    """A batch whose targets are classes counted from zero, without the special words before them."""
    return replace(batch, target=batch.target - len(SPECIALS)).to("cpu")


# What changes during training ----------------------------------------------------------------------------------------

# By part: pairs (u, v) whose u stays as it is, by name, and whose v is asked of every checkpoint.
WATCHED: dict[str, dict[str, tuple[str, Ask]]] = {
    "again": {
        "attention_again": ("attention", by_attention),
        "attention_lexical_again": ("attention", lexical_scores),
    },
    "uniform": {
        "attention_uniform": ("attention", lexical_scores),
        "proxy_uniform": ("proxy", lexical_scores),
        "saliency_uniform_most": ("saliency", lexical_scores),
        "logistic_uniform": ("logistic", lexical_scores),
    },
    "frozen": {"attention_frozen": ("attention", by_attention)},
}


def course(part: str, subject: TrainedCase, samples: Samples, fixed: Fixed) -> Course:
    """At each checkpoint of a part, how what it says agrees with what stays, and how well the network does."""
    run, found = subject.runs[part], {split: list[Checkpoint]() for split in samples}
    for step in run.checkpoints:
        model = run.model(step, "teacher_forced")
        for split, batches in samples.items():
            pairs = {pair: (u, ask) for pair, (u, ask) in WATCHED[part].items() if u in fixed[split]}
            seen = {ask: shown(model, batches, ask, **run.forward) for ask in {ask for _, ask in pairs.values()}}
            agreements = {pair: agreed(fixed[split][u], seen[ask].values, batches) for pair, (u, ask) in pairs.items()}
            accuracy = next(iter(seen.values())).accuracy
            score = translated(model, subject, split) if part == "again" else None
            found[split].append(Checkpoint(step, agreements, accuracy, score))
    return found


def translated(model: Model, subject: TrainedCase, split: str) -> Bleu | None:
    """BLEU on the sentences that agreement is measured on; a class has none."""
    task = task_of(subject)
    if not isinstance(task, Translation) or not isinstance(model, EncoderDecoder):
        return None
    return bleu(model, task, split, most=subject.settings.sentences)


def answers_on(
    subject: TrainedCase, batches: Sequence[Batch], fixed: Scored, courses: Mapping[str, Sequence[Checkpoint]]
) -> Answers:
    """All agreements on one split."""
    uniform, again = courses["uniform"], subject.runs["again"]
    steps = {metric: best(uniform, "attention_uniform", metric).step for metric in METRICS}
    steps["last"] = uniform[-1].step
    by_step = {step: with_uniform(subject.runs["uniform"], step, batches, fixed) for step in {*steps.values()}}
    ended = shown(again.model(again.checkpoints[-1], "teacher_forced"), batches, by_attention).values
    return Answers(
        courses=courses,
        at_the_end={
            "attention_lexical": agreed(fixed["attention"], fixed["lexical"], batches),
            "attention_again_words": agreed(fixed["attention"], ended, batches, specials=False),
        },
        with_uniform={which: by_step[step] for which, step in steps.items()},
    )


def with_uniform(run: Run, step: int, batches: Sequence[Batch], fixed: Scored) -> dict[str, Agreement]:
    """What is compared with β^uf at one checkpoint; Δ with either sign."""
    uniform = shown(run.model(step, "teacher_forced"), batches, lexical_scores, **run.forward).values
    pairs = {
        "uniform_proxy": (uniform, fixed["proxy"]),
        "saliency_uniform": (fixed["saliency"], uniform),
        "lowering_uniform": ([-values for values in fixed["saliency"]], uniform),
    }
    if "logistic" in fixed:
        pairs["uniform_logistic"] = (uniform, fixed["logistic"])
    return {pair: agreed(u, v, batches) for pair, (u, v) in pairs.items()}
