"""How it learns."""

from attnscope.training.accuracy import evaluate
from attnscope.training.fit import TrainingDiverged, fit
from attnscope.training.objectives import L2, OBJECTIVES, CrossEntropy, Guidance, Objective, Sum
from attnscope.training.progress import Progress
from attnscope.training.settings import SCHEDULES, TrainingSettings

__all__ = [
    "L2", "OBJECTIVES", "SCHEDULES", "CrossEntropy", "Guidance", "Objective", "Progress", "Sum", "TrainingDiverged",
    "TrainingSettings", "evaluate", "fit",
]  # fmt: skip
