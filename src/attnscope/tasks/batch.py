"""What a task hands to a model: sentences as padded numbers, with masks and, where known, where to look."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

PAD, END, START = 0, 1, 2
SPECIALS = ("<pad>", "<end>", "<start>")
NOWHERE = -1  # in a guide: nothing is known about where to look at this step


@dataclass(frozen=True)
class Vocabulary:
    """The words of one side; the three special ones come first in every vocabulary.

    >>> Vocabulary.of(["run", "walk"]).encode(["walk", "run", "<end>"])
    [4, 3, 1]
    """

    words: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> "Vocabulary":
        return cls((*SPECIALS, *words))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Sequence[str]) -> list[int]:
        number = {word: i for i, word in enumerate(self.words)}
        return [number[word] for word in words]

    def decode(self, numbers: Sequence[int]) -> list[str]:
        return [self.words[i] for i in numbers]


@dataclass(frozen=True)
class Batch:
    """Source and target sentences of one batch, each with its end token, then padding.

    `guide` gives, for each target position, the source position that it comes from, or NOWHERE.
    """

    source: Int[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]
    target_mask: Bool[Tensor, "batch target"]
    guide: Int[Tensor, "batch target"] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def to(self, device: torch.device | str) -> "Batch":
        return replace(self, **{name: value.to(device) for name, value in self.tensors().items()})

    def clone(self) -> "Batch":
        return replace(self, **{name: value.clone() for name, value in self.tensors().items()})

    def copy_from(self, other: "Batch") -> None:
        """Take over the numbers of another batch of the same shape."""
        for name, value in other.tensors().items():
            getattr(self, name).copy_(value)


def pad(rows: Sequence[np.ndarray], fill: int = PAD) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and the mask of what is no padding."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]  # rows x longest
    padded = np.full(mask.shape, fill, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(mask)
