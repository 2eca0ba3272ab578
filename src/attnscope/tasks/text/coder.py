"""How do the words of one side become numbers, and numbers text?"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnscope.tasks.batch import Vocabulary

Sentences = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Coder(ABC):
    """A vocabulary and the way from words to it."""

    vocabulary: Vocabulary

    @abstractmethod
    def encode(self, sentences: Sentences) -> list[np.ndarray]: ...

    @abstractmethod
    def text(self, numbers: Sequence[int]) -> str:
        """A sentence to be read by people; special words are left out."""
