"""How are scores compared with each other, and with chance, over a stream of texts?"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from torch import nn

from attnscope.errors import require
from attnscope.probes.agreement.scores import attention_scores
from attnscope.probes.erasure.erased import long_enough
from attnscope.probes.erasure.ordering import Score, orders
from attnscope.probes.erasure.records import Gathered, Texts, joined
from attnscope.probes.erasure.removal import way_named
from attnscope.probes.reweighing import Reweighing
from attnscope.tasks.batch import Batch

R = TypeVar("R", bound=Texts)


class OverScores(Gathered[R], Generic[R]):
    """Attention, the scores that are given, and as many random ones as `draws` says, each asked the same.

    `way` is "attention" (set to zero and renormalised) or "text" (words cut out, the rest read anew). Texts of fewer
    than two words are left out, for one word always stays. Every text draws its own random scores.
    """

    def __init__(self, way: str, draws: int, seed: int):
        super().__init__()
        require(draws > 0, f"draws={draws}: chance needs at least one random score")
        way_named(way)
        self.way, self.draws, self.seed = way, draws, seed

    def update(self, model: nn.Module, batch: Batch, scores: Mapping[str, Score] | None = None) -> None:
        reading = Reweighing.of(model, batch)
        everything = {"attention": attention_scores(reading.trace)} | dict(scores or {})
        named = orders(everything, batch, self.draws, self.seed)
        found = {name: joined([self.ask(reading, batch, one) for one in drawn], 1) for name, drawn in named.items()}
        self.add(found, left_out=int((~long_enough(batch)).sum()))

    @abstractmethod
    def ask(self, reading: Reweighing, batch: Batch, score: Score) -> R:
        """What this score says about these texts."""
