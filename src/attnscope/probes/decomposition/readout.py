"""Do the readout vectors and the input components implement a dictionary? (aitken2021 §4.1, figures 4c and 5d)"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.decomposition.components import Components
from attnscope.probes.drawing import Axes
from attnscope.tasks.batch import SPECIALS


@dataclass(frozen=True)
class ReadoutAlignment(Displayed):
    """The dot product of each output word's readout vector with each input word's component χ."""

    products: Float[Tensor, "outputs inputs"]
    seen: Bool[Tensor, " inputs"]  # whether the fit saw the input word

    @property
    def outputs(self) -> list[int]:
        """The output words proper."""
        return list(range(len(SPECIALS), len(self.products)))

    @property
    def inputs(self) -> list[int]:
        """The input words proper that were seen."""
        return [word for word in self.seen.nonzero().flatten().tolist() if word >= len(SPECIALS)]

    @property
    def proper(self) -> Float[Tensor, "_ _"]:
        return self.products[self.outputs][:, self.inputs]

    def dictionary(self) -> dict[int, int]:
        """For each output word, the input word whose component its readout vector is best aligned with."""
        best = self.proper.argmax(1).tolist()
        return {output: self.inputs[i] for output, i in zip(self.outputs, best, strict=True)}

    def inverse(self) -> dict[int, int]:
        """For each input word, the output word whose readout vector its component is best aligned with."""
        best = self.proper.argmax(0).tolist()
        return {word: self.outputs[i] for word, i in zip(self.inputs, best, strict=True)}

    def table(self, outputs: Sequence[str] | None = None, inputs: Sequence[str] | None = None) -> pd.DataFrame:
        """A row an output word, a column an input word; words by name where names are given."""
        rows = [outputs[i] if outputs else i for i in self.outputs]
        columns = [inputs[i] if inputs else i for i in self.inputs]
        return pd.DataFrame(self.proper.cpu().numpy(), pd.Index(rows, name="output"), pd.Index(columns, name="input"))

    def plot(
        self, ax: Axes | None = None, outputs: Sequence[str] | None = None, inputs: Sequence[str] | None = None
    ) -> Axes:
        from attnscope import plots

        table = self.table(outputs, inputs)
        rows, columns = [str(word) for word in table.index], [str(word) for word in table.columns]
        return plots.heatmap(table.to_numpy(), rows=rows, columns=columns, ax=ax, title="readout · input component")


def readout_alignment(readout: Float[Tensor, "outputs key"], components: Components, head: int = 0) -> ReadoutAlignment:
    """`readout` is the half of the readout vectors that meets the context (footnote 6); specials have no say."""
    input_ = components.input[head]
    products = readout.detach().to(input_) @ input_.T
    return ReadoutAlignment(products, components.word_counts > 0)


def cut_per_head(readout: Float[Tensor, "outputs context"], heads: int) -> Float[Tensor, "heads outputs key"]:
    """Readout vectors of a context that joins several heads end to end, cut into one piece a head."""
    return torch.stack(readout.chunk(heads, -1))
