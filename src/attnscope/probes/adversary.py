"""How far can attention move while predictions stay? Text by text, and by training. (tutek2020 §3.3)"""

# TODO(docstring) join:
#   How far can the attention to one text move while the output stays? The adversary of Jain and Wallace (2019).
#   Which attention is the farthest of all that keep the output? Without a search, for two classes.
#   How is JSD distributed over texts, and does it depend on how peaked their attention is? (Jain and Wallace 2019)
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.probes.counterfactual import CounterfactualAttention, trace_and_mask
from attnscope.probes.divergences import MAX_JSD, jsd, safe_log, tvd
from attnscope.tasks.batch import Batch
from attnscope.tasks.task import trimmed

CELLS = 1 << 23  # probabilities that are held at a time in a search for many words; slopes take a few times as much
MIN_PENALTY = 1.0  # of a penalty that shrinks
NEARBY_NOISE = (
    0.3  # sd around the model's own attention, in logarithms, for the one start that is feasible, or nearly so
)
ROUNDING = 1e-5  # kept free below ε, so that what was found feasible by eq. 9 is so by a forward pass


@dataclass(frozen=True)
class SearchSettings:
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


def admissible_change(epsilon: float) -> float:
    return epsilon - min(ROUNDING, epsilon / 2)


@dataclass(frozen=True)
class BatchAdversaries:
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

        return plot_jsd(self.jsd, self.highest, by, ax)


def search_adversaries(
    model: nn.Module, batches: Iterable[Batch], settings: SearchSettings | None = None
) -> Adversaries:
    """The adversary of every text."""
    chosen = settings or SearchSettings()
    return concatenate([search_adversaries_in_batch(model, batch, chosen) for batch in batches], chosen.epsilon)


def concatenate(found: Sequence[BatchAdversaries], epsilon: float) -> Adversaries:
    """Of all batches, without the weights."""
    require(bool(found), "there is no text to search; give at least one batch")
    jsds, tvds, feasible, highest = (
        torch.cat([getattr(one, name) for one in found]).cpu().numpy() for name in ("jsd", "tvd", "feasible", "highest")
    )
    return Adversaries(jsds, tvds, feasible, highest, epsilon)


def search_adversaries_in_batch(
    model: nn.Module, batch: Batch, settings: SearchSettings | None = None
) -> BatchAdversaries:
    """The adversary of every text of a batch, weights included."""
    settings = settings or SearchSettings()
    asked = CounterfactualAttention.of_classifier(model, batch)
    return verify(asked, maximise_distance(asked, settings), settings.epsilon)


def search_token_adversaries(
    model: nn.Module,
    batch: Batch,
    words: Bool[Tensor, "batch target"],
    settings: SearchSettings | None = None,
    cells: int = CELLS,
) -> BatchAdversaries:
    """The adversary of each of these output words, sentence by sentence: in place of a text of a batch stands a word.

    The gold target is heard. One start lies near the model's own attention: where much hangs on attention, and there
    are thousands of words to say, no other may get anywhere.
    """
    chosen = settings or SearchSettings()
    vocabulary = trace_and_mask(model, trimmed(batch, slice(1)))[0].logits.shape[-1]
    at_once = max(1, cells // (chosen.restarts * batch.target.shape[1] * vocabulary))
    found = []
    for first in range(0, len(batch), at_once):
        some = trimmed(batch, slice(first, first + at_once))
        asked = CounterfactualAttention.of(model, some, tokens=words[first : first + at_once, : some.target.shape[1]])
        found.append(verify(asked, maximise_distance(asked, chosen, nearby=True), chosen.epsilon))
    return concatenate_padded(found, batch.source.shape[1])


def concatenate_padded(found: Sequence[BatchAdversaries], source: int) -> BatchAdversaries:
    """One after the other, with padding up to this width."""
    weights = [pad(one.weights, (0, source - one.weights.shape[-1])) for one in found]
    rest = {name: torch.cat([getattr(one, name) for one in found]) for name in ("jsd", "tvd", "feasible", "highest")}
    return BatchAdversaries(weights=torch.cat(weights), **rest)


@torch.enable_grad()
def maximise_distance(
    asked: CounterfactualAttention, settings: SearchSettings, nearby: bool = False
) -> Float[Tensor, "batch heads source"]:
    """The best attention over steps and starts; NaN where none was feasible."""
    # In memory the starts of a text lie side by side: so they are one matrix to its positions.
    side_by_side = initial_scores(asked, settings, nearby).transpose(0, 1)  # batch x starts x heads x source
    scores = side_by_side.contiguous().requires_grad_()
    adam = torch.optim.Adam([scores], settings.learning_rate, fused=True)
    kept = torch.full_like(scores.detach(), torch.nan).transpose(0, 1)
    most = torch.full_like(kept[..., 0, 0], -1.0)  # starts x batch
    penalty = torch.full_like(most, settings.penalty)
    for step in range(settings.steps + 1):
        weights = scores.softmax(-1).transpose(0, 1)
        apart, change = distances(asked, weights)
        distance, moved = judge_sentences(asked, apart.detach(), change.detach())
        better = (moved <= admissible_change(settings.epsilon)) & (distance > most)
        most = torch.where(better, distance, most)
        kept = torch.where(better[..., None, None], weights.detach(), kept)
        if step < settings.steps:
            penalty = adjust_penalty(penalty, change.detach() <= admissible_change(settings.epsilon), settings)
            price = -apart + penalty * (change - settings.epsilon).relu()
            (scores.grad,) = torch.autograd.grad(price.sum(), [scores])  # nothing reaches the model's own gradients
            adam.step()
    texts = torch.arange(kept.shape[1], device=most.device)
    return kept[most.argmax(0), texts]


def adjust_penalty(
    penalty: Float[Tensor, "starts batch"], inside: Bool[Tensor, "starts batch"], settings: SearchSettings
) -> Float[Tensor, "starts batch"]:
    """Just so large that a search stays near the border of what is feasible, where the farthest attention is."""
    if settings.growth == 1:
        return penalty
    return torch.where(inside, penalty / settings.growth, penalty * settings.growth).clamp(min=MIN_PENALTY)


def judge_sentences(
    asked: CounterfactualAttention, apart: Float[Tensor, "starts batch"], change: Float[Tensor, "starts batch"]
) -> tuple[Float[Tensor, "starts batch"], Float[Tensor, "starts batch"]]:
    """Distance and change as they are or, of words that hang together, their mean distance and their largest change."""
    if asked.coupled is None:
        return apart, change
    index = asked.coupled.expand_as(apart)
    blank = apart.new_zeros(len(apart), len(asked.trace.source))  # starts x sentences
    distance = blank.scatter_reduce(1, index, apart, "mean", include_self=False)
    return distance.gather(1, index), blank.scatter_reduce(1, index, change, "amax").gather(1, index)


def initial_scores(
    asked: CounterfactualAttention, settings: SearchSettings, nearby: bool = False
) -> Float[Tensor, "starts batch heads source"]:
    """Uniform attention with noise, in logarithms; noise follows from the words of a text, as its shuffles would.

    With `nearby`, the first is the model's own attention with a little noise.
    """
    bits = asked.random_keys(range(settings.restarts), settings.seed)
    normal: Tensor = torch.special.ndtri(((bits >> 12).double() + 0.5) / (1 << 52) + 0.5)  # signed 52 bits to (0, 1)
    begun = settings.noise * normal
    if nearby:
        begun = torch.cat([(safe_log(asked.own.double()) + NEARBY_NOISE * normal[0])[None], begun[1:]])
    return begun.to(asked.own).masked_fill(~asked.attended_at[:, None], -math.inf)


def distances(
    asked: CounterfactualAttention, weights: Float[Tensor, "starts batch heads source"]
) -> tuple[Float[Tensor, "starts batch"], Float[Tensor, "starts batch"]]:
    """JSD from the model's own attention, the mean over heads, and TVD of the output from its own."""
    change = tvd(asked.probabilities(weights), asked.own_probabilities).to(weights)
    return jsd(weights, asked.own).mean(-1), change


@torch.no_grad()
def verify(
    asked: CounterfactualAttention, weights: Float[Tensor, "batch heads source"], epsilon: float
) -> BatchAdversaries:
    """What was found, measured once more through the whole readout; where nothing was, the model's own attention."""
    met = ~weights.isnan().flatten(1).any(1)
    tried = torch.where(met[:, None, None], weights, asked.own)
    change = tvd(asked.verified_probabilities(tried), asked.own_probabilities)
    feasible = met & (judge_sentences(asked, change[None], change[None])[1][0] <= epsilon)
    return BatchAdversaries(
        weights=torch.where(feasible[:, None, None], tried, asked.own),
        jsd=jsd(tried.double(), asked.own.double()).mean(1) * feasible,
        tvd=change * feasible,
        feasible=feasible,
        highest=asked.own.amax(-1).mean(1).double(),
    )


EPSILON = 0.01  # Jain and Wallace 2019
VERTICES_AT_ONCE = 1 << 22  # vertices that are tried at a time


def exact_adversaries(model: nn.Module, batches: Iterable[Batch], epsilon: float = EPSILON) -> Adversaries:
    """The farthest attention to every text of which the output differs by at most ε (TVD)."""
    return concatenate([exact_adversaries_in_batch(model, batch, epsilon) for batch in batches], epsilon)


def exact_adversaries_in_batch(model: nn.Module, batch: Batch, epsilon: float = EPSILON) -> BatchAdversaries:
    """Those of a batch, weights included."""
    require(epsilon > 0, f"epsilon must be positive, not {epsilon}")
    asked = CounterfactualAttention.of_classifier(model, batch)
    if asked.contributions is None or asked.contributions.shape[-1] != 2:
        raise BadSetting(
            "the farthest attention is known only for two classes, one head, and a readout that is linear in the "
            "context; for other models, search for it"
        )
    logits = (asked.contributions[..., 1] - asked.contributions[..., 0]).double()  # batch x source
    own = asked.own[:, 0].double()
    some = max(1, VERTICES_AT_ONCE // logits.shape[1] ** 2)
    parts = (
        part.split(some)
        for part in (
            logits,
            own,
            asked.attended,
            logit_bounds(asked.own_probabilities[:, 1], admissible_change(epsilon)),
        )
    )
    best = torch.cat([farthest_vertex(*part) for part in zip(*parts, strict=True)])
    return verify(asked, best[:, None].to(asked.own), epsilon)


def logit_bounds(said: Float[Tensor, " batch"], epsilon: float) -> Float[Tensor, "batch 2"]:
    """Between which logits the probability of the second class moves by at most ε."""
    return torch.logit(torch.stack([said - epsilon, said + epsilon], -1).clamp(0, 1))


def farthest_vertex(
    logits: Float[Tensor, "batch source"],
    own: Float[Tensor, "batch source"],
    attended: Bool[Tensor, "batch source"],
    between: Float[Tensor, "batch 2"],
) -> Float[Tensor, "batch source"]:
    """Of all vertices, the one of the largest JSD; NaN if rounding leaves none."""
    inside = attended & (between[:, :1] <= logits) & (logits <= between[:, 1:])
    pairs = (attended[:, :, None] & attended[:, None])[:, None]  # batch x 1 x i x j
    share = boundary_weights(logits, between)  # of i; the rest is that of j
    allowed = torch.where(same_position(share), inside[:, None, :, None], pairs & (share > 0) & (share < 1))
    share = share.where(allowed, 0.5)
    apart = jsd_gain(share, own[:, None, :, None]) + jsd_gain(1 - share, own[:, None, None])
    best = apart.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)[:, None]
    i, j = best // logits.shape[1] % logits.shape[1], best % logits.shape[1]
    on_i = share.flatten(1).gather(1, best)
    made = torch.zeros_like(own).scatter_add_(1, i, on_i).scatter_add_(1, j, 1 - on_i)
    return made.masked_fill(~allowed.flatten(1).any(1)[:, None], torch.nan)


def boundary_weights(
    logits: Float[Tensor, "batch source"], between: Float[Tensor, "batch 2"]
) -> Float[Tensor, "batch 2 i j"]:
    """The weight on position i that meets a bound if j has the rest; all of it where i and j are one position."""
    x, bound = logits[:, None], between[:, :, None, None]
    share = (bound - x[..., None, :]) / (x[..., None] - x[..., None, :])
    return share.masked_fill(same_position(share), 1.0)


def same_position(pairs: Float[Tensor, "*any i j"]) -> Bool[Tensor, "i j"]:
    return torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)


def jsd_gain(weight: Tensor, own: Tensor) -> Tensor:
    """What a position adds to JSD when it is given this weight, beyond what it adds with none, which is ½ q ln 2."""
    mean = safe_log((weight + own) / 2)
    return (weight * (safe_log(weight) - mean) + own * (safe_log(own) - mean) - own * MAX_JSD) / 2


EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # of the highest weight
BINS = 30
MIN_VIOLIN = 3  # texts that a violin is drawn of; fewer are dots


def plot_jsd(jsd: np.ndarray, highest: np.ndarray, by: str, ax: Axes | None) -> Axes:
    from attnscope import plots
    from attnscope.plots.style import axes

    choose("way to draw the adversaries", by, ("highest", "texts"))
    with plots.style():
        ax = axes(ax)
        return by_highest(ax, jsd, highest) if by == "highest" else histogram(ax, jsd)


def by_highest(ax: Axes, jsd: np.ndarray, highest: np.ndarray) -> Axes:
    """A violin for texts of each range of the highest weight."""
    from attnscope.plots.style import name_axes

    ranges = np.digitize(highest, EDGES[1:-1])
    names = []
    for i, (low, high) in enumerate(pairwise(EDGES)):
        values = jsd[ranges == i]
        names.append(f"{low:g} to {high:g}\n(n = {len(values)})")
        _violin(ax, values, i)
    ax.set_xticks(range(len(names)), labels=names)
    ax.set_ylim(-0.02, MAX_JSD + 0.02)
    name_axes(ax, "highest weight of the model's own attention", "JSD from it, in nats")
    return ax


def _violin(ax: Axes, values: np.ndarray, where: int) -> None:
    from attnscope.plots.style import INK, WORDS, tint

    if len(values) < MIN_VIOLIN or np.ptp(values) < 1e-6:  # a density needs some spread
        ax.scatter(np.full(len(values), where), values, s=9, color=WORDS[0], linewidths=0)
        return
    made: dict[str, Any] = ax.violinplot(values, [where], widths=0.8, showextrema=False)
    for body in made["bodies"]:
        body.set(facecolor=tint(WORDS[0], 0.25), edgecolor="none", alpha=0.9)
    ax.scatter([where], [np.median(values)], s=9, color=INK, linewidths=0, zorder=3)


def histogram(ax: Axes, jsd: np.ndarray) -> Axes:
    from attnscope.plots.style import WORDS, name_axes, tint

    ax.hist(jsd, np.linspace(0, MAX_JSD, BINS + 1).tolist(), color=tint(WORDS[0], 0.25))
    name_axes(ax, "JSD from the model's own attention, in nats", "texts")
    return ax
