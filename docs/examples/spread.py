"""Over how many words is attention spread? 1 where one word gets all of it, n where n words get the same."""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.models import PRESETS, EncoderDecoder, Trace
from attnscope.models.inference import Model, traces
from attnscope.models.inputs import Data
from attnscope.probes import PROBES, Probe
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.tasks import OneToOne


def spread(trace: Trace) -> Float[Tensor, "batch target"]:
    """e to the power of the entropy of each output word's attention, the mean over heads; meaningless on padding."""
    return torch.special.entr(trace.attention).sum(-1).exp().mean(1)


@dataclass(frozen=True)
class Spread(Displayed):
    """The mean over sentences, by output position."""

    words: Float[Tensor, " target"]

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"words": self.words.numpy()}).rename_axis("output position")

    def plot(self, ax=None):
        from attnscope import plots  # here, so that matplotlib is loaded only when something is drawn

        return plots.profiles(range(len(self.words)), {"words": self.words.numpy()}, ax, "output position", "words")


@dataclass(frozen=True)
class SpreadSums(Sums):
    words: Float[Tensor, " target"]
    sentences: Int[Tensor, " target"]


def spread_of(model: Model, data: Data = None) -> Spread:
    sums = Accumulator[SpreadSums]()
    for _, trace in traces(model, data):  # of any data; no gradients, evaluation mode, afterwards as before
        there = trace.target_mask
        sums.add(SpreadSums(torch.where(there, spread(trace), 0).double().sum(0).cpu(), there.sum(0).cpu()))
    kept = sums.total.sentences > 0  # the last position has none if you leave END out of `there`
    return Spread(sums.total.words[kept] / sums.total.sentences[kept])


PROBES["spread"] = Probe("spread", "Over how many tokens is attention spread?", spread_of)

if __name__ == "__main__":
    task = OneToOne(min_length=3, max_length=6)
    model = EncoderDecoder(PRESETS["ao"], len(task.source_vocabulary), len(task.target_vocabulary))
    print(spread_of(model, task).table())
