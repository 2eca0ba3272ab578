"""Recording and changing the attention of any PyTorch module, without an adapter.

    with attnscope.watch(module) as recording:
        module(x)
    recording["encoder.layers.0.self_attn"]      the weights: batch x heads x queries x keys

Every call of `scaled_dot_product_attention` inside the module is recorded, and every `nn.MultiheadAttention`, whose
fused fast path is switched off meanwhile. Attention that is computed in another way cannot be recorded: matrix products
and a softmax in the module's own code, FlexAttention, custom kernels, compiled modules.
`AttentionRecording.unrecorded` names modules that seem to compute such attention.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnscope import plots
from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require

Weights: TypeAlias = Float[Tensor, "batch heads queries keys"]
Change: TypeAlias = Tensor | Callable[[Weights, Bool[Tensor, "batch heads queries keys"]], Tensor]
Changes: TypeAlias = Change | Mapping[str | tuple[str, int], Change]
Function: TypeAlias = Callable[..., Any]
MAX_SHOWN = 6  # calls that `repr` shows


@dataclass(frozen=True)
class WatchedCall:
    """One computation of attention: the module that it happened in, and its weights."""

    name: str
    weights: Weights

    def __repr__(self) -> str:
        return f"{self.name} ({' × '.join(map(str, self.weights.shape))})"


@dataclass
class AttentionRecording(Displayed):
    """The attention of all calls, in their order.

    Attributes:
        calls: Every computation of attention.
        unrecorded: Names of modules that are named attention and ran, but computed none that can be recorded.
    """

    calls: list[WatchedCall] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        more = ", …" if len(self) > MAX_SHOWN else ""
        return f"<{len(self)} computations of attention: {', '.join(map(repr, self.calls[:MAX_SHOWN]))}{more}>"

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[WatchedCall]:
        return iter(self.calls)

    @property
    def names(self) -> list[str]:
        """The modules in which attention was computed, each once."""
        return list(dict.fromkeys(call.name for call in self.calls))

    @overload
    def __getitem__(self, which: str) -> Weights: ...
    @overload
    def __getitem__(self, which: int) -> WatchedCall: ...
    def __getitem__(self, which: str | int) -> Weights | WatchedCall:
        """Return the weights of a module's last call, or the call with this number."""
        if isinstance(which, int):
            count = len(self.calls)
            require(-count <= which < count, f"there is no call {which}; {count} were recorded")
            return self.calls[which]
        choose("module with attention", which, self.names)
        return [call for call in self.calls if call.name == which][-1].weights

    def table(self) -> pd.DataFrame:
        """Return one row per call and head: mean entropy (nats), and mean weight of the first and the largest key."""
        return pd.DataFrame(
            {"call": number, "module": call.name, "head": head, **row}
            for number, call in enumerate(self.calls)
            for head, row in enumerate(head_statistics(call.weights.float()))
        )

    def plot(self, ax: Axes | None = None, module: str | None = None, head: int = 0, example: int = 0) -> Axes:
        """Draw the weights of one head.

        Args:
            ax: Axes to draw on; new ones by default.
            module: The name of a module; None: that of the last call.
            head: Which head, from 0.
            example: Which example of the batch, from 0.
        """
        require(bool(self.calls), self.empty_message())
        name = self.calls[-1].name if module is None else module
        weights = self[name]
        for what, number, count in (("example", example, weights.shape[0]), ("head", head, weights.shape[1])):
            require(0 <= number < count, f"there is no {what} {number}; {name} has {count}")
        return plots.heatmap(
            weights[example, head].float().cpu().numpy(),
            ax=ax,
            title=f"{name}, head {head}",
            xlabel="key",
            ylabel="query",
        )

    def empty_message(self) -> str:
        """Return the error message of an empty recording."""
        suspects = f"; {', '.join(self.unrecorded[:5])} ran without it" if self.unrecorded else ""
        return (
            "no attention was recorded: neither scaled_dot_product_attention nor nn.MultiheadAttention was called"
            f"{suspects}. A module that computes attention itself needs an adapter (docs/own-model.md)"
        )


def head_statistics(weights: Weights) -> list[dict[Hashable, float]]:
    """Return one row per head."""
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1)
    columns = {"entropy": entropy, "largest": weights.amax(-1), "first key": weights[..., 0]}
    means = pd.DataFrame({name: values.mean((0, 2)).tolist() for name, values in columns.items()})
    return means.assign(queries=weights.shape[2], keys=weights.shape[3]).to_dict("records")


@contextmanager
def watch(
    module: nn.Module, attention: Changes | None = None, *, rows: slice | None = None, gradients: bool = False
) -> Iterator[AttentionRecording]:
    """Record every computation of attention inside a module, and optionally change it.

    Args:
        module: Any module. Its outputs stay what they are, up to rounding, unless attention is changed; on padding,
            nn.TransformerEncoder has zeros by its fast path, and other numbers while it is watched.
        attention: Weights to use in place of the module's own: a tensor of their shape, or a function of (weights,
            allowed), where `allowed` is false at masked keys, that returns them. A dictionary changes single modules or
            heads: {"encoder.layers.0.self_attn": ...}, {("encoder.layers.0.self_attn", 3): ...}.
        rows: The queries whose weights are recorded, such as slice(0, 1); all by default.
        gradients: Whether recorded weights keep their graph.

    >>> layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, batch_first=True).eval()
    >>> with watch(layer) as recording:
    ...     _ = layer(torch.zeros(1, 3, 8))
    >>> recording.names, recording["self_attn"].shape
    (['self_attn'], torch.Size([1, 2, 3, 3]))
    """
    require(
        isinstance(module, nn.Module),
        f"watch takes a module of PyTorch (of a loaded model, its .module), not {module!r:.60}",
    )
    require(rows is None or isinstance(rows, slice), f"rows are a slice, such as slice(0, 1), not {rows!r:.60}")
    check_changes(attention)
    recording = AttentionRecording()
    watcher = Watcher(module, recording, attention, rows, gradients)
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as restore:
        restore.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        for name, part in module.named_modules():
            restore.callback(part.register_forward_pre_hook(watcher.entering(name)).remove)
            restore.callback(part.register_forward_hook(watcher.leaving, always_call=True).remove)
        restore.enter_context(watcher)
        yield recording
    attending = {call.name for call in recording.calls}
    recording.unrecorded = [
        name for name in dict.fromkeys(watcher.visited)
        if not any(other == name or other.startswith(f"{name}.") for other in attending)
    ]  # fmt: skip
    for key in attention if isinstance(attention, Mapping) else ():
        choose("module with attention", key if isinstance(key, str) else key[0], recording.names)


class Watcher(TorchFunctionMode):
    """Computes attention in place of torch's functions, and tracks the module in which they are called."""

    def __init__(
        self,
        module: nn.Module,
        recording: AttentionRecording,
        attention: Changes | None,
        rows: slice | None,
        gradients: bool,
    ) -> None:
        super().__init__()
        self.recording, self.attention, self.rows, self.gradients = recording, attention, rows, gradients
        self.kinds = {name: type(part).__name__.lower() for name, part in module.named_modules()}
        self.inside: list[str] = []
        self.visited: list[str] = []  # modules that are named attention

    def entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def enter(_: nn.Module, inputs: Any) -> None:
            self.inside.append(name)
            if self.kinds[name].endswith("attention"):
                self.visited.append(name)

        return enter

    def leaving(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.inside.pop()

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            return self.scaled_dot_product(*args, **options)
        if func is functional.multi_head_attention_forward:
            return self.multi_head(func, args, options)
        return func(*args, **options)

    # The two functions

    def scaled_dot_product(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return what torch.nn.functional.scaled_dot_product_attention does, by its definition there."""
        if enable_gqa:
            repeats = query.shape[-3] // key.shape[-3]
            key, value = (part.repeat_interleave(repeats, -3) for part in (key, value))
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            masked = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -math.inf) if masked else scores + attn_mask
        allowed = scores > -1e30 if scores.dtype != torch.float16 else scores > -6e4
        own = scores.softmax(-1).masked_fill(scores.isneginf().all(-1, keepdim=True), 0)  # no key: no output
        weights = self.change(own, allowed)
        return functional.dropout(weights, dropout_p, training=dropout_p > 0) @ value

    def multi_head(
        self, func: Function, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        """Return what nn.MultiheadAttention does. In training, its weights are those after dropout."""
        need_weights, averaged = options.get("need_weights", True), options.get("average_attn_weights", True)
        output, own = func(*args, **options | {"need_weights": True, "average_attn_weights": False})
        weights = self.change(own, own > 0)
        if weights is not own:
            output = mix_values(args, options, weights).reshape_as(output)
        result = weights.mean(1) if averaged else weights
        return output, result if need_weights else None

    # Recording and changing

    def change(self, own: Tensor, allowed: Tensor) -> Tensor:
        """Record and return the weights to use. Weights without a batch or heads are recorded with one of each."""
        name = self.inside[-1] if self.inside else ""
        weights = own.reshape(-1, *own.shape[-3:]) if own.dim() > 3 else own[(None,) * (4 - own.dim())]
        changed = self.apply_changes(name, weights, allowed.expand_as(own).reshape_as(weights))
        rows = changed if self.rows is None else changed[:, :, self.rows].clone()  # so that the others can be freed
        self.recording.calls.append(WatchedCall(name, rows if self.gradients else rows.detach()))
        return own if changed is weights and not self.gradients else changed.reshape_as(own)

    def apply_changes(self, name: str, weights: Tensor, allowed: Tensor) -> Tensor:
        if self.attention is None:
            return weights
        if not isinstance(self.attention, Mapping):
            return apply(self.attention, weights, allowed)
        if name in self.attention:
            weights = apply(self.attention[name], weights, allowed)
        for head in (key[1] for key in self.attention if isinstance(key, tuple) and key[0] == name):
            require(0 <= head < weights.shape[1], f"{name} has {weights.shape[1]} heads, so there is no head {head}")
            own = apply(self.attention[name, head], weights[:, [head]], allowed[:, [head]])
            weights = torch.cat([weights[:, :head], own, weights[:, head + 1 :]], 1)
        return weights


def check_changes(attention: Changes | None) -> None:
    """Raise BadSetting unless changes are weights or functions of them, alone or by module and head."""
    changes = attention if isinstance(attention, Mapping) else {} if attention is None else {"": attention}
    for where, change in changes.items():
        is_valid = isinstance(where, str) or (isinstance(where, tuple) and list(map(type, where)) == [str, int])
        require(is_valid, f"attention= is by module, or by (module, head), not by {where!r:.60}")
        require(
            isinstance(change, Tensor) or callable(change),
            f"attention= is weights, or a function of (weights, allowed), not {change!r:.60}",
        )


def apply(change: Change, weights: Tensor, allowed: Tensor) -> Tensor:
    result = change if isinstance(change, Tensor) else change(weights, allowed)
    require(isinstance(result, Tensor), f"attention= is a function that returns weights, not {result!r:.60}")
    require(bool(result.isfinite().all()), "attention= has weights that are NaN or infinite")
    try:
        return result.to(weights).expand_as(weights)
    except RuntimeError:
        shapes = f"{tuple(result.shape)}; here it is batch x heads x queries x keys = {tuple(weights.shape)}"
        raise BadSetting(f"attention= has shape {shapes}") from None


def mix_values(args: tuple[Any, ...], kwargs: dict[str, Any], weights: Weights) -> Tensor:
    """Return the output of nn.MultiheadAttention for these weights: queries x batch x units."""
    names = ("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k",
             "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias")  # fmt: skip
    call = dict(zip(names, args, strict=False)) | kwargs
    separate = call.get("use_separate_proj_weight", False)
    projection = call["v_proj_weight"] if separate else call["in_proj_weight"].chunk(3)[2]
    bias = None if call["in_proj_bias"] is None else call["in_proj_bias"].chunk(3)[2]
    value = call["value"] if call["value"].dim() == 3 else call["value"][:, None]  # keys x batch x units
    values = functional.linear(value, projection, bias)
    if call["bias_v"] is not None:
        values = torch.cat([values, call["bias_v"].expand(-1, values.shape[1], -1)])
    if call["add_zero_attn"]:
        values = torch.cat([values, torch.zeros_like(values[:1])])
    heads = values.unflatten(-1, (call["num_heads"], -1)).permute(1, 2, 0, 3)  # batch x heads x keys x units
    mixed = (weights @ heads).permute(2, 0, 1, 3).flatten(2)
    return functional.linear(mixed, call["out_proj_weight"], call["out_proj_bias"])
