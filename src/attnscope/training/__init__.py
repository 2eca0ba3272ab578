"""How it learns."""

from attnscope.training.evaluation import Decisions, decide, evaluate
from attnscope.training.fit import TrainingDiverged, fit
from attnscope.training.objectives import (
    L2,
    OBJECTIVES,
    Conicity,
    CrossEntropy,
    Guidance,
    Hiding,
    MaskedWords,
    Objective,
    Sum,
    Tying,
)
from attnscope.training.progress import Progress
from attnscope.training.settings import SCHEDULES, TrainingSettings

__all__ = [
    "L2", "OBJECTIVES", "SCHEDULES", "Conicity", "CrossEntropy", "Decisions", "Guidance", "Hiding", "MaskedWords",
    "Objective", "Progress", "Sum", "TrainingDiverged", "TrainingSettings", "Tying", "decide", "evaluate", "fit",
]  # fmt: skip
