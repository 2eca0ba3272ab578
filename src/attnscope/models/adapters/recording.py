"""How is a Hugging Face model's attention seen, and changed before values are mixed, so that nothing stays changed?

By the library's own extension point: an attention function registered under our name, which the model is switched to
while it is asked, and the mask function of the same name, without which masks would silently be missing. Attention
layers that nobody asked about go through torch's fused attention. The names stay registered; what the model had been
switched to, evaluation mode and hooks are put back, also after an exception.
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
    """What is to be seen and changed in one pass, and what was seen."""

    layers: Mapping[nn.Module, int]  # the attention modules, by layer
    mask: Tensor  # batch x source: what may be attended to
    changes: Mapping[int, list[Change]] = field(default_factory=dict)
    rows: int | None = None  # the first so many queries are shown and changed; None: all
    seen: dict[int, Attention] = field(default_factory=dict)
    mixed: dict[int, Tensor] = field(default_factory=dict)  # batch x heads x target x value

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """What each head picks. The scale is part of the queries, so that scores = q · k (+ T5's bias of places)."""
        scores = queries @ keys.mT
        if bias is not None:
            scores = scores + bias
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = self.changed(layer, weights)
        mixed = weights @ values
        self.mixed[layer] = self.shown(mixed)
        self.seen[layer] = Attention(
            queries=self.shown(queries),
            keys=keys,
            values=values,
            scores=self.shown(scores),
            weights=self.shown(weights),
        )
        return mixed

    def shown(self, every_row: Tensor) -> Tensor:
        """A copy where only some rows are of interest, so that the others can be forgotten."""
        return every_row if self.rows is None else every_row[:, :, : self.rows].clone()

    def changed(self, layer: int, weights: Tensor) -> Tensor:
        if layer not in self.changes:
            return weights
        asked = weights[:, :, : self.rows]
        for change in self.changes[layer]:
            asked = change(asked, self.mask)
        return asked if self.rows is None else torch.cat([asked, weights[:, :, self.rows :]], 2)

    def attentions(self) -> tuple[Attention, ...]:
        require(
            max(self.layers.values()) in self.seen,  # layers before it may have been left out
            f"transformers {transformers().__version__} computes attention of this model on a way of its own, where it "
            "can be neither seen nor changed; pip install --upgrade 'attnscope[hf]' brings a version where it can",
        )
        return tuple(self.seen[layer] for layer in sorted(self.seen))


RECORDER: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def transformers() -> Any:
    """The library, imported where it is first needed, with our attention among its own."""
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
    **more: Any,
) -> tuple[Tensor, None]:
    """Called by the library in the place of its own attention function."""
    recorder = RECORDER.get()
    layer = None if recorder is None else recorder.layers.get(module)
    if recorder is None or layer is None:
        return fused(module, query, key, value, attention_mask, scaling=scaling, position_bias=position_bias, **more)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mixed = recorder.attend(layer, query * scale, key, value, attention_mask, position_bias)
    return mixed.transpose(1, 2).contiguous(), None  # batch x target x heads x value


def fused(*given: Any, **more: Any) -> tuple[Tensor, None]:
    known = import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    function: Callable[..., tuple[Tensor, None]] = known["sdpa"]
    return function(*given, **more)


@contextmanager
def recording(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """While this lasts, passes of the model in this thread are seen and changed; gradients are as they were."""
    with evaluating(model, keep_gradients=True), switched(model):
        token = RECORDER.set(recorder)
        try:
            yield
        finally:
            RECORDER.reset(token)


@contextmanager
def switched(model: Any) -> Iterator[None]:
    """The model, and each model in it that has a configuration of its own, uses our attention; then its own again."""
    kind = transformers().PreTrainedModel
    own = [(part, part.config._attn_implementation) for part in model.modules() if isinstance(part, kind)]
    with ExitStack() as back:
        for part, implementation in reversed(own):  # put back from the outside in: switching a model switches its parts
            back.callback(switch, part, implementation)
        for part, _ in own:  # not each version of the library hands it on from the model to its parts
            switch(part, NAME)
        yield


def switch(model: Any, implementation: str) -> None:
    if model.config._attn_implementation != implementation:
        model.set_attn_implementation(implementation)


@contextmanager
def watching(module: nn.Module, seen: list[Tensor]) -> Iterator[None]:
    """While this lasts, what comes into a module is kept."""

    def keep(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen[:] = [given[0] if given else named["hidden_states"]]

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
