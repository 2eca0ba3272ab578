"""Is the model after a pass what it was before?"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.models.inference import evaluating
from attnscope.testing.asked import Asked


def leaves_the_model_as_it_was(asked: Asked) -> Iterator[str]:
    """In a pass with some modules in training mode, and in one that an exception ends."""
    if not isinstance(asked.model, nn.Module):
        return
    model: Any = asked.model
    with half_in_training(model):
        before = state_of(model)
        with torch.no_grad():
            model(asked.batch)
        yield from changed(before, state_of(model), "a pass")
        if asked.trace.layers:
            try:
                with torch.no_grad():
                    model(asked.batch, attention=interrupted)
            except Interruption:
                yield from changed(before, state_of(model), "an exception in a pass")
            else:
                yield "an exception raised in a function given as attention= does not come out of the pass"


class Interruption(Exception):
    pass


def interrupted(weights: Tensor, mask: Tensor) -> Tensor:
    raise Interruption


@contextmanager
def half_in_training(model: nn.Module) -> Iterator[None]:
    """Every other module is in training mode; afterwards as it was."""
    with evaluating(model):
        for i, module in enumerate(model.modules()):
            module.training = i % 2 == 0
        yield


def state_of(model: nn.Module) -> dict[str, Any]:
    """All that a pass must leave as it is."""
    configured = {name: module.config for name, module in model.named_modules() if hasattr(module, "config")}
    return {
        "training or evaluation modes": [module.training for module in model.modules()],
        "parameters": [parameter.detach().clone() for parameter in model.parameters()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "which parameters have gradients": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": [
            (name, kind, tuple(found)) for name, module in model.named_modules()
            for kind, found in vars(module).items() if kind.endswith("_hooks") and found
        ],
        "configuration": {name: str(config) for name, config in configured.items()},
        "attention implementation": {
            name: getattr(config, "_attn_implementation", None) for name, config in configured.items()
        },
        "gradient mode": torch.is_grad_enabled(),
    }  # fmt: skip


def changed(before: dict[str, Any], after: dict[str, Any], when: str) -> Iterator[str]:
    for name, was in before.items():
        now = after[name]
        if isinstance(was, list) and any(isinstance(value, Tensor) for value in was + now):
            equal = all(same_tensor(one, other) for one, other in zip(was, now, strict=True))
        else:
            equal = was == now
        if not equal:
            yield f"{when} changes the model: {name}"


def same_tensor(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.nan_to_num(), other.nan_to_num())
