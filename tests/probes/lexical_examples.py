"""Small models with words of their own for the probes of single words: an encoder-decoder, a classifier, the proxy."""

from collections.abc import Callable
from dataclasses import replace

import torch
from decomposition_examples import WORDS, padded, random_batch, rows_of
from torch import Tensor, nn

from attnscope.models import EncoderDecoder, EncoderDecoderSettings
from attnscope.models.capabilities import EmbedsSource, GivesTrace, ReadsOut
from attnscope.models.trace import Attention, Trace
from attnscope.tasks.batch import START, Batch

CLASSES = 3


def encoder_decoder(seed: int = 0, **settings: object) -> EncoderDecoder:
    """The real model, small: one-hot words, and any cell and attention."""
    torch.manual_seed(seed)
    chosen = EncoderDecoderSettings(**{"units": 8, "input_size": 12} | settings)  # type: ignore[arg-type]
    return EncoderDecoder(chosen, WORDS, WORDS).double().eval()


def labelled(batch: Batch, classes: int = CLASSES) -> Batch:
    """The same source sentences with a label each, as an output of length 1."""
    label = batch.source.sum(1, keepdim=True) % classes
    return replace(batch, target=label, target_mask=torch.ones_like(label, dtype=torch.bool), gold_attention=None)


class Classifier(GivesTrace, ReadsOut, EmbedsSource, nn.Module):
    """A GRU and feed-forward attention (snell2021 eq. 7 and 8), with dropout before a linear readout."""

    def __init__(self, classes: int = CLASSES, units: int = 6, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.source_inputs = nn.Embedding(WORDS, units)
        self.encoder = nn.GRU(units, units, batch_first=True)
        self.score = nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1))
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(units, classes)
        self.double()

    def forward(self, batch: Batch, attention: Callable[[Tensor, Tensor], Tensor] | None = None) -> Trace:
        embedded = self.source_inputs(batch.source)
        states, _ = self.encoder(embedded)
        alignment = self.score(states).mT[:, None]  # batch x 1 x 1 x source
        weights = alignment.masked_fill(~batch.source_mask[:, None, None], -torch.inf).softmax(-1)
        weights = weights if attention is None else attention(weights, batch.source_mask)
        context = self.context_of(weights @ states[:, None])
        layer = Attention(queries=None, keys=None, values=states[:, None], scores=alignment, weights=weights)
        return trace_of(batch, embedded, states, None, layer, context, self.readout(context, None))

    def context_of(self, values: Tensor) -> Tensor:
        return values[:, 0]

    def readout(self, context: Tensor, decoder: None) -> Tensor:
        return self.output(self.dropout(context))


class Proxy(GivesTrace, ReadsOut, EmbedsSource, nn.Module):
    """The bag of words (snell2021 eq. 5): every output word is predicted from the mean embedding."""

    def __init__(self, words: int = WORDS, units: int = 5, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.source_inputs = nn.Embedding(words, units)
        self.output = nn.Linear(units, words, bias=False)
        self.double()

    def forward(self, batch: Batch) -> Trace:
        embedded = self.source_inputs(batch.source)
        share = batch.source_mask / batch.source_mask.sum(1, keepdim=True)
        weights = share.to(embedded)[:, None, None].expand(-1, 1, batch.target.shape[1], -1)
        context = self.context_of(weights @ embedded[:, None])
        layer = Attention(
            queries=None, keys=None, values=embedded[:, None], scores=torch.zeros_like(weights), weights=weights
        )
        return trace_of(batch, embedded, embedded, None, layer, context, self.readout(context, None))

    def context_of(self, values: Tensor) -> Tensor:
        return values[:, 0]

    def readout(self, context: Tensor, decoder: None) -> Tensor:
        return self.output(context)


class Added(GivesTrace, ReadsOut, EmbedsSource, nn.Module):
    """snell2021 eq. 31: W (c + d) in place of N, dot attention; source and target share one table of embeddings."""

    def __init__(self, units: int = 6, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.source_inputs = nn.Embedding(WORDS, units)
        self.encoder, self.decoder = (nn.LSTM(units, units, batch_first=True) for _ in range(2))
        self.output = nn.Linear(units, WORDS)
        self.double()

    def forward(self, batch: Batch, attention: Tensor | None = None) -> Trace:
        fed = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
        embedded = self.source_inputs(batch.source)
        states, _ = self.encoder(embedded)
        decoder, _ = self.decoder(self.source_inputs(fed))
        alignment = (decoder @ states.mT)[:, None]
        weights = alignment.masked_fill(~batch.source_mask[:, None, None], -torch.inf).softmax(-1)
        weights = weights if attention is None else attention
        context = self.context_of(weights @ states[:, None])
        layer = Attention(
            queries=decoder[:, None], keys=states[:, None], values=states[:, None], scores=alignment, weights=weights
        )
        return trace_of(batch, embedded, states, decoder, layer, context, self.readout(context, decoder))

    def context_of(self, values: Tensor) -> Tensor:
        return values[:, 0]

    def readout(self, context: Tensor, decoder: Tensor) -> Tensor:
        return self.output(context + decoder)


def trace_of(
    batch: Batch, embedded: Tensor, encoder: Tensor, decoder: Tensor | None, layer: Attention, context: Tensor,
    logits: Tensor,
) -> Trace:  # fmt: skip
    return Trace.of(
        batch,
        embedded=embedded,
        encoder=encoder,
        decoder=decoder,
        layers=(layer,),
        context=context,
        logits=logits,
    )


def one_by_one(batch: Batch) -> list[Batch]:
    """Each sentence as a batch of its own, without padding."""
    return [
        replace(
            rows_of(replace(batch, gold_attention=batch.target), slice(i, i + 1)),
            source=batch.source[i : i + 1, : int(batch.source_mask[i].sum())],
            source_mask=batch.source_mask[i : i + 1, : int(batch.source_mask[i].sum())],
            target=batch.target[i : i + 1, : int(batch.target_mask[i].sum())],
            target_mask=batch.target_mask[i : i + 1, : int(batch.target_mask[i].sum())],
            gold_attention=None,
        )
        for i in range(len(batch))
    ]


def wider(batch: Batch, more: int = 3) -> Batch:
    """The same sentences behind more padding."""
    guide = torch.zeros_like(batch.target)
    return replace(padded(replace(batch, gold_attention=guide), more), gold_attention=None)


__all__ = [
    "CLASSES", "WORDS", "Added", "Classifier", "Proxy", "encoder_decoder", "labelled", "one_by_one", "random_batch",
    "wider",
]  # fmt: skip
