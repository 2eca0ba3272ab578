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
from attnscope.models.bag_of_words import Regression, logistic_regression
from attnscope.models.inference import traces
from attnscope.probes.agreement import Agreement, AgreementAccumulator, LearningCurve, OverTraining
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores, attention_scores
from attnscope.studies.finding import Measurement, TrainedCase
from attnscope.tasks import SPECIALS, Batch, Classification, TextTask, Translation
from attnscope.training.evaluation import Bleu, bleu

METRICS = ("top", "kendall")  # the top 5 % of eq. 10; Kendall's τ

# The pairs with ξ: those of the paper's columns, and those that the author's code has in their place.
IN_CONTEXT = (
    "attention_uniform", "uniform_proxy", "saliency_uniform", "attention_lexical",
    "proxy_uniform", "saliency_uniform_most", "attention_lexical_again",
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A network during training: agreements of its scores with fixed ones, and its performance."""

    step: int
    agreements: Mapping[str, Agreement]  # by pair
    accuracy: float
    bleu: Bleu | None = None


@dataclass(frozen=True)
class SplitAgreements:
    """All agreements on one split of a corpus."""

    courses: Mapping[str, Sequence[Checkpoint]]  # by role
    at_the_end: Mapping[str, Agreement]  # of finished networks
    with_uniform: Mapping[str, Mapping[str, Agreement]]  # with β^uf where it agrees best with α, by metric; and "last"

    def pairs(self, metric: str) -> dict[str, Agreement]:
        """Return every pair: those measured during training where they are highest (A.6, A.7), and two at the end."""
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
        """Return the agreement of α and the scores of this role over its training."""
        return tuple(value(checkpoint.agreements[f"attention_{part}"], metric) for checkpoint in self.courses[part])

    def steps(self, part: str) -> tuple[int, ...]:
        return tuple(checkpoint.step for checkpoint in self.courses[part])

    def learning_curves(self, metric: str) -> dict[str, LearningCurve]:
        """Return the curve of another seed, with p̂(τ) as accuracy, and in translation also as BLEU."""
        again = self.courses["again"]
        performances = {"xi": [checkpoint.accuracy for checkpoint in again]}
        scores = [checkpoint.bleu.score for checkpoint in again if checkpoint.bleu]
        performances |= {"bleu": scores} if scores else {}
        steps, agreement = self.steps("again"), self.curve("again", metric)
        return {name: LearningCurve(steps, agreement, tuple(values)) for name, values in performances.items()}


def all_numbers(answers: Mapping[str, SplitAgreements]) -> Measurement:
    """Return all numbers by name, and the curves for figures."""
    values = {
        f"{split}.{metric}.{what}": number
        for split, on_split in answers.items()
        for metric in METRICS
        for what, number in numbers(on_split, metric).items()
    }
    signatures = [c.bleu.signature for on_split in answers.values() for c in on_split.courses["again"] if c.bleu]
    pictures = {split: curves(on_split) for split, on_split in answers.items()}
    return values | {"curves": pictures, "signature": signatures[0] if signatures else ""}


def numbers(answers: SplitAgreements, metric: str) -> dict[str, float]:
    """Return the numbers of one split and metric."""
    pairs = answers.pairs(metric)
    uniform = OverTraining(answers.steps("uniform"), answers.curve("uniform", metric))
    return {
        **{pair: value(agreement, metric) for pair, agreement in pairs.items()},
        **{f"chance_{pair}": chance(agreement, metric) for pair, agreement in pairs.items()},
        "best_step": uniform.best_step,
        "rises_then_falls": rises_then_falls(uniform),
        **contexts(answers, metric),
    }


def contexts(answers: SplitAgreements, metric: str) -> dict[str, float]:
    """Return ξ of the pairs, ξ* when training ended, and the performance before training."""
    numbers: dict[str, float] = {}
    pairs = answers.pairs(metric)
    for name, learning in answers.learning_curves(metric).items():
        numbers |= {f"{name}_final": learning.final, f"{name}_untrained": learning.performance[0]}
        for pair in IN_CONTEXT:
            context = learning.contextualise(value(pairs[pair], metric))
            numbers |= {f"{name}_{pair}": context.value, f"starred_{pair}": not context.exceeded}
    return numbers


def curves(answers: SplitAgreements) -> dict[str, Sequence[float]]:
    """Return curves over training, for figures."""
    return {
        "steps": answers.steps("again"),
        **{name: learning.performance for name, learning in answers.learning_curves("top").items()},
        **{f"{part}_{metric}": answers.curve(part, metric) for part in ("again", "uniform") for metric in METRICS},
    }


def rises_then_falls(uniform: OverTraining) -> bool:
    """Return whether it is best between the first and the last checkpoint, and lower at both ends. (A.7)"""
    return max(uniform.agreement[0], uniform.last) < uniform.best


def best(course: Sequence[Checkpoint], pair: str, metric: str) -> Checkpoint:
    """Return the checkpoint at which a pair agrees best, of equals the first."""
    return max(course, key=lambda checkpoint: value(checkpoint.agreements[pair], metric))


def value(agreement: Agreement, metric: str) -> float:
    return agreement.top if metric == "top" else agreement.kendall


def chance(agreement: Agreement, metric: str) -> float:
    """Return Â: in closed form for the top 5 %; zero for τ."""
    return agreement.chance if metric == "top" else 0.0


SPLITS = ("validation", "training")
BATCH_SIZE = 128
SAMPLE_SEED = 0  # of the measured sentences: the same for all seeds of training

Values = list[Tensor]  # scores of one batch after the other, batch x target x source
ScoreTable = Mapping[str, Values]  # by the name of the score
Samples = Mapping[str, Sequence[Batch]]  # by split, as the next two
Fixed = Mapping[str, ScoreTable]
Course = Mapping[str, Sequence[Checkpoint]]
Score = Callable[[Model, Trace], TokenScores]


def measure(subject: TrainedCase) -> Measurement:
    """Return all numbers of the tables for one corpus and seed."""
    samples = {split: sample(subject, split) for split in SPLITS}
    finished = most_accurate(subject.runs["standard"], samples["validation"])
    fixed = {split: fixed_scores(subject, finished, batches) for split, batches in samples.items()}
    courses = {part: course(part, subject, samples, fixed) for part in MEASURED_PAIRS if part in subject.runs}
    answers = {
        split: split_agreements(subject, samples[split], fixed[split], {part: courses[part][split] for part in courses})
        for split in SPLITS
    }
    return {"as_published": subject.settings.as_published, "finished": finished, **all_numbers(answers)}


# Sentences and their scores ------------------------------------------------------------------------------------------


def sample(subject: TrainedCase, split: str) -> list[Batch]:
    """Return sampled sentences, in batches of similar lengths."""
    sampled = task_of(subject).sample_batch(split, subject.settings.sentences, SAMPLE_SEED)
    order = (sampled.source_mask.sum(1) + sampled.target_mask.sum(1)).argsort(stable=True)
    ordered = replace(sampled, **{name: value[order] for name, value in sampled.tensors().items()})
    starts = range(0, len(ordered), BATCH_SIZE)
    return [ordered.rows(slice(start, start + BATCH_SIZE)).to(subject.device) for start in starts]


def task_of(subject: TrainedCase) -> TextTask:
    task = subject.runs["standard"].task
    assert isinstance(task, TextTask)
    return task


@dataclass(frozen=True)
class ScoredSample:
    """A score of a sample, and the word accuracy of the network under teacher forcing."""

    values: Values
    accuracy: float


def score_sample(model: Model, batches: Sequence[Batch], score: Score, **forward: Any) -> ScoredSample:
    """Return a score of every sentence."""
    values, right, words = list[Tensor](), 0, 0
    for batch, trace in traces(model, batches, **forward):
        values.append(score(model, trace).values)
        right += int((trace.predictions == batch.target)[batch.target_mask].sum())
        words += int(batch.target_mask.sum())
    return ScoredSample(values, right / words)


def attention_score(_: Model, trace: Trace) -> TokenScores:
    return attention_scores(trace)


def agreement_of(u: Values, v: Values, batches: Sequence[Batch], specials: bool = True) -> Agreement:
    """Return A(u, v), its chance level and Kendall's τ, with start and end tokens as in the paper, or without."""
    agree = AgreementAccumulator(source_specials=specials)
    for first, second, batch in zip(u, v, batches, strict=True):
        agree.update(first, second, batch)
    return agree.result()


# Scores of finished networks -----------------------------------------------------------------------------------------


def most_accurate(run: Run, batches: Sequence[Batch]) -> int:
    """Return the checkpoint whose attention is α: the one with the best validation accuracy (author's code)."""
    accuracies = {
        step: score_sample(run.model(step, "teacher_forced"), batches, attention_score).accuracy
        for step in run.checkpoints
    }
    return max(accuracies, key=accuracies.__getitem__)


def fixed_scores(subject: TrainedCase, finished: int, batches: Sequence[Batch]) -> dict[str, Values]:
    """Return α, β and Δ of the standard network; β^px; and, for classification, β^log."""
    standard, proxy = subject.runs["standard"].model(finished, "teacher_forced"), subject.runs["proxy"].model()
    assert not isinstance(standard, BagOfWords)
    scores = {
        "attention": score_sample(standard, batches, attention_score).values,
        "lexical": score_sample(standard, batches, lexical_scores).values,
        "saliency": [influence(standard, batch).values for batch in batches],
        "proxy": score_sample(proxy, batches, lexical_scores).values,
    }
    if isinstance(task := task_of(subject).resolved(), Classification):
        regression = regression_of(task)
        scores["logistic"] = [regression.token_scores(classes(batch)).to(subject.device) for batch in batches]
    return scores


@lru_cache(maxsize=8)
def regression_of(task: Classification) -> Regression:
    """Return the regression of a corpus, fitted once for all seeds that one process measures."""
    training, validation = (map(classes, task.batches(split, size=512)) for split in ("training", "validation"))
    with threadpool_limits(1):  # with several threads it is six times slower
        return logistic_regression(training, validation, len(task.source_vocabulary), len(task.classes))


def classes(batch: Batch) -> Batch:
    """Return a batch whose targets are classes from zero, in place of token ids."""
    return replace(batch, target=batch.target - len(SPECIALS)).to("cpu")


# Scores during training ----------------------------------------------------------------------------------------------

# By role: pairs (u, v) of a fixed score u, by name, and a score v of every checkpoint.
MEASURED_PAIRS: dict[str, dict[str, tuple[str, Score]]] = {
    "again": {
        "attention_again": ("attention", attention_score),
        "attention_lexical_again": ("attention", lexical_scores),
    },
    "uniform": {
        "attention_uniform": ("attention", lexical_scores),
        "proxy_uniform": ("proxy", lexical_scores),
        "saliency_uniform_most": ("saliency", lexical_scores),
        "logistic_uniform": ("logistic", lexical_scores),
    },
    "frozen": {"attention_frozen": ("attention", attention_score)},
}


def course(part: str, subject: TrainedCase, samples: Samples, fixed: Fixed) -> Course:
    """Return, for each checkpoint of a role, agreements of its scores with fixed ones, and its performance."""
    run, by_split = subject.runs[part], {split: list[Checkpoint]() for split in samples}
    for step in run.checkpoints:
        model = run.model(step, "teacher_forced")
        for split, batches in samples.items():
            pairs = {pair: (u, score) for pair, (u, score) in MEASURED_PAIRS[part].items() if u in fixed[split]}
            scored = {
                score: score_sample(model, batches, score, **run.forward)
                for score in {score for _, score in pairs.values()}
            }
            agreements = {
                pair: agreement_of(fixed[split][u], scored[score].values, batches) for pair, (u, score) in pairs.items()
            }
            accuracy = next(iter(scored.values())).accuracy
            translations = bleu_of(model, subject, split) if part == "again" else None
            by_split[split].append(Checkpoint(step, agreements, accuracy, translations))
    return by_split


def bleu_of(model: Model, subject: TrainedCase, split: str) -> Bleu | None:
    """Return BLEU on the measured sentences; None for classification."""
    task = task_of(subject)
    if not isinstance(task, Translation) or not isinstance(model, EncoderDecoder):
        return None
    return bleu(model, task, split, max_sentences=subject.settings.sentences)


def split_agreements(
    subject: TrainedCase, batches: Sequence[Batch], fixed: ScoreTable, courses: Mapping[str, Sequence[Checkpoint]]
) -> SplitAgreements:
    """Return all agreements on one split."""
    uniform, again = courses["uniform"], subject.runs["again"]
    steps = {metric: best(uniform, "attention_uniform", metric).step for metric in METRICS}
    steps["last"] = uniform[-1].step
    by_step = {step: with_uniform(subject.runs["uniform"], step, batches, fixed) for step in {*steps.values()}}
    last_attention = score_sample(again.model(again.checkpoints[-1], "teacher_forced"), batches, attention_score).values
    return SplitAgreements(
        courses=courses,
        at_the_end={
            "attention_lexical": agreement_of(fixed["attention"], fixed["lexical"], batches),
            "attention_again_words": agreement_of(fixed["attention"], last_attention, batches, specials=False),
        },
        with_uniform={which: by_step[step] for which, step in steps.items()},
    )


def with_uniform(run: Run, step: int, batches: Sequence[Batch], fixed: ScoreTable) -> dict[str, Agreement]:
    """Return agreements with β^uf at one checkpoint; Δ with either sign."""
    uniform = score_sample(run.model(step, "teacher_forced"), batches, lexical_scores, **run.forward).values
    pairs = {
        "uniform_proxy": (uniform, fixed["proxy"]),
        "saliency_uniform": (fixed["saliency"], uniform),
        "lowering_uniform": ([-values for values in fixed["saliency"]], uniform),
    }
    if "logistic" in fixed:
        pairs["uniform_logistic"] = (uniform, fixed["logistic"])
    return {pair: agreement_of(u, v, batches) for pair, (u, v) in pairs.items()}
