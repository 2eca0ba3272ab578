"""What do the agreements on a corpus come to? Numbers by name, put in context. (snell2021 §3.1, eq. 11, A.7)

A number is called `<split>.<metric>.<what>`. What is a pair such as attention_uniform, for A(α, β^uf); with chance_
before it, its random baseline; with xi_, its ξ in accuracy; with bleu_, its ξ in BLEU; with starred_, whether that ξ
has an asterisk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.probes.agreement import Agreement, LearningCurve, OverTraining
from attnscope.studies.finding import Measurement
from attnscope.training.bleu import Bleu

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
