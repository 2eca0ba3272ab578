"""Hugging Face encoder-decoders and classifiers as models that give Traces.

The decoder state s of a trace is the residual stream as it enters the last attention layer: the query, before the
output of attention is added. The context c is the mixed values of that layer's heads, side by side. In an
encoder-decoder, a trace holds the cross-attention of every layer; in a classifier, the row of the classification token
in every layer's self-attention, with one target token, the class.

Everything behind the last attention layer works on one position at a time: projection, residual stream, feed-forward
layer, logits. So a readout from another context, with the state s held, is exact.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import BadSetting
from attnscope.models.adapters.readers import ClassReader, HFTokenizer, TokenizerReader, TranslationReader
from attnscope.models.adapters.recording import Recorder, record_input, recording, transformers
from attnscope.models.attention import changes_by_layer
from attnscope.models.capabilities import (
    TEACHER_FORCING,
    Decoding,
    EmbedsSource,
    Generates,
    GivesLogits,
    GivesTrace,
    HasLayers,
    MasksInPlace,
    ReadsOut,
    ReadsTexts,
    SelfAttends,
)
from attnscope.models.encoder_decoder import PREDICTED, decoder_inputs
from attnscope.models.inference import after_end, device_of, evaluating
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import END, PAD, Batch

HFModel: TypeAlias = Any  # a transformers.PreTrainedModel; which parts it has depends on its family
HFOutput: TypeAlias = Any  # a transformers.ModelOutput


class Family(ABC):
    """Where the parts of one architecture are."""

    @abstractmethod
    def attentions(self, model: HFModel) -> list[nn.Module]:
        """Return the attention modules that a trace shows, the first layer first."""

    @abstractmethod
    def self_attentions(self, model: HFModel) -> list[nn.Module]:
        """Return the self-attention modules of the encoder."""

    @abstractmethod
    def residual_input(self, model: HFModel) -> nn.Module:
        """Return the module whose input is the residual stream that the output of the last attention is added to."""

    @abstractmethod
    def readout(
        self,
        model: HFModel,
        context: Float[Tensor, "batch target context"],
        state: Float[Tensor, "batch target units"],
    ) -> Float[Tensor, "batch target tokens"]:
        """Return the logits that follow from the last layer's mixed values and the state that they are added to."""


class Bart(Family):
    """BART, Marian: layer norms follow each addition to the residual stream."""

    def attentions(self, model: HFModel) -> list[nn.Module]:
        return [layer.encoder_attn for layer in model.get_decoder().layers]

    def self_attentions(self, model: HFModel) -> list[nn.Module]:
        return [layer.self_attn for layer in model.get_encoder().layers]

    def residual_input(self, model: HFModel) -> nn.Module:
        return self.attentions(model)[-1]

    def readout(self, model: HFModel, context: Tensor, state: Tensor) -> Tensor:
        layer = model.get_decoder().layers[-1]
        state = layer.encoder_attn_layer_norm(state + layer.encoder_attn.out_proj(context))
        return logits_of(model, layer.final_layer_norm(state + feed_forward(layer, state)))


class MBart(Bart):
    """mBART, Pegasus, M2M100 and NLLB: layer norms come before each part, and once more at the end."""

    def residual_input(self, model: HFModel) -> nn.Module:
        norm: nn.Module = model.get_decoder().layers[-1].encoder_attn_layer_norm
        return norm

    def readout(self, model: HFModel, context: Tensor, state: Tensor) -> Tensor:
        decoder = model.get_decoder()
        layer = decoder.layers[-1]
        state = state + layer.encoder_attn.out_proj(context)
        return logits_of(model, decoder.layer_norm(state + feed_forward(layer, layer.final_layer_norm(state))))


def feed_forward(layer: HFModel, state: Tensor) -> Tensor:
    return layer.fc2(layer.activation_fn(layer.fc1(state)))  # type: ignore[no-any-return]


def logits_of(model: HFModel, state: Tensor) -> Tensor:
    bias = getattr(model, "final_logits_bias", None)
    logits: Tensor = model.lm_head(state)
    return logits if bias is None else logits + bias


class T5(Family):
    """T5 and mT5."""

    def attentions(self, model: HFModel) -> list[nn.Module]:
        return [block.layer[1].EncDecAttention for block in model.get_decoder().block]

    def self_attentions(self, model: HFModel) -> list[nn.Module]:
        return [block.layer[0].SelfAttention for block in model.get_encoder().block]

    def residual_input(self, model: HFModel) -> nn.Module:
        cross: nn.Module = model.get_decoder().block[-1].layer[1]
        return cross

    def readout(self, model: HFModel, context: Tensor, state: Tensor) -> Tensor:
        decoder = model.get_decoder()
        _, cross, feed_forward = decoder.block[-1].layer
        state = decoder.final_layer_norm(feed_forward(state + cross.EncDecAttention.o(context)))
        if getattr(model.config, "scale_decoder_outputs", False):  # mT5 has no such setting
            state = state * model.model_dim**-0.5
        return model.lm_head(state)  # type: ignore[no-any-return]


class Encoder(Family):
    """A classifier by the last state of its classification token."""

    def self_attentions(self, model: HFModel) -> list[nn.Module]:
        return self.attentions(model)

    @abstractmethod
    def classify(
        self, model: HFModel, state: Float[Tensor, "batch target units"]
    ) -> Float[Tensor, "batch target classes"]:
        """Return the logits that follow from last states of classification tokens."""


class Bert(Encoder):
    """BERT and MiniLM."""

    def attentions(self, model: HFModel) -> list[nn.Module]:
        return [layer.attention.self for layer in model.base_model.encoder.layer]

    def residual_input(self, model: HFModel) -> nn.Module:
        attention: nn.Module = model.base_model.encoder.layer[-1].attention
        return attention

    def readout(self, model: HFModel, context: Tensor, state: Tensor) -> Tensor:
        layer = model.base_model.encoder.layer[-1]
        return self.classify(model, layer.feed_forward_chunk(layer.attention.output(context, state)))

    def classify(self, model: HFModel, state: Tensor) -> Tensor:
        return model.classifier(per_position(model.base_model.pooler, state))  # type: ignore[no-any-return]


class Roberta(Bert):
    """RoBERTa and XLM-RoBERTa: BERT without a pooler."""

    def classify(self, model: HFModel, state: Tensor) -> Tensor:
        return per_position(model.classifier, state)


class DistilBert(Encoder):
    """DistilBERT."""

    def attentions(self, model: HFModel) -> list[nn.Module]:
        return [layer.attention for layer in model.base_model.transformer.layer]

    def residual_input(self, model: HFModel) -> nn.Module:
        return self.attentions(model)[-1]

    def readout(self, model: HFModel, context: Tensor, state: Tensor) -> Tensor:
        layer = model.base_model.transformer.layer[-1]
        state = layer.sa_layer_norm(state + layer.attention.out_lin(context))
        return self.classify(model, layer.output_layer_norm(state + layer.ffn(state)))

    def classify(self, model: HFModel, state: Tensor) -> Tensor:
        return model.classifier(torch.relu(model.pre_classifier(state)))  # type: ignore[no-any-return]


def per_position(head: nn.Module, state: Float[Tensor, "batch target units"]) -> Tensor:
    """Apply a head that reads the first state of a text to each state as if it were the first."""
    output: Tensor = head(state.flatten(0, 1)[:, None]).unflatten(0, state.shape[:2])
    return output


ENCODER_DECODERS: dict[str, Family] = {
    "bart": Bart(), "marian": Bart(), "mbart": MBart(), "pegasus": MBart(), "m2m_100": MBart(), "t5": T5(),
    "mt5": T5(),
}  # fmt: skip
CLASSIFIERS: dict[str, Encoder] = {
    "bert": Bert(), "roberta": Roberta(), "xlm-roberta": Roberta(), "distilbert": DistilBert(),
}  # fmt: skip


# Without hidden states, for which the library would leave hooks in the model.
OUTPUT_OPTIONS = {"return_dict": True, "output_attentions": False, "output_hidden_states": False}


class SourceInputs(nn.Module):
    """Embeds the source as the encoder does, before positions are added."""

    def __init__(self, words: nn.Module, scale: float):
        super().__init__()
        self.words, self.scale = words, scale

    def forward(self, source: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source input"]:
        embedded: Tensor = self.words(source)
        return embedded if self.scale == 1 else embedded * self.scale


class HuggingFace(GivesTrace, ReadsOut, EmbedsSource, ReadsTexts, HasLayers, SelfAttends, nn.Module, ABC):
    """A Hugging Face model that gives Traces. It always runs in evaluation mode, and has no gates to show."""

    rows: int | None = None  # how many queries the trace shows; None: all
    readout_is_exact = True

    def __init__(self, model: HFModel, reader: TokenizerReader, family: Family, heads: int):
        super().__init__()
        transformers()
        self.model, self.reader, self.family, self.heads = model, reader, family, heads
        self.depth = len(family.attentions(model))
        encoder = model.get_encoder() if model.config.is_encoder_decoder else model
        self.source_inputs = SourceInputs(encoder.get_input_embeddings(), getattr(encoder, "embed_scale", 1.0))

    @abstractmethod
    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> HFOutput:
        """Return the output of the encoder."""

    @abstractmethod
    def by_target_id(self, logits: Float[Tensor, "batch target tokens"]) -> Float[Tensor, "batch target words"]:
        """Return the model's logits in the order of target ids in a Batch."""

    def recorder(self, batch: Batch, attention: Interventions | None) -> Recorder:
        """Return a recorder of the attention that a trace shows."""
        modules = self.family.attentions(self.model)
        changes = changes_by_layer(attention, len(modules), self.heads)
        rows = None if self.rows is None else torch.arange(self.rows, device=batch.source.device).expand(len(batch), -1)
        return Recorder(modules, batch.source_mask, changes, rows)

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        recorder = Recorder(self.family.self_attentions(self.model), batch.source_mask)
        with recording(self.model, recorder):
            self.encode(self.source_inputs(batch.source), batch)
        return tuple(layer.weights for layer in recorder.attentions())

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        """Return the heads side by side; their projection is part of the readout."""
        return values.transpose(1, 2).flatten(2)

    def readout(
        self, context: Float[Tensor, "batch target context"], decoder: Float[Tensor, "batch target units"] | None = None
    ) -> Float[Tensor, "batch target words"]:
        if decoder is None:
            raise BadSetting("a Hugging Face model is read out from a context and a decoder state")
        with evaluating(self.model, keep_gradients=True):
            return self.by_target_id(self.family.readout(self.model, context, decoder))


class HFEncoderDecoder(MasksInPlace, Generates, HuggingFace):
    """BART, mBART, Marian, M2M100 and NLLB, Pegasus, T5 and mT5."""

    reader: TranslationReader

    def __init__(self, model: HFModel, reader: TranslationReader):
        family = ENCODER_DECODERS[model.config.model_type]
        heads = getattr(model.config, "decoder_attention_heads", None) or model.config.num_heads
        super().__init__(model, reader, family, heads)
        self.target_ids = reader.target.to(device_of(model))  # a submodule, so that it stays on the model's device
        self.start_token_id = start_token_id(model, reader.tokenizer)

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        inputs = decoder_inputs(batch, self.gold_probability(teacher_forcing))
        with evaluating(self.model, keep_gradients=True):
            embedded = self.source_inputs(batch.source)
            encoded = self.encode(embedded, batch)
            for step in range(1, inputs.shape[1]):
                predicted = inputs[:, step] == PREDICTED
                if predicted.any():  # attention is causal: what stands further on does not matter yet
                    prefix = inputs.masked_fill(inputs == PREDICTED, PAD)
                    trace = self.decode(batch, embedded, encoded, prefix, attention)
                    inputs[:, step] = trace.predictions[:, step - 1].where(predicted, inputs[:, step])
            return self.decode(batch, embedded, encoded, inputs, attention)

    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> HFOutput:
        mask = batch.source_mask.long()
        return self.model.get_encoder()(inputs_embeds=embedded, attention_mask=mask, **OUTPUT_OPTIONS)

    def decode(
        self,
        batch: Batch,
        embedded: Float[Tensor, "batch source input"],
        encoded: HFOutput,
        inputs: Int[Tensor, "batch target"],
        attention: Interventions | None,
    ) -> Trace:
        """Return the trace of one pass of the decoder over these inputs."""
        recorder, states = self.recorder(batch, attention), list[Tensor]()
        with recording(self.model, recorder), record_input(self.family.residual_input(self.model), states):
            output = self.model(
                encoder_outputs=encoded, attention_mask=batch.source_mask.long(), use_cache=False,
                decoder_input_ids=self.decoder_input_ids(inputs), **OUTPUT_OPTIONS,
            )  # fmt: skip
        return Trace.of(
            batch,
            decoder_input=inputs,
            embedded=embedded,
            encoder=encoded.last_hidden_state,
            decoder=states[0],
            layers=recorder.attentions(),
            context=self.context_of(recorder.mixed[self.depth - 1]),
            logits=self.by_target_id(output.logits),
        )

    def decoder_input_ids(self, inputs: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """Return the model's ids, of which the first is the model's start token, not the tokenizer's."""
        ids = self.reader.target.to_tokenizer(inputs)
        return torch.cat([torch.full_like(ids[:, :1], self.start_token_id), ids[:, 1:]], 1)

    def by_target_id(self, logits: Float[Tensor, "batch target tokens"]) -> Float[Tensor, "batch target words"]:
        return self.reader.target.reorder(logits)

    def generate(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        max_length: int,
        **options: object,
    ) -> Int[Tensor, "batch generated"]:
        """Return the output of the library's `generate`, with the model's generation config or `options`.

        END and what follows it are END. The output is no longer than the model has positions for.
        """
        room = min(max_length, self.reader.max_length)
        with evaluating(self.model):
            output = self.model.generate(
                input_ids=source, attention_mask=source_mask.long(), max_new_tokens=room, **self.language | options
            )
        ids = self.reader.target.from_tokenizer(output[:, 1:])  # without the start token
        return ids.masked_fill(after_end(ids), END)

    @property
    def language(self) -> dict[str, int]:
        """The target language of a multilingual tokenizer, for models that generate it as their first token."""
        language = getattr(self.reader.tokenizer, "tgt_lang", None)
        if language is None or self.model.generation_config.forced_bos_token_id is not None:
            return {}
        code = self.reader.tokenizer.convert_tokens_to_ids(language)
        other = (None, self.start_token_id, self.reader.tokenizer.unk_token_id)
        return {} if code in other else {"forced_bos_token_id": code}


def start_token_id(model: HFModel, tokenizer: HFTokenizer) -> int:
    """Return the id of the decoder's first input."""
    for settings in (model.config, model.generation_config):
        if (start := getattr(settings, "decoder_start_token_id", None)) is not None:
            return int(start)
    language = getattr(tokenizer, "tgt_lang", None)
    if language is None:
        raise BadSetting(
            "this model's configuration does not name the first input of its decoder; set decoder_start_token_id in it"
        )
    return int(tokenizer.convert_tokens_to_ids(language))


class HFClassifier(GivesLogits, HuggingFace):
    """BERT and MiniLM, RoBERTa and XLM-RoBERTa, DistilBERT, with any number of classes."""

    reader: ClassReader
    family: Encoder
    rows = 1  # the classification token comes first; attention of other tokens is neither shown nor changed

    def __init__(self, model: HFModel, reader: ClassReader):
        super().__init__(model, reader, CLASSIFIERS[model.config.model_type], model.config.num_attention_heads)

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        recorder, states = self.recorder(batch, attention), list[Tensor]()
        with recording(self.model, recorder), record_input(self.family.residual_input(self.model), states):
            embedded = self.source_inputs(batch.source)
            encoder = self.encode(embedded, batch).last_hidden_state
            logits = self.family.classify(self.model, encoder[:, : self.rows])
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=encoder,
            decoder=states[0][:, : self.rows],
            layers=recorder.attentions(),
            context=self.context_of(recorder.mixed[self.depth - 1]),
            logits=self.by_target_id(logits),
        )

    def logits(self, batch: Batch, teacher_forcing: float | None = None) -> Float[Tensor, "batch target words"]:
        with evaluating(self.model, keep_gradients=True):
            encoder = self.encode(self.source_inputs(batch.source), batch).last_hidden_state
            return self.by_target_id(self.family.classify(self.model, encoder[:, : self.rows]))

    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> HFOutput:
        inputs = {"inputs_embeds": embedded, "attention_mask": batch.source_mask.long()}
        if self.reader.separator is not None:
            inputs["token_type_ids"] = self.reader.segments(batch.source) * batch.source_mask
        return self.model.base_model(**inputs, **OUTPUT_OPTIONS)

    def by_target_id(self, logits: Float[Tensor, "batch target classes"]) -> Float[Tensor, "batch target words"]:
        return self.reader.class_logits(logits)


# Repeated passes -----------------------------------------------------------------------------------------------------

Forward = Callable[[Interventions | None], Trace]


class Rerun:
    """Repeated passes of a model over one batch: a call gives the trace with other attention, in evaluation mode.

    What comes before the first changed layer does not change, and a Hugging Face model does not compute it again: the
    encoder of an encoder-decoder runs once, and the layers before the changed one return their former outputs. Any
    other model makes a whole pass. Of a trace with changed attention, read only the logits and the layers from the
    changed one on.
    """

    def __init__(self, model: Callable[..., Trace], batch: Batch, decoding: Decoding | None = None):
        self.model, self.batch, self.decoding = model, batch, decoding

    def __call__(self, attention: Interventions | None) -> Trace:
        first = first_layer(attention)
        with evaluating(self.model), returning(self.layers[:first], self.outputs[:first] if first else []):
            return self.forward(attention)

    @cached_property
    def forward(self) -> Forward:
        model, batch = self.model, self.batch
        if isinstance(model, HFEncoderDecoder) and (self.decoding or model.decoding) == "teacher_forced":
            embedded, inputs = model.source_inputs(batch.source), decoder_inputs(batch, 1.0)
            encoded = model.encode(embedded, batch)
            return lambda attention: model.decode(batch, embedded, encoded, inputs, attention)
        options = {} if self.decoding is None else {"teacher_forcing": TEACHER_FORCING[self.decoding]}
        return lambda attention: model(batch, attention=attention, **options)

    @cached_property
    def layers(self) -> list[nn.Module]:
        """The entries of the library's own list of layers that hold the attention of a trace."""
        if not isinstance(self.model, HuggingFace):
            return []
        inner = self.model.model
        names = {module: name for name, module in inner.named_modules()}
        attentions = self.model.family.attentions(inner)
        if len(set(attentions)) < len(attentions):  # layers that share their weights cannot be left out one by one
            return []
        matches = (re.match(r".*?\.\d+(?=\.)", names[layer]) for layer in attentions)
        return [inner.get_submodule(match[0]) for match in matches if match is not None]

    @cached_property
    def outputs(self) -> list[object]:
        """What each layer returns in a pass without changes."""
        outputs: list[object] = []
        with ExitStack() as stack:
            for layer in self.layers:
                stack.callback(layer.register_forward_hook(lambda _, __, output: outputs.append(output)).remove)
            self.forward(None)
        return outputs


def first_layer(attention: Interventions | None) -> int:
    """Return the first layer that an intervention changes; 0 where layers are counted from the end.

    >>> first_layer({(2, 0): lambda weights, mask: weights, 3: lambda weights, mask: weights})
    2
    """
    if not isinstance(attention, Mapping):
        return 0
    return max(0, min((key if isinstance(key, int) else key[0] for key in attention), default=0))


@contextmanager
def returning(layers: Sequence[nn.Module], outputs: Sequence[object]) -> Iterator[None]:
    """Let these layers return these outputs, without computing anything; afterwards they work as before."""
    originals = [vars(layer).get("forward") for layer in layers]
    try:
        for layer, output in zip(layers, outputs, strict=False):
            vars(layer)["forward"] = lambda *_, output=output, **__: output
        yield
    finally:
        for layer, forward in zip(layers, originals, strict=True):
            if forward is None:  # most modules have no `forward` but that of their class
                vars(layer).pop("forward", None)
            else:
                vars(layer)["forward"] = forward
