"""Which attention would minimise the loss? (snell2021 A.1, eq. 26 to 36)

With p_t = σ(W (c_t + d_t)) the logits are Σ_l α_l γ_l + γ_s: γ_l = W h_l, γ_s = W d_t. So the loss of an output token
is convex in its attention. The same holds for any readout that is linear in the context, and with several heads.

An interior-point method finds the minimum for all output tokens at once: minimise f(α) with α > 0 and each head's
weights summing to one. Newton steps on f − μ Σ log α follow the central path while μ falls. f is convex, so it is at
most Σ_l g_l α_l − min_l g_l above its minimum, g its gradient: that gap is measured, not estimated; it sets the next μ,
and when it is within the tolerance the token is done.
"""

from dataclasses import dataclass
from typing import cast

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.models.capabilities import Decoding, ReadsOut, needs
from attnscope.models.inference import Model, evaluating, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.scores import TokenScores, over_words

LINEAR_TOLERANCE = 1e-3  # of the largest logit: how far a sum of parts may be from it, in single precision


@dataclass(frozen=True)
class Problem:
    """The loss of each output token as a function of its attention. A place is one source position of one head."""

    places: Float[Tensor, "batch places words"]  # γ_l
    fixed: Float[Tensor, "batch target words"]  # γ_s
    gold: Int[Tensor, "batch target"]
    open: Bool[Tensor, "batch places"]  # False on padding
    heads: Float[Tensor, "heads places"]  # 1 where the place is the head's; its weights sum to one

    def logits(self, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target words"]:
        return weights @ self.places + self.fixed

    def loss(self, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target"]:
        logits = self.logits(weights)
        return logits.logsumexp(-1) - logits.gather(-1, self.gold[..., None]).squeeze(-1)

    def rows(self, rows: slice) -> "Problem":
        return Problem(self.places[rows], self.fixed[rows], self.gold[rows], self.open[rows], self.heads)


def one_head(
    places: Float[Tensor, "batch source words"],
    fixed: Float[Tensor, "batch target words"],
    gold: Int[Tensor, "batch target"],
    source_mask: Bool[Tensor, "batch source"],
) -> Problem:
    """Return the problem of a single head, in double precision."""
    whole = torch.ones(1, places.shape[1], dtype=torch.float64, device=places.device)
    return Problem(places.double(), fixed.double(), gold, source_mask, whole)


def as_problem(model: ReadsOut, trace: Trace) -> Problem:
    """Return the parts of a model's logits, computed by its readout in double precision."""
    needs(model, ReadsOut, by="the optimal attention")
    with evaluating(model):
        problem = Problem(
            places=place_logits(model, trace).double(),
            fixed=without_context(model, trace).double(),
            gold=trace.target,
            open=trace.source_mask.repeat(1, trace.last.values.shape[1]),
            heads=membership(trace),
        )
    check_linear(problem, trace)
    return problem


def place_logits(model: ReadsOut, trace: Trace) -> Float[Tensor, "batch places words"]:
    """Return γ_l, what the logits gain when one head puts all its weight on one position."""
    values = trace.last.values
    empty = model.context_of(torch.zeros_like(values))  # batch x source x context
    state = None if trace.decoder is None else torch.zeros_like(trace.decoder[:, :1]).expand(-1, values.shape[2], -1)
    blank = model.readout(torch.zeros_like(empty), state)
    gains = [
        model.readout(model.context_of(one_head_only(values, head)) - empty, state) - blank
        for head in range(values.shape[1])
    ]
    possible = blank.isfinite()  # special tokens are not classes: their logits are −∞ whatever is attended to
    return torch.cat([gain.where(possible, 0) for gain in gains], 1)


def one_head_only(
    values: Float[Tensor, "batch heads source value"], head: int
) -> Float[Tensor, "batch heads source value"]:
    """Return the values of one head, zero for the others."""
    only = torch.zeros_like(values)
    only[:, head] = values[:, head]
    return only


def without_context(model: ReadsOut, trace: Trace) -> Float[Tensor, "batch target words"]:
    """Return γ_s, the logits when no head adds anything."""
    batch, heads, _, size = trace.last.values.shape
    context = model.context_of(trace.last.values.new_zeros(batch, heads, trace.target.shape[1], size))
    return model.readout(context, trace.decoder)


def membership(trace: Trace) -> Float[Tensor, "heads places"]:
    heads, source = trace.last.values.shape[1:3]
    return torch.eye(heads, dtype=torch.float64, device=trace.source.device).repeat_interleave(source, 1)


def check_linear(problem: Problem, trace: Trace) -> None:
    """Raise an error if the parts do not sum to the model's logits."""
    own = trace.attention.transpose(1, 2).flatten(2).to(problem.places)
    logits = trace.logits.to(problem.places)[trace.target_mask]
    difference = (problem.logits(own)[trace.target_mask] - logits).where(logits.isfinite(), 0)
    error = difference.abs()
    if error.numel() and error.max() > LINEAR_TOLERANCE * (1 + logits[logits.isfinite()].abs().max()):
        raise AttnscopeError(
            "the optimal attention needs a readout that is linear in the context, such as W(c + d) in snell2021 "
            "eq. 31, and a trace in evaluation mode; this model's logits are not a weighted sum over positions"
        )


TOLERANCE = 1e-6  # nats
MAX_ELEMENTS = 1 << 24  # of the second derivatives, in memory at a time
MAX_STEPS = 100  # a dozen or two are usual
SHRINK = 0.05  # of the smallest gap so far: the next one aimed at
BOUNDARY = 0.99  # of the way to the boundary that a step may go
ARMIJO = 1e-4  # of the decrease that the slope predicts
MAX_HALVINGS = 30


@dataclass(frozen=True)
class Point:
    """The iterate of each output token. Both are positive at open places; the weights are zero at closed ones."""

    weights: Float[Tensor, "batch target places"]  # α
    multipliers: Float[Tensor, "batch target places"]  # of α > 0


def minimise(
    problem: Problem,
    target_mask: Bool[Tensor, "batch target"],
    tolerance: float = TOLERANCE,
    max_elements: int = MAX_ELEMENTS,
    max_steps: int = MAX_STEPS,
) -> tuple[Float[Tensor, "batch target places"], Float[Tensor, "batch target"]]:
    """Return the best weights of every output token in the mask, and the remaining gap."""
    require(tolerance > 0, f"a tolerance must be positive, not {tolerance}")
    batch, places, words = problem.places.shape
    size = max(1, max_elements // (problem.fixed.shape[1] * places * words))
    blocks = [slice(start, start + size) for start in range(0, batch, size)]
    parts = [solve(problem.rows(rows), target_mask[rows], tolerance, max_steps) for rows in blocks]
    weights, gaps = (torch.cat(values) for values in zip(*parts, strict=True))
    return weights, gaps


def solve(
    problem: Problem, target_mask: Bool[Tensor, "batch target"], tolerance: float, max_steps: int
) -> tuple[Float[Tensor, "batch target places"], Float[Tensor, "batch target"]]:
    point = initial_point(problem)
    nearest = torch.full_like(point.weights[..., 0], torch.inf)  # the smallest gap so far: μ falls and never rises
    for _ in range(max_steps):
        slope = gradient(problem, point.weights)
        gap = gap_at(problem, point.weights, slope)
        busy = (target_mask & (gap > tolerance))[..., None]
        if not busy.any():
            break
        nearest = nearest.minimum(gap)
        ahead = step(problem, point, slope, SHRINK * nearest)
        point = Point(
            torch.where(busy, ahead.weights, point.weights), torch.where(busy, ahead.multipliers, point.multipliers)
        )
    return point.weights, gap_at(problem, point.weights, gradient(problem, point.weights))


def initial_point(problem: Problem) -> Point:
    """Return uniform weights, and the multipliers of a point of the central path with their gap."""
    places = problem.open.double()[:, None].expand(-1, problem.fixed.shape[1], -1)  # batch x target x places
    sizes = places @ problem.heads.T @ problem.heads  # at each place, how many places its head has
    weights = places / sizes.clamp_min(1)
    gap = gap_at(problem, weights, gradient(problem, weights))
    multipliers = gap[..., None] / places.sum(-1, keepdim=True) / weights.masked_fill(places == 0, 1)
    return Point(weights, multipliers.clamp_min(TOLERANCE))


def gradient(problem: Problem, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target places"]:
    """Return g, the mean of each place's logits under p, less that of the gold token."""
    probability = problem.logits(weights).softmax(-1)
    gold = problem.places.gather(-1, problem.gold[:, None].expand(-1, problem.places.shape[1], -1))
    return probability @ problem.places.mT - gold.mT


def gap_at(
    problem: Problem, weights: Float[Tensor, "batch target places"], slope: Float[Tensor, "batch target places"]
) -> Float[Tensor, "batch target"]:
    """Return Σ g α − min g, summed over heads."""
    outside = (problem.heads[:, None, None] == 0) | ~problem.open[:, None]  # heads x batch x 1 x places
    lowest = slope.masked_fill(outside, torch.inf).amin(-1).sum(0)  # batch x target
    return (slope * weights).sum(-1) - lowest


def curvature(
    problem: Problem, weights: Float[Tensor, "batch target places"]
) -> Float[Tensor, "batch target places places"]:
    """Return the second derivatives: the covariance under p of the places' logits, each scaled by its weight."""
    probability = problem.logits(weights).softmax(-1)
    mean = probability @ problem.places.mT  # batch x target x places
    spread = (problem.places[:, None] - mean[..., None]) * probability.sqrt()[:, :, None]  # ... x places x words
    spread = spread * weights[..., None]
    return spread @ spread.mT


def step(
    problem: Problem,
    point: Point,
    slope: Float[Tensor, "batch target places"],
    gap: Float[Tensor, "batch target"],
) -> Point:
    """Return the point after one Newton step towards the point of the central path with this gap.

    Each place is scaled by its own weight, so that places of small weight cost no digits of those of large weight.
    """
    closed = ~problem.open[:, None]
    barrier = gap[..., None] / problem.open.sum(-1)[:, None, None]  # μ: batch x target x 1
    products = (point.multipliers * point.weights).masked_fill(closed, 1)
    uphill = (slope * point.weights - barrier).masked_fill(closed, 0)
    matrix = curvature(problem, point.weights) + products.diag_embed()
    relative = direction(problem, point.weights, matrix, uphill)
    length = line_search(problem, point.weights, relative, barrier, (uphill * relative).sum(-1, keepdim=True))
    change = (barrier / products - 1 - relative).masked_fill(closed, 0)  # of the multipliers, relative
    return Point(
        on_simplex(problem, point.weights * (1 + length * relative)),
        point.multipliers * (1 + to_boundary(change) * change),
    )


def direction(
    problem: Problem,
    weights: Float[Tensor, "batch target places"],
    matrix: Float[Tensor, "batch target places places"],
    uphill: Float[Tensor, "batch target places"],
) -> Float[Tensor, "batch target places"]:
    """Return the Newton direction, relative to the weights, that keeps the sum of each head's weights."""
    sums = problem.heads * weights[:, :, None]  # batch x target x heads x places
    # A penalty on leaving the simplex changes nothing on it, and keeps the matrix far from singular.
    penalty = 1 + matrix.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]
    stiff = torch.linalg.cholesky(matrix + penalty * sums.mT @ sums)
    solved = torch.cholesky_solve(torch.cat([-uphill[..., None], sums.mT], -1), stiff)  # ... x places x (1 + heads)
    free, bound = solved[..., :1], solved[..., 1:]
    tangent: Tensor = free - bound @ torch.linalg.solve(sums @ bound, sums @ free)
    return tangent.squeeze(-1)


def on_simplex(problem: Problem, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target places"]:
    """Return weights that sum to one for every head, up to rounding."""
    return weights / (weights @ problem.heads.T @ problem.heads)


def to_boundary(relative: Float[Tensor, "*rows places"]) -> Float[Tensor, "*rows 1"]:
    """Return the longest step, 1 at most, that keeps every value positive."""
    shrinking: Tensor = (-relative).amax(-1, keepdim=True)
    return (shrinking / BOUNDARY).clamp_min(1.0).reciprocal()


def line_search(
    problem: Problem,
    weights: Float[Tensor, "batch target places"],
    relative: Float[Tensor, "batch target places"],
    barrier: Float[Tensor, "batch target 1"],
    slope: Float[Tensor, "batch target 1"],
) -> Float[Tensor, "batch target 1"]:
    """Return the longest step, by halves, that lowers f − μ Σ log α enough."""
    start, length = problem.loss(weights)[..., None], to_boundary(relative)
    rounding = 1e-12 * (1 + start.abs())
    for _ in range(MAX_HALVINGS):
        growth = 1 + length * relative
        change = problem.loss(weights * growth)[..., None] - start - barrier * growth.log().sum(-1, keepdim=True)
        accepted = change <= ARMIJO * length * slope + rounding
        if accepted.all():
            break
        length = torch.where(accepted, length, length / 2)
    return length


@dataclass(frozen=True)
class OptimalAttention(Displayed):
    """α^opt of every output token of a batch, its loss beside that of the model's own attention, and how exact it is.

    Where several attentions are equally good, as with a token that occurs twice, the weight is shared.
    """

    weights: Float[Tensor, "batch heads target source"]
    loss: Float[Tensor, "batch target"]  # in nats; NaN on padding, as the next two
    own_loss: Float[Tensor, "batch target"]
    gap: Float[Tensor, "batch target"]  # the loss is at most this far above the minimum
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]

    def scores(self, head: int = 0) -> TokenScores:
        """Return the weights of one head, to be compared with other scores."""
        values = over_words(self.weights[:, head], self.source_mask, self.target_mask)
        return TokenScores(values, self.source_mask, self.target_mask, "optimal attention")

    def table(self) -> pd.DataFrame:
        """Return one row per output token."""
        sentence, target = self.target_mask.cpu().nonzero().unbind(1)
        index = pd.MultiIndex.from_arrays([sentence.numpy(), target.numpy()], names=["sentence", "target"])
        columns = {"loss": self.loss, "own loss": self.own_loss, "gap": self.gap}
        return pd.DataFrame({name: values.cpu()[sentence, target].numpy() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None, sentence: int = 0, head: int = 0) -> Axes:
        """Draw the weights of one sentence."""
        return self.scores(head).plot(ax, sentence)


@torch.no_grad()
def solve_optimal_attention(
    model: ReadsOut,
    trace: Trace,
    tolerance: float = TOLERANCE,
    max_elements: int = MAX_ELEMENTS,
    max_steps: int = MAX_STEPS,
) -> OptimalAttention:
    """Return the best attention for a pass in evaluation mode.

    Args:
        model: The model that gave the trace; its readout must be linear in the context.
        trace: The pass.
        tolerance: The largest gap, in nats.
        max_elements: The largest number of elements of second derivatives in memory at a time.
        max_steps: The largest number of Newton steps.
    """
    problem = as_problem(model, trace)
    weights, gap = minimise(problem, trace.target_mask, tolerance, max_elements, max_steps)
    own = trace.attention.transpose(1, 2).flatten(2).to(weights)  # batch x target x places
    padding = ~trace.target_mask
    return OptimalAttention(
        weights=weights.unflatten(-1, (trace.attention.shape[1], -1)).transpose(1, 2),
        loss=problem.loss(weights).masked_fill(padding, torch.nan),
        own_loss=problem.loss(own).masked_fill(padding, torch.nan),
        gap=gap.masked_fill(padding, torch.nan),
        source_mask=trace.source_mask,
        target_mask=trace.target_mask,
    )


@dataclass(frozen=True)
class OptimalLosses(Displayed):
    """The loss of every output token of a data set with optimal attention, beside that with the model's own."""

    by_token: pd.DataFrame  # one row per output token: loss, own loss, gap

    def table(self) -> pd.DataFrame:
        """Return the mean losses, the largest gap, and the number of output tokens, in one row."""
        means = self.by_token[["loss", "own loss"]].mean()
        return pd.DataFrame([{**means, "largest gap": self.by_token["gap"].max(), "tokens": len(self.by_token)}])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean losses."""
        from attnscope import plots

        means = self.by_token[["own loss", "loss"]].mean().rename({"own loss": "own", "loss": "optimal"})
        return plots.bars(means.to_frame("attention").T, ax=ax, ylabel="loss (nats per token)")


def optimal_attention(
    model: Model, data: Data, decoding: Decoding | None = None, tolerance: float = TOLERANCE
) -> OptimalLosses:
    """Return how far the loss of every output token could fall with other attention.

    Args:
        model: A model that ReadsOut, with a readout that is linear in the context.
        data: Texts, a path, a table, a Task or Batches.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
        tolerance: How far from the minimum a loss may be, in nats.
    """
    needs(model, ReadsOut, by="the optimal attention")
    module = cast(ReadsOut, module_of(model))
    passes = traces(model, data, decoding=decoding)
    tables = [solve_optimal_attention(module, trace, tolerance).table() for _, trace in passes]
    require(bool(tables), "there is no text: the data are empty")
    return OptimalLosses(pd.concat(tables, ignore_index=True))
