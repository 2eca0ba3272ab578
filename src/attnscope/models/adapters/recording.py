"""Recording and replacing the attention of a Hugging Face model during a pass, without lasting changes to it.

It goes through the library's own extension point: an attention function registered under our name, which the model
uses while it runs, and a mask function of the same name, without which masks would silently be missing. Layers that are
neither recorded nor changed, and rows that are not, are computed by the model's own implementation. The names stay
registered; the model's attention implementation, its modes and hooks are restored, also after an exception.

Which modules attend does not depend on the family: `attention_modules` makes one short pass and returns the modules
that call the attention function. Models that do not call it are refused.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, require
from attnscope.models.attention import Change
from attnscope.models.inference import device_of, evaluating
from attnscope.models.trace import Attention, AttentionRows

NAME = "attnscope"
OwnAttention = Callable[..., tuple[Tensor, Tensor | None]]  # an attention function of the library


class UnsupportedAttention(AttnscopeError):
    """The attention of a model cannot be recorded."""


@dataclass(frozen=True)
class Call:
    """One call of an attention function, with keys and values repeated for grouped queries."""

    queries: Float[Tensor, "batch heads target key"]
    keys: Float[Tensor, "batch heads source key"]
    values: Float[Tensor, "batch heads source value"]
    mask: Tensor | None  # batch x 1 x target x source: true where attended to, or added to the scores
    is_causal: bool  # without a mask: whether each position attends to itself and those before it only
    scaling: float
    bias: Tensor | None = None  # T5's: heads x target x source, added to the scores
    softcap: float | None = None  # Gemma 2's upper bound of the scores
    sink: Float[Tensor, " heads"] | None = None  # gpt-oss': one more score, without a value

    @classmethod
    def of(
        cls, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any
    ) -> "Call":
        """Return the call with these arguments of an attention function."""
        groups = query.shape[1] // key.shape[1]
        keys, values = (key, value) if groups == 1 else (part.repeat_interleave(groups, 1) for part in (key, value))
        is_causal = options.get("is_causal")
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)  # the default of the library's fused attention
        scaling = options.get("scaling")
        return cls(
            query, keys, values, mask, mask is None and is_causal and query.shape[2] > 1,
            query.shape[-1] ** -0.5 if scaling is None else scaling,
            options.get("position_bias"), options.get("softcap"), options.get("s_aux"),
        )  # fmt: skip

    def at(self, rows: Int[Tensor, "batch rows"]) -> "Call":
        """Return the call for these queries of each text only."""
        mask, rows = self.mask, rows.to(self.queries.device)  # layers may lie on several devices
        if self.is_causal:
            mask = torch.arange(self.keys.shape[2], device=rows.device) <= rows[:, None, :, None]
        elif mask is not None:
            mask = take_rows(mask, rows)
        bias = None if self.bias is None else take_rows(self.bias, rows)
        return replace(self, queries=take_rows(self.queries, rows), mask=mask, is_causal=False, bias=bias)

    def scores(self) -> Float[Tensor, "batch heads target source"]:
        """Return the scores, before positions that must not be attended to are masked."""
        scores = self.queries @ self.keys.mT * self.scaling
        if self.bias is not None:
            scores = scores + self.bias
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def allowed(self) -> Bool[Tensor, "some 1 target source"]:
        """Return what may be attended to."""
        if self.is_causal:
            return self.keys.new_ones(self.queries.shape[2], self.keys.shape[2], dtype=torch.bool).tril()[None, None]
        if self.mask is None:
            return self.keys.new_ones(1, 1, 1, self.keys.shape[2], dtype=torch.bool)
        return self.mask if self.mask.dtype == torch.bool else self.mask > torch.finfo(self.mask.dtype).min / 2

    def weights(self, scores: Float[Tensor, "batch heads target source"]) -> tuple[Tensor, Tensor | None]:
        """Return the attention weights, and the weight on the sink where there is one; together they sum to one."""
        if self.is_causal or (self.mask is not None and self.mask.dtype == torch.bool):
            scores = scores.masked_fill(~self.allowed(), torch.finfo(scores.dtype).min)
        elif self.mask is not None:
            scores = scores + self.mask
        if self.sink is not None:
            scores = torch.cat([scores, self.sink.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)], -1)
        precise = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.softmax(-1, dtype=precise).to(scores.dtype)
        return (weights, None) if self.sink is None else (weights[..., :-1], weights[..., -1])

    def attention(self, scores: Tensor, weights: Tensor, sink: Tensor | None) -> Attention:
        """Return the record of the call, with scaled queries, so that scores = q · k; without them where it is not."""
        is_product = self.softcap is None and (self.bias is None or not self.bias.any())
        return Attention(
            queries=self.queries * self.scaling if is_product else None, keys=self.keys if is_product else None,
            values=self.values, scores=scores, weights=weights, sink=sink,
        )  # fmt: skip


def on_device(attention: Attention, device: torch.device) -> Attention:
    tensors = {name: value for name, value in vars(attention).items() if value is not None}
    return replace(attention, **{name: value.to(device) for name, value in tensors.items()})


def take_rows(values: Shaped[Tensor, "some any target size"], rows: Int[Tensor, "batch rows"]) -> Tensor:
    """Return the rows of each text."""
    values = values.expand(len(rows), -1, -1, -1)
    return values.take_along_dim(rows[:, None, :, None], 2)


@dataclass
class Recorder:
    """Which attention to record and to change in one pass, and the record."""

    layers: Sequence[nn.Module]  # the attention modules in the order of their calls; shared ones are repeated
    # The source positions that may be attended to, passed to changes; None: the model's own mask, by row.
    mask: Bool[Tensor, "batch source"] | None
    changes: Mapping[int, list[Change]] = field(default_factory=dict)
    rows: Int[Tensor, "batch rows"] | None = None  # the queries that are recorded and changed; None: all
    recorded_layers: Collection[int] | None = None  # the layers that are recorded; None: all
    records: dict[int, Attention] = field(default_factory=dict)
    mixed: dict[int, Tensor] = field(default_factory=dict)  # batch x heads x target x value
    implementation: str = "eager"  # of the model itself
    num_calls: dict[nn.Module, int] = field(default_factory=dict)  # how often

    def enter(self, module: nn.Module) -> int | None:
        """Return the layer of this call of the module; None if it is neither recorded nor changed."""
        places = [i for i, layer in enumerate(self.layers) if layer is module]
        before = self.num_calls.get(module, 0)
        self.num_calls[module] = before + 1
        if before >= len(places):
            return None
        layer = places[before]
        return layer if self.recorded_layers is None or layer in self.recorded_layers or layer in self.changes else None

    def attend(self, layer: int, call: Call, own: Callable[[], Tensor]) -> Float[Tensor, "batch target heads value"]:
        """Return the mixed values, of which `own` returns those that the model itself would compute."""
        selected = call if self.rows is None else call.at(self.rows)
        scores = selected.scores()
        weights, sink = selected.weights(scores)
        for change in self.changes.get(layer, ()):
            weights = change(weights, self.mask_of(selected))
        mixed = self.mixed[layer] = weights @ call.values
        if self.recorded_layers is None or layer in self.recorded_layers:
            # The layers of one model may lie on several devices.
            device = weights.device if self.rows is None else self.rows.device
            self.records[layer] = on_device(selected.attention(scores, weights, sink), device)
            self.mixed[layer] = mixed.to(device)
        if self.rows is None:
            return mixed.transpose(1, 2).contiguous()
        output = own()
        if layer not in self.changes:
            return output
        places = self.rows.to(output.device)[:, :, None, None].expand(-1, -1, *output.shape[2:])
        return output.scatter(1, places, mixed.transpose(1, 2))

    def mask_of(self, call: Call) -> Bool[Tensor, "batch *target source"]:
        """Return the mask passed to a function given as `attention=`; with one row, without a dimension for it."""
        if self.mask is not None:
            return self.mask.to(call.keys.device)
        allowed = call.allowed()[:, 0].expand(len(call.queries), call.queries.shape[2], -1)
        return allowed[:, 0] if allowed.shape[1] == 1 else allowed

    def attentions(self) -> tuple[Attention, ...]:
        """Return the recorded layers, the first one first."""
        last = max(range(len(self.layers)) if self.recorded_layers is None else self.recorded_layers, default=-1)
        require(last in self.records, unsupported_message("this model"))  # earlier layers may have been skipped
        return tuple(self.records[layer] for layer in sorted(self.records))


class Blockwise(Recorder):
    """Passes every layer's attention to a function, one block of rows at a time, and stores nothing."""

    def __init__(self, layers: Sequence[nn.Module], observer: Callable[[AttentionRows], None], block: int):
        super().__init__(layers, None)
        self.observer, self.block = observer, block

    def attend(self, layer: int, call: Call, own: object) -> Float[Tensor, "batch target heads value"]:
        batch, _, length, _ = call.queries.shape
        mixed = []
        for start in range(0, length, self.block):
            end = min(start + self.block, length)
            rows = torch.arange(start, end, device=call.queries.device).expand(batch, -1)
            last_key = end if call.is_causal else None  # further keys are not attended to
            part = replace(call, keys=call.keys[:, :, :last_key], values=call.values[:, :, :last_key]).at(rows)
            scores = part.scores()
            weights, sink = part.weights(scores)
            self.observer(AttentionRows(layer, start, scores, weights, sink))
            mixed.append(weights @ part.values)
        return torch.cat(mixed, 2).transpose(1, 2).contiguous()


def unsupported_message(model: str) -> str:
    return (
        f"transformers {transformers().__version__} does not compute the attention of {model} by its attention "
        "interface, so that it can be neither recorded nor changed; wrap the model in an adapter of your own "
        "(docs/own-model.md)"
    )


RECORDER: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def transformers() -> Any:
    """Return the library, imported where it is first needed, with our attention registered."""
    try:
        library: Any = import_module("transformers")
        import_module("transformers.masking_utils")
    except ImportError as error:
        raise AttnscopeError(
            "a Hugging Face model needs the library transformers, no old version: pip install --upgrade 'attnscope[hf]'"
        ) from error
    library.AttentionInterface.register(NAME, attend)
    library.AttentionMaskInterface.register(NAME, own_mask)
    return library


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attend in the place of the library's own attention function."""
    recorder = RECORDER.get()

    def own() -> Tensor:
        return own_attention_function(module)(module, query, key, value, attention_mask, **options)[0]

    layer = None if recorder is None else recorder.enter(module)
    if recorder is None or layer is None:
        return own(), None
    return recorder.attend(layer, Call.of(module, query, key, value, attention_mask, options), own), None


def own_implementation() -> str:
    recorder = RECORDER.get()
    return "eager" if recorder is None else recorder.implementation


def own_attention_function(module: nn.Module) -> OwnAttention:
    """Return the function that the module would call, which may differ from the library's of that name."""
    home: Any = sys.modules[type(module).__module__]
    eager: OwnAttention = home.eager_attention_forward
    own: OwnAttention = home.ALL_ATTENTION_FUNCTIONS.get(own_implementation(), eager)
    return own


def own_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return the mask that the model's own implementation takes."""
    masks: Any = import_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    mask: Tensor | None = masks[own_implementation()](*args, **kwargs)
    return mask


@contextmanager
def recording(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Record and change passes of the model in this thread, in evaluation mode; gradients stay on if they were."""
    with evaluating(model, keep_gradients=True), our_attention(model) as implementations:
        # Others, such as flash attention, take masks of another shape. Masks of sdpa are the smallest.
        recorder.implementation = "sdpa" if implementations == {"sdpa"} or isinstance(recorder, Blockwise) else "eager"
        token = RECORDER.set(recorder)
        try:
            yield
        finally:
            RECORDER.reset(token)


@contextmanager
def our_attention(model: nn.Module) -> Iterator[set[str]]:
    """Let the model, and each model in it that has a configuration, use our attention; then its own again.

    Yields the implementations that they had.
    """
    kind = transformers().PreTrainedModel
    parts: list[tuple[Any, str]] = [
        (part, part.config._attn_implementation) for part in model.modules() if isinstance(part, kind)
    ]
    with ExitStack() as restore:
        for part, implementation in reversed(parts):  # from the outside in: switching a model switches its parts
            restore.callback(switch, part, implementation)
        for part, _ in parts:  # not every version of the library passes it on from the model to its parts
            switch(part, NAME)
        yield {implementation for _, implementation in parts}


def switch(model: Any, implementation: str) -> None:
    if model.config._attn_implementation != implementation:
        model.set_attn_implementation(implementation)


class Discovery(Recorder):
    """A recorder of which modules attend."""

    def enter(self, module: nn.Module) -> int | None:
        self.layers = [*self.layers, module]
        return len(self.layers) - 1


def attention_modules(model: Any, **options: object) -> list[nn.Module]:
    """Return the modules of a decoder or an encoder that attend, in the order of their calls, after a short pass.

    A model is refused if its attention does not go through the attention function, or has terms that are not
    supported here, so that its output would change.

    Args:
        model: A transformers.PreTrainedModel.
        options: Further arguments of a pass of its base model, such as use_cache=False.
    """
    ids = torch.arange(8, device=device_of(model))[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "return_dict": True, **options}
    discovery = Discovery([], None)
    with evaluating(model):
        own = model.base_model(**inputs)[0]
        with recording(model, discovery):
            recorded = model.base_model(**inputs)[0]
    require_supported(bool(discovery.layers), model)
    if own.dtype in (torch.float32, torch.float64):  # in lower precision, experts may be chosen otherwise
        require_supported(bool((own - recorded).abs().max() <= 1e-3 * own.abs().max()), model)
    return list(discovery.layers)


def require_supported(supported: bool, model: nn.Module) -> None:
    if not supported:
        raise UnsupportedAttention(unsupported_message(type(model).__name__))


@contextmanager
def record_input(module: nn.Module, inputs: list[Tensor]) -> Iterator[None]:
    """Keep the latest input of a module in the list."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs[:] = [args[0] if args else kwargs["hidden_states"]]

    handle = module.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
