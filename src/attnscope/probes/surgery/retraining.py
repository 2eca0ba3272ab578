"""How is a network trained on while some of its weights stay as they are? (baan2019 §5)

What is held gets no gradient. Adam starts anew with every `fit`, so a weight without a gradient never moves, to the
bit; and gradients are clipped by the norm of what is trained.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from jaxtyping import Bool
from torch import Tensor, nn

from attnscope.errors import require
from attnscope.tasks import Task
from attnscope.training import Objective, Progress, TrainingSettings, fit

Held = dict[str, Bool[Tensor, "..."]]  # name of a parameter to where it is held; what is not named is free
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Operated:
    """A model after surgery, and which of its weights are to stay as they are when it is trained on."""

    model: nn.Module
    held: Held


@contextmanager
def holding(model: nn.Module, held: Mapping[str, Bool[Tensor, "..."]]) -> Iterator[None]:
    """As long as the block lasts, no gradient reaches what is held."""
    own = dict(model.named_parameters())
    for name, where in held.items():
        require(name in own, f"there is no parameter {name!r} to be held; there are {', '.join(own)}")
        given, expected = tuple(where.shape), tuple(own[name].shape)
        require(given == expected, f"what is held of {name} has shape {given}, but it is of shape {expected}")
    hooks = [own[name].register_hook(without(where.to(own[name].device))) for name, where in held.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def without(where: Bool[Tensor, "..."]) -> Any:
    return lambda gradient: gradient.masked_fill(where, 0.0)


def retrained(
    operated: Operated,
    task: Task,
    objective: Objective | None = None,
    settings: TrainingSettings | None = None,
    seed: int = 0,
    free: bool = False,
    **options: Any,
) -> tuple[nn.Module, Progress]:
    """A copy, trained on; with `free`, nothing is held (what the released code did after pruning).

    What else is given, such as folder=, goes to `fit`.
    """
    model = copied(operated.model)
    with holding(model, {} if free else operated.held):
        progress = fit(model, task, objective, settings, seed, **options)
    return model, progress


def copied(model: M) -> M:
    """The same weights in a model of its own, without gradients."""
    made = copy.deepcopy(model)
    made.zero_grad(set_to_none=True)
    return made
