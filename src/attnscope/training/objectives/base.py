"""What is an objective? A price; and the two that every study pays: wrong words, and large weights."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnscope.models import BagOfWords, Trace
from attnscope.tasks import Batch

LEFT_OUT = -100


class Objective(ABC):
    """A price to be lowered, given a model, a batch and what the forward pass on it showed."""

    @abstractmethod
    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor: ...

    def __add__(self, other: "Objective") -> "Objective":
        return Sum((*self.terms, *other.terms))

    @property
    def terms(self) -> tuple["Objective", ...]:
        return (self,)


@dataclass(frozen=True)
class Sum(Objective):
    """Several objectives at once."""

    parts: tuple[Objective, ...]

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        return torch.stack([part(model, batch, trace) for part in self.parts]).sum()

    @property
    def terms(self) -> tuple[Objective, ...]:
        return self.parts


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """The mean over target words, the end token included, padding not; or, as `total`, their sum."""

    total: bool = False

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        if isinstance(model, BagOfWords) and trace.logits.stride(1) == 0:  # one guess for all words, so one softmax
            total = model.total_loss(batch)
            return total if self.total else total / batch.target_mask.sum()
        # Padding is left out by number, not by indexing: its amount must not change the shape of the computation.
        target = batch.target.masked_fill(~batch.target_mask, LEFT_OUT)
        return cross_entropy(
            trace.logits.flatten(0, 1),
            target.flatten(),
            ignore_index=LEFT_OUT,
            reduction="sum" if self.total else "mean",
        )


@dataclass(frozen=True)
class L2(Objective):
    """The sum of squares of all parameters (aitken2021, author's code)."""

    weight: float = 1e-5

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        squares = [parameter.square().sum() for parameter in model.parameters()]
        return self.weight * torch.stack(squares).sum()
