"""How fast does the output change with a word's embedding? (snell2021 §5.1: Δ, the influence of a word)"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.probes.saliency.embeddings import (
    Change,
    EmbedsSource,
    Output,
    Saliency,
    differentiable,
    embeddings,
    gold_log_probability,
    saliency,
    with_embeddings,
)
from attnscope.tasks.batch import Batch


def influence(model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, **forward: Any) -> Saliency:
    """Δ: the derivative with respect to a number, 1, that multiplies each word's embedding.

    By the chain rule it is gradient · embedding, the first-order effect of that word on the output.
    """
    scale = torch.ones_like(embeddings(model, batch)[..., :1]).requires_grad_()  # batch x source x 1
    slopes = derivatives(model, batch, lambda e: e * scale, scale, of, forward)
    return saliency(torch.stack([slope.squeeze(-1) for slope in slopes], 1), batch, "influence Δ")


def gradient_norm(model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, **forward: Any) -> Saliency:
    """The length of the gradient with respect to each embedding: how much a word could matter, without a sign."""
    shift = torch.zeros_like(embeddings(model, batch)).requires_grad_()
    slopes = derivatives(model, batch, lambda e: e + shift, shift, of, forward)
    return saliency(torch.stack([slope.norm(dim=-1) for slope in slopes], 1), batch, "gradient norm")


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
    return saliency(torch.stack(products, 1), batch, "gradient × input")


def derivatives(
    model: EmbedsSource, batch: Batch, change: Change, knob: Tensor, of: Output, forward: dict[str, Any]
) -> list[Float[Tensor, "batch source part"]]:
    """For each target position, the derivative of its output with respect to the knob that `change` turns.

    Sentences of a batch do not touch each other, so the sum over them is differentiated once for all.
    """
    with differentiable(model):
        with with_embeddings(model, batch, change):
            outputs = of(model(batch, **forward)).sum(0)  # target
        return [torch.autograd.grad(output, knob, retain_graph=True, materialize_grads=True)[0] for output in outputs]
