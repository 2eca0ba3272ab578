"""How far can attention move while the output stays? (tutek2020 §3.3; Jain and Wallace 2019)

For each text, the adversary is the attention farthest from the model's own (JSD) whose output differs by at most ε
(TVD). `adversary` computes it exactly where it can, and searches elsewhere.

Exactly, for two classes and a linear readout: the logit is Σ α x, where x is the logit of each position alone
(tutek2020 eq. 9). Attention that keeps the output within ε then has Σ α x between two bounds: a polytope. JSD is convex
in α, so it is largest at a vertex: all weight on one position, or on two that together meet a bound. All are tried.

By search: gradient descent on −JSD + 500 · max(0, TVD − ε) from several random starts, all texts of a batch and all
starts at once, behind the encoder where the readout is exact. The farthest feasible attention on the way is returned.
A translator has one attention and one output per target token, each searched like a text. If attention at one token
changes the output at others, a sentence is feasible only as a whole.

Adversarial training: can a second model learn the same predictions with different attention? The adversary of Wiegreffe
and Pinter (2019) is a new model of the same architecture, trained against a fixed one to lower TVD(ŷa, ŷb) − λ ·
JSD(αa, αb). Their code had KL(αa‖αb) in the place of the JSD that they and tutek2020 print.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.models.inference import Model, evaluating, on_device_of
from attnscope.models.inputs import Data, as_batches
from attnscope.models.trace import Trace
from attnscope.probes.counterfactual import (
    CounterfactualAttention,
    check_classifier,
    class_probabilities,
    trace_and_mask,
)
from attnscope.probes.divergences import DIVERGENCES, MAX_JSD, jsd, safe_log, tvd
from attnscope.tasks import Task
from attnscope.tasks.batch import Batch
from attnscope.training.fit import Progress, ReportProgress, TrainingRun, run_to_end
from attnscope.training.objectives import Objective
from attnscope.training.settings import TrainingSettings

if TYPE_CHECKING:
    from matplotlib.collections import PolyCollection

EPSILON = 0.01  # of TVD; Jain and Wallace 2019, for two classes
MAX_PROBABILITIES = 1 << 23  # held at a time in a search for many tokens; gradients take a few times as much
VERTICES_AT_ONCE = 1 << 22
MIN_PENALTY = 1.0  # of one that shrinks
NEARBY_NOISE = 0.3  # sd around the model's own attention, in logarithms, for the one start that is nearly feasible
ROUNDING = 1e-5  # margin below ε, so that what is feasible by eq. 9 is so by a forward pass
EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # of the highest weight, in plots
BINS = 30
MIN_VIOLIN = 3  # texts of a violin; fewer are dots


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search: Jain and Wallace 2019 and their code, without its term that keeps adversaries apart."""

    epsilon: float = EPSILON
    restarts: int = 5
    steps: int = 500
    learning_rate: float = 0.01
    penalty: float = 500.0
    growth: float = 1.0  # of the penalty, at each infeasible step; at feasible ones it shrinks; 1: constant
    noise: float = 3.0  # sd of starts around uniform attention, in logarithms
    seed: int = 0

    def __post_init__(self) -> None:
        positive = {
            "epsilon": self.epsilon, "restarts": self.restarts, "steps": self.steps,
            "learning_rate": self.learning_rate, "penalty": self.penalty,
        }  # fmt: skip
        for name, value in positive.items():
            require(value > 0, f"{name} must be positive, not {value}")
        require(self.growth >= 1, f"growth must be at least 1, not {self.growth}")
        require(self.noise >= 0, f"noise must not be negative, but is {self.noise}")


# With thousands of outputs, few long steps along the border of what is feasible get farther.
TOKEN_SEARCH = SearchSettings(restarts=2, steps=100, learning_rate=0.2, penalty=10.0, growth=1.1)


@dataclass(frozen=True)
class BatchAdversaries:
    """The farthest feasible attention of each decision of a batch; the model's own, if none was feasible."""

    weights: Float[Tensor, "decisions heads source"]
    jsd: Float[Tensor, " decisions"]  # from its own; the mean over heads
    tvd: Float[Tensor, " decisions"]  # of the output
    feasible: Bool[Tensor, " decisions"]  # whether there was one; where not, JSD and TVD are zero
    highest: Float[Tensor, " decisions"]  # the largest weight of its own attention; the mean over heads


@dataclass(frozen=True)
class Adversaries(Displayed):
    """How far the farthest feasible attention of each decision is from the model's own."""

    jsd: Float[np.ndarray, " decisions"]
    tvd: Float[np.ndarray, " decisions"]
    feasible: Bool[np.ndarray, " decisions"]
    highest: Float[np.ndarray, " decisions"]
    epsilon: float

    @classmethod
    def of(cls, batches: Sequence[BatchAdversaries], epsilon: float) -> "Adversaries":
        """Return those of all batches, without the weights."""
        require(bool(batches), "there is no text to search; give at least one batch")
        return cls(
            jsd=torch.cat([batch.jsd for batch in batches]).cpu().numpy(),
            tvd=torch.cat([batch.tvd for batch in batches]).cpu().numpy(),
            feasible=torch.cat([batch.feasible for batch in batches]).cpu().numpy(),
            highest=torch.cat([batch.highest for batch in batches]).cpu().numpy(),
            epsilon=epsilon,
        )

    def summary(self) -> dict[str, float]:
        """Means over decisions. One without a feasible adversary counts with the JSD of its own attention, zero."""
        return {
            "jsd": float(self.jsd.mean()), "jsd sd": float(self.jsd.std()), "tvd": float(self.tvd.mean()),
            "feasible": float(self.feasible.mean()), "texts": len(self.jsd),
        }  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row: the summary."""
        return pd.DataFrame([self.summary()])

    def by_text(self) -> pd.DataFrame:
        """One row per decision."""
        columns = {"jsd": self.jsd, "tvd": self.tvd, "feasible": self.feasible, "highest": self.highest}
        return pd.DataFrame(columns).rename_axis("text")

    def plot(self, ax: Axes | None = None, by: str = "highest") -> Axes:
        """Draw JSD by the highest weight of the model's own attention (by="highest"), or its histogram (by="texts")."""
        from attnscope import plots
        from attnscope.plots.style import axes

        choose("way to draw the adversaries", by, ("highest", "texts"))
        with plots.style():
            ax = axes(ax)
            return violins_by_highest(ax, self.jsd, self.highest) if by == "highest" else histogram(ax, self.jsd)


def adversary(
    model: Model, data: Data = None, epsilon: float = EPSILON, settings: SearchSettings | None = None
) -> Adversaries:
    """Return how far attention can move while the output stays, exactly where it can be computed, else by search.

    Args:
        model: A classifier or a translator.
        data: See `as_batches`.
        epsilon: The largest total variation distance between outputs.
        settings: Settings of the search; `epsilon` replaces theirs.
    """
    return Adversaries.of(
        [adversaries_in_batch(model, batch, epsilon, settings) for batch in as_batches(model, data)], epsilon
    )


def adversaries_in_batch(
    model: Model, batch: Batch, epsilon: float = EPSILON, settings: SearchSettings | None = None
) -> BatchAdversaries:
    """Return the adversary of each decision of a batch, exactly where it can be computed, else by search."""
    counterfactual = CounterfactualAttention.of(model, batch)
    if not counterfactual.classifies:
        chosen = replace(settings or TOKEN_SEARCH, epsilon=epsilon)
        return search_token_adversaries(model, batch, batch.target_mask, chosen)
    if has_exact_adversary(counterfactual):
        return exact_adversary(counterfactual, epsilon)
    chosen = replace(settings or SearchSettings(), epsilon=epsilon)
    return verify(counterfactual, maximise_distance(counterfactual, chosen), epsilon)


# Search


def search_adversaries(model: Model, batches: Iterable[Batch], settings: SearchSettings | None = None) -> Adversaries:
    """Return the adversary of every text of a classifier, by search."""
    chosen = settings or SearchSettings()
    return Adversaries.of([search_adversaries_in_batch(model, batch, chosen) for batch in batches], chosen.epsilon)


def search_adversaries_in_batch(model: Model, batch: Batch, settings: SearchSettings | None = None) -> BatchAdversaries:
    """Return the adversary of every text of a batch, weights included."""
    settings = settings or SearchSettings()
    counterfactual = CounterfactualAttention.of_classifier(model, batch)
    return verify(counterfactual, maximise_distance(counterfactual, settings), settings.epsilon)


def search_token_adversaries(
    model: Model,
    batch: Batch,
    tokens: Bool[Tensor, "batch target"],
    settings: SearchSettings | None = None,
    max_probabilities: int = MAX_PROBABILITIES,
) -> BatchAdversaries:
    """Return the adversary of each of these output tokens, sentence by sentence.

    One start lies near the model's own attention: where much depends on attention, and there are thousands of outputs,
    other starts may stay infeasible.

    Args:
        model: A translator.
        batch: Sentences.
        tokens: The output tokens that are searched.
        settings: Settings of the search.
        max_probabilities: The largest number of probabilities in memory at a time.
    """
    chosen = settings or SearchSettings()
    vocabulary = trace_and_mask(model, batch.rows(slice(1)))[0].logits.shape[-1]
    at_once = max(1, max_probabilities // (chosen.restarts * batch.target.shape[1] * vocabulary))
    parts = []
    for first in range(0, len(batch), at_once):
        block = batch.rows(slice(first, first + at_once))
        block_tokens = tokens[first : first + at_once, : block.target.shape[1]]
        counterfactual = CounterfactualAttention.of(model, block, tokens=block_tokens)
        parts.append(verify(counterfactual, maximise_distance(counterfactual, chosen, nearby=True), chosen.epsilon))
    width = batch.source.shape[1]
    return BatchAdversaries(
        weights=torch.cat([pad(part.weights, (0, width - part.weights.shape[-1])) for part in parts]),
        jsd=torch.cat([part.jsd for part in parts]),
        tvd=torch.cat([part.tvd for part in parts]),
        feasible=torch.cat([part.feasible for part in parts]),
        highest=torch.cat([part.highest for part in parts]),
    )


@torch.enable_grad()
def maximise_distance(
    counterfactual: CounterfactualAttention, settings: SearchSettings, nearby: bool = False
) -> Float[Tensor, "decisions heads source"]:
    """Return the best attention over steps and starts; NaN where none was feasible."""
    # The starts of a text are contiguous in memory, so that they multiply its positions as one matrix.
    initial = initial_scores(counterfactual, settings, nearby).transpose(0, 1)  # decisions x starts x heads x source
    scores = initial.contiguous().requires_grad_()
    adam = torch.optim.Adam([scores], settings.learning_rate, fused=True)
    best = torch.full_like(scores.detach(), torch.nan).transpose(0, 1)
    farthest = torch.full_like(best[..., 0, 0], -1.0)  # starts x decisions
    penalty = torch.full_like(farthest, settings.penalty)
    tolerated = admissible_change(settings.epsilon)
    for step in range(settings.steps + 1):
        weights = scores.softmax(-1).transpose(0, 1)
        distance = jsd(weights, counterfactual.own).mean(-1)  # starts x decisions
        change = tvd(counterfactual.probabilities(weights), counterfactual.own_probabilities).to(weights)
        joint_distance, joint_change = by_sentence(counterfactual, distance.detach(), change.detach())
        better = (joint_change <= tolerated) & (joint_distance > farthest)
        farthest = torch.where(better, joint_distance, farthest)
        best = torch.where(better[..., None, None], weights.detach(), best)
        if step < settings.steps:
            penalty = adjust_penalty(penalty, change.detach() <= tolerated, settings)
            loss = -distance + penalty * (change - settings.epsilon).relu()
            (scores.grad,) = torch.autograd.grad(loss.sum(), [scores])  # nothing reaches the model's own gradients
            adam.step()
    return best[farthest.argmax(0), torch.arange(best.shape[1], device=farthest.device)]


def adjust_penalty(
    penalty: Float[Tensor, "starts decisions"], feasible: Bool[Tensor, "starts decisions"], settings: SearchSettings
) -> Float[Tensor, "starts decisions"]:
    """Return a penalty just so large that a search stays near the border of what is feasible, where the optimum is."""
    if settings.growth == 1:
        return penalty
    return torch.where(feasible, penalty / settings.growth, penalty * settings.growth).clamp(min=MIN_PENALTY)


def by_sentence(
    counterfactual: CounterfactualAttention,
    distance: Float[Tensor, "starts decisions"],
    change: Float[Tensor, "starts decisions"],
) -> tuple[Float[Tensor, "starts decisions"], Float[Tensor, "starts decisions"]]:
    """Return distance and change; where decisions are coupled, the mean distance and largest change of a sentence."""
    if counterfactual.coupled is None:
        return distance, change
    index = counterfactual.coupled.expand_as(distance)
    blank = distance.new_zeros(len(distance), len(counterfactual.trace.source))  # starts x sentences
    mean = blank.scatter_reduce(1, index, distance, "mean", include_self=False)
    return mean.gather(1, index), blank.scatter_reduce(1, index, change, "amax").gather(1, index)


def initial_scores(
    counterfactual: CounterfactualAttention, settings: SearchSettings, nearby: bool = False
) -> Float[Tensor, "starts decisions heads source"]:
    """Return uniform attention with noise, in logarithms; the noise depends on the text, not on its batch.

    With `nearby`, the first start is the model's own attention with a little noise.
    """
    bits = counterfactual.random_keys(range(settings.restarts), settings.seed)
    normal: Tensor = torch.special.ndtri(((bits >> 12).double() + 0.5) / (1 << 52) + 0.5)  # signed 52 bits to (0, 1)
    scores = settings.noise * normal
    if nearby:
        near = safe_log(counterfactual.own.double()) + NEARBY_NOISE * normal[0]
        scores = torch.cat([near[None], scores[1:]])
    return scores.to(counterfactual.own).masked_fill(~counterfactual.attended_at[:, None], -math.inf)


@torch.no_grad()
def verify(
    counterfactual: CounterfactualAttention, weights: Float[Tensor, "decisions heads source"], epsilon: float
) -> BatchAdversaries:
    """Return adversaries measured through the whole readout; where there is none (NaN), the model's own attention."""
    own = counterfactual.own
    exists = ~weights.isnan().flatten(1).any(1)
    candidates = torch.where(exists[:, None, None], weights, own)
    change = tvd(counterfactual.verified_probabilities(candidates), counterfactual.own_probabilities)
    feasible = exists & (by_sentence(counterfactual, change[None], change[None])[1][0] <= epsilon)
    return BatchAdversaries(
        weights=torch.where(feasible[:, None, None], candidates, own),
        jsd=jsd(candidates.double(), own.double()).mean(1) * feasible,
        tvd=change * feasible,
        feasible=feasible,
        highest=own.amax(-1).mean(1).double(),
    )


def admissible_change(epsilon: float) -> float:
    return epsilon - min(ROUNDING, epsilon / 2)


# Exact adversaries


def exact_adversaries(model: Model, batches: Iterable[Batch], epsilon: float = EPSILON) -> Adversaries:
    """Return the exact adversary of every text of a classifier with two classes and a linear readout."""
    return Adversaries.of([exact_adversaries_in_batch(model, batch, epsilon) for batch in batches], epsilon)


def exact_adversaries_in_batch(model: Model, batch: Batch, epsilon: float = EPSILON) -> BatchAdversaries:
    """Return the exact adversary of every text of a batch, weights included."""
    counterfactual = CounterfactualAttention.of_classifier(model, batch)
    if not has_exact_adversary(counterfactual):
        raise BadSetting(
            "the exact adversary exists only for two classes, one head, and a readout that is linear in the context; "
            "for other models, search for it"
        )
    return exact_adversary(counterfactual, epsilon)


def has_exact_adversary(counterfactual: CounterfactualAttention) -> bool:
    contributions = counterfactual.contributions
    return contributions is not None and contributions.shape[-1] == 2


def exact_adversary(counterfactual: CounterfactualAttention, epsilon: float) -> BatchAdversaries:
    require(epsilon > 0, f"epsilon must be positive, not {epsilon}")
    assert counterfactual.contributions is not None
    no, yes = counterfactual.contributions.unbind(-1)
    logits, own = (yes - no).double(), counterfactual.own[:, 0].double()  # batch x source
    bounds = logit_bounds(counterfactual.own_probabilities[:, 1], admissible_change(epsilon))
    size = max(1, VERTICES_AT_ONCE // logits.shape[1] ** 2)
    parts = (part.split(size) for part in (logits, own, counterfactual.attended, bounds))
    best = torch.cat([farthest_vertex(*part) for part in zip(*parts, strict=True)])
    return verify(counterfactual, best[:, None].to(counterfactual.own), epsilon)


def logit_bounds(probability: Float[Tensor, " batch"], epsilon: float) -> Float[Tensor, "batch 2"]:
    """Return the logits between which the probability of the second class moves by at most ε."""
    return torch.logit(torch.stack([probability - epsilon, probability + epsilon], -1).clamp(0, 1))


def farthest_vertex(
    logits: Float[Tensor, "batch source"],
    own: Float[Tensor, "batch source"],
    attended: Bool[Tensor, "batch source"],
    bounds: Float[Tensor, "batch 2"],
) -> Float[Tensor, "batch source"]:
    """Return the vertex of the largest JSD; NaN if rounding leaves none."""
    inside = attended & (bounds[:, :1] <= logits) & (logits <= bounds[:, 1:])
    pairs = (attended[:, :, None] & attended[:, None])[:, None]  # batch x 1 x i x j
    share = boundary_weights(logits, bounds)  # of i; the rest is that of j
    allowed = torch.where(same_position(share), inside[:, None, :, None], pairs & (share > 0) & (share < 1))
    share = share.where(allowed, 0.5)
    distance = jsd_gain(share, own[:, None, :, None]) + jsd_gain(1 - share, own[:, None, None])
    best = distance.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)[:, None]
    i, j = best // logits.shape[1] % logits.shape[1], best % logits.shape[1]
    on_i = share.flatten(1).gather(1, best)
    vertex = torch.zeros_like(own).scatter_add_(1, i, on_i).scatter_add_(1, j, 1 - on_i)
    return vertex.masked_fill(~allowed.flatten(1).any(1)[:, None], torch.nan)


def boundary_weights(
    logits: Float[Tensor, "batch source"], bounds: Float[Tensor, "batch 2"]
) -> Float[Tensor, "batch 2 i j"]:
    """Return the weight on position i that meets a bound if j has the rest; 1 where i and j are one position."""
    x, bound = logits[:, None], bounds[:, :, None, None]
    share = (bound - x[..., None, :]) / (x[..., None] - x[..., None, :])
    return share.masked_fill(same_position(share), 1.0)


def same_position(pairs: Float[Tensor, "*any i j"]) -> Bool[Tensor, "i j"]:
    return torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)


def jsd_gain(weight: Tensor, own: Tensor) -> Tensor:
    """Return what a position adds to JSD with this weight, beyond what it adds with none, which is ½ q ln 2."""
    mean = safe_log((weight + own) / 2)
    return (weight * (safe_log(weight) - mean) + own * (safe_log(own) - mean) - own * MAX_JSD) / 2


def violins_by_highest(ax: Axes, jsds: Float[np.ndarray, " texts"], highest: Float[np.ndarray, " texts"]) -> Axes:
    """Draw one violin per range of the highest weight."""
    from attnscope.plots.style import INK, WORDS, name_axes, tint

    ranges, names = np.digitize(highest, EDGES[1:-1]), []
    for i, (low, high) in enumerate(pairwise(EDGES)):
        values = jsds[ranges == i]
        names.append(f"{low:g} to {high:g}\n(n = {len(values)})")
        if len(values) < MIN_VIOLIN or np.ptp(values) < 1e-6:  # a density needs some spread
            ax.scatter(np.full(len(values), i), values, s=9, color=WORDS[0], linewidths=0)
            continue
        violin = ax.violinplot(values, [i], widths=0.8, showextrema=False)
        for body in cast("Iterable[PolyCollection]", violin["bodies"]):
            body.set(facecolor=tint(WORDS[0], 0.25), edgecolor="none", alpha=0.9)
        ax.scatter([i], [np.median(values)], s=9, color=INK, linewidths=0, zorder=3)
    ax.set_xticks(range(len(names)), labels=names)
    ax.set_ylim(-0.02, MAX_JSD + 0.02)
    name_axes(ax, "highest weight of the model's own attention", "JSD from it, in nats")
    return ax


def histogram(ax: Axes, jsds: Float[np.ndarray, " texts"]) -> Axes:
    from attnscope.plots.style import WORDS, name_axes, tint

    ax.hist(jsds, np.linspace(0, MAX_JSD, BINS + 1).tolist(), color=tint(WORDS[0], 0.25))
    name_axes(ax, "JSD from the model's own attention, in nats", "texts")
    return ax


# Adversarial training (tutek2020 §3.3, eq. 6, figure 1) --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImitationLoss(Objective):
    """The mean over texts of eq. 6: predictions as the base's, attention far from it."""

    base: nn.Module
    weight: float  # λ
    divergence: str = "jsd"  # or "kl" = KL(adversary‖base), as the predecessor's code had it

    def __post_init__(self) -> None:
        require(self.weight >= 0, f"the weight λ of the divergence must not be negative, but is {self.weight}")
        choose("divergence", self.divergence, DIVERGENCES)

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        with evaluating(self.base):
            base = self.base(batch)
        check_pair(trace, base)
        change = tvd(class_probabilities(trace.logits), class_probabilities(base.logits))
        distance = DIVERGENCES[self.divergence](trace.attention, base.attention).mean((1, 2))
        return (change.to(distance) - self.weight * distance).mean()


@dataclass(frozen=True)
class Imitation(Displayed):
    """The divergence of attention, and that of outputs, between base and adversary on each text."""

    jsd: Float[np.ndarray, " texts"]
    kl: Float[np.ndarray, " texts"]  # KL(adversary‖base)
    tvd: Float[np.ndarray, " texts"]
    changed: Float[np.ndarray, " texts"]  # 1 where predictions differ

    def summary(self) -> dict[str, float]:
        """Means over texts; JSD and TVD are a point of figure 1."""
        return {name: float(values.mean()) for name, values in vars(self).items()}

    def table(self) -> pd.DataFrame:
        """One row: the summary."""
        return pd.DataFrame([self.summary()])

    def by_text(self) -> pd.DataFrame:
        """One row per text."""
        return pd.DataFrame(vars(self)).rename_axis("text")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw TVD against JSD, one point per text."""
        from attnscope import plots

        return plots.scatter(self.jsd, self.tvd, ax=ax, xlabel="JSD of attention, in nats", ylabel="TVD of outputs")


def imitation(base: nn.Module, adversary: nn.Module, batches: Iterable[Batch]) -> Imitation:
    """Return how far a model's attention and outputs are from the base's on each text."""
    with evaluating(base), evaluating(adversary):
        rows = [compare_traces(adversary(batch), base(batch)) for batch in on_device_of(adversary, batches)]
    require(bool(rows), "there is no text to compare; give at least one batch")
    return Imitation(*torch.cat(rows, 1).cpu().numpy())


def compare_traces(trace: Trace, base: Trace) -> Float[Tensor, "measures batch"]:
    """Return JSD, KL, TVD, and whether predictions differ."""
    check_pair(trace, base)
    attention, other = trace.attention.double(), base.attention.double()
    distances = [DIVERGENCES[name](attention, other).mean((1, 2)) for name in ("jsd", "kl")]
    own, theirs = class_probabilities(trace.logits), class_probabilities(base.logits)
    return torch.stack([*distances, tvd(own, theirs), (own.argmax(-1) != theirs.argmax(-1)).double()])


def check_pair(trace: Trace, base: Trace) -> None:
    check_classifier(trace)
    shape, expected = ((*each.attention.shape, *each.logits.shape) for each in (trace, base))
    require(
        shape == expected,
        f"the adversary has {shape[1]} heads and {shape[-1]} target words, its base {expected[1]} and {expected[-1]}; "
        "they must be of the same architecture",
    )


class ImitationTraining(TrainingRun):
    """A training run whose best weights are those of the lowest loss of eq. 6 on the validation split.

    Gold classes have no part in it, so their loss must not decide.
    """

    objective: ImitationLoss

    def _judge(self, row: Mapping[str, float]) -> None:
        divergence = row[f"imitation.{self.objective.divergence}"]
        super()._judge({**row, "loss": row["imitation.tvd"] - self.objective.weight * divergence})


def train_adversary(
    base: nn.Module,
    fresh: nn.Module,
    task: Task,
    weight: float,
    divergence: str = "jsd",
    settings: TrainingSettings | None = None,
    seed: int = 0,
    folder: Path | None = None,
    report: ReportProgress | None = None,
) -> Progress:
    """Train a fresh model, in place, to predict as the base does, with different attention.

    The log shows its imitation on the validation split, by which patience and keep_weights="best" decide.

    Args:
        base: The trained model, which stays as it is.
        fresh: A new model of the same architecture.
        task: Texts; gold classes are not used.
        weight: λ of eq. 6.
        divergence: "jsd", or "kl" as in the code of Wiegreffe and Pinter.
        settings: Settings of the training.
        seed: Random seed.
        folder: The folder for checkpoints.
        report: See `fit`.
    """
    require(fresh is not base, "the adversary must be a fresh model, not the base itself")
    settings = settings or TrainingSettings()
    require(
        settings.best_metric == "loss" and settings.stop_at_accuracy is None,
        "an adversary is judged by eq. 6 alone, not by gold classes: leave best_metric='loss' and "
        "stop_at_accuracy=None",
    )

    def watch(model: nn.Module, task: Task) -> dict[str, float]:
        return imitation(base, model, task.batches("validation")).summary()

    objective = ImitationLoss(base, weight, divergence)
    run = ImitationTraining(fresh, task, objective, settings, seed, folder, {"imitation": watch})
    return run_to_end(run, report).progress
