"""What is a classifier given? Recorded states, their labels, and what must be held out together (baan2019 §4.1)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import choose, require

SPLITS = ("sequence", "token")


@dataclass(frozen=True)
class Samples:
    """A row a step: what the units did, the feature, the sequence that it is of, and its kind, for control tasks."""

    states: Float[np.ndarray, "steps units"]
    labels: Int[np.ndarray, " steps"]
    sequences: Int[np.ndarray, " steps"]
    kinds: Int[np.ndarray, " steps"] | None = None

    @classmethod
    def of(
        cls,
        states: Float[Tensor, "batch steps units"],
        labels: Int[Tensor, "batch steps"],
        mask: Bool[Tensor, "batch steps"],
        kinds: Int[Tensor, "batch steps"] | None = None,
    ) -> "Samples":
        """Only the steps in the mask: those at which the feature has a value."""
        kept = mask.cpu().numpy()
        rows = np.broadcast_to(np.arange(len(kept))[:, None], kept.shape)
        read = states.detach().double().cpu().numpy()[kept]
        require(bool(np.isfinite(read).all()), "a state within the mask is no number; give finite states")
        return cls(read, labels.cpu().numpy()[kept], rows[kept], None if kinds is None else kinds.cpu().numpy()[kept])

    @classmethod
    def joined(cls, parts: Sequence["Samples"]) -> "Samples":
        """Those of several batches as one; sequences of different batches are different sequences."""
        require(bool(parts), "there are no samples to join; give at least one batch")
        firsts = np.cumsum([0] + [int(part.sequences.max(initial=-1)) + 1 for part in parts[:-1]])
        kinds = [part.kinds for part in parts if part.kinds is not None]
        require(len(kinds) in (0, len(parts)), "some batches say of what kind their steps are, others do not")
        return cls(
            np.concatenate([part.states for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.sequences + first for part, first in zip(parts, firsts, strict=True)]),
            np.concatenate(kinds) if kinds else None,
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def units(self) -> int:
        return int(self.states.shape[1])

    @property
    def classes(self) -> Int[np.ndarray, " classes"]:
        return np.unique(self.labels)

    @property
    def majority(self) -> float:
        """What always saying the most frequent label would get right (footnote 6)."""
        return float(np.unique(self.labels, return_counts=True)[1].max() / len(self))


@dataclass(frozen=True)
class Split:
    """Which rows are learned from, and which are held out."""

    seen: Int[np.ndarray, " seen"]
    unseen: Int[np.ndarray, " unseen"]


def splits(samples: Samples, by: str, held_out: float, repeats: int, seed: int) -> Iterator[Split]:
    """So many independent draws. By sequence, all steps of one are on the same side; by token (the released code),
    each step goes where chance puts it, so that a state may be tested on its neighbours."""
    choose("way to split", by, SPLITS)
    groups = samples.sequences if by == "sequence" else np.arange(len(samples))
    names = np.unique(groups)
    out = round(held_out * len(names))
    require(
        0 < out < len(names),
        f"held_out={held_out} of {len(names)} {by}s leaves nothing on one of the two sides; both need at least one",
    )
    random = np.random.default_rng(seed)
    for _ in range(repeats):
        chosen = np.isin(groups, random.permutation(names)[:out])
        yield Split(np.flatnonzero(~chosen), np.flatnonzero(chosen))
