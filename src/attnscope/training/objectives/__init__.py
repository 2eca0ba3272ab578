"""What is training paid for? Objectives add up: CrossEntropy() + Guidance(1.0) + L2(1e-5)."""

from attnscope.training.objectives.base import L2, CrossEntropy, Objective, Sum
from attnscope.training.objectives.grounded import Conicity, Hiding, MaskedWords, Tying
from attnscope.training.objectives.guidance import Guidance

OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "l2": L2,
    "guidance": Guidance,
    "tying": Tying,
    "masked_words": MaskedWords,
    "conicity": Conicity,
    "hiding": Hiding,
}

__all__ = [
    "L2", "OBJECTIVES", "Conicity", "CrossEntropy", "Guidance", "Hiding", "MaskedWords", "Objective", "Sum", "Tying",
]  # fmt: skip
