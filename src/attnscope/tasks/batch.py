"""What does a task hand to a model? Sentences as padded numbers, with masks and, where known, where to look."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad as extend

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

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: i for i, word in enumerate(self.words)}

    def encode(self, words: Sequence[str]) -> list[int]:
        return [self.numbers[word] for word in words]

    def decode(self, numbers: Sequence[int]) -> list[str]:
        return [self.words[i] for i in numbers]


@dataclass(frozen=True)
class Batch:
    """Source and target sentences of one batch, each with its end token, then padding.

    `guide` gives, for each target position, the source position that it comes from, or NOWHERE. `rationale` gives, for
    each source position, the share of people who marked it as a reason for the answer; 0 on special words and padding.
    While many replicas of a model are trained as one, an axis of replicas comes first.
    """

    source: Int[Tensor, "*replicas batch source"]
    source_mask: Bool[Tensor, "*replicas batch source"]
    target: Int[Tensor, "*replicas batch target"]
    target_mask: Bool[Tensor, "*replicas batch target"]
    guide: Int[Tensor, "*replicas batch target"] | None = None
    rationale: Float[Tensor, "*replicas batch source"] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def to(self, device: torch.device | str) -> "Batch":
        return replace(self, **{name: value.to(device) for name, value in self.tensors().items()})

    def clone(self) -> "Batch":
        return replace(self, **{name: value.clone() for name, value in self.tensors().items()})

    def widened(self, source: int, target: int, sentences: int | None = None) -> "Batch":
        """The same sentences with padding up to these widths, and up to so many sentences."""
        more = 0 if sentences is None else sentences - self.source.shape[-2]
        at_source, at_target = (
            (0, width - words.shape[-1], 0, more) for width, words in ((source, self.source), (target, self.target))
        )
        return Batch(
            source=extend(self.source, at_source, value=PAD),
            source_mask=extend(self.source_mask, at_source, value=False),
            target=extend(self.target, at_target, value=PAD),
            target_mask=extend(self.target_mask, at_target, value=False),
            guide=None if self.guide is None else extend(self.guide, at_target, value=NOWHERE),
            rationale=None if self.rationale is None else extend(self.rationale, at_source, value=0.0),
        )

    def copy_from(self, other: "Batch") -> None:
        """Take over the numbers of another batch of the same shape."""
        for name, value in other.tensors().items():
            getattr(self, name).copy_(value)


def pad(rows: Sequence[np.ndarray], fill: int = PAD, kind: type = np.int64) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and the mask of what is no padding."""
    long = lengths(rows)
    mask = np.arange(long.max()) < long[:, None]  # rows x longest
    padded: np.ndarray = np.full(mask.shape, fill, dtype=kind)
    padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(mask)


def lengths(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([len(row) for row in rows])
