"""How much of a decision goes with its top words, and how much do they carry alone? (ERASER: DeYoung et al. 2020, §4.2)

Comprehensiveness is the probability of the decision less that without the top words: high where they were needed.
Sufficiency is the probability less that with the top words alone: low where they are enough. Both are averaged over the
top 1, 5, 10, 20 and 50 % of the words (the area over the perturbation curve, AOPC). Words are cut out of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.probes.drawing import Axes
from attnscope.probes.erasure.erased import Erased
from attnscope.probes.erasure.ordering import RANDOM, Score
from attnscope.probes.erasure.records import Texts, over_draws
from attnscope.probes.erasure.stream import OverScores
from attnscope.probes.reweighing import Reweighing
from attnscope.tasks.batch import Batch

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # DeYoung et al. 2020, §4.2


@dataclass(frozen=True)
class Drops(Texts):
    """What the probability of the decision lost, for each text, random draw (one, unless at random) and share."""

    comprehensiveness: Float[Tensor, "texts draws shares"]
    sufficiency: Float[Tensor, "texts draws shares"]


@dataclass(frozen=True)
class Comprehensiveness(Displayed):
    """For each score, the means over texts; AOPC is the mean over shares."""

    way: str
    shares: tuple[float, ...]
    scores: Mapping[str, Drops]
    texts: int
    left_out: int  # texts of fewer than two words

    def table(self) -> pd.DataFrame:
        """A row a score: both measures, averaged over shares, with their standard deviation over texts."""
        return pd.DataFrame({name: averaged(found) for name, found in self.scores.items()}).T.rename_axis("score")

    def curves(self, measure: str = "comprehensiveness") -> pd.DataFrame:
        """A row a share, a column a score."""
        columns = {name: over_draws(getattr(found, measure)).mean(0) for name, found in self.scores.items()}
        index = pd.Index(self.shares, name="share of words")
        return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        table = self.table()
        errors = pd.DataFrame({name: table[f"{name}_sd"] / self.texts**0.5 for name in MEASURES})
        return plots.bars(table[MEASURES], ax=ax, errors=errors, ylabel="loss of probability (AOPC)")


MEASURES = [field.name for field in fields(Drops)]


def averaged(found: Drops) -> dict[str, float]:
    texts = {name: over_draws(getattr(found, name)).mean(-1) for name in MEASURES}
    means = {name: float(values.mean()) for name, values in texts.items()}
    return means | {f"{name}_sd": float(values.std(correction=0)) for name, values in texts.items()}


class Comprehend(OverScores[Drops]):
    """Comprehensiveness and sufficiency over a stream of texts: of attention, of any score given, and of chance."""

    def __init__(self, way: str = "text", draws: int = 5, seed: int = 0, shares: Sequence[float] = SHARES):
        super().__init__(way, draws, seed)
        check_shares(shares)
        self.shares = tuple(shares)

    def ask(self, reading: Reweighing, batch: Batch, score: Score) -> Drops:
        return drops(reading.model, batch, score, self.way, self.shares, self.seed, reading)

    def result(self) -> Comprehensiveness:
        found = self.gathered()
        return Comprehensiveness(self.way, self.shares, dict(found), len(found[RANDOM]), self.left_out)


def drops(
    model: nn.Module,
    batch: Batch,
    score: Score,
    way: str = "text",
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    reading: Reweighing | None = None,
) -> Drops:
    """Each text of at least two words without its top words, and with these alone.

    Words with equal scores are drawn by the text and the seed. `reading` is what the model made of this batch, if it
    was asked already.
    """
    check_shares(shares)
    texts = Erased.of(model, batch, score, way, seed, reading)
    counts, rows = top_counts(texts.lengths, shares), torch.arange(len(texts.texts), device=texts.texts.device)
    if not len(rows):
        return Drops(*(texts.whole.new_zeros(0, 1, len(shares)) for _ in MEASURES))
    decision = texts.decision[:, None, None].expand(-1, len(shares), 1)
    before = texts.whole.gather(1, texts.decision[:, None])[:, None]  # texts x 1 x 1
    without, alone = (
        found.gather(2, decision)[:, None, :, 0] for found in (texts.without(rows, counts), texts.alone(rows, counts))
    )
    return Drops(before - without, before - alone)


def top_counts(lengths: Int[Tensor, " texts"], shares: Sequence[float]) -> Int[Tensor, "texts shares"]:
    """How many words each share is: rounded up, so at least one; and one stays.

    >>> top_counts(torch.tensor([2, 60]), SHARES)
    tensor([[ 1,  1,  1,  1,  1],
            [ 1,  3,  6, 12, 30]])
    """
    parts = lengths[:, None].double() * torch.tensor(shares, dtype=torch.float64, device=lengths.device)
    rounded = (parts - 1e-9).ceil().long()  # 0.2 times 60 is a little more than 12
    return rounded.minimum(lengths[:, None] - 1).clamp(min=1)


def check_shares(shares: Sequence[float]) -> None:
    require(len(shares) > 0 and all(0 < share < 1 for share in shares), f"shares lie between 0 and 1, not {shares}")
