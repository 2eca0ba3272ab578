"""Everything that one forward pass of a model with attention reveals. Every probe reads Traces, and only Traces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.errors import AttnscopeError
from attnscope.tasks.batch import Batch

# What may be given for `attention=`: weights to use in place of the model's own, or a function of (weights, mask).
Intervention = Tensor | Callable[[Tensor, Tensor], Tensor]
Where = int | tuple[int, int]  # a layer, or a layer and one of its heads
Interventions = Intervention | Mapping[Where, Intervention]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One layer of attention: scores = queries · keys, and weights = softmax of scores over the source.

    Queries and keys are None where the score is no inner product (additive attention).
    """

    queries: Float[Tensor, "batch heads target key"] | None
    keys: Float[Tensor, "batch heads source key"] | None
    values: Float[Tensor, "batch heads source value"]
    scores: Float[Tensor, "batch heads target source"]
    weights: Float[Tensor, "batch heads target source"]


@dataclass(frozen=True, kw_only=True)
class Trace(Displayed):
    """What a forward pass reveals; symbols of the papers stand behind each field."""

    source: Int[Tensor, "batch source"]  # x
    source_mask: Bool[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]  # y, gold
    target_mask: Bool[Tensor, "batch target"]
    decoder_input: Int[Tensor, "batch target"] | None = None  # the tokens given to the decoder, the start token first
    embedded: Float[Tensor, "batch source input"]  # e
    encoder: Float[Tensor, "batch source state"]  # h
    decoder: Float[Tensor, "batch target units"] | None = None  # s; None for a classifier
    layers: tuple[Attention, ...] = ()  # empty where a model has no attention
    context: Float[Tensor, "batch target context"] | None = None  # c
    logits: Float[Tensor, "batch target words"]
    gates: dict[str, Tensor] = field(default_factory=dict)  # "encoder.keep" etc., filled only when asked for

    @classmethod
    def of(
        cls,
        batch: Batch,
        *,
        embedded: Tensor,
        encoder: Tensor,
        logits: Tensor,
        layers: tuple[Attention, ...] = (),
        context: Tensor | None = None,
        decoder: Tensor | None = None,
        decoder_input: Tensor | None = None,
    ) -> "Trace":
        """Return the trace of a pass over this batch."""
        return cls(
            source=batch.source, source_mask=batch.source_mask, target=batch.target, target_mask=batch.target_mask,
            embedded=embedded, encoder=encoder, logits=logits, layers=layers, context=context, decoder=decoder,
            decoder_input=decoder_input,
        )  # fmt: skip

    @property
    def last(self) -> Attention:
        if not self.layers:
            raise AttnscopeError("this model has no attention (attention='none'), so its trace shows none")
        return self.layers[-1]

    @property
    def attention(self) -> Tensor:  # α
        return self.last.weights

    @property
    def scores(self) -> Tensor:  # a, before the softmax
        return self.last.scores

    @property
    def predictions(self) -> Int[Tensor, "batch target"]:
        return self.logits.argmax(-1)
