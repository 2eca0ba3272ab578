"""How does a word stand to the words around it, and to the decoder's time? (aitken2021 §4.2, figure 6)"""

# TODO(docstring) join:
#   Do the readout vectors and the input components implement a dictionary? (aitken2021 §4.1, figures 4c and 5d)
#   Do words sit on the vertices of a simplex, all equally far apart? (aitken2021 §3, figure 2b)
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.probes.decomposition.components import Components, Parts
from attnscope.probes.decomposition.terms import terms
from attnscope.tasks.batch import SPECIALS


class DecomposedBatch(NamedTuple):
    """A batch of sentences, with the parts of their queries and keys."""

    source: Int[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]
    queries: Parts
    keys: Parts

    def terms(self, head: int = 0) -> Float[Tensor, "3 3 batch target source"]:
        return terms(self.queries, self.keys)[:, :, :, head]


# Does a word know the one before it? ---------------------------------------------------------------------------------


def states_by_preceding_word(
    sentences: Iterable[DecomposedBatch], word: int, before: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """χ + Δ of every occurrence of a word, by the word that it follows."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for batch in sentences:
        here = (batch.source[:, 1:] == word) & batch.source_mask[:, 1:]
        for name, number in before.items():
            after = here & (batch.source[:, :-1] == number)
            found[name].append(batch.keys.input_delta[:, 0, 1:][after].cpu().numpy())
    return {name: np.concatenate(states) for name, states in found.items()}


def variance_between_groups(groups: Mapping[str, Float[np.ndarray, "_ key"]]) -> float:
    """The share of the variance that lies between the groups (η²).

    >>> variance_between_groups({"run": np.zeros((2, 1)), "walk": np.ones((2, 1))})
    1.0
    """
    everything = np.concatenate(list(groups.values()))
    total = ((everything - everything.mean(0)) ** 2).sum()
    between = sum(len(group) * ((group.mean(0) - everything.mean(0)) ** 2).sum() for group in groups.values())
    return float(between / total) if total > 0 else 0.0


# Where does attention fall when a word is read? ----------------------------------------------------------------------


@dataclass(frozen=True)
class ScoresAroundWord(Displayed):
    """With a word at t = s: the alignment by offset t − s and its parts; and how often t = s − 1 is the largest."""

    offsets: Sequence[int]
    curves: Mapping[str, Float[np.ndarray, " offsets"]]
    share: float

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.curves, index=pd.Index(self.offsets, name="offset"))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.profiles(
            np.array(self.offsets), dict(self.curves), ax=ax, xlabel="offset t − s", ylabel="alignment"
        )


def scores_around_word(sentences: Iterable[DecomposedBatch], word: int, offsets: Sequence[int]) -> ScoresAroundWord:
    """Over all places where every offset lies within the sentence."""
    total, steps, hits = torch.zeros(3, 3, len(offsets), dtype=torch.float64), 0, 0
    for batch in sentences:
        nine = batch.terms()
        row, step = places(batch, word, offsets)
        largest = nine.sum((0, 1)).masked_fill(~batch.source_mask[:, None], -torch.inf).argmax(-1)
        window = step[:, None] + torch.tensor(offsets, device=step.device)  # places x offsets
        total += nine[:, :, row[:, None], step[:, None], window].double().sum(2).cpu()
        steps, hits = steps + len(step), hits + int((largest[row, step] == step - 1).sum())
    mean = (total / max(steps, 1)).numpy()
    curves = {
        "alignment": mean.sum((0, 1)),
        "μ·μ": mean[0, 0],
        "μ·(χ + Δ)": mean[0, 1] + mean[0, 2],
        "rest": mean[1:].sum((0, 1)),
    }
    return ScoresAroundWord(offsets, curves, hits / max(steps, 1))


def places(
    batch: DecomposedBatch, word: int, offsets: Sequence[int]
) -> tuple[Int[Tensor, " places"], Int[Tensor, " places"]]:
    """Sentences and steps at which the word is read and something said, with room for every offset."""
    row, step = ((batch.source == word) & batch.source_mask).nonzero().unbind(1)
    said = step < batch.target_mask.shape[1]
    row, step = row[said], step[said]
    inside = (step + min(offsets) >= 0) & (step + max(offsets) < batch.source_mask.sum(1)[row])
    kept = inside & batch.target_mask[row, step]
    return row[kept], step[kept]


# Does a word lean towards the decoder's time, or away from it? -------------------------------------------------------


@dataclass(frozen=True)
class WordTimeProducts(Displayed):
    """For each word and offset t − s, the mean dot product of its χ + Δ with the decoder at s."""

    offsets: Sequence[int]
    curves: Mapping[str, Float[np.ndarray, " offsets"]]

    def at(self, word: str, offset: int = 0) -> float:
        return float(self.curves[word][list(self.offsets).index(offset)])

    def gain(self, word: str) -> float:
        """The slope over offsets: how much a step ahead adds."""
        return float(np.polyfit(list(self.offsets), self.curves[word], 1)[0])

    def largest(self, word: str) -> float:
        return float(max(self.curves[word]))

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.curves, index=pd.Index(self.offsets, name="offset"))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.profiles(
            np.array(self.offsets), dict(self.curves), ax=ax, xlabel="offset t − s", ylabel="decoder · (χ + Δ)"
        )


def word_time_products(
    sentences: Iterable[DecomposedBatch], words: Mapping[str, int], offsets: Sequence[int], temporal: bool = True
) -> WordTimeProducts:
    """Towards the decoder's temporal part μ(s), or towards its full state."""
    sums = {word: np.zeros((len(offsets), 2)) for word in words}
    for batch in sentences:
        by_part = batch.terms()[:, 1:].sum(1)  # 3 x batch x target x source: decoder part · (χ + Δ)
        dots = by_part[0] if temporal else by_part.sum(0)
        for place, offset in enumerate(offsets):
            values, read = shifted(dots, batch, offset)
            for word, number in words.items():
                chosen = values[read == number]
                sums[word][place] += [chosen.sum().item(), len(chosen)]
    return WordTimeProducts(offsets, {word: total[:, 0] / np.maximum(total[:, 1], 1) for word, total in sums.items()})


def shifted(
    dots: Float[Tensor, "batch target source"], batch: DecomposedBatch, offset: int
) -> tuple[Float[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """All pairs with t = s + offset: their dot products, and the words at t."""
    steps, positions = dots.shape[1:]
    own = torch.arange(max(0, -offset), min(steps, positions - offset), device=dots.device)
    real = batch.target_mask[:, own] & batch.source_mask[:, own + offset]
    return dots[:, own, own + offset][real], batch.source[:, own + offset][real]


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


def readout_per_head(readout: Float[Tensor, "outputs context"], heads: int) -> Float[Tensor, "heads outputs key"]:
    """Readout vectors of a context that joins several heads end to end, cut into one piece a head."""
    return torch.stack(readout.chunk(heads, -1))


def max_deviation_from_simplex(words: Float[np.ndarray, "words key"]) -> float:
    """By how much the cosine of two centred words differs from −1 / (N − 1), that of a simplex' vertices, at most.

    >>> max_deviation_from_simplex(np.array([[3.0, 0.0], [0.0, 3.0]])) < 1e-12
    True
    """
    centred = words - words.mean(0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return max(abs(float(a @ b) + 1 / (len(words) - 1)) for a, b in combinations(unit, 2))
