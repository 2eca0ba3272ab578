"""Which words influence the output? (snell2021 §5.1, Δ; tutek2020)

Every method gives a number for each output word t and source word l, positive where the word raises the output, which
is the log-probability of the gold word y_t unless another function of the trace is given as `of`. `.lowering` is the
other sign. The model is asked in evaluation mode and left as it was: modes, gradients, hooks.
"""

# TODO(docstring) join:
#   What would the model say with other source embeddings? The one place where saliency touches a model.
#   How fast does the output change with a word's embedding? (snell2021 §5.1: Δ, the influence of a word)
#   What changes when a word is left out?
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.capabilities import EmbedsSource, needs
from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.probes.scores import TokenScores, over_words
from attnscope.tasks.batch import Batch

Output = Callable[[Trace], Float[Tensor, "batch target"]]
Change = Callable[[Float[Tensor, "batch source input"]], Float[Tensor, "batch source input"]]


@dataclass(frozen=True)
class Saliency(TokenScores):
    """How much each source word raises the output, and by which method that was found (`name`)."""

    @property
    def lowering(self) -> "Saliency":
        """The other sign: positive where the word lowers the output, which is where it raises the loss."""
        return replace(self, values=-self.values, name=f"{self.name}, sign reversed")


def masked_saliency(values: Float[Tensor, "batch target source"], batch: Batch, name: str) -> Saliency:
    masked = over_words(values.detach(), batch.source_mask, batch.target_mask)
    return Saliency(masked, batch.source_mask, batch.target_mask, name)


def gold_log_probability(trace: Trace) -> Float[Tensor, "batch target"]:
    """log p(y_t): less the loss of each output word."""
    return trace.logits.log_softmax(-1).gather(-1, trace.target[..., None]).squeeze(-1)


@contextmanager
def with_embeddings(model: EmbedsSource, batch: Batch, change: Change) -> Iterator[None]:
    """While this lasts, the model sees change(e) for the embeddings e of this batch's source."""
    seen = 0

    def hook(_: nn.Module, given: tuple[Any, ...], embedded: Tensor) -> Tensor | None:
        nonlocal seen
        if not given or given[0] is not batch.source:
            return None
        seen += 1
        return change(embedded)

    handle = source_inputs(model).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if not seen:
        raise AttnscopeError(
            f"{type(model).__name__} did not call source_inputs(batch.source), so its embeddings could not be reached"
        )


def source_inputs(model: EmbedsSource) -> nn.Module:
    needs(model, EmbedsSource, by="saliency")
    return model.source_inputs


def embeddings(model: EmbedsSource, batch: Batch) -> Float[Tensor, "batch source input"]:
    """e, as the model makes it in evaluation mode."""
    with evaluating(model):
        return source_inputs(model)(batch.source)  # type: ignore[no-any-return]


@contextmanager
def with_gradients(model: EmbedsSource) -> Iterator[None]:
    """Evaluation mode with gradients. cuDNN cannot go back through a recurrent layer then; torch's own kernels can."""
    with evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield


def influence(model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, **forward: Any) -> Saliency:
    """Δ: the derivative with respect to a number, 1, that multiplies each word's embedding.

    By the chain rule it is gradient · embedding, the first-order effect of that word on the output.
    """
    scale = torch.ones_like(embeddings(model, batch)[..., :1]).requires_grad_()  # batch x source x 1
    slopes = derivatives(model, batch, lambda e: e * scale, scale, of, forward)
    return masked_saliency(torch.stack([slope.squeeze(-1) for slope in slopes], 1), batch, "influence Δ")


def gradient_norm(model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, **forward: Any) -> Saliency:
    """The length of the gradient with respect to each embedding: how much a word could matter, without a sign."""
    shift = torch.zeros_like(embeddings(model, batch)).requires_grad_()
    slopes = derivatives(model, batch, lambda e: e + shift, shift, of, forward)
    return masked_saliency(torch.stack([slope.norm(dim=-1) for slope in slopes], 1), batch, "gradient norm")


def gradient_times_input(
    model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, **forward: Any
) -> Saliency:
    """The gradient with respect to each embedding, times that embedding, summed.

    The same number as `influence`, by the route that other toolkits take.
    """
    embedded = embeddings(model, batch)
    shift = torch.zeros_like(embedded).requires_grad_()
    slopes = derivatives(model, batch, lambda e: e + shift, shift, of, forward)
    products = [(slope * embedded).sum(-1) for slope in slopes]
    return masked_saliency(torch.stack(products, 1), batch, "gradient × input")


def derivatives(
    model: EmbedsSource, batch: Batch, change: Change, knob: Tensor, of: Output, forward: dict[str, Any]
) -> list[Float[Tensor, "batch source part"]]:
    """For each target position, the derivative of its output with respect to the knob that `change` turns.

    Sentences of a batch do not touch each other, so the sum over them is differentiated once for all.
    """
    with with_gradients(model):
        with with_embeddings(model, batch, change):
            outputs = of(model(batch, **forward)).sum(0)  # target
        return [torch.autograd.grad(output, knob, retain_graph=True, materialize_grads=True)[0] for output in outputs]


POINTS = 32  # of the Gauss-Legendre rule


@dataclass(frozen=True)
class IntegratedGradients(Saliency):
    """Shares of the way from the blank sentence to this one."""

    missed: Float[Tensor, "batch target"]  # what the shares should have summed to, less what they do; NaN on padding


def integrated_gradients(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    baseline: Float[Tensor, " input"] | None = None,
    points: int = POINTS,
    **forward: Any,
) -> IntegratedGradients:
    require(points > 0, f"points={points}: the integral needs at least one point")
    embedded = embeddings(model, batch)
    blank = torch.zeros_like(embedded[0, 0]) if baseline is None else baseline.to(embedded)
    values = sum(
        weight * path_gradient(place, model, batch, blank, embedded, of, forward)
        for place, weight in gauss_legendre(points)
    )
    assert isinstance(values, Tensor)
    found = masked_saliency(values, batch, "integrated gradients")
    whole, nothing = (path_output(place, model, batch, blank, of, forward) for place in (1.0, 0.0))
    missed = (whole - nothing - found.values.nansum(-1)).masked_fill(~batch.target_mask, torch.nan)
    return IntegratedGradients(found.values, found.source_mask, found.target_mask, found.name, missed)


def gauss_legendre(points: int) -> list[tuple[float, float]]:
    """Places and weights of the Gauss-Legendre rule on the way from 0 to 1.

    >>> gauss_legendre(1)
    [(0.5, 1.0)]
    """
    places, weights = np.polynomial.legendre.leggauss(points)
    return [(float(place), float(weight)) for place, weight in zip((places + 1) / 2, weights / 2, strict=True)]


def path_gradient(
    place: float,
    model: EmbedsSource,
    batch: Batch,
    blank: Tensor,
    embedded: Tensor,
    of: Output,
    forward: dict[str, Any],
) -> Float[Tensor, "batch target source"]:
    """The derivative with respect to how far each word has come from the baseline to itself."""
    far = torch.full_like(embedded[..., :1], place).requires_grad_()
    slopes = derivatives(model, batch, lambda e: blank + (e - blank) * far, far, of, forward)
    return torch.stack([slope.squeeze(-1) for slope in slopes], 1)


def path_output(
    place: float, model: EmbedsSource, batch: Batch, blank: Tensor, of: Output, forward: dict[str, Any]
) -> Float[Tensor, "batch target"]:
    with evaluating(model), with_embeddings(model, batch, lambda e: blank + (e - blank) * place):
        return of(model(batch, **forward))


WAYS = {"drop": "word dropped", "zero": "embedding zeroed"}


def leave_one_out(
    model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, how: str = "drop", **forward: Any
) -> Saliency:
    """The output less the output without the word: positive where the word raises it.

    `how` is "drop", and the sentence closes over the gap, or "zero", and a zero embedding stands in the word's place.
    A word that is its whole sentence cannot be dropped: NaN.
    """
    choose("way to leave a word out", how, WAYS)
    without = output_without if how == "drop" else output_with_zero
    with evaluating(model):
        whole = of(model(batch, **forward))
        changes = [whole - without(model, batch, place, of, forward) for place in range(batch.source.shape[1])]
    return masked_saliency(torch.stack(changes, -1), batch, f"leave-one-out, {WAYS[how]}")


def output_without(
    model: EmbedsSource, batch: Batch, place: int, of: Output, forward: dict[str, Any]
) -> Float[Tensor, "batch target"]:
    """The output when every sentence lacks the word at this place."""
    kept = [i for i in range(batch.source.shape[1]) if i != place]
    mask = batch.source_mask[:, kept]
    nothing_left = ~mask.any(1)
    if nothing_left.all():
        return torch.full_like(batch.target, torch.nan, dtype=torch.get_default_dtype())
    # A pass over nothing has no meaning: such a sentence keeps a word, and its output is thrown away.
    filled = mask | (nothing_left[:, None] & (torch.arange(len(kept), device=mask.device) == 0))
    special = None if batch.source_special is None else batch.source_special[:, kept]
    rest = replace(
        batch, source=batch.source[:, kept], source_mask=filled, source_special=special, gold_attention=None,
        rationale=None,
    )  # fmt: skip
    return of(model(rest, **forward)).masked_fill(nothing_left[:, None], torch.nan)


def output_with_zero(
    model: EmbedsSource, batch: Batch, place: int, of: Output, forward: dict[str, Any]
) -> Float[Tensor, "batch target"]:
    """The output when the word at this place has a zero embedding."""

    def change(embedded: Tensor) -> Tensor:
        return embedded.index_fill(1, torch.tensor([place], device=embedded.device), 0.0)

    with with_embeddings(model, batch, change):
        return of(model(batch, **forward))


METHODS: dict[str, Callable[..., Saliency]] = {
    "influence": influence,
    "gradient_norm": gradient_norm,
    "gradient_times_input": gradient_times_input,
    "leave_one_out": leave_one_out,
    "integrated_gradients": integrated_gradients,
}
