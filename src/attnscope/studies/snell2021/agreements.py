"""How do attention, lexical probe, saliency and proxies agree on one corpus? (snell2021 §3.1, §3.2, §5.1, A.6, A.10)

One measurement a corpus and seed: tables 2 to 8, 10 and 11 and figure 2 are read off it. Each checkpoint is loaded once
and asked about the sentences of both splits; what does not change during training is worked out once and kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from threadpoolctl import threadpool_limits
from torch import Tensor

from attnscope.lab.experiment import Run
from attnscope.models import BagOfWords, EncoderDecoder, Model, Trace
from attnscope.models.asking import traced
from attnscope.models.logistic import Regression, logistic_regression
from attnscope.probes.agreement import Agree, Agreement, Scores, attention_scores
from attnscope.probes.lexical import lexical
from attnscope.probes.saliency import influence
from attnscope.studies.finding import Measurement, TrainedCase
from attnscope.studies.snell2021.readings import METRICS, Answers, Checkpoint, best, readings
from attnscope.tasks import SPECIALS, Batch, Classification, TextTask, Translation
from attnscope.tasks.task import trimmed
from attnscope.training.bleu import Bleu, bleu

SPLITS = ("validation", "training")
TOGETHER = 128  # sentences in a batch
SAMPLE_SEED = 0  # the seed of the sentences that are measured on: the same for all seeds of training

Values = list[Tensor]  # a score of every sentence, batch x target x source, a batch after the other
Scored = Mapping[str, Values]  # by the name of the score
Samples = Mapping[str, Sequence[Batch]]  # by split, as the next two
Fixed = Mapping[str, Scored]
Course = Mapping[str, Sequence[Checkpoint]]
Ask = Callable[[Model, Trace], Scores]


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
    for batch, trace in traced(model, batches, **forward):
        values.append(ask(model, trace).values)
        right += int((trace.predictions == batch.target)[batch.target_mask].sum())
        words += int(batch.target_mask.sum())
    return Shown(values, right / words)


def by_attention(_: Model, trace: Trace) -> Scores:
    return attention_scores(trace)


def agreed(u: Values, v: Values, batches: Sequence[Batch], specials: bool = True) -> Agreement:
    """A(u, v), its chance level and Kendall's τ; start and end tokens can be pointed at, as in the paper, or not."""
    agree = Agree(source_specials=specials)
    for first, second, batch in zip(u, v, batches, strict=True):
        agree.update(first, second, batch)
    return agree.result()


# What stays as it is -------------------------------------------------------------------------------------------------


def most_accurate(run: Run, batches: Sequence[Batch]) -> int:
    """The checkpoint whose attention is α: the one with the best validation accuracy (author's code)."""
    accuracies = {step: shown(run.model(step), batches, by_attention).accuracy for step in run.checkpoints}
    return max(accuracies, key=accuracies.__getitem__)


def fixed_scores(subject: TrainedCase, finished: int, batches: Sequence[Batch]) -> dict[str, Values]:
    """α, β and Δ of the standard network; β^px; and, of classes, β^log."""
    standard, proxy = subject.runs["standard"].model(finished), subject.runs["proxy"].model()
    assert not isinstance(standard, BagOfWords)
    scores = {
        "attention": shown(standard, batches, by_attention).values,
        "lexical": shown(standard, batches, lexical).values,
        "saliency": [influence(standard, batch).values for batch in batches],
        "proxy": shown(proxy, batches, lexical).values,
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
        return logistic_regression(training, validation, len(task.source_words), len(task.classes))


def classes(batch: Batch) -> Batch:
    """A batch whose targets are classes counted from zero, without the special words before them."""
    return replace(batch, target=batch.target - len(SPECIALS)).to("cpu")


# What changes during training ----------------------------------------------------------------------------------------

# By part: pairs (u, v) whose u stays as it is, by name, and whose v is asked of every checkpoint.
WATCHED: dict[str, dict[str, tuple[str, Ask]]] = {
    "again": {
        "attention_again": ("attention", by_attention),
        "attention_lexical_again": ("attention", lexical),
    },
    "uniform": {
        "attention_uniform": ("attention", lexical),
        "proxy_uniform": ("proxy", lexical),
        "saliency_uniform_most": ("saliency", lexical),
        "logistic_uniform": ("logistic", lexical),
    },
    "frozen": {"attention_frozen": ("attention", by_attention)},
}


def course(part: str, subject: TrainedCase, samples: Samples, fixed: Fixed) -> Course:
    """At each checkpoint of a part, how what it says agrees with what stays, and how well the network does."""
    run, found = subject.runs[part], {split: list[Checkpoint]() for split in samples}
    for step in run.checkpoints:
        model = run.model(step)
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
    ended = shown(again.model(again.checkpoints[-1]), batches, by_attention).values
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
    uniform = shown(run.model(step), batches, lexical, **run.forward).values
    pairs = {
        "uniform_proxy": (uniform, fixed["proxy"]),
        "saliency_uniform": (fixed["saliency"], uniform),
        "lowering_uniform": ([-values for values in fixed["saliency"]], uniform),
    }
    if "logistic" in fixed:
        pairs["uniform_logistic"] = (uniform, fixed["logistic"])
    return {pair: agreed(u, v, batches) for pair, (u, v) in pairs.items()}
