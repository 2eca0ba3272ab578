"""Batches of padded token ids with masks and, where known, gold attention; vocabularies."""

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
NOWHERE = -1  # in gold attention: no source position is known for this step

# The tensors of a batch: the padding value of each, and those with one value per source position.
PADDING = {
    "source": PAD, "source_mask": False, "target": PAD, "target_mask": False, "gold_attention": NOWHERE,
    "rationale": 0.0, "source_special": True,
}  # fmt: skip
SOURCE_SIDE = ("source", "source_mask", "rationale", "source_special")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of one side; the three special ones come first in every vocabulary.

    >>> Vocabulary.of(["run", "walk"]).encode(["walk", "run", "<end>"])
    [4, 3, 1]
    """

    tokens: tuple[str, ...]

    @classmethod
    def of(cls, tokens: Sequence[str]) -> "Vocabulary":
        """Return the vocabulary of the special tokens, followed by these."""
        return cls((*SPECIALS, *tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token to token id."""
        return {token: i for i, token in enumerate(self.tokens)}

    def encode(self, tokens: Sequence[str]) -> list[int]:
        return [self.ids[token] for token in tokens]

    def decode(self, ids: Sequence[int]) -> list[str]:
        return [self.tokens[i] for i in ids]


@dataclass(frozen=True)
class Batch:
    """Source and target sentences of one batch, each with its end token, then padding.

    While several seeds of a model are trained as one, an axis of seeds (`replicas`) comes first.

    Attributes:
        source: Token ids, batch x source, padded on the right.
        source_mask: False on padding.
        target: Token ids, batch x target.
        target_mask: False on padding.
        gold_attention: For each target position, the source position that it comes from, or NOWHERE.
        rationale: For each source position, the fraction of annotators who marked it as a reason for the label; 0 on
            special tokens and padding.
        source_special: True at source positions that hold special tokens, such as [CLS], where token ids are those of
            a model with its own tokenizer. None: the special tokens are those of SPECIALS.
    """

    source: Int[Tensor, "*replicas batch source"]
    source_mask: Bool[Tensor, "*replicas batch source"]
    target: Int[Tensor, "*replicas batch target"]
    target_mask: Bool[Tensor, "*replicas batch target"]
    gold_attention: Int[Tensor, "*replicas batch target"] | None = None
    rationale: Float[Tensor, "*replicas batch source"] | None = None
    source_special: Bool[Tensor, "*replicas batch source"] | None = None

    @property
    def word_mask(self) -> Bool[Tensor, "*replicas batch source"]:
        """Source positions that hold words: no padding, no special tokens."""
        special = self.source < len(SPECIALS) if self.source_special is None else self.source_special
        return self.source_mask & ~special

    def __len__(self) -> int:
        return len(self.source)

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def to(self, device: torch.device | str) -> "Batch":
        return replace(self, **{name: value.to(device) for name, value in self.tensors().items()})

    def clone(self) -> "Batch":
        return replace(self, **{name: value.clone() for name, value in self.tensors().items()})

    def widened(self, source: int, target: int, sentences: int | None = None) -> "Batch":
        """Return the same sentences with more padding.

        Args:
            source: The new number of source positions.
            target: The new number of target positions.
            sentences: The new number of sentences, by adding empty ones; None: the same.
        """
        more = 0 if sentences is None else sentences - self.source.shape[-2]
        widths = {name: source if name in SOURCE_SIDE else target for name in PADDING}
        return Batch(
            **{
                name: extend(value, (0, widths[name] - value.shape[-1], 0, more), value=PADDING[name])
                for name, value in self.tensors().items()
            }
        )

    def rows(self, rows: slice) -> "Batch":
        """Return the sentences of a slice, without columns that are padding in all of them."""
        source, target = (int(mask[rows].sum(1).max()) for mask in (self.source_mask, self.target_mask))
        tensors = self.tensors().items()
        return Batch(**{name: value[rows, : source if name in SOURCE_SIDE else target] for name, value in tensors})

    def keep(
        self, rows: Int[Tensor, " rows"], keep_mask: Bool[Tensor, "rows source"], in_place: bool = False
    ) -> "Batch":
        """Return the sentences `rows` with only the source positions in `keep_mask`, trimmed to the longest.

        Args:
            rows: Indices of the sentences.
            keep_mask: For each of them, True at the source positions to keep.
            in_place: Whether other positions are masked where they are; else they are deleted, and later ones move up.
        """
        if in_place:
            order = torch.arange(int(self.source_mask[rows].sum(1).max()), device=rows.device).expand(len(rows), -1)
        else:
            order = (~keep_mask).long().argsort(dim=1, stable=True)[:, : int(keep_mask.sum(1).max())]  # kept ones first
        mask = keep_mask.gather(1, order)
        return Batch(
            source=self.source[rows].gather(1, order).masked_fill(~mask, PAD),
            source_mask=mask,
            target=self.target[rows],
            target_mask=self.target_mask[rows],
            source_special=None if self.source_special is None else self.source_special[rows].gather(1, order),
        )

    def copy_from(self, other: "Batch") -> None:
        """Copy the tensors of another batch of the same shape."""
        for name, value in other.tensors().items():
            getattr(self, name).copy_(value)


def pad(rows: Sequence[np.ndarray], fill: int = PAD, kind: type = np.int64) -> tuple[Tensor, Tensor]:
    """Return rows of different lengths as one padded tensor, and its mask, False on padding.

    Args:
        rows: One array per row.
        fill: The padding value.
        kind: The NumPy type of the result.
    """
    row_lengths = lengths(rows)
    mask = np.arange(row_lengths.max()) < row_lengths[:, None]  # rows x longest
    padded: np.ndarray = np.full(mask.shape, fill, dtype=kind)
    padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(mask)


def lengths(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([len(row) for row in rows])
