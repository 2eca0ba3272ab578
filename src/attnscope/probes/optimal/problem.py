"""What does each source position add to the logits, where these are a weighted sum? (snell2021 eq. 26 to 36)

With p_t = σ(W (c_t + d_t)) the logits are Σ_l α_l γ_l + γ_s: γ_l = W h_l, γ_s = W d_t. So the loss of an output word is
convex in its attention. The same holds for any readout that is linear in the context, and with several heads.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError
from attnscope.models.asking import as_it_was
from attnscope.models.trace import Trace
from attnscope.probes.lexical import ReadsOut, value_to_context

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
    """The parts of a model's logits, found through its second door, in double precision."""
    with as_it_was(model):
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
    contexts = value_to_context(model)
    nothing = contexts(torch.zeros_like(values))  # batch x source x context
    state = None if trace.decoder is None else torch.zeros_like(trace.decoder[:, :1]).expand(-1, values.shape[2], -1)
    blank = model.readout(torch.zeros_like(nothing), state)
    gains = [model.readout(contexts(alone(values, head)) - nothing, state) - blank for head in range(values.shape[1])]
    return torch.cat(gains, 1)


def alone(values: Float[Tensor, "batch heads source value"], head: int) -> Float[Tensor, "batch heads source value"]:
    """The values of one head, zero for the others."""
    kept = torch.zeros_like(values)
    kept[:, head] = values[:, head]
    return kept


def without_context(model: ReadsOut, trace: Trace) -> Float[Tensor, "batch target words"]:
    """γ_s: the logits when no head adds anything."""
    batch, heads, _, size = trace.last.values.shape
    context = value_to_context(model)(trace.last.values.new_zeros(batch, heads, trace.target.shape[1], size))
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
