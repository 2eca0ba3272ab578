"""How are the answers about single texts gathered, by the name of the score that they are about?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import torch
from torch import Tensor

from attnscope.errors import AttnscopeError

R = TypeVar("R", bound="Texts")


@dataclass(frozen=True)
class Texts:
    """Tensors whose first axis is that of the texts."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __add__(self: R, other: R) -> R:
        """These texts, then those."""
        return joined([self, other], 0)


def joined(records: Sequence[R], axis: int) -> R:
    """On the first axis, other texts; on the second, the same texts by other scores, which are draws."""
    kind = type(records[0])
    return kind(**{f.name: torch.cat([getattr(one, f.name) for one in records], axis) for f in fields(kind)})


def over_draws(values: Tensor) -> Tensor:
    """The mean over the second axis, for each text."""
    return values.double().mean(1)


class Gathered(Generic[R]):
    """Records so far, by the name of the score, and how many texts had to be left out."""

    def __init__(self) -> None:
        self.records: dict[str, R] = {}
        self.left_out = 0

    def add(self, records: Mapping[str, R], left_out: int) -> None:
        if self.records and set(self.records) != set(records):
            raise AttnscopeError(
                f"every text needs the same scores: first {', '.join(self.records)}, then {', '.join(records)}"
            )
        self.records = {name: self.records[name] + new if self.records else new for name, new in records.items()}
        self.left_out += left_out

    def merge(self, other: "Gathered[R]") -> None:
        """Take in what another pass, over other texts, has gathered."""
        if other.records:
            self.add(other.records, other.left_out)

    def gathered(self) -> dict[str, R]:
        if not self.records:
            raise AttnscopeError("nothing has come by yet; give at least one batch before asking for a result")
        if not any(map(len, self.records.values())):
            raise AttnscopeError(f"all {self.left_out} texts had to be left out; nothing can be said about them")
        return self.records
