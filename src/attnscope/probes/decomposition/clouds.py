"""What do the first states of a stream look like without their time steps? (aitken2021 figures 2b, 3c, 6a)"""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, cat

from attnscope.probes.decomposition.components import Parts
from attnscope.probes.decomposition.sides import Side

LIMIT = 1000  # vectors kept for a picture


@dataclass(frozen=True)
class Cloud:
    """The input-delta vectors of the first states of a stream, each with its word; never more than the limit."""

    vectors: Float[Tensor, "points heads key"]
    words: Int[Tensor, " points"]
    limit: int = LIMIT

    @property
    def room(self) -> int:
        return self.limit - len(self.words)

    def __add__(self, later: "Cloud") -> "Cloud":
        if not self.room:
            return self
        vectors, words = later.vectors[: self.room].to(self.vectors), later.words[: self.room].to(self.words)
        return Cloud(cat([self.vectors, vectors]), cat([self.words, words]), self.limit)


def cloud(side: Side, parts: Parts, limit: int = LIMIT) -> Cloud:
    """Each sequence has a state at least, so that the first `limit` sequences are enough."""
    mask = side.mask[:limit]
    vectors = parts.input_delta[:limit].transpose(1, 2)  # batch x time x heads x key
    return Cloud(vectors[mask][:limit], side.words[:limit][mask][:limit], limit)
