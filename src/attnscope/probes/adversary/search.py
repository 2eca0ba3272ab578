"""How far can the attention to one text move while the output stays? The adversary of Jain and Wallace (2019).

For each text, attention as far as possible from the model's own (JSD) of which the output differs by at most ε (TVD):
gradient descent on −JSD + 500 · max(0, TVD − ε) from several random starts, all texts of a batch and all starts at
once. The encoder runs once. Of all attentions that were met on the way, the farthest feasible one is kept.

Where a model says many words, each has an attention and an output of its own, and is searched like a text. If the
attention at one word changes what is said at others, a sentence is feasible only as a whole.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.probes.adversary.divergences import jsd, logarithm, tvd
from attnscope.probes.drawing import Axes
from attnscope.probes.reweighing import Reweighing, looked
from attnscope.probes.word_by_word import WordByWord
from attnscope.tasks.batch import Batch
from attnscope.tasks.task import trimmed

CELLS = 1 << 23  # probabilities that are held at a time in a search for many words; slopes take a few times as much
LEAST = 1.0  # of a penalty that shrinks
NEARBY = 0.3  # sd around the model's own attention, in logarithms, for the one start that is feasible, or nearly so
ROUNDING = 1e-5  # kept free below ε, so that what was found feasible by eq. 9 is so by a forward pass


@dataclass(frozen=True)
class Search:
    """Jain and Wallace 2019 and their code, but without its term that keeps the adversaries of a text apart."""

    epsilon: float = 0.01  # of TVD; theirs for two classes
    restarts: int = 5
    steps: int = 500
    learning_rate: float = 0.01
    penalty: float = 500.0
    growth: float = 1.0  # of the penalty, at each step whose output is too far off; elsewhere it shrinks; 1: never
    noise: float = 3.0  # the sd around uniform attention, in logarithms, from which a search starts
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "restarts", "steps", "learning_rate", "penalty"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        require(self.growth >= 1, f"growth must be at least 1, not {self.growth}")
        require(self.noise >= 0, f"noise must not be negative, but is {self.noise}")


def admitted(epsilon: float) -> float:
    return epsilon - min(ROUNDING, epsilon / 2)


@dataclass(frozen=True)
class Found:
    """The farthest attention to each text of a batch that the search met; its own, if none was feasible."""

    weights: Float[Tensor, "batch heads source"]
    jsd: Float[Tensor, " batch"]  # from its own; the mean over heads
    tvd: Float[Tensor, " batch"]  # of the output
    feasible: Bool[Tensor, " batch"]  # whether one was met; where not, JSD and TVD are zero
    highest: Float[Tensor, " batch"]  # the largest weight of its own attention; the mean over heads


@dataclass(frozen=True)
class Adversaries(Displayed):
    """Of each text, how far the farthest feasible attention is from the model's own."""

    jsd: Float[np.ndarray, " texts"]
    tvd: Float[np.ndarray, " texts"]
    feasible: Bool[np.ndarray, " texts"]
    highest: Float[np.ndarray, " texts"]
    epsilon: float

    def summary(self) -> dict[str, float]:
        """Means over texts. A text without a feasible adversary counts with the JSD of its own attention, zero."""
        return {
            "jsd": float(self.jsd.mean()), "jsd sd": float(self.jsd.std()), "tvd": float(self.tvd.mean()),
            "feasible": float(self.feasible.mean()), "texts": len(self.jsd),
        }  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row: the summary."""
        return pd.DataFrame([self.summary()])

    def by_text(self) -> pd.DataFrame:
        """A row a text."""
        columns = {"jsd": self.jsd, "tvd": self.tvd, "feasible": self.feasible, "highest": self.highest}
        return pd.DataFrame(columns).rename_axis("text")

    def plot(self, ax: Axes | None = None, by: str = "highest") -> Axes:
        """JSD of texts whose highest weight is small or large (by="highest"), or its histogram (by="texts")."""
        from attnscope.probes.adversary.pictures import drawn

        return drawn(self.jsd, self.highest, by, ax)


def search(model: nn.Module, batches: Iterable[Batch], settings: Search | None = None) -> Adversaries:
    """The adversary of every text."""
    chosen = settings or Search()
    return gathered([search_batch(model, batch, chosen) for batch in batches], chosen.epsilon)


def gathered(found: Sequence[Found], epsilon: float) -> Adversaries:
    """Of all batches, without the weights."""
    require(bool(found), "there is no text to search; give at least one batch")
    jsds, tvds, feasible, highest = (
        torch.cat([getattr(one, name) for one in found]).cpu().numpy() for name in ("jsd", "tvd", "feasible", "highest")
    )
    return Adversaries(jsds, tvds, feasible, highest, epsilon)


def search_batch(model: nn.Module, batch: Batch, settings: Search | None = None) -> Found:
    """The adversary of every text of a batch, weights included."""
    settings = settings or Search()
    asked = Reweighing.of(model, batch)
    return proven(asked, climbed(asked, settings), settings.epsilon)


def search_words(
    model: nn.Module,
    batch: Batch,
    words: Bool[Tensor, "batch target"],
    settings: Search | None = None,
    cells: int = CELLS,
) -> Found:
    """The adversary of each of these output words, sentence by sentence: in place of a text of a batch stands a word.

    The gold target is heard. One start lies near the model's own attention: where much hangs on attention, and there
    are thousands of words to say, no other may get anywhere.
    """
    chosen = settings or Search()
    vocabulary = looked(model, trimmed(batch, slice(1)))[0].logits.shape[-1]
    at_once = max(1, cells // (chosen.restarts * batch.target.shape[1] * vocabulary))
    found = []
    for first in range(0, len(batch), at_once):
        some = trimmed(batch, slice(first, first + at_once))
        asked = WordByWord.of(model, some, words[first : first + at_once, : some.target.shape[1]])
        found.append(proven(asked, climbed(asked, chosen, nearby=True), chosen.epsilon))
    return joined(found, batch.source.shape[1])


def joined(found: Sequence[Found], source: int) -> Found:
    """One after the other, with padding up to this width."""
    weights = [pad(one.weights, (0, source - one.weights.shape[-1])) for one in found]
    rest = {name: torch.cat([getattr(one, name) for one in found]) for name in ("jsd", "tvd", "feasible", "highest")}
    return Found(weights=torch.cat(weights), **rest)


@torch.enable_grad()
def climbed(
    asked: Reweighing | WordByWord, settings: Search, nearby: bool = False
) -> Float[Tensor, "batch heads source"]:
    """The best attention over steps and starts; NaN where none was feasible."""
    # In memory the starts of a text lie side by side: so they are one matrix to its positions.
    side_by_side = starts(asked, settings, nearby).transpose(0, 1)  # batch x starts x heads x source
    scores = side_by_side.contiguous().requires_grad_()
    adam = torch.optim.Adam([scores], settings.learning_rate, fused=True)
    kept = torch.full_like(scores.detach(), torch.nan).transpose(0, 1)
    most = torch.full_like(kept[..., 0, 0], -1.0)  # starts x batch
    penalty = torch.full_like(most, settings.penalty)
    for step in range(settings.steps + 1):
        weights = scores.softmax(-1).transpose(0, 1)
        apart, change = distances(asked, weights)
        distance, moved = judged(asked, apart.detach(), change.detach())
        better = (moved <= admitted(settings.epsilon)) & (distance > most)
        most = torch.where(better, distance, most)
        kept = torch.where(better[..., None, None], weights.detach(), kept)
        if step < settings.steps:
            penalty = adjusted(penalty, change.detach() <= admitted(settings.epsilon), settings)
            price = -apart + penalty * (change - settings.epsilon).relu()
            (scores.grad,) = torch.autograd.grad(price.sum(), [scores])  # nothing reaches the model's own gradients
            adam.step()
    texts = torch.arange(kept.shape[1], device=most.device)
    return kept[most.argmax(0), texts]


def adjusted(
    penalty: Float[Tensor, "starts batch"], inside: Bool[Tensor, "starts batch"], settings: Search
) -> Float[Tensor, "starts batch"]:
    """Just so large that a search stays near the border of what is feasible, where the farthest attention is."""
    if settings.growth == 1:
        return penalty
    return torch.where(inside, penalty / settings.growth, penalty * settings.growth).clamp(min=LEAST)


def judged(
    asked: Reweighing | WordByWord, apart: Float[Tensor, "starts batch"], change: Float[Tensor, "starts batch"]
) -> tuple[Float[Tensor, "starts batch"], Float[Tensor, "starts batch"]]:
    """Distance and change as they are or, of words that hang together, their mean distance and their largest change."""
    if not isinstance(asked, WordByWord) or asked.together is None:
        return apart, change
    index = asked.together.expand_as(apart)
    blank = apart.new_zeros(len(apart), len(asked.trace.source))  # starts x sentences
    distance = blank.scatter_reduce(1, index, apart, "mean", include_self=False)
    return distance.gather(1, index), blank.scatter_reduce(1, index, change, "amax").gather(1, index)


def starts(
    asked: Reweighing | WordByWord, settings: Search, nearby: bool = False
) -> Float[Tensor, "starts batch heads source"]:
    """Uniform attention with noise, in logarithms; noise follows from the words of a text, as its shuffles would.

    With `nearby`, the first is the model's own attention with a little noise.
    """
    bits = asked.lots(range(settings.restarts), settings.seed)
    normal: Tensor = torch.special.ndtri(((bits >> 12).double() + 0.5) / (1 << 52) + 0.5)  # signed 52 bits to (0, 1)
    begun = settings.noise * normal
    if nearby:
        begun = torch.cat([(logarithm(asked.own.double()) + NEARBY * normal[0])[None], begun[1:]])
    return begun.to(asked.own).masked_fill(~asked.attended[:, None], -math.inf)


def distances(
    asked: Reweighing | WordByWord, weights: Float[Tensor, "starts batch heads source"]
) -> tuple[Float[Tensor, "starts batch"], Float[Tensor, "starts batch"]]:
    """JSD from the model's own attention, the mean over heads, and TVD of the output from its own."""
    change = tvd(asked.probabilities(weights), asked.said).to(weights)
    return jsd(weights, asked.own).mean(-1), change


@torch.no_grad()
def proven(asked: Reweighing | WordByWord, weights: Float[Tensor, "batch heads source"], epsilon: float) -> Found:
    """What was found, measured once more through the whole readout; where nothing was, the model's own attention."""
    met = ~weights.isnan().flatten(1).any(1)
    tried = torch.where(met[:, None, None], weights, asked.own)
    change = tvd(asked.measured(tried), asked.said)
    feasible = met & (judged(asked, change[None], change[None])[1][0] <= epsilon)
    return Found(
        weights=torch.where(feasible[:, None, None], tried, asked.own),
        jsd=jsd(tried.double(), asked.own.double()).mean(1) * feasible,
        tvd=change * feasible,
        feasible=feasible,
        highest=asked.own.amax(-1).mean(1).double(),
    )
