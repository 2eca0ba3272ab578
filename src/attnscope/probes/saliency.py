"""Which source tokens influence the output? Leave-one-out and gradients (snell2021 §5.1, Δ; tutek2020)

Every method scores each source token for each output token, positive where it raises the output: the log-probability of
the target token y_t, unless another function of the trace is given as `of`. `.lowering` has the other sign. The model
runs in evaluation mode and stays as it is: modes, gradients, hooks.

Gradients need a model that declares EmbedsSource: `source_inputs` is the module that embeds the source, called on
`batch.source` itself, once in a forward pass. (It may embed the target as well: other token ids pass untouched.) Where
positions are added inside that module, they are part of the embedding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.capabilities import TEACHER_FORCING, Decoding, EmbedsSource, GivesTrace, needs
from attnscope.models.inference import Model, evaluating, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Interventions, Trace
from attnscope.probes.scores import TokenScores, TokenScoreTable, over_words
from attnscope.tasks.batch import Batch

Output = Callable[[Trace], Float[Tensor, "batch target"]]
Change = Callable[[Float[Tensor, "batch source input"]], Float[Tensor, "batch source input"]]

DELETIONS = {"drop": "word dropped", "zero": "embedding zeroed"}
POINTS = 32  # of the Gauss-Legendre rule


@dataclass(frozen=True)
class Saliency(TokenScores):
    """How much each source token raises the output, by one method (`name`)."""

    @property
    def lowering(self) -> "Saliency":
        """The other sign: positive where the token lowers the output, which is where it raises the loss."""
        return replace(self, values=-self.values, name=f"{self.name}, sign reversed")


def saliency(
    model: Model,
    data: Data = None,
    method: str = "leave_one_out",
    of: Output | None = None,
    decoding: Decoding | None = None,
) -> TokenScoreTable:
    """Return the saliency of every source token.

    Args:
        model: What gives Traces; all methods but leave_one_out need EmbedsSource.
        data: As of `as_batches`. Without labels or translations, the target is the model's prediction.
        method: A name in METHODS.
        of: The output whose change is measured; by default the log-probability of the target token.
        decoding: As of `traces`.
    """
    compute = METHODS[choose("saliency method", method, METHODS)]
    needs(model, GivesTrace, *(() if method == "leave_one_out" else (EmbedsSource,)), by=f"saliency by {method}")
    module, output = module_of(model), of or gold_log_probability
    passes = traces(model, data, decoding=decoding)
    scores = ((compute(module, batch, output, decoding=decoding), trace) for batch, trace in passes)
    return TokenScoreTable.of(scores, method.replace("_", " "))


def gold_log_probability(trace: Trace) -> Float[Tensor, "batch target"]:
    """Return log p(y_t): minus the loss of each target token."""
    return trace.logits.log_softmax(-1).gather(-1, trace.target[..., None]).squeeze(-1)


# Leave-one-out


def leave_one_out(
    model: GivesTrace,
    batch: Batch,
    of: Output = gold_log_probability,
    how: str = "drop",
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return the output less the output without each token.

    Args:
        model: What gives Traces.
        batch: Sentences.
        of: The output.
        how: "drop": the sentence closes over the gap; a token that is its whole sentence cannot be dropped: NaN.
            "zero": a zero embedding stands in the token's place.
        attention: Of the forward passes.
        decoding: Of the forward passes; None: as the model says.
    """
    choose("way to leave a word out", how, DELETIONS)

    def output(changed: Batch) -> Tensor:
        return of(forward(model, changed, attention, decoding))

    without = output_without if how == "drop" else output_with_zero
    with evaluating(model):
        whole = output(batch)
        changes = [whole - without(model, batch, place, output) for place in range(batch.source.shape[1])]
    return masked_saliency(torch.stack(changes, -1), batch, f"leave-one-out, {DELETIONS[how]}")


def output_without(
    model: GivesTrace, batch: Batch, place: int, output: Callable[[Batch], Tensor]
) -> Float[Tensor, "batch target"]:
    """Return the output when every sentence lacks the token at this position."""
    kept = [i for i in range(batch.source.shape[1]) if i != place]
    mask = batch.source_mask[:, kept]
    nothing_left = ~mask.any(1)
    if nothing_left.all():
        return torch.full_like(batch.target, torch.nan, dtype=torch.get_default_dtype())
    # A pass over nothing has no meaning: such a sentence keeps a token, and its output is thrown away.
    filled = mask | (nothing_left[:, None] & (torch.arange(len(kept), device=mask.device) == 0))
    rest = replace(
        batch, source=batch.source[:, kept], source_mask=filled, gold_attention=None, rationale=None,
        source_special=None if batch.source_special is None else batch.source_special[:, kept],
    )  # fmt: skip
    return output(rest).masked_fill(nothing_left[:, None], torch.nan)


def output_with_zero(
    model: GivesTrace, batch: Batch, place: int, output: Callable[[Batch], Tensor]
) -> Float[Tensor, "batch target"]:
    """Return the output when the token at this position has a zero embedding."""

    def change(embedded: Tensor) -> Tensor:
        return embedded.index_fill(1, torch.tensor([place], device=embedded.device), 0.0)

    with with_embeddings(model, batch, change):
        return output(batch)


# Gradients


def influence(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return Δ: the derivative with respect to a factor, 1, of each token's embedding.

    By the chain rule it is gradient · embedding, the first-order effect of that token on the output.
    """
    scale = torch.ones_like(embeddings(model, batch)[..., :1]).requires_grad_()  # batch x source x 1
    slopes = derivatives(model, batch, lambda e: e * scale, scale, of, attention, decoding)
    return masked_saliency(torch.stack([slope.squeeze(-1) for slope in slopes], 1), batch, "influence Δ")


def gradient_norm(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return the norm of the gradient with respect to each embedding: how much a token could matter, without a sign."""
    shift = torch.zeros_like(embeddings(model, batch)).requires_grad_()
    slopes = derivatives(model, batch, lambda e: e + shift, shift, of, attention, decoding)
    return masked_saliency(torch.stack([slope.norm(dim=-1) for slope in slopes], 1), batch, "gradient norm")


def gradient_times_input(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return the gradient with respect to each embedding, times that embedding, summed: the same as `influence`."""
    embedded = embeddings(model, batch)
    shift = torch.zeros_like(embedded).requires_grad_()
    slopes = derivatives(model, batch, lambda e: e + shift, shift, of, attention, decoding)
    return masked_saliency(torch.stack([(slope * embedded).sum(-1) for slope in slopes], 1), batch, "gradient × input")


def derivatives(
    model: EmbedsSource,
    batch: Batch,
    change: Change,
    parameter: Tensor,
    of: Output,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> list[Float[Tensor, "batch source part"]]:
    """Return, for each target position, the derivative of its output with respect to a parameter of `change`.

    Sentences of a batch are independent, so the sum over them is differentiated once for all.
    """
    with with_gradients(model):
        with with_embeddings(model, batch, change):
            outputs = of(forward(model, batch, attention, decoding)).sum(0)  # target
        return [
            torch.autograd.grad(output, parameter, retain_graph=True, materialize_grads=True)[0] for output in outputs
        ]


# Integrated gradients (Sundararajan et al. 2017)


@dataclass(frozen=True)
class IntegratedGradients(Saliency):
    """Shares of the change of the output from a blank sentence to this one."""

    missed: Float[Tensor, "batch target"]  # what the shares should have summed to, less what they do; NaN on padding


def integrated_gradients(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    baseline: Float[Tensor, " input"] | None = None,
    points: int = POINTS,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> IntegratedGradients:
    """Return the mean gradient on the line from a baseline embedding to the token's own, times their difference.

    Over the tokens of a sentence it sums to the output less that of the blank sentence; `missed` is by how much the
    numerical integral fails to.

    Args:
        model: What embeds its source.
        batch: Sentences.
        of: The output.
        baseline: The blank embedding; zero by default.
        points: Of the Gauss-Legendre rule.
        attention: Of the forward passes.
        decoding: Of the forward passes; None: as the model says.
    """
    require(points > 0, f"points={points}: the integral needs at least one point")
    embedded = embeddings(model, batch)
    blank = torch.zeros_like(embedded[0, 0]) if baseline is None else baseline.to(embedded)
    values = embedded.new_zeros(*batch.target.shape, batch.source.shape[1])
    for place, weight in gauss_legendre(points):
        far = torch.full_like(embedded[..., :1], place).requires_grad_()
        slopes = derivatives(model, batch, line_to(blank, far), far, of, attention, decoding)
        values = values + weight * torch.stack([slope.squeeze(-1) for slope in slopes], 1)
    scores = masked_saliency(values, batch, "integrated gradients")
    ends = []
    for place in (1.0, 0.0):
        with evaluating(model), with_embeddings(model, batch, line_to(blank, place)):
            ends.append(of(forward(model, batch, attention, decoding)))
    missed = (ends[0] - ends[1] - scores.values.nansum(-1)).masked_fill(~batch.target_mask, torch.nan)
    return IntegratedGradients(scores.values, scores.source_mask, scores.target_mask, scores.name, missed)


def line_to(blank: Tensor, far: Tensor | float) -> Change:
    return lambda e: blank + (e - blank) * far


def gauss_legendre(points: int) -> list[tuple[float, float]]:
    """Return places and weights of the Gauss-Legendre rule between 0 and 1.

    >>> gauss_legendre(1)
    [(0.5, 1.0)]
    """
    places, weights = np.polynomial.legendre.leggauss(points)
    return [(float(place), float(weight)) for place, weight in zip((places + 1) / 2, weights / 2, strict=True)]


# Passes with other embeddings


def forward(
    model: EmbedsSource | GivesTrace, batch: Batch, attention: Interventions | None, decoding: Decoding | None
) -> Trace:
    """Return the trace of a pass, with the model's own attention and decoding where none is given."""
    if decoding is None:
        return model(batch) if attention is None else model(batch, attention=attention)
    return model(batch, attention=attention, teacher_forcing=TEACHER_FORCING[decoding])


def masked_saliency(values: Float[Tensor, "batch target source"], batch: Batch, name: str) -> Saliency:
    masked = over_words(values.detach(), batch.source_mask, batch.target_mask)
    return Saliency(masked, batch.source_mask, batch.target_mask, name)


@contextmanager
def with_embeddings(model: EmbedsSource | GivesTrace, batch: Batch, change: Change) -> Iterator[None]:
    """Within the block, the model gets change(e) for the embeddings e of this batch's source."""
    needs(model, EmbedsSource, by="saliency")
    assert isinstance(model, EmbedsSource)
    calls = 0

    def hook(_: nn.Module, given: tuple[object, ...], embedded: Tensor) -> Tensor | None:
        nonlocal calls
        if not given or given[0] is not batch.source:
            return None
        calls += 1
        return change(embedded)

    handle = model.source_inputs.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if not calls:
        raise AttnscopeError(
            f"{type(model).__name__} did not call source_inputs(batch.source), so its embeddings could not be reached"
        )


def embeddings(model: EmbedsSource, batch: Batch) -> Float[Tensor, "batch source input"]:
    """Return e, as the model computes it in evaluation mode."""
    needs(model, EmbedsSource, by="saliency")
    with evaluating(model):
        embedded: Tensor = model.source_inputs(batch.source)
        return embedded


@contextmanager
def with_gradients(model: EmbedsSource) -> Iterator[None]:
    """Evaluation mode with gradients. cuDNN cannot go back through a recurrent layer then; torch's own kernels can."""
    with evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield


METHODS: dict[str, Callable[..., Saliency]] = {
    "influence": influence,
    "gradient_norm": gradient_norm,
    "gradient_times_input": gradient_times_input,
    "leave_one_out": leave_one_out,
    "integrated_gradients": integrated_gradients,
}
