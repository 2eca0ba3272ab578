"""How is attention formed, by layer and head? (aitken2021, for models of any depth)"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnscope.display import Displayed, Figure
from attnscope.probes.accumulator import Accumulator
from attnscope.probes.decomposition.shares import FEW, TOP
from attnscope.probes.drawing import Axes
from attnscope.probes.heads.looking import Looking, LookingSums, looking_sums
from attnscope.probes.heads.parts import GROUPS, Parts, Split
from attnscope.probes.heads.pictures import by_head, grid, grids
from attnscope.probes.heads.stream import Item, Pass, is_special, taken
from attnscope.probes.stream import Model, Stream, check_twice


@dataclass(frozen=True)
class Formed(Displayed):
    """What makes the attention of each head, and how it looks about."""

    parts: Parts
    looking: Looking
    sentences: int
    words: int  # output words, end tokens among them

    def table(self) -> pd.DataFrame:
        """A row a layer and head: shares of time, word and rest, then how it looks about."""
        shares = dict(zip(GROUPS, self.parts.groups.unbind(-1), strict=True))
        looks = {
            "entropy": self.looking.entropy, "offset": self.looking.offset, "spread": self.looking.spread,
            "on specials": self.looking.specials,
        }  # fmt: skip
        common = self.parts.common
        often = {} if common is None else dict(zip(GROUPS, common.unbind(-1), strict=True))
        return by_head(shares | looks | {f"{name}, common words": values for name, values in often.items()})

    def plot(self, column: str = "time", ax: Axes | None = None) -> Axes:
        """One column of the table, a layer a row, a head a column."""
        return grid(self.table(), column, ax)

    def pictures(self) -> Figure:
        """Small multiples: all but what is measured on common words."""
        table = self.table()
        return grids(table, [name for name in table.columns if not name.endswith("common words")])


def formed(
    model: Model, batches: Stream[Item], most: int | None = None, top: int = TOP, few: int = FEW, **forward: Any
) -> Formed:
    """Of all layers and heads, from two passes of the model over the first `most` sentences.

    The first pass finds the components, the second the shares; memory goes with the words that were seen, and not with
    the sentences. What else is given goes to the forward pass. The model is left as it was.
    """
    check_twice(batches, ", one for components and one for their shares")
    split, looked = Split(top, few), Accumulator[LookingSums]()
    for sentences in taken(batches, model, most):
        seen = Pass.of(model, sentences.batch, forward)
        split.fit(seen.trace)
        looked.add(looking_sums(seen, is_special(model, sentences.batch)))
    for sentences in taken(batches, model, most):
        split.measure(Pass.of(model, sentences.batch, forward))
    total = looked.total
    return Formed(split.result(), total.looking(), total.sentences, int(total.words))
