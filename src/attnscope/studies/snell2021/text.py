"""Which corpora, which networks, how long? What is trained on real text. (snell2021 A.5, A.8)"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TextSizes:
    """Corpora and steps."""


SIZES = {"quick": TextSizes(), "paper": TextSizes()}
