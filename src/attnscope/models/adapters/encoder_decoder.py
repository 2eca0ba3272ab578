"""How does a Hugging Face translator or summariser attend to its source? Cross-attention of every layer and head.

The decoder state s of a trace is the residual stream as it comes to the last layer's cross-attention: what asks, before
the answer is added. The context c is what that layer's heads picked, side by side.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import BadSetting
from attnscope.models.adapters.families import ENCODER_DECODERS
from attnscope.models.adapters.hugging_face import PLAIN, HuggingFace
from attnscope.models.adapters.reader import TranslationReader
from attnscope.models.adapters.recording import recording, watching
from attnscope.models.capabilities import Generates
from attnscope.models.encoder_decoder import OWN, heard_words
from attnscope.models.inference import evaluating
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import END, PAD, Batch


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
        self, batch: Batch, attention: Interventions | None = None, teacher_forcing: float = 1.0, gates: bool = False
    ) -> Trace:
        """Read the source, say the target. `teacher_forcing` is the chance that the decoder hears the gold word."""
        fed = heard_words(batch, teacher_forcing)
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
