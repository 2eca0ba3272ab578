"""How much of the output is each word's doing, on the way from a blank sentence to this one? (Sundararajan et al. 2017)

Integrated gradients: the mean gradient on the straight line from a baseline embedding (zero, unless one is given) to
the word's own, times their difference. Over the words of a sentence it sums to the output less that of the blank
sentence; `missed` is by how much the numerical integral fails to.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import require
from attnscope.models.asking import as_it_was
from attnscope.probes.saliency.embeddings import (
    EmbedsSource,
    Output,
    Saliency,
    embeddings,
    gold_log_probability,
    saliency,
    with_embeddings,
)
from attnscope.probes.saliency.gradients import derivatives
from attnscope.tasks.batch import Batch

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
        weight * slopes_at(place, model, batch, blank, embedded, of, forward) for place, weight in gauss(points)
    )
    assert isinstance(values, Tensor)
    found = saliency(values, batch, "integrated gradients")
    whole, nothing = (output_at(place, model, batch, blank, of, forward) for place in (1.0, 0.0))
    missed = (whole - nothing - found.values.nansum(-1)).masked_fill(~batch.target_mask, torch.nan)
    return IntegratedGradients(found.values, found.source_mask, found.target_mask, found.name, missed)


def gauss(points: int) -> list[tuple[float, float]]:
    """Places and weights of the Gauss-Legendre rule on the way from 0 to 1.

    >>> gauss(1)
    [(0.5, 1.0)]
    """
    places, weights = np.polynomial.legendre.leggauss(points)
    return [(float(place), float(weight)) for place, weight in zip((places + 1) / 2, weights / 2, strict=True)]


def slopes_at(
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


def output_at(
    place: float, model: EmbedsSource, batch: Batch, blank: Tensor, of: Output, forward: dict[str, Any]
) -> Float[Tensor, "batch target"]:
    with as_it_was(model), with_embeddings(model, batch, lambda e: blank + (e - blank) * place):
        return of(model(batch, **forward))
