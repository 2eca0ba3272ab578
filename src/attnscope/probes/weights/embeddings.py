"""What do the words' vectors look like? Heatmaps of embeddings (baan2019 §3, fig. 1)"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import nn

from attnscope.display import Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.models import EncoderDecoder
from attnscope.probes.drawing import Axes
from attnscope.probes.weights.matrices import SIDES, Matrix, as_array


@dataclass(frozen=True)
class Embedding(Displayed):
    """A row a word, a column a dimension."""

    values: Matrix
    words: tuple[str, ...]
    name: str = ""

    @property
    def strong_dimensions(self) -> float:
        """The share of all |weight| that lies in the strongest 5 % of dimensions: 0.05 where all are alike."""
        sizes = np.sort(np.abs(self.values).sum(0))[::-1]
        return float(sizes[: max(1, round(0.05 * len(sizes)))].sum() / sizes.sum()) if sizes.any() else float("nan")

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=list(self.words))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.heatmap(self.values, rows=self.words, ax=ax, title=self.name, diverging=True, xlabel="dimension")


def embedding(model: EncoderDecoder, side: str, words: Sequence[str]) -> Embedding:
    """The table of vectors that encoder or decoder looks words up in; `words` are those of the task's vocabulary."""
    inputs = model.source_inputs if choose("side", side, SIDES) == "encoder" else model.target_inputs
    if not isinstance(inputs.table, nn.Parameter):
        raise BadSetting("one-hot words have no embedding to look at; train a model with inputs='learned'")
    values = as_array(inputs.table)
    require(len(words) == len(values), f"there are {len(words)} words for the {len(values)} vectors of the {side}")
    return Embedding(values, tuple(words), f"{side} embedding")
