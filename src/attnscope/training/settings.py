"""The settings of a training run: steps, learning rate, regularisation, evaluation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, get_args

from attnscope.errors import check_kinds, choose, require
from attnscope.models.attention import uniform
from attnscope.models.capabilities import Decoding
from attnscope.models.trace import Interventions


class ForwardOptions(TypedDict, total=False):
    """Keywords of a forward pass."""

    attention: Interventions


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the optimiser (Adam), the schedule, and evaluation.

    Attributes:
        steps: Number of updates.
        batch_size: Sentences per update.
        learning_rate: Of Adam, before schedule and warm-up.
        betas: Of Adam.
        epsilon: Of Adam.
        weight_decay: Added to the gradients, as L2.
        amsgrad: Whether Adam is AMSGrad.
        schedule: "constant", or another name in SCHEDULES, such as "exponential".
        decay: Factor per step, for schedule="exponential".
        warmup: Steps over which the learning rate rises linearly from zero.
        max_grad_norm: Larger gradients are scaled down to this norm; None: never.
        teacher_forcing: In training, the probability of the gold token as the decoder's input.
        evaluate_every: Steps between two evaluations on the validation split.
        checkpoints: Steps after which the weights are saved.
        patience: Evaluations without improvement before training stops; None: no early stopping.
        stop_at_accuracy: Stop once this validation word accuracy is reached; None: never.
        keep_weights: "last", or "best": the weights of the best evaluation.
        best_metric: On the validation split: "loss", the lowest, or "word_accuracy", the highest.
        attention: "own", or "uniform": frozen to uniform weights, in training and evaluation (snell2021 §3.2).
        trained: "all", "attention" (snell2021 A.6) or "all but words": other weights keep their initial values.
        decoding: How the trained model is evaluated and probed: "greedy" or "teacher_forced".
    """

    steps: int = 6000
    batch_size: int = 128
    learning_rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.99)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    schedule: str = "constant"
    decay: float = 0.9997
    warmup: int = 0
    max_grad_norm: float | None = 10.0
    teacher_forcing: float = 0.0
    evaluate_every: int = 200
    checkpoints: tuple[int, ...] = ()
    patience: int | None = None
    stop_at_accuracy: float | None = None
    keep_weights: str = "last"
    best_metric: str = "loss"
    attention: str = "own"
    trained: str = "all"
    decoding: Decoding = "greedy"

    def __post_init__(self) -> None:
        check_kinds(self)
        choose("schedule", self.schedule, SCHEDULES)
        choose("choice of weights", self.keep_weights, ("last", "best"))
        choose("measure of the best", self.best_metric, ("loss", "word_accuracy"))
        choose("attention in training", self.attention, FORWARD)
        choose("decoding", self.decoding, get_args(Decoding))
        choose("part to train", self.trained, ("all", "attention", "all but words"))
        require(
            (self.attention, self.trained) != ("uniform", "attention"),
            "with uniform attention there is none to train: trained='attention' leaves nothing",
        )
        for name in ("steps", "batch_size", "learning_rate", "evaluate_every", "epsilon"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        require(all(0 <= beta < 1 for beta in self.betas), f"betas must be from 0 to below 1, not {self.betas}")
        require(self.decay > 0, f"decay must be positive, not {self.decay}")
        require(
            self.stop_at_accuracy is None or 0 < self.stop_at_accuracy <= 1,
            f"stop_at_accuracy must be above 0 and at most 1, or None, not {self.stop_at_accuracy}",
        )
        require(self.weight_decay >= 0, f"weight_decay must not be negative, but is {self.weight_decay}")
        require(self.warmup >= 0, f"warmup must not be negative, but is {self.warmup}")
        require(
            self.max_grad_norm is None or self.max_grad_norm > 0,
            f"max_grad_norm must be positive or None, not {self.max_grad_norm}",
        )
        require(self.patience is None or self.patience > 0, f"patience must be positive or None, not {self.patience}")
        require(0 <= self.teacher_forcing <= 1, f"teacher_forcing must be from 0 to 1, not {self.teacher_forcing}")
        invalid = [step for step in self.checkpoints if not 0 <= step <= self.steps]
        require(not invalid, f"checkpoints {invalid} lie outside of the {self.steps} steps")

    @property
    def forward(self) -> ForwardOptions:
        """Options of every forward pass."""
        return FORWARD[self.attention]

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        warm = min(1.0, (step + 1) / (self.warmup + 1))
        return self.learning_rate * warm * SCHEDULES[self.schedule](self, step)


FORWARD: dict[str, ForwardOptions] = {"own": {}, "uniform": {"attention": uniform}}
SCHEDULES: dict[str, Callable[[TrainingSettings, int], float]] = {
    "constant": lambda settings, step: 1.0,
    "exponential": lambda settings, step: settings.decay**step,
    "linear": lambda settings, step: 1 - step / settings.steps,
    "cosine": lambda settings, step: (1 + math.cos(math.pi * step / settings.steps)) / 2,
}
