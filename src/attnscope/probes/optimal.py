"""What does each source position add to the logits, where these are a weighted sum? (snell2021 eq. 26 to 36)

With p_t = σ(W (c_t + d_t)) the logits are Σ_l α_l γ_l + γ_s: γ_l = W h_l, γ_s = W d_t. So the loss of an output word is
convex in its attention. The same holds for any readout that is linear in the context, and with several heads.
"""

# TODO(docstring) join:
#   How is the least loss found, and known to be the least? An interior-point method for all output words at once.
#   How good could attention be, and where would it look? (snell2021 A.1: A(α^opt, β))
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.models.capabilities import ReadsOut, needs
from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.probes.scores import TokenScores, over_words

CLOSE = 1e-3  # of the largest logit: how far a sum of parts may be from the whole, in single precision


@dataclass(frozen=True)
class Problem:
    """The loss of each output word as a function of its attention. A place is one source position of one head."""

    places: Float[Tensor, "batch places words"]  # γ_l
    held: Float[Tensor, "batch target words"]  # γ_s
    gold: Int[Tensor, "batch target"]
    open: Bool[Tensor, "batch places"]  # whether the place is no padding
    heads: Float[Tensor, "heads places"]  # 1 where the place is the head's; its weights sum to one

    def logits(self, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target words"]:
        return weights @ self.places + self.held

    def loss(self, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target"]:
        logits = self.logits(weights)
        return logits.logsumexp(-1) - logits.gather(-1, self.gold[..., None]).squeeze(-1)

    def rows(self, some: slice) -> "Problem":
        return Problem(self.places[some], self.held[some], self.gold[some], self.open[some], self.heads)


def one_head(
    places: Float[Tensor, "batch source words"],
    held: Float[Tensor, "batch target words"],
    gold: Int[Tensor, "batch target"],
    source_mask: Bool[Tensor, "batch source"],
) -> Problem:
    """The problem of a single head, in double precision."""
    whole = torch.ones(1, places.shape[1], dtype=torch.float64, device=places.device)
    return Problem(places.double(), held.double(), gold, source_mask, whole)


def as_problem(model: ReadsOut, trace: Trace) -> Problem:
    """The parts of a model's logits, found by its readout, in double precision."""
    needs(model, ReadsOut, by="the optimal attention")
    with evaluating(model):
        problem = Problem(
            places=by_place(model, trace).double(),
            held=without_context(model, trace).double(),
            gold=trace.target,
            open=trace.source_mask.repeat(1, trace.last.values.shape[1]),
            heads=membership(trace),
        )
    check_linear(problem, trace)
    return problem


def by_place(model: ReadsOut, trace: Trace) -> Float[Tensor, "batch places words"]:
    """γ_l: what the logits gain when one head puts all its weight on one position."""
    values = trace.last.values
    nothing = model.context_of(torch.zeros_like(values))  # batch x source x context
    state = None if trace.decoder is None else torch.zeros_like(trace.decoder[:, :1]).expand(-1, values.shape[2], -1)
    blank = model.readout(torch.zeros_like(nothing), state)
    gains = [
        model.readout(model.context_of(alone(values, head)) - nothing, state) - blank for head in range(values.shape[1])
    ]
    return torch.cat(gains, 1)


def alone(values: Float[Tensor, "batch heads source value"], head: int) -> Float[Tensor, "batch heads source value"]:
    """The values of one head, zero for the others."""
    kept = torch.zeros_like(values)
    kept[:, head] = values[:, head]
    return kept


def without_context(model: ReadsOut, trace: Trace) -> Float[Tensor, "batch target words"]:
    """γ_s: the logits when no head adds anything."""
    batch, heads, _, size = trace.last.values.shape
    context = model.context_of(trace.last.values.new_zeros(batch, heads, trace.target.shape[1], size))
    return model.readout(context, trace.decoder)


def membership(trace: Trace) -> Float[Tensor, "heads places"]:
    heads, source = trace.last.values.shape[1:3]
    return torch.eye(heads, dtype=torch.float64, device=trace.source.device).repeat_interleave(source, 1)


def check_linear(problem: Problem, trace: Trace) -> None:
    """The parts must sum to what the model said."""
    own = trace.attention.transpose(1, 2).flatten(2).to(problem.places)
    said = trace.logits.to(problem.places)
    wrong = (problem.logits(own) - said).abs().amax(-1)[trace.target_mask]
    if wrong.numel() and wrong.max() > CLOSE * (1 + said[trace.target_mask].abs().max()):
        raise AttnscopeError(
            "the optimal attention needs a readout that is linear in the context, such as W(c + d) in snell2021 "
            "eq. 31, and a trace made in evaluation mode; this model's logits are no weighted sum over positions"
        )


TOLERANCE = 1e-6  # nats
MAX_ELEMENTS = 1 << 24  # numbers held at a time by the second derivatives
LIMIT = 100  # steps; a dozen or two are usual
SHRINK = 0.05  # of the smallest gap so far: the next one aimed at
REACH = 0.99  # of the way to the boundary that a step may go
ENOUGH = 1e-4  # of the decrease that the slope promises (Armijo)
HALVINGS = 30


@dataclass(frozen=True)
class Point:
    """Where each output word stands. Both are positive at open places; the weights are zero at closed ones."""

    weights: Float[Tensor, "batch target places"]  # α
    prices: Float[Tensor, "batch target places"]  # multipliers of α > 0


def minimise(
    problem: Problem,
    wanted: Bool[Tensor, "batch target"],
    tolerance: float = TOLERANCE,
    max_elements: int = MAX_ELEMENTS,
    limit: int = LIMIT,
) -> tuple[Float[Tensor, "batch target places"], Float[Tensor, "batch target"]]:
    """The best weights of every wanted output word, and the gap that is left, at most `tolerance` within the limit."""
    require(tolerance > 0, f"a tolerance must be positive, not {tolerance}")
    batch, places, words = problem.places.shape
    size = max(1, max_elements // (problem.held.shape[1] * places * words))
    some = [slice(start, start + size) for start in range(0, batch, size)]
    parts = [solve(problem.rows(rows), wanted[rows], tolerance, limit) for rows in some]
    weights, gaps = (torch.cat(found) for found in zip(*parts, strict=True))
    return weights, gaps


def solve(
    problem: Problem, wanted: Bool[Tensor, "batch target"], tolerance: float, limit: int
) -> tuple[Float[Tensor, "batch target places"], Float[Tensor, "batch target"]]:
    point = middle(problem)
    nearest = torch.full_like(point.weights[..., 0], torch.inf)  # the smallest gap so far: μ falls and never rises
    for _ in range(limit):
        slope = gradient(problem, point.weights)
        gap = gap_at(problem, point.weights, slope)
        busy = (wanted & (gap > tolerance))[..., None]
        if not busy.any():
            break
        nearest = nearest.minimum(gap)
        ahead = step(problem, point, slope, SHRINK * nearest)
        point = Point(torch.where(busy, ahead.weights, point.weights), torch.where(busy, ahead.prices, point.prices))
    return point.weights, gap_at(problem, point.weights, gradient(problem, point.weights))


def middle(problem: Problem) -> Point:
    """Uniform weights, and the prices that a point of the central path with their gap would have."""
    places = problem.open.double()[:, None].expand(-1, problem.held.shape[1], -1)  # batch x target x places
    sizes = places @ problem.heads.T @ problem.heads  # at each place, how many places its head has
    weights = places / sizes.clamp_min(1)
    gap = gap_at(problem, weights, gradient(problem, weights))
    prices = gap[..., None] / places.sum(-1, keepdim=True) / weights.masked_fill(places == 0, 1)
    return Point(weights, prices.clamp_min(TOLERANCE))


def gradient(problem: Problem, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target places"]:
    """g: the mean of each place's logits under p, less that of the gold word."""
    probability = problem.logits(weights).softmax(-1)
    gold = problem.places.gather(-1, problem.gold[:, None].expand(-1, problem.places.shape[1], -1))
    return probability @ problem.places.mT - gold.mT


def gap_at(
    problem: Problem, weights: Float[Tensor, "batch target places"], slope: Float[Tensor, "batch target places"]
) -> Float[Tensor, "batch target"]:
    """Σ g α − min g, summed over heads."""
    outside = (problem.heads[:, None, None] == 0) | ~problem.open[:, None]  # heads x batch x 1 x places
    lowest = slope.masked_fill(outside, torch.inf).amin(-1).sum(0)  # batch x target
    return (slope * weights).sum(-1) - lowest


def curvature(
    problem: Problem, weights: Float[Tensor, "batch target places"]
) -> Float[Tensor, "batch target places places"]:
    """The second derivatives: the covariance under p of the places' logits, each place measured in its own weight."""
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
    """One Newton step towards the point of the central path with this gap.

    Each place is measured in its own weight, so that places which hardly count spoil no digits of those that do.
    """
    closed = ~problem.open[:, None]
    barrier = gap[..., None] / problem.open.sum(-1)[:, None, None]  # μ: batch x target x 1
    products = (point.prices * point.weights).masked_fill(closed, 1)
    uphill = (slope * point.weights - barrier).masked_fill(closed, 0)
    matrix = curvature(problem, point.weights) + products.diag_embed()
    relative = direction(problem, point.weights, matrix, uphill)
    length = searched(problem, point.weights, relative, barrier, (uphill * relative).sum(-1, keepdim=True))
    cheaper = (barrier / products - 1 - relative).masked_fill(closed, 0)  # change of prices, relative to prices
    return Point(
        on_simplex(problem, point.weights * (1 + length * relative)),
        point.prices * (1 + to_boundary(cheaper) * cheaper),
    )


def direction(
    problem: Problem,
    weights: Float[Tensor, "batch target places"],
    matrix: Float[Tensor, "batch target places places"],
    uphill: Float[Tensor, "batch target places"],
) -> Float[Tensor, "batch target places"]:
    """The Newton direction, relative to the weights, that leaves the sum of each head's weights as it is."""
    sums = problem.heads * weights[:, :, None]  # batch x target x heads x places
    # A price on leaving the simplex changes nothing on it, and keeps the matrix far from singular.
    price = 1 + matrix.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]
    stiff = torch.linalg.cholesky(matrix + price * sums.mT @ sums)
    found = torch.cholesky_solve(torch.cat([-uphill[..., None], sums.mT], -1), stiff)  # ... x places x (1 + heads)
    free, held = found[..., :1], found[..., 1:]
    tangent: Tensor = free - held @ torch.linalg.solve(sums @ held, sums @ free)
    return tangent.squeeze(-1)


def on_simplex(problem: Problem, weights: Float[Tensor, "batch target places"]) -> Float[Tensor, "batch target places"]:
    """Every head's weights sum to one, rounding or not."""
    return weights / (weights @ problem.heads.T @ problem.heads)


def to_boundary(relative: Float[Tensor, "*rows places"]) -> Float[Tensor, "*rows 1"]:
    """The longest step, 1 at most, that keeps every value positive."""
    shrinking: Tensor = (-relative).amax(-1, keepdim=True)
    return (shrinking / REACH).clamp_min(1.0).reciprocal()


def searched(
    problem: Problem,
    weights: Float[Tensor, "batch target places"],
    relative: Float[Tensor, "batch target places"],
    barrier: Float[Tensor, "batch target 1"],
    slope: Float[Tensor, "batch target 1"],
) -> Float[Tensor, "batch target 1"]:
    """The longest step by halves that lowers f − μ Σ log α enough."""
    start, length = problem.loss(weights)[..., None], to_boundary(relative)
    rounding = 1e-12 * (1 + start.abs())
    for _ in range(HALVINGS):
        growth = 1 + length * relative
        change = problem.loss(weights * growth)[..., None] - start - barrier * growth.log().sum(-1, keepdim=True)
        short = change <= ENOUGH * length * slope + rounding
        if short.all():
            break
        length = torch.where(short, length, length / 2)
    return length


@dataclass(frozen=True)
class OptimalAttention(Displayed):
    """α^opt of every output word, its loss beside that of the model's own attention, and how exact it is.

    Where several attentions are equally good, as with a word that occurs twice, the weight is shared.
    """

    weights: Float[Tensor, "batch heads target source"]
    loss: Float[Tensor, "batch target"]  # in nats; NaN on padding, as the next two
    own_loss: Float[Tensor, "batch target"]
    gap: Float[Tensor, "batch target"]  # the loss is proven to be at most this far above the least one
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]

    def scores(self, head: int = 0) -> TokenScores:
        """The weights of one head, to be compared with other scores."""
        values = over_words(self.weights[:, head], self.source_mask, self.target_mask)
        return TokenScores(values, self.source_mask, self.target_mask, "optimal attention")

    def table(self) -> pd.DataFrame:
        """One row per output word."""
        sentence, target = self.target_mask.cpu().nonzero().unbind(1)
        index = pd.MultiIndex.from_arrays([sentence.numpy(), target.numpy()], names=["sentence", "target"])
        columns = {"loss": self.loss, "own loss": self.own_loss, "gap": self.gap}
        return pd.DataFrame({name: values.cpu()[sentence, target].numpy() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None, sentence: int = 0, head: int = 0) -> Axes:
        return self.scores(head).plot(ax, sentence)


@torch.no_grad()
def optimal(
    model: ReadsOut, trace: Trace, tolerance: float = TOLERANCE, max_elements: int = MAX_ELEMENTS, limit: int = LIMIT
) -> OptimalAttention:
    """The best attention for a pass that the model made in evaluation mode. Its readout must be linear in the context.

    What it asks of a model is what the lexical probe asks. `max_elements` bounds the numbers that second derivatives
    hold at a time.
    """
    problem = as_problem(model, trace)
    weights, gap = minimise(problem, trace.target_mask, tolerance, max_elements, limit)
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
