"""Where is the attention in each family of Hugging Face models, and what comes after the last of it?

Everything behind the last attention layer looks at one position at a time: projection, residual stream, feed-forward
layer, words. So what would be said with another context can be worked out exactly with the state held that asked.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Family(ABC):
    """One way to lay out an encoder-decoder or a classifier."""

    @abstractmethod
    def attentions(self, model: Any) -> list[nn.Module]:
        """The attention modules that a trace shows, the first layer first."""

    @abstractmethod
    def self_attentions(self, model: Any) -> list[nn.Module]:
        """Those of the encoder."""

    @abstractmethod
    def asks(self, model: Any) -> nn.Module:
        """The module that the residual stream comes into, to be added to what the last attention layer picks."""

    @abstractmethod
    def said(
        self, model: Any, context: Float[Tensor, "batch target context"], state: Float[Tensor, "batch target units"]
    ) -> Float[Tensor, "batch target ids"]:
        """The logits that follow from what the last layer's heads picked and the state that asked."""


class Bart(Family):
    """Each part is normed after it was added to the residual stream: BART, Marian."""

    def attentions(self, model: Any) -> list[nn.Module]:
        return [layer.encoder_attn for layer in model.get_decoder().layers]

    def self_attentions(self, model: Any) -> list[nn.Module]:
        return [layer.self_attn for layer in model.get_encoder().layers]

    def asks(self, model: Any) -> nn.Module:
        attention: nn.Module = model.get_decoder().layers[-1].encoder_attn
        return attention

    def said(self, model: Any, context: Tensor, state: Tensor) -> Tensor:
        layer = model.get_decoder().layers[-1]
        state = layer.encoder_attn_layer_norm(state + layer.encoder_attn.out_proj(context))
        return words(model, layer.final_layer_norm(state + fed_forward(layer, state)))


class MBart(Bart):
    """Each part is normed before, and the stream once more at its end: mBART, Pegasus, M2M100 and NLLB."""

    def asks(self, model: Any) -> nn.Module:
        norm: nn.Module = model.get_decoder().layers[-1].encoder_attn_layer_norm
        return norm

    def said(self, model: Any, context: Tensor, state: Tensor) -> Tensor:
        decoder = model.get_decoder()
        layer = decoder.layers[-1]
        state = state + layer.encoder_attn.out_proj(context)
        return words(model, decoder.layer_norm(state + fed_forward(layer, layer.final_layer_norm(state))))


def fed_forward(layer: Any, state: Tensor) -> Tensor:
    return layer.fc2(layer.activation_fn(layer.fc1(state)))  # type: ignore[no-any-return]


def words(model: Any, state: Tensor) -> Tensor:
    bias = getattr(model, "final_logits_bias", None)
    logits: Tensor = model.lm_head(state)
    return logits if bias is None else logits + bias


class T5(Family):
    def attentions(self, model: Any) -> list[nn.Module]:
        return [block.layer[1].EncDecAttention for block in model.get_decoder().block]

    def self_attentions(self, model: Any) -> list[nn.Module]:
        return [block.layer[0].SelfAttention for block in model.get_encoder().block]

    def asks(self, model: Any) -> nn.Module:
        cross: nn.Module = model.get_decoder().block[-1].layer[1]
        return cross

    def said(self, model: Any, context: Tensor, state: Tensor) -> Tensor:
        decoder = model.get_decoder()
        _, cross, feed_forward = decoder.block[-1].layer
        state = decoder.final_layer_norm(feed_forward(state + cross.EncDecAttention.o(context)))
        if getattr(model.config, "scale_decoder_outputs", False):  # mT5 has no such setting
            state = state * model.model_dim**-0.5
        return model.lm_head(state)  # type: ignore[no-any-return]


class Encoder(Family):
    """A classifier, which decides by the last state of its classification token."""

    def self_attentions(self, model: Any) -> list[nn.Module]:
        return self.attentions(model)

    @abstractmethod
    def decided(self, model: Any, state: Float[Tensor, "batch target units"]) -> Float[Tensor, "batch target classes"]:
        """The logits that follow from last states of classification tokens."""


class Bert(Encoder):
    """Every state attends to all; the classification token, the first, is read by the classifier: BERT, MiniLM."""

    def attentions(self, model: Any) -> list[nn.Module]:
        return [layer.attention.self for layer in model.base_model.encoder.layer]

    def asks(self, model: Any) -> nn.Module:
        attention: nn.Module = model.base_model.encoder.layer[-1].attention
        return attention

    def said(self, model: Any, context: Tensor, state: Tensor) -> Tensor:
        layer = model.base_model.encoder.layer[-1]
        state = layer.feed_forward_chunk(layer.attention.output(context, state))
        return self.decided(model, state)

    def decided(self, model: Any, state: Tensor) -> Tensor:
        return model.classifier(each_first(model.base_model.pooler, state))  # type: ignore[no-any-return]


class Roberta(Bert):
    """RoBERTa and XLM-RoBERTa: BERT, without a pooler."""

    def decided(self, model: Any, state: Tensor) -> Tensor:
        return each_first(model.classifier, state)


class DistilBert(Encoder):
    def attentions(self, model: Any) -> list[nn.Module]:
        return [layer.attention for layer in model.base_model.transformer.layer]

    def asks(self, model: Any) -> nn.Module:
        attention: nn.Module = model.base_model.transformer.layer[-1].attention
        return attention

    def said(self, model: Any, context: Tensor, state: Tensor) -> Tensor:
        layer = model.base_model.transformer.layer[-1]
        state = layer.sa_layer_norm(state + layer.attention.out_lin(context))
        return self.decided(model, layer.output_layer_norm(state + layer.ffn(state)))

    def decided(self, model: Any, state: Tensor) -> Tensor:
        return model.classifier(torch.relu(model.pre_classifier(state)))  # type: ignore[no-any-return]


def each_first(head: Any, state: Float[Tensor, "batch target units"]) -> Tensor:
    """A head that reads the first state of a text, asked of each state as if it were."""
    said: Tensor = head(state.flatten(0, 1)[:, None]).unflatten(0, state.shape[:2])
    return said


ENCODER_DECODERS: dict[str, Family] = {
    "bart": Bart(), "marian": Bart(), "mbart": MBart(), "pegasus": MBart(), "m2m_100": MBart(), "t5": T5(),
    "mt5": T5(),
}  # fmt: skip
CLASSIFIERS: dict[str, Encoder] = {
    "bert": Bert(), "roberta": Roberta(), "xlm-roberta": Roberta(), "distilbert": DistilBert(),
}  # fmt: skip
