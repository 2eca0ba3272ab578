"""What would the model say with other source embeddings? The one place where saliency touches a model.

What it asks of a model: `source_inputs`, the module that embeds the source, called on `batch.source` itself, once, in a
forward pass. (It may embed the target as well: other words than the batch's source pass untouched.) Where positions
are added inside that module, they are part of the embedding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnscope.errors import AttnscopeError
from attnscope.models.asking import Asked, as_it_was
from attnscope.models.trace import Trace
from attnscope.probes.agreement.scores import Scores, over_words
from attnscope.tasks.batch import Batch

Output = Callable[[Trace], Float[Tensor, "batch target"]]
Change = Callable[[Float[Tensor, "batch source input"]], Float[Tensor, "batch source input"]]


@runtime_checkable
class EmbedsSource(Protocol, metaclass=Asked):
    @property
    def source_inputs(self) -> nn.Module: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True)
class Saliency(Scores):
    """How much each source word raises the output, and by which method that was found (`name`)."""

    @property
    def lowering(self) -> "Saliency":
        """The other sign: positive where the word lowers the output, which is where it raises the loss."""
        return replace(self, values=-self.values, name=f"{self.name}, sign reversed")


def saliency(values: Float[Tensor, "batch target source"], batch: Batch, name: str) -> Saliency:
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
    found = getattr(model, "source_inputs", None)
    if not isinstance(found, nn.Module):
        raise AttnscopeError(f"{type(model).__name__} has no module source_inputs, which embeds the source words")
    return found


def embeddings(model: EmbedsSource, batch: Batch) -> Float[Tensor, "batch source input"]:
    """e, as the model makes it in evaluation mode."""
    with as_it_was(model):
        return source_inputs(model)(batch.source)  # type: ignore[no-any-return]


@contextmanager
def differentiable(model: EmbedsSource) -> Iterator[None]:
    """Evaluation mode with gradients. cuDNN cannot go back through a recurrent layer then; torch's own kernels can."""
    with as_it_was(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield
