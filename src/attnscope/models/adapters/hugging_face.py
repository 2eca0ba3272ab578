"""Where is the attention in each family of Hugging Face models, and what comes after the last of it?

Everything behind the last attention layer looks at one position at a time: projection, residual stream, feed-forward
layer, words. So what would be said with another context can be worked out exactly with the state held that asked.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from attnscope.errors import BadSetting
from attnscope.models.adapters.layers import by_layer
from attnscope.models.adapters.readers import ClassReader, Numbering, Reader, TranslationReader
from attnscope.models.adapters.recording import Recorder, recording, transformers, watching
from attnscope.models.capabilities import (
    EmbedsSource,
    Generates,
    GivesTrace,
    HasLayers,
    ReadsOut,
    ReadsTexts,
    SelfAttends,
)
from attnscope.models.encoder_decoder import OWN, heard_words
from attnscope.models.inference import evaluating
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import END, PAD, SPECIALS, Batch


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


# What the library is asked for. Hidden states are not: it would leave hooks in the model for good.
PLAIN = {"return_dict": True, "output_attentions": False, "output_hidden_states": False}


class SourceInputs(nn.Module):
    """The words of the source as vectors, as the encoder takes them in before it adds positions."""

    def __init__(self, words: nn.Module, numbering: Numbering, scale: float):
        super().__init__()
        self.words, self.numbering, self.scale = words, numbering, scale

    def forward(self, source: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source input"]:
        embedded: Tensor = self.words(self.numbering.ids_of(source))
        return embedded if self.scale == 1 else embedded * self.scale


class HuggingFace(GivesTrace, ReadsOut, EmbedsSource, ReadsTexts, HasLayers, SelfAttends, nn.Module, ABC):
    """A Hugging Face model as a giver of Traces. It is always asked in evaluation mode."""

    rows: int | None = None  # how many queries the trace shows; None: all
    readout_is_exact = True  # nothing behind the last layer looks at another position: a readout says what a pass would

    def __init__(self, model: Any, reader: Reader, family: Family, heads: int):
        super().__init__()
        transformers()
        self.model, self.reader, self.family, self.heads = model, reader, family, heads
        self.depth = len(family.attentions(model))
        encoder = model.get_encoder() if model.config.is_encoder_decoder else model
        words = encoder.get_input_embeddings()
        self.source_inputs = SourceInputs(words, reader.source, getattr(encoder, "embed_scale", 1.0))

    @abstractmethod
    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """As any model's. There are no gates to show. `adapters.interventions` says what `attention` may be."""

    @abstractmethod
    def replayed(self, batch: Batch) -> Batch:
        """The same texts, and what the model itself says of them in the place of the target."""

    @abstractmethod
    def numbered(self, logits: Float[Tensor, "batch target ids"]) -> Float[Tensor, "batch target words"]:
        """Logits by number of the word."""

    def recorder(self, batch: Batch, attention: Interventions | None) -> Recorder:
        modules = self.family.attentions(self.model)
        changes = by_layer(attention, len(modules), self.heads)
        return Recorder({module: i for i, module in enumerate(modules)}, batch.source_mask, changes, self.rows)

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        """The encoder's whole self-attention, the first layer first: what rollout needs."""
        modules = self.family.self_attentions(self.model)
        recorder = Recorder({module: i for i, module in enumerate(modules)}, batch.source_mask)
        with recording(self.model, recorder):
            self.encode(self.source_inputs(batch.source), batch)
        return tuple(layer.weights for layer in recorder.attentions())

    @abstractmethod
    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> Any:
        """A pass through the encoder."""

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        """What the heads picked, side by side; the projection comes with the readout."""
        return values.transpose(1, 2).flatten(2)

    def readout(
        self, context: Float[Tensor, "batch target context"], decoder: Float[Tensor, "batch target units"] | None = None
    ) -> Float[Tensor, "batch target words"]:
        """What would be said with this context of the last layer, the state held that asked: exact."""
        with evaluating(self.model, keep_gradients=True):
            return self.numbered(self.family.said(self.model, context, decoder))


class HFEncoderDecoder(Generates, HuggingFace):
    """BART, mBART, Marian, M2M100 and NLLB, Pegasus, T5 and mT5."""

    reader: TranslationReader

    def __init__(self, model: Any, reader: TranslationReader):
        family = ENCODER_DECODERS[model.config.model_type]
        heads = getattr(model.config, "decoder_attention_heads", None) or model.config.num_heads
        super().__init__(model, reader, family, heads)
        self.target_numbering = reader.target  # so that it lies where the model does
        self.first = first_id(model, reader.tokenizer)

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Read the source, say the target. `teacher_forcing` is the chance that the decoder hears the gold word."""
        fed = heard_words(batch, self.gold_probability(teacher_forcing))
        with evaluating(self.model, keep_gradients=True):
            embedded = self.source_inputs(batch.source)
            read = self.encode(embedded, batch)
            for step in range(1, fed.shape[1]):
                own = fed[:, step] == OWN
                if own.any():  # attention is causal: what stands further on does not matter yet
                    so_far = self.said(batch, embedded, read, fed.masked_fill(fed == OWN, PAD), attention)
                    fed[:, step] = so_far.predictions[:, step - 1].where(own, fed[:, step])
            return self.said(batch, embedded, read, fed, attention)

    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> Any:
        return self.model.get_encoder()(inputs_embeds=embedded, attention_mask=batch.source_mask.long(), **PLAIN)

    def said(self, batch: Batch, embedded: Tensor, read: Any, fed: Tensor, attention: Interventions | None) -> Trace:
        """One pass of the decoder, that hears these words."""
        recorder, states = self.recorder(batch, attention), list[Tensor]()
        with recording(self.model, recorder), watching(self.family.asks(self.model), states):
            output = self.model(
                encoder_outputs=read, attention_mask=batch.source_mask.long(), decoder_input_ids=self.heard(fed),
                use_cache=False, **PLAIN,
            )  # fmt: skip
        return Trace.of(
            batch,
            decoder_input=fed,
            embedded=embedded,
            encoder=read.last_hidden_state,
            decoder=states[0],
            layers=recorder.attentions(),
            context=self.context_of(recorder.mixed[self.depth - 1]),
            logits=self.numbered(output.logits),
        )

    def heard(self, fed: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """Ids: the model has a first word of its own, whatever its tokenizer begins a sentence with."""
        ids = self.reader.target.ids_of(fed)
        return torch.cat([torch.full_like(ids[:, :1], self.first), ids[:, 1:]], 1)

    def numbered(self, logits: Float[Tensor, "batch target ids"]) -> Float[Tensor, "batch target words"]:
        return self.reader.target.renumbered(logits)

    def generate(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        max_length: int,
        **options: Any,
    ) -> Int[Tensor, "batch said"]:
        """What the library's own search finds, beams and all, as the model's folder or `options` say.

        END and what follows it are END.
        """
        ids = self.reader.source.ids_of(source)
        with evaluating(self.model):
            found = self.model.generate(
                input_ids=ids, attention_mask=source_mask.long(), max_new_tokens=max_length, **self.language | options
            )
        said = self.reader.target.numbers_of(found[:, 1:])  # without the first word, which is heard and not said
        return said.masked_fill(ended(said), END)

    @property
    def language(self) -> dict[str, int]:
        """A tokenizer that was told the language of the target: it is said first by those models that say it."""
        language = getattr(self.reader.tokenizer, "tgt_lang", None)
        if language is None or self.model.generation_config.forced_bos_token_id is not None:
            return {}
        code = self.reader.tokenizer.convert_tokens_to_ids(language)
        return {} if code in (None, self.first, self.reader.tokenizer.unk_token_id) else {"forced_bos_token_id": code}

    def replayed(self, batch: Batch, max_length: int = 128, **options: Any) -> Batch:
        """The same texts with the model's own translation as the target.

        A pass over it, with teacher forcing, shows the attention behind what was generated, by whatever search.
        """
        room = min(max_length, self.reader.longest)
        said = self.generate(batch.source, batch.source_mask, room, **options)
        mask = ~ended(said)
        mask = mask[:, : int(mask.sum(1).max())]
        return replace(
            batch, target=said[:, : mask.shape[1]].masked_fill(~mask, PAD), target_mask=mask, gold_attention=None
        )


def ended(said: Int[Tensor, "batch said"]) -> Bool[Tensor, "batch said"]:
    """What comes after the first END."""
    is_end = (said == END).long()
    return is_end.cumsum(1) > is_end


def first_id(model: Any, tokenizer: Any) -> int:
    """The id that the decoder hears first."""
    for settings in (model.config, model.generation_config):
        if (found := getattr(settings, "decoder_start_token_id", None)) is not None:
            return int(found)
    language = getattr(tokenizer, "tgt_lang", None)
    if language is None:
        raise BadSetting(
            "this model's configuration does not say what its decoder hears first; set decoder_start_token_id in it"
        )
    return int(tokenizer.convert_tokens_to_ids(language))


class HFClassifier(HuggingFace):
    """BERT, and MiniLM, which is one; RoBERTa and XLM-RoBERTa; DistilBERT: with any number of classes."""

    reader: ClassReader
    family: Encoder
    rows = 1  # the classification token comes first

    def __init__(self, model: Any, reader: ClassReader):
        super().__init__(model, reader, CLASSIFIERS[model.config.model_type], model.config.num_attention_heads)

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """As any model's; there is no decoder to be taught."""
        recorder, states = self.recorder(batch, attention), list[Tensor]()
        with recording(self.model, recorder), watching(self.family.asks(self.model), states):
            embedded = self.source_inputs(batch.source)
            encoder = self.encode(embedded, batch).last_hidden_state
            logits = self.family.decided(self.model, encoder[:, : self.rows])
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=encoder,
            decoder=states[0][:, : self.rows],
            layers=recorder.attentions(),
            context=self.context_of(recorder.mixed[self.depth - 1]),
            logits=self.numbered(logits),
        )

    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> Any:
        return self.model.base_model(inputs_embeds=embedded, attention_mask=batch.source_mask.long(), **PLAIN)

    def numbered(self, logits: Float[Tensor, "batch target classes"]) -> Float[Tensor, "batch target words"]:
        """Special words are never said."""
        return pad(logits, (len(SPECIALS), 0), value=-math.inf)

    def replayed(self, batch: Batch) -> Batch:
        """The same texts, and the class that the model decides for."""
        with evaluating(self.model):
            return replace(batch, target=self(batch).predictions)
