"""How much do decisions depend on attention? (tutek2020 §3.2, §4.1, table 1)

A trained classifier decides again with uniform attention, and with its own weights shuffled among the tokens of the
text that may be attended to: never onto padding, nor onto special tokens that the model leaves out. A shuffle follows
from a seed, its number and the words of the text, so batches do not matter. Several heads are shuffled apart.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.attention import uniform
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.tasks.batch import SPECIALS, Batch
from attnscope.training.decisions import Decisions

NUM_PERMUTATIONS = 100  # Jain and Wallace 2019
MAX_WEIGHTS = 1 << 22  # weights that are shuffled at a time


@dataclass(frozen=True)
class Fragility(Displayed):
    """The decisions of a classifier with its own attention, with uniform attention, and with shuffled attention."""

    own: Decisions
    uniform: Decisions
    permuted: Float[np.ndarray, "draws texts classes"]
    highest: Float[np.ndarray, " texts"]  # the largest weight of a text, the mean over heads

    @cached_property
    def draws(self) -> list[Decisions]:
        return [Decisions(probabilities, self.own.gold) for probabilities in self.permuted]

    def losses(self, score: Callable[[Decisions], float] = lambda made: made.f1) -> tuple[float, float, float]:
        """What a score, F1 of the positive class by default, loses: uniform, permuted, and its sd over draws."""
        whole = score(self.own)
        permuted = np.array([whole - score(made) for made in self.draws])
        return whole - score(self.uniform), float(permuted.mean()), sample_deviation(permuted)

    @cached_property
    def changes(self) -> Float[np.ndarray, "draws texts"]:
        """How far each shuffle moves the output of each text: total variation distance between probabilities."""
        return total_variation(self.permuted, self.own)

    @property
    def median_changes(self) -> Float[np.ndarray, " texts"]:
        """Of each text, over draws (Jain and Wallace 2019, figure 7)."""
        return np.asarray(np.median(self.changes, 0))

    def table(self) -> pd.DataFrame:
        """A row an attention: scores, what F1 loses, how far the output moves, what share of decisions changes."""
        permuted = pd.DataFrame([describe_predictions(made, self.own) for made in self.draws])
        rows = {
            "trained": describe_predictions(self.own, self.own),
            "uniform": describe_predictions(self.uniform, self.own),
        }
        made = pd.DataFrame({**rows, "permuted": permuted.mean()}).T
        sd = permuted.std().rename(lambda name: f"{name} sd").to_frame("permuted").T.reindex(made.index)
        return made.join(sd).rename_axis("attention")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Losses, changes and changed decisions, uniform beside permuted, with the standard deviation over draws."""
        from attnscope import plots

        table, names = self.table().T, ["f1 loss", "change", "changed"]
        errors = pd.DataFrame({"permuted": table["permuted"][[f"{name} sd" for name in names]].to_numpy()}, names)
        return plots.bars(
            table.loc[names, ["uniform", "permuted"]], ax=ax, errors=errors, ylabel="with other attention"
        )


def describe_predictions(made: Decisions, own: Decisions) -> dict[str, float]:
    return {
        "f1": made.f1, "macro f1": made.macro_f1, "accuracy": made.accuracy,
        "f1 loss": own.f1 - made.f1, "macro f1 loss": own.macro_f1 - made.macro_f1,
        "change": float(total_variation(made.probabilities, own).mean()),
        "changed": float((made.chosen != own.chosen).mean()),
    }  # fmt: skip


def total_variation(
    probabilities: Float[np.ndarray, "*draws texts classes"], own: Decisions
) -> Float[np.ndarray, "*draws texts"]:
    return np.asarray(np.abs(probabilities - own.probabilities).sum(-1) / 2)


def sample_deviation(values: Float[np.ndarray, " draws"]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


class FragilityAccumulator:
    """The decisions of one classifier over a stream of batches, with its own and with other attention."""

    def __init__(self, model: nn.Module, draws: int = NUM_PERMUTATIONS, seed: int = 0, cells: int = MAX_WEIGHTS):
        require(draws > 0, f"draws={draws}: attention must be shuffled at least once")
        require(cells > 0, f"cells={cells}: at least one number must be held at a time")
        self.model, self.count, self.seed, self.cells = model, draws, seed, cells
        self.found: list[list[np.ndarray]] = []

    @torch.no_grad()
    def update(self, batch: Batch) -> None:
        asked = CounterfactualAttention.of_classifier(self.model, batch)
        even = uniform(asked.trace.attention, asked.attended)[:, :, 0]
        gold, highest = batch.target[:, 0] - len(SPECIALS), asked.own.amax(-1).mean(1).double()
        found = gold, highest, asked.own_probabilities, asked.probabilities(even[None])[0], self.shuffled(asked)
        self.found.append([values.cpu().numpy() for values in found])

    def shuffled(self, asked: CounterfactualAttention) -> Float[Tensor, "draws batch classes"]:
        """What is said after each shuffle, a few shuffles at a time."""
        at_once = max(1, self.cells // asked.own.numel())
        parts = [
            asked.probabilities(permute_attention(asked, range(first, min(first + at_once, self.count)), self.seed))
            for first in range(0, self.count, at_once)
        ]
        return torch.cat(parts)

    def result(self) -> Fragility:
        require(bool(self.found), "nothing has come by yet; give at least one batch before asking for a result")
        *by_text, permuted = zip(*self.found, strict=True)
        gold, highest, own, even = map(np.concatenate, by_text)
        return Fragility(Decisions(own, gold), Decisions(even, gold), np.concatenate(permuted, 1), highest)


def fragility(model: nn.Module, batches: Iterable[Batch], draws: int = NUM_PERMUTATIONS, seed: int = 0) -> Fragility:
    """How fragile a classifier's decisions are, over all texts of these batches."""
    perturb = FragilityAccumulator(model, draws, seed)
    for batch in batches:
        perturb.update(batch)
    return perturb.result()


def permute_attention(
    asked: CounterfactualAttention, draws: range, seed: int
) -> Float[Tensor, "draws batch heads source"]:
    """The model's own weights, shuffled, for shuffles of these numbers."""
    return permute_weights(asked.own, asked.attended, asked.random_keys(draws, seed))


def permute_weights(
    weights: Float[Tensor, "batch heads source"],
    mask: Bool[Tensor, "batch source"],
    lots: Int[Tensor, "draws batch heads source"],
) -> Float[Tensor, "draws batch heads source"]:
    """In each draw, the weights of the positions in the mask, in the order of their lots; others stay in their place.

    >>> weights, lots = torch.tensor([[[0.7, 0.2, 0.1, 0.0]]]), torch.tensor([[[[5, 9, 3, 1]]]])
    >>> permute_weights(weights, torch.tensor([[True, True, True, False]]), lots)
    tensor([[[[0.1000, 0.7000, 0.2000, 0.0000]]]])
    """
    last = torch.iinfo(lots.dtype).max
    # Those outside of the mask come last, in their order, here and there.
    order = lots.masked_fill(~mask[:, None], last).sort(dim=-1, stable=True).indices
    places = (~mask).int().sort(dim=-1, stable=True).indices[:, None]
    drawn = weights.expand(lots.shape).gather(-1, order)
    return torch.empty_like(drawn).scatter_(-1, places.expand(lots.shape), drawn)
