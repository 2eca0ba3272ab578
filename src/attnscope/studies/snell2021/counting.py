"""What is counted rather than trained. (snell2021 §4, A.1, A.2)"""

from dataclasses import dataclass


@dataclass(frozen=True)
class CountSizes:
    """How much is counted."""


SIZES = {"quick": CountSizes(), "paper": CountSizes()}
