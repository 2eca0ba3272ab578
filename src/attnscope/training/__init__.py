"""Training: settings, objectives, the training loop, and evaluation."""

from attnscope.training.evaluation import Decisions, decide, evaluate
from attnscope.training.fit import Progress, TrainingDiverged, fit
from attnscope.training.objectives import (
    L2,
    OBJECTIVES,
    Conicity,
    CrossEntropy,
    Guidance,
    Hiding,
    HidingGold,
    MaskedWords,
    Objective,
    Relay,
    Sum,
    Tying,
)
from attnscope.training.settings import SCHEDULES, TrainingSettings

__all__ = [
    "L2", "OBJECTIVES", "SCHEDULES", "Conicity", "CrossEntropy", "Decisions", "Guidance", "Hiding", "HidingGold",
    "MaskedWords", "Objective", "Progress", "Relay", "Sum", "TrainingDiverged", "TrainingSettings", "Tying", "decide",
    "evaluate", "fit",
]  # fmt: skip
