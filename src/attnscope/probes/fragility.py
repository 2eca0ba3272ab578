"""How much do predictions depend on attention? (tutek2020 §3.2, §4.1, table 1)

A trained classifier predicts with uniform attention, and with its own weights permuted among the tokens of the text
that may be attended to: never onto padding, nor onto special tokens that the model leaves out. A permutation depends on
the seed, its number and the tokens of the text, not on the batch. Several heads are permuted independently.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.attention import uniform
from attnscope.models.inference import Model
from attnscope.models.inputs import Data, as_batches
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.tasks.batch import SPECIALS, Batch
from attnscope.training.evaluation import Decisions

NUM_PERMUTATIONS = 100  # Jain and Wallace 2019
MAX_WEIGHTS = 1 << 22  # permuted at a time


@dataclass(frozen=True)
class Fragility(Displayed):
    """The predictions of a classifier with its own, with uniform and with permuted attention."""

    own: Decisions
    uniform: Decisions
    permuted: Float[np.ndarray, "draws texts classes"]
    highest: Float[np.ndarray, " texts"]  # the largest weight of a text, the mean over heads

    @cached_property
    def draws(self) -> list[Decisions]:
        """The predictions of each permutation."""
        return [Decisions(probabilities, self.own.gold) for probabilities in self.permuted]

    def losses(
        self, score: Callable[[Decisions], float] = lambda decisions: decisions.f1
    ) -> tuple[float, float, float]:
        """Return the loss of a score, F1 of the positive class by default: uniform, permuted, and its sd over draws."""
        whole = score(self.own)
        permuted = np.array([whole - score(decisions) for decisions in self.draws])
        deviation = float(permuted.std(ddof=1)) if len(permuted) > 1 else float("nan")
        return whole - score(self.uniform), float(permuted.mean()), deviation

    @cached_property
    def changes(self) -> Float[np.ndarray, "draws texts"]:
        """The total variation distance by which each permutation changes the output of each text."""
        return total_variation(self.permuted, self.own)

    @property
    def median_changes(self) -> Float[np.ndarray, " texts"]:
        """The median over permutations for each text (Jain and Wallace 2019, figure 7)."""
        return np.asarray(np.median(self.changes, 0))

    def table(self) -> pd.DataFrame:
        """One row per attention: scores, loss of F1, change of the output, and share of predictions that change."""
        permuted = pd.DataFrame([describe_predictions(decisions, self.own) for decisions in self.draws])
        rows = {
            "trained": describe_predictions(self.own, self.own),
            "uniform": describe_predictions(self.uniform, self.own),
        }
        table = pd.DataFrame({**rows, "permuted": permuted.mean()}).T
        sd = permuted.std().rename(lambda name: f"{name} sd").to_frame("permuted").T.reindex(table.index)
        return table.join(sd).rename_axis("attention")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw losses, changes and changed predictions of both, with the standard deviation over permutations."""
        from attnscope import plots

        table, names = self.table().T, ["f1 loss", "change", "changed"]
        errors = pd.DataFrame({"permuted": table["permuted"][[f"{name} sd" for name in names]].to_numpy()}, names)
        return plots.bars(
            table.loc[names, ["uniform", "permuted"]], ax=ax, errors=errors, ylabel="with other attention"
        )


def describe_predictions(decisions: Decisions, own: Decisions) -> dict[str, float]:
    """Return scores of predictions, their loss against the model's own, and how far they are from it."""
    return {
        "f1": decisions.f1, "macro f1": decisions.macro_f1, "accuracy": decisions.accuracy,
        "f1 loss": own.f1 - decisions.f1, "macro f1 loss": own.macro_f1 - decisions.macro_f1,
        "change": float(total_variation(decisions.probabilities, own).mean()),
        "changed": float((decisions.chosen != own.chosen).mean()),
    }  # fmt: skip


def total_variation(
    probabilities: Float[np.ndarray, "*draws texts classes"], own: Decisions
) -> Float[np.ndarray, "*draws texts"]:
    """Return the total variation distance of outputs from the model's own."""
    return np.asarray(np.abs(probabilities - own.probabilities).sum(-1) / 2)


class FragilityAccumulator:
    """The predictions of one classifier over batches, with its own and with other attention.

    Args:
        model: A classifier.
        draws: Number of permutations.
        seed: Random seed.
        max_weights: Weights that are permuted at a time.
        sink: Whether the first position takes part; if not, its weight is fixed.
    """

    def __init__(
        self,
        model: Model,
        draws: int = NUM_PERMUTATIONS,
        seed: int = 0,
        max_weights: int = MAX_WEIGHTS,
        sink: bool = True,
    ):
        require(draws > 0, f"draws={draws}: attention must be permuted at least once")
        require(max_weights > 0, f"max_weights={max_weights}: at least one number must be held at a time")
        self.model, self.draws, self.seed, self.max_weights, self.sink = model, draws, seed, max_weights, sink
        self.batches: list[list[np.ndarray]] = []

    @torch.no_grad()
    def update(self, batch: Batch) -> None:
        counterfactual = CounterfactualAttention.of_classifier(self.model, batch)
        trace, mask = counterfactual.trace, counterfactual.attended
        if not self.sink:
            mask = mask & trace.without_sink().source_mask
            counterfactual = replace(counterfactual, attended=mask)
        even = uniform(trace.attention, mask)[:, :, 0]
        if not self.sink:
            own, others = counterfactual.own, mask[:, None]
            even = torch.where(others, even * (own * others).sum(-1, keepdim=True), own)
        gold, highest = batch.target[:, 0] - len(SPECIALS), counterfactual.own.amax(-1).mean(1).double()
        own, with_uniform = counterfactual.own_probabilities, counterfactual.probabilities(even[None])[0]
        columns = gold, highest, own, with_uniform, self.with_permuted(counterfactual)
        self.batches.append([values.cpu().numpy() for values in columns])

    def with_permuted(self, counterfactual: CounterfactualAttention) -> Float[Tensor, "draws batch classes"]:
        """Return the class probabilities with each permutation, a few at a time."""
        at_once = max(1, self.max_weights // counterfactual.own.numel())
        ranges = (range(first, min(first + at_once, self.draws)) for first in range(0, self.draws, at_once))
        parts = (permute_attention(counterfactual, draws, self.seed) for draws in ranges)
        return torch.cat([counterfactual.probabilities(weights) for weights in parts])

    def result(self) -> Fragility:
        require(bool(self.batches), "there is no data yet; update with at least one batch before taking a result")
        *by_text, permuted = zip(*self.batches, strict=True)
        gold, highest, own, even = map(np.concatenate, by_text)
        return Fragility(Decisions(own, gold), Decisions(even, gold), np.concatenate(permuted, 1), highest)


def fragility(
    model: Model, data: Data = None, draws: int = NUM_PERMUTATIONS, seed: int = 0, sink: bool = True
) -> Fragility:
    """Return the predictions of a classifier with its own, with uniform and with permuted attention.

    Args:
        model: A classifier.
        data: See `as_batches`.
        draws: Number of permutations.
        seed: Random seed.
        sink: Whether the first position (a language model's attention sink) takes part; if not, its weight is fixed.
    """
    accumulator = FragilityAccumulator(model, draws, seed, sink=sink)
    for batch in as_batches(model, data):
        accumulator.update(batch)
    return accumulator.result()


def permute_attention(
    counterfactual: CounterfactualAttention, draws: range, seed: int
) -> Float[Tensor, "draws batch heads source"]:
    """Return the model's own weights, permuted, for permutations of these numbers."""
    keys = counterfactual.random_keys(draws, seed)
    return permute_weights(counterfactual.own, counterfactual.attended, keys)


def permute_weights(
    weights: Float[Tensor, "batch heads source"],
    mask: Bool[Tensor, "batch source"],
    keys: Int[Tensor, "draws batch heads source"],
) -> Float[Tensor, "draws batch heads source"]:
    """Return the weights of the positions in the mask in the order of random keys; others stay in their place.

    >>> weights, keys = torch.tensor([[[0.7, 0.2, 0.1, 0.0]]]), torch.tensor([[[[5, 9, 3, 1]]]])
    >>> permute_weights(weights, torch.tensor([[True, True, True, False]]), keys)
    tensor([[[[0.1000, 0.7000, 0.2000, 0.0000]]]])
    """
    last = torch.iinfo(keys.dtype).max
    # Those outside of the mask come last, in their order, on both sides.
    order = keys.masked_fill(~mask[:, None], last).sort(dim=-1, stable=True).indices
    places = (~mask).int().sort(dim=-1, stable=True).indices[:, None]
    permuted = weights.expand(keys.shape).gather(-1, order)
    return torch.empty_like(permuted).scatter_(-1, places.expand(keys.shape), permuted)
