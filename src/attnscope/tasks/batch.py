"""What a task hands to a model: sentences as padded numbers, with masks and, where known, where to look."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

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

    def to(self, device: torch.device | str) -> "Batch":
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(device) for k, v in moved.items() if v is not None})


def pad(rows: Sequence[Sequence[int]], fill: int = PAD) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and the mask of what is no padding."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]  # rows x longest
    padded = torch.full(mask.shape, fill)
    padded[mask] = torch.tensor([number for row in rows for number in row])
    return padded, mask
