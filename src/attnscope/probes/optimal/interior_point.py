"""How is the least loss found, and known to be the least? An interior-point method for all output words at once.

Minimise f(α) with α > 0 and each head's weights summing to one. Newton steps on f − μ Σ log α follow the central path
while μ falls. f is convex, so it is at most Σ_l g_l α_l − min_l g_l above its least value, g its gradient: that gap is
measured, not estimated, it sets the next μ, and when it is within the tolerance the word is done.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import require
from attnscope.probes.optimal.problem import Problem

TOLERANCE = 1e-6  # nats
CELLS = 1 << 24  # numbers held at a time by the second derivatives
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
    cells: int = CELLS,
    limit: int = LIMIT,
) -> tuple[Float[Tensor, "batch target places"], Float[Tensor, "batch target"]]:
    """The best weights of every wanted output word, and the gap that is left, at most `tolerance` within the limit."""
    require(tolerance > 0, f"a tolerance must be positive, not {tolerance}")
    batch, places, words = problem.places.shape
    size = max(1, cells // (problem.held.shape[1] * places * words))
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
