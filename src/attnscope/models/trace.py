"""Everything that one forward pass of a model with attention reveals. Every probe reads Traces, and only Traces."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.errors import AttnscopeError

# What may be given for `attention=`: weights to use in place of the model's own, or a function of (weights, mask).
Intervention = Tensor | Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Attention:
    """One layer of attention. alignment = queries · keys, and weights = softmax of it over the source.

    Queries and keys are None where the score is no inner product (additive attention).
    """

    queries: Float[Tensor, "batch heads target key"] | None
    keys: Float[Tensor, "batch heads source key"] | None
    values: Float[Tensor, "batch heads source value"]
    alignment: Float[Tensor, "batch heads target source"]
    weights: Float[Tensor, "batch heads target source"]


@dataclass(frozen=True)
class Trace(Displayed):
    """What a forward pass reveals; symbols of the papers stand behind each field."""

    source: Int[Tensor, "batch source"]  # x
    source_mask: Bool[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]  # y, gold
    target_mask: Bool[Tensor, "batch target"]
    fed: Int[Tensor, "batch target"] | None  # the words that the decoder was given, the start token first
    embedded: Float[Tensor, "batch source input"]  # e
    encoder: Float[Tensor, "batch source state"]  # h
    decoder: Float[Tensor, "batch target units"] | None  # s; None for a classifier
    layers: tuple[Attention, ...]  # empty where a model has no attention
    context: Float[Tensor, "batch target context"] | None  # c
    logits: Float[Tensor, "batch target words"]
    gates: dict[str, Tensor] = field(default_factory=dict)  # "encoder.keep" etc., filled only when asked for

    @property
    def last(self) -> Attention:
        if not self.layers:
            raise AttnscopeError("this model has no attention (attention='none'), so its trace shows none")
        return self.layers[-1]

    @property
    def attention(self) -> Tensor:  # α
        return self.last.weights

    @property
    def alignment(self) -> Tensor:  # a
        return self.last.alignment

    @property
    def predictions(self) -> Int[Tensor, "batch target"]:
        return self.logits.argmax(-1)
