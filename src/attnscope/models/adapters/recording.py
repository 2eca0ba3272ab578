"""Recording and replacing the attention of a Hugging Face model during a pass, without a trace of it left behind.

It goes through the library's own extension point: an attention function registered under our name, which the model
uses while it runs, and a mask function of the same name, without which masks would silently be missing. Attention
layers that are not recorded go through torch's fused attention. The names stay registered; the model's own attention
implementation, its modes and hooks are restored, also after an exception.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, require
from attnscope.models.adapters.layers import Change
from attnscope.models.inference import evaluating
from attnscope.models.trace import Attention

NAME = "attnscope"


@dataclass
class Recorder:
    """Which attention to record and to change in one pass, and the record."""

    layers: Mapping[nn.Module, int]  # the attention modules, by layer
    mask: Tensor  # batch x source: what may be attended to
    changes: Mapping[int, list[Change]] = field(default_factory=dict)
    rows: int | None = None  # the first so many queries are recorded and changed; None: all
    recorded: dict[int, Attention] = field(default_factory=dict)
    mixed: dict[int, Tensor] = field(default_factory=dict)  # batch x heads x target x value

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return the mixed values of each head. Queries are scaled, so that scores = q · k (+ T5's position bias)."""
        scores = queries @ keys.mT
        if bias is not None:
            scores = scores + bias
        weights = self.change(layer, (scores if mask is None else scores + mask).softmax(-1))
        mixed = weights @ values
        self.mixed[layer] = self.first_rows(mixed)
        self.recorded[layer] = Attention(
            queries=self.first_rows(queries),
            keys=keys,
            values=values,
            scores=self.first_rows(scores),
            weights=self.first_rows(weights),
        )
        return mixed

    def first_rows(self, values: Tensor) -> Tensor:
        """Return the rows of interest, as a copy where there are others, so that those can be freed."""
        return values if self.rows is None else values[:, :, : self.rows].clone()

    def change(self, layer: int, weights: Tensor) -> Tensor:
        if layer not in self.changes:
            return weights
        changed = weights[:, :, : self.rows]
        for change in self.changes[layer]:
            changed = change(changed, self.mask)
        return changed if self.rows is None else torch.cat([changed, weights[:, :, self.rows :]], 2)

    def attentions(self) -> tuple[Attention, ...]:
        """Return the recorded layers, the first one first."""
        require(
            max(self.layers.values()) in self.recorded,  # earlier layers may have been left out
            f"transformers {transformers().__version__} computes attention of this model on a way of its own, where it "
            "can be neither seen nor changed; pip install --upgrade 'attnscope[hf]' brings a version where it can",
        )
        return tuple(self.recorded[layer] for layer in sorted(self.recorded))


RECORDER: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def transformers() -> Any:
    """Return the library, imported where it is first needed, with our attention registered."""
    try:
        library: Any = import_module("transformers")
        masks = import_module("transformers.masking_utils")
    except ImportError as error:
        raise AttnscopeError(
            "a Hugging Face model needs the library transformers, no old version: pip install --upgrade 'attnscope[hf]'"
        ) from error
    library.AttentionInterface.register(NAME, attend)
    library.AttentionMaskInterface.register(NAME, masks.ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    return library


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Attend in the place of the library's own attention function."""
    recorder = RECORDER.get()
    layer = None if recorder is None else recorder.layers.get(module)
    if recorder is None or layer is None:
        functions = import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
        fused: Callable[..., tuple[Tensor, None]] = functions["sdpa"]
        bias = {"scaling": scaling, "position_bias": position_bias}
        return fused(module, query, key, value, attention_mask, **bias, **options)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mixed = recorder.attend(layer, query * scale, key, value, attention_mask, position_bias)
    return mixed.transpose(1, 2).contiguous(), None  # batch x target x heads x value


@contextmanager
def recording(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Record and change passes of the model in this thread, in evaluation mode; gradients stay on if they were."""
    with evaluating(model, keep_gradients=True), own_attention(model):
        token = RECORDER.set(recorder)
        try:
            yield
        finally:
            RECORDER.reset(token)


@contextmanager
def own_attention(model: nn.Module) -> Iterator[None]:
    """Let the model, and each model in it that has a configuration, use our attention; then its own again."""
    kind = transformers().PreTrainedModel
    parts: list[tuple[Any, str]] = [
        (part, part.config._attn_implementation) for part in model.modules() if isinstance(part, kind)
    ]
    with ExitStack() as restore:
        for part, implementation in reversed(parts):  # from the outside in: switching a model switches its parts
            restore.callback(switch, part, implementation)
        for part, _ in parts:  # not every version of the library passes it on from the model to its parts
            switch(part, NAME)
        yield


def switch(model: Any, implementation: str) -> None:
    if model.config._attn_implementation != implementation:
        model.set_attn_implementation(implementation)


@contextmanager
def record_input(module: nn.Module, inputs: list[Tensor]) -> Iterator[None]:
    """Keep the latest input of a module in the list."""

    def keep(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        inputs[:] = [given[0] if given else named["hidden_states"]]

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
