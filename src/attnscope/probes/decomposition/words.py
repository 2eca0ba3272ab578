"""How do tokens interact with their neighbours, with time, and with the readout? (aitken2021 §4.1 and §4.2)

The states of a word by the preceding word, scores around a word, and its products with the decoder's time (figure 6);
readout vectors and input components as a dictionary (figures 4c, 5d); tokens on the vertices of a simplex (figure 2b).
"""

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
    """A batch of sentences with the parts of their queries and keys."""

    source: Int[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]
    queries: Parts
    keys: Parts

    def terms(self, head: int = 0) -> Float[Tensor, "3 3 batch target source"]:
        return terms(self.queries, self.keys)[:, :, :, head]


# States by the preceding word -----------------------------------------------------------------------------------------


def states_by_preceding_word(
    sentences: Iterable[DecomposedBatch], word: int, before: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return χ + Δ of every occurrence of a word, by the word that it follows."""
    states: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for batch in sentences:
        here = (batch.source[:, 1:] == word) & batch.source_mask[:, 1:]
        for name, token in before.items():
            after = here & (batch.source[:, :-1] == token)
            states[name].append(batch.keys.input_delta[:, 0, 1:][after].cpu().numpy())
    return {name: np.concatenate(parts) for name, parts in states.items()}


def variance_between_groups(groups: Mapping[str, Float[np.ndarray, "_ key"]]) -> float:
    """Return the share of the variance that lies between the groups (η²).

    >>> variance_between_groups({"run": np.zeros((2, 1)), "walk": np.ones((2, 1))})
    1.0
    """
    everything = np.concatenate(list(groups.values()))
    total = ((everything - everything.mean(0)) ** 2).sum()
    between = sum(len(group) * ((group.mean(0) - everything.mean(0)) ** 2).sum() for group in groups.values())
    return float(between / total) if total > 0 else 0.0


# Scores around a word -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoresAroundWord(Displayed):
    """With a word at t = s: the mean score by offset t − s and its parts; and how often t = s − 1 has the largest."""

    offsets: Sequence[int]
    curves: Mapping[str, Float[np.ndarray, " offsets"]]
    share: float

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.curves, index=pd.Index(self.offsets, name="offset"))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.profiles(np.array(self.offsets), dict(self.curves), ax=ax, xlabel="offset t − s", ylabel="score")


def scores_around_word(sentences: Iterable[DecomposedBatch], word: int, offsets: Sequence[int]) -> ScoresAroundWord:
    """Return the means over all places where every offset lies within the sentence."""
    total, count, hits = torch.zeros(3, 3, len(offsets), dtype=torch.float64), 0, 0
    for batch in sentences:
        nine = batch.terms()
        row, step = word_places(batch, word, offsets)
        largest = nine.sum((0, 1)).masked_fill(~batch.source_mask[:, None], -torch.inf).argmax(-1)
        window = step[:, None] + torch.tensor(offsets, device=step.device)  # places x offsets
        total += nine[:, :, row[:, None], step[:, None], window].double().sum(2).cpu()
        count, hits = count + len(step), hits + int((largest[row, step] == step - 1).sum())
    mean = (total / max(count, 1)).numpy()
    curves = {
        "score": mean.sum((0, 1)),
        "μ·μ": mean[0, 0],
        "μ·(χ + Δ)": mean[0, 1] + mean[0, 2],
        "rest": mean[1:].sum((0, 1)),
    }
    return ScoresAroundWord(offsets, curves, hits / max(count, 1))


def word_places(
    batch: DecomposedBatch, word: int, offsets: Sequence[int]
) -> tuple[Int[Tensor, " places"], Int[Tensor, " places"]]:
    """Return the sentences and steps at which the word is read and a token is output, with room for every offset."""
    row, step = ((batch.source == word) & batch.source_mask).nonzero().unbind(1)
    within = step < batch.target_mask.shape[1]
    row, step = row[within], step[within]
    inside = (step + min(offsets) >= 0) & (step + max(offsets) < batch.source_mask.sum(1)[row])
    counted = inside & batch.target_mask[row, step]
    return row[counted], step[counted]


# Products with the decoder's time -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordTimeProducts(Displayed):
    """For each word and offset t − s, the mean dot product of its χ + Δ with the decoder at s."""

    offsets: Sequence[int]
    curves: Mapping[str, Float[np.ndarray, " offsets"]]

    def at(self, word: str, offset: int = 0) -> float:
        return float(self.curves[word][list(self.offsets).index(offset)])

    def gain(self, word: str) -> float:
        """Return the slope over offsets: how much one step ahead adds."""
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
    """Return the mean products with the decoder's temporal part μ(s), or with its full state."""
    sums = {word: np.zeros((len(offsets), 2)) for word in words}
    for batch in sentences:
        by_part = batch.terms()[:, 1:].sum(1)  # 3 x batch x target x source: decoder part · (χ + Δ)
        dots = by_part[0] if temporal else by_part.sum(0)
        for place, offset in enumerate(offsets):
            values, tokens = pairs_at_offset(dots, batch, offset)
            for word, token in words.items():
                chosen = values[tokens == token]
                sums[word][place] += [chosen.sum().item(), len(chosen)]
    return WordTimeProducts(offsets, {word: total[:, 0] / np.maximum(total[:, 1], 1) for word, total in sums.items()})


def pairs_at_offset(
    dots: Float[Tensor, "batch target source"], batch: DecomposedBatch, offset: int
) -> tuple[Float[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Return the dot products of all pairs with t = s + offset, and the tokens at t."""
    steps, positions = dots.shape[1:]
    own = torch.arange(max(0, -offset), min(steps, positions - offset), device=dots.device)
    real = batch.target_mask[:, own] & batch.source_mask[:, own + offset]
    return dots[:, own, own + offset][real], batch.source[:, own + offset][real]


@dataclass(frozen=True)
class ReadoutAlignment(Displayed):
    """The dot product of each output word's readout vector with each input word's component χ."""

    products: Float[Tensor, "outputs inputs"]
    in_fit: Bool[Tensor, " inputs"]  # whether the input is a word that occurs in the fit, not a special token

    @property
    def outputs(self) -> list[int]:
        """The output words, without special tokens."""
        return list(range(len(SPECIALS), len(self.products)))

    @property
    def inputs(self) -> list[int]:
        """The input words that occur in the fit, without special tokens."""
        return list[int](self.in_fit.nonzero().flatten().tolist())

    @property
    def without_special(self) -> Float[Tensor, "_ _"]:
        return self.products[self.outputs][:, self.inputs]

    def dictionary(self) -> dict[int, int]:
        """Return, for each output word, the input word whose component its readout vector is best aligned with."""
        best = self.without_special.argmax(1).tolist()
        return {output: self.inputs[i] for output, i in zip(self.outputs, best, strict=True)}

    def inverse(self) -> dict[int, int]:
        """Return, for each input word, the output word whose readout vector its component is best aligned with."""
        best = self.without_special.argmax(0).tolist()
        return {word: self.outputs[i] for word, i in zip(self.inputs, best, strict=True)}

    def table(self, outputs: Sequence[str] | None = None, inputs: Sequence[str] | None = None) -> pd.DataFrame:
        """Return one row per output word, one column per input word; words by name where names are passed."""
        rows = [outputs[i] if outputs else i for i in self.outputs]
        columns = [inputs[i] if inputs else i for i in self.inputs]
        return pd.DataFrame(
            self.without_special.cpu().numpy(), pd.Index(rows, name="output"), pd.Index(columns, name="input")
        )

    def plot(
        self, ax: Axes | None = None, outputs: Sequence[str] | None = None, inputs: Sequence[str] | None = None
    ) -> Axes:
        from attnscope import plots

        table = self.table(outputs, inputs)
        rows, columns = [str(word) for word in table.index], [str(word) for word in table.columns]
        return plots.heatmap(table.to_numpy(), rows=rows, columns=columns, ax=ax, title="readout · input component")


def readout_alignment(readout: Float[Tensor, "outputs key"], components: Components, head: int = 0) -> ReadoutAlignment:
    """Return the products of readout vectors with input components.

    Args:
        readout: The half of the readout vectors that is multiplied with the context (footnote 6).
        components: Of the encoder.
        head: The head of the components.
    """
    input_ = components.input[head]
    products = readout.detach().to(input_) @ input_.T
    return ReadoutAlignment(products, components.is_word)


def readout_per_head(readout: Float[Tensor, "outputs context"], heads: int) -> Float[Tensor, "heads outputs key"]:
    """Return the readout vectors of a context that concatenates several heads, one part per head."""
    return torch.stack(readout.chunk(heads, -1))


def max_deviation_from_simplex(words: Float[np.ndarray, "words key"]) -> float:
    """Return by how much the cosine of two centred words differs at most from −1 / (N − 1), that of a simplex.

    >>> max_deviation_from_simplex(np.array([[3.0, 0.0], [0.0, 3.0]])) < 1e-12
    True
    """
    centred = words - words.mean(0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return max(abs(float(a @ b) + 1 / (len(words) - 1)) for a, b in combinations(unit, 2))
