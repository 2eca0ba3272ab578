"""What does a model show of a batch, and when are two of its answers the same?"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.tasks.batch import Batch

TOLERANCE = 1e-5  # of the largest number compared, or of one if that is larger


@dataclass(frozen=True)
class Asked:
    """A model, a batch, and what a plain pass in evaluation mode shows."""

    model: Callable[..., Trace]
    batch: Batch
    trace: Trace
    tolerance: float = TOLERANCE

    def again(self, batch: Batch | None = None, **forward: Any) -> Trace:
        with evaluating(self.model):
            return self.model(self.batch if batch is None else batch, **forward)

    @cached_property
    def given(self) -> tuple[Tensor, Tensor]:
        """What an intervention that is a function is given: the last layer's weights, and what may be attended to.

        A model that goes step by step gives those of one target word at a time.
        """
        seen: list[tuple[Tensor, Tensor]] = []

        def look(weights: Tensor, mask: Tensor) -> Tensor:
            seen.append((weights, mask))
            return weights

        self.again(attention=look)
        if not seen:
            raise AssertionError("a function given as attention= was never called")
        weights, masks = zip(*seen, strict=True)
        return torch.cat(weights, 2), masks[-1]

    @property
    def attended(self) -> Bool[Tensor, "batch source"]:
        return self.given[1]

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Up to rounding; -inf and NaN are the same as themselves."""
        if one.shape != other.shape:
            return False
        finite = other[other.isfinite()].abs()
        scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
        return bool(torch.isclose(one, other, rtol=0, atol=self.tolerance * scale, equal_nan=True).all())

    def said(self, trace: Trace) -> Tensor:
        """The logits of words that are no padding."""
        return trace.logits[trace.target_mask]

    def rows(self, weights: Float[Tensor, "batch heads target source"]) -> Tensor:
        """Those of words that are no padding."""
        return weights.transpose(1, 2)[self.trace.target_mask]  # rows x heads x source

    def on_one(self, last: bool) -> Float[Tensor, "batch heads target source"]:
        """All attention on the first, or the last, position that may be attended to."""
        order = torch.arange(self.attended.shape[1], device=self.attended.device)
        place = torch.where(self.attended, order, -1 if last else len(order))
        chosen = place.argmax(1) if last else place.argmin(1)
        return (order == chosen[:, None])[:, None, None].to(self.trace.attention).expand_as(self.trace.attention)
