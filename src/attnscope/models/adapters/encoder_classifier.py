"""Hugging Face classifiers of any encoder that uses the attention interface, and those of BART and T5.

A trace shows, in every layer, the row of attention that the classifier reads:

- of the first token (ALBERT, ELECTRA, CamemBERT, Data2Vec; ModernBERT and EuroBERT where they are set so);
- where the mean over tokens is classified, the mean over their rows, with log-weights as scores; a change of it is
  passed on to each row in proportion, so that the rows' mean is the changed one;
- in BART and T5, whose decoder reads the text once more, the cross-attention at the last end token.

There is no readout: other attention needs a whole pass of the model.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.models.adapters.hugging_face import ENCODER_DECODERS, OUTPUT_OPTIONS, HFModel, SourceInputs
from attnscope.models.adapters.readers import ClassReader
from attnscope.models.adapters.recording import Recorder, attention_modules, recording
from attnscope.models.attention import Change, changes_by_layer
from attnscope.models.capabilities import EmbedsSource, GivesLogits, GivesTrace, HasLayers, ReadsTexts, SelfAttends
from attnscope.models.inference import evaluating
from attnscope.models.trace import Attention, Interventions, Trace
from attnscope.tasks.batch import Batch

# By type of model: which token is classified. "configured": as `classifier_pooling` of the configuration says.
POOLINGS = {
    "albert": "first", "electra": "first", "camembert": "first", "data2vec-text": "first", "ernie": "first",
    "modernbert": "configured", "eurobert": "configured", "bart": "end", "t5": "end", "mt5": "end",
}  # fmt: skip
CONFIGURED = {"cls": "first", "bos": "first", "mean": "mean", "late": "mean"}


class HFEncoderClassifier(GivesLogits, GivesTrace, EmbedsSource, ReadsTexts, HasLayers, SelfAttends, nn.Module):
    """A classifier whose attention is recorded through the attention interface. It always runs in evaluation mode."""

    reader: ClassReader

    def __init__(self, model: HFModel, reader: ClassReader):
        super().__init__()
        self.model, self.reader = model, reader
        pooling = POOLINGS[model.config.model_type]
        self.pooling = CONFIGURED[model.config.classifier_pooling] if pooling == "configured" else pooling
        if self.pooling == "end":
            family = ENCODER_DECODERS[model.config.model_type]
            self.attentions, self.self_attentions = family.attentions(model), family.self_attentions(model)
        else:
            self.attentions = self.self_attentions = attention_modules(model)
        self.depth, self.heads = len(self.attentions), int(model.config.num_attention_heads)
        encoder = model.get_encoder() if self.pooling == "end" else model
        self.source_inputs = SourceInputs(encoder.get_input_embeddings(), getattr(encoder, "embed_scale", 1.0))

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        changes = changes_by_layer(attention, self.depth, self.heads)
        if self.pooling == "mean":
            mask = batch.source_mask
            changes = {layer: [on_mean_row(change, mask) for change in some] for layer, some in changes.items()}
        recorder = Recorder(self.attentions, None, changes, self.rows_of(batch))
        with recording(self.model, recorder):
            embedded = self.source_inputs(batch.source)
            encoder, logits = self.classify(embedded, batch)
        layers = recorder.attentions()
        if self.pooling == "mean":
            layers = tuple(mean_of_rows(layer, batch.source_mask) for layer in layers)
        return Trace.of(batch, embedded=embedded, encoder=encoder, layers=layers, logits=logits)

    def logits(self, batch: Batch, teacher_forcing: float | None = None) -> Float[Tensor, "batch target words"]:
        with evaluating(self.model, keep_gradients=True):
            return self.classify(self.source_inputs(batch.source), batch)[1]

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        recorder = Recorder(self.self_attentions, None)
        with recording(self.model, recorder):
            self.classify(self.source_inputs(batch.source), batch)
        return tuple(layer.weights for layer in recorder.attentions())

    def rows_of(self, batch: Batch) -> Int[Tensor, "batch 1"] | None:
        """Return the position of the token that is classified; None for the mean over tokens."""
        if self.pooling == "mean":
            return None
        if self.pooling == "first":
            return torch.zeros_like(batch.source[:, :1])
        is_end = batch.source_mask & (batch.source == self.model.config.eos_token_id)
        is_end = torch.where(is_end.any(1, keepdim=True), is_end, batch.source_mask)  # without one, the last token
        return (is_end * torch.arange(is_end.shape[1], device=is_end.device)).argmax(1, keepdim=True)

    def classify(
        self, embedded: Float[Tensor, "batch source input"], batch: Batch
    ) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch 1 words"]]:
        """Return the last hidden states of the encoder and the logits, those of special tokens first."""
        mask, rows = batch.source_mask.long(), self.rows_of(batch)
        if self.pooling == "end":
            encoded = self.model.get_encoder()(inputs_embeds=embedded, attention_mask=mask, **OUTPUT_OPTIONS)
            start = torch.full_like(batch.source[:, :1], self.model.config.decoder_start_token_id)
            decoded = self.model.base_model(
                encoder_outputs=encoded, attention_mask=mask, use_cache=False, **OUTPUT_OPTIONS,
                decoder_inputs_embeds=torch.cat([self.source_inputs(start), embedded[:, :-1]], 1),
            ).last_hidden_state  # fmt: skip
            assert rows is not None  # a model with a decoder reads its last position
            hidden, logits = (
                encoded[0],
                self.model.classification_head(decoded.take_along_dim(rows[..., None], 1)[:, 0]),
            )
        else:
            states = list[Tensor]()
            handle = self.model.base_model.register_forward_hook(lambda _, __, output: states.append(output[0]))
            try:
                logits = self.model(inputs_embeds=embedded, attention_mask=mask, **OUTPUT_OPTIONS).logits
            finally:
                handle.remove()
            hidden = states[0]
        return hidden, self.reader.class_logits(logits)[:, None]


def on_mean_row(change: Change, queries: Bool[Tensor, "batch source"]) -> Change:
    """Return a change of all rows, from one of their mean."""

    def change_rows(weights: Tensor, _: Tensor) -> Tensor:
        mean = mean_over(weights, queries)
        new_mean = change(mean, queries)
        return torch.where(mean > 0, weights * (new_mean / mean), new_mean)

    return change_rows


def mean_of_rows(layer: Attention, queries: Bool[Tensor, "batch source"]) -> Attention:
    """Return the attention of the mean over queries; its scores are log-weights, and no query has them.

    The mean of softmaxes is not the softmax of mean scores.
    """
    weights = mean_over(layer.weights, queries)
    scores = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
    return replace(layer, queries=None, keys=None, scores=scores, weights=weights)


def mean_over(
    values: Float[Tensor, "batch heads queries source"], queries: Bool[Tensor, "batch queries"]
) -> Float[Tensor, "batch heads 1 source"]:
    share = queries.to(values) / queries.sum(1, keepdim=True)
    return (values * share[:, None, :, None]).sum(2, keepdim=True)
