"""Can a second model learn the same predictions with different attention? (tutek2020 §3.3, eq. 6, figure 1)

The adversary of Wiegreffe and Pinter (2019): a new model of the same architecture, trained against a fixed one to lower
TVD(ŷa, ŷb) − λ · JSD(αa, αb). Their code had KL(αa‖αb) in the place of the JSD that they and tutek2020 print.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models.inference import evaluating, on_device_of
from attnscope.models.trace import Trace
from attnscope.probes.counterfactual import check_classifier, class_probabilities
from attnscope.probes.divergences import DIVERGENCES, tvd
from attnscope.tasks import Batch, Task
from attnscope.training.fit import ReportProgress, TrainingRun, run_to_end
from attnscope.training.objectives import Objective
from attnscope.training.progress import Progress
from attnscope.training.settings import TrainingSettings


@dataclass(frozen=True, eq=False)
class ImitationLoss(Objective):
    """The mean over texts of eq. 6: predictions as the base's, attention far from it."""

    base: nn.Module
    weight: float  # λ
    divergence: str = "jsd"  # or "kl" = KL(adversary‖base), as the predecessor's code had it

    def __post_init__(self) -> None:
        require(self.weight >= 0, f"the weight λ of the divergence must not be negative, but is {self.weight}")
        choose("divergence", self.divergence, DIVERGENCES)

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        with evaluating(self.base):
            base = self.base(batch)
        check_pair(trace, base)
        change = tvd(class_probabilities(trace.logits), class_probabilities(base.logits))
        distance = DIVERGENCES[self.divergence](trace.attention, base.attention).mean((1, 2))
        return (change.to(distance) - self.weight * distance).mean()


@dataclass(frozen=True)
class Imitation(Displayed):
    """The divergence of attention, and that of outputs, between base and adversary on each text."""

    jsd: Float[np.ndarray, " texts"]
    kl: Float[np.ndarray, " texts"]  # KL(adversary‖base)
    tvd: Float[np.ndarray, " texts"]
    changed: Float[np.ndarray, " texts"]  # 1 where predictions differ

    def summary(self) -> dict[str, float]:
        """Means over texts; JSD and TVD are a point of figure 1."""
        return {name: float(values.mean()) for name, values in vars(self).items()}

    def table(self) -> pd.DataFrame:
        """One row: the summary."""
        return pd.DataFrame([self.summary()])

    def by_text(self) -> pd.DataFrame:
        """One row per text."""
        return pd.DataFrame(vars(self)).rename_axis("text")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw TVD against JSD, one point per text."""
        from attnscope import plots

        return plots.scatter(self.jsd, self.tvd, ax=ax, xlabel="JSD of attention, in nats", ylabel="TVD of outputs")


def imitation(base: nn.Module, adversary: nn.Module, batches: Iterable[Batch]) -> Imitation:
    """Return how far a model's attention and outputs are from the base's on each text."""
    with evaluating(base), evaluating(adversary):
        rows = [compare_traces(adversary(batch), base(batch)) for batch in on_device_of(adversary, batches)]
    require(bool(rows), "there is no text to compare; give at least one batch")
    return Imitation(*torch.cat(rows, 1).cpu().numpy())


def compare_traces(trace: Trace, base: Trace) -> Float[Tensor, "measures batch"]:
    """Return JSD, KL, TVD, and whether predictions differ."""
    check_pair(trace, base)
    attention, other = trace.attention.double(), base.attention.double()
    distances = [DIVERGENCES[name](attention, other).mean((1, 2)) for name in ("jsd", "kl")]
    own, theirs = class_probabilities(trace.logits), class_probabilities(base.logits)
    return torch.stack([*distances, tvd(own, theirs), (own.argmax(-1) != theirs.argmax(-1)).double()])


def check_pair(trace: Trace, base: Trace) -> None:
    check_classifier(trace)
    given, expected = (tuple(one.attention.shape) + tuple(one.logits.shape) for one in (trace, base))
    require(
        given == expected,
        f"the adversary has {given[1]} heads and {given[-1]} target words, its base {expected[1]} and {expected[-1]}; "
        "they must be of the same architecture",
    )


class ImitationTraining(TrainingRun):
    """A training run whose best weights are those of the lowest loss of eq. 6 on the validation split.

    Gold classes have no part in it, so their loss must not decide.
    """

    objective: ImitationLoss

    def _judge(self, row: Mapping[str, float]) -> None:
        apart = row[f"imitation.{self.objective.divergence}"]
        super()._judge({**row, "loss": row["imitation.tvd"] - self.objective.weight * apart})


def train_adversary(
    base: nn.Module,
    fresh: nn.Module,
    task: Task,
    weight: float,
    divergence: str = "jsd",
    settings: TrainingSettings | None = None,
    seed: int = 0,
    folder: Path | None = None,
    report: ReportProgress | None = None,
) -> Progress:
    """Train a fresh model, in place, to predict as the base does, with different attention.

    The log shows its imitation on the validation split, by which patience and keep_weights="best" decide.

    Args:
        base: The trained model, which stays as it is.
        fresh: A new model of the same architecture.
        task: Texts; gold classes are not used.
        weight: λ of eq. 6.
        divergence: "jsd", or "kl" as in the code of Wiegreffe and Pinter.
        settings: Of training.
        seed: Random seed.
        folder: Where checkpoints are kept.
        report: As in `fit`.
    """
    require(fresh is not base, "the adversary must be a fresh model: the base itself cannot be moved away from itself")
    settings = settings or TrainingSettings()
    require(
        settings.best_metric == "loss" and settings.stop_at_accuracy is None,
        "an adversary is judged by eq. 6 alone, not by gold classes: leave best_metric='loss' and "
        "stop_at_accuracy=None",
    )

    def watch(model: nn.Module, task: Task) -> dict[str, float]:
        return imitation(base, model, task.batches("validation")).summary()

    objective = ImitationLoss(base, weight, divergence)
    run = ImitationTraining(fresh, task, objective, settings, seed, folder, {"imitation": watch})
    return run_to_end(run, report).progress
