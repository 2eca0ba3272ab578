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
IN_CONTEXT = (
    "attention_uniform",
    "uniform_proxy",
    "saliency_uniform",
    "attention_lexical",
)  # what the paper gives ξ of


@dataclass(frozen=True)
class Checkpoint:
    """A network during training: how a score of it agrees with the finished α, and how well it does."""

    step: int
    agreement: Agreement
    accuracy: float
    bleu: Bleu | None = None

    def value(self, metric: str) -> float:
        return value(self.agreement, metric)


@dataclass(frozen=True)
class Answers:
    """All agreements on one split of a corpus."""

    again: Sequence[Checkpoint]  # A(α, α̂(τ))
    uniform: Sequence[Checkpoint]  # A(α, β^uf(τ))
    frozen: Sequence[Checkpoint]  # A(α, α^fr(τ)); none for translation
    lexical: Agreement  # A(α, β)
    with_uniform: Mapping[str, Mapping[str, Agreement]]  # where β^uf agrees best with α, by metric; and at its "last"

    def pairs(self, metric: str) -> dict[str, Agreement]:
        """Every pair; what was measured during training at its best checkpoint, as published (A.6, A.7)."""
        found = {
            "attention_uniform": best(self.uniform, metric).agreement,
            "attention_uniform_last": self.uniform[-1].agreement,
            "attention_lexical": self.lexical,
            "attention_again": self.again[-1].agreement,
            **self.with_uniform[metric],
            **{f"{pair}_last": agreement for pair, agreement in self.with_uniform["last"].items()},
        }
        return found | ({"attention_frozen": best(self.frozen, metric).agreement} if self.frozen else {})

    def learning_curves(self, metric: str) -> dict[str, LearningCurve]:
        """Another seed, its performance p̂(τ) as accuracy, and in translation also as BLEU."""
        steps, agreement = steps_of(self.again), curve(self.again, metric)
        performances = {"xi": [checkpoint.accuracy for checkpoint in self.again]}
        scores = [checkpoint.bleu.score for checkpoint in self.again if checkpoint.bleu]
        performances |= {"bleu": scores} if scores else {}
        return {name: LearningCurve(steps, agreement, tuple(values)) for name, values in performances.items()}


def readings(answers: Mapping[str, Answers]) -> Measurement:
    """All numbers, and the curves for pictures."""
    named = {
        f"{split}.{metric}.{what}": number
        for split, on_split in answers.items()
        for metric in METRICS
        for what, number in numbers(on_split, metric).items()
    }
    counted = [checkpoint.bleu.signature for checkpoint in answers["validation"].again if checkpoint.bleu]
    pictures = {split: curves(on_split) for split, on_split in answers.items()}
    return named | {"curves": pictures, "signature": counted[0] if counted else ""}


def numbers(answers: Answers, metric: str) -> dict[str, Any]:
    pairs = answers.pairs(metric)
    uniform = OverTraining(steps_of(answers.uniform), curve(answers.uniform, metric))
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
    during = {"again": answers.again, "uniform": answers.uniform}
    learning = answers.learning_curves("top")
    return {
        "steps": steps_of(answers.again),
        **{name: learning[name].performance for name in learning},
        **{f"{part}_{metric}": curve(during[part], metric) for part in during for metric in METRICS},
    }


def rises_then_falls(uniform: OverTraining) -> bool:
    """Is it best between the first and the last checkpoint, and at both ends lower? (A.7)"""
    return max(uniform.agreement[0], uniform.last) < uniform.best


def best(checkpoints: Sequence[Checkpoint], metric: str) -> Checkpoint:
    """The checkpoint that agrees best with α, of equals the first."""
    return max(checkpoints, key=lambda checkpoint: checkpoint.value(metric))


def value(agreement: Agreement, metric: str) -> float:
    return agreement.top if metric == "top" else agreement.kendall


def chance(agreement: Agreement, metric: str) -> float:
    """Â: in closed form for the top 5 %; zero for τ."""
    return agreement.chance if metric == "top" else 0.0


def steps_of(checkpoints: Sequence[Checkpoint]) -> tuple[int, ...]:
    return tuple(checkpoint.step for checkpoint in checkpoints)


def curve(checkpoints: Sequence[Checkpoint], metric: str) -> tuple[float, ...]:
    return tuple(checkpoint.value(metric) for checkpoint in checkpoints)
