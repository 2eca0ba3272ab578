"""Small models whose traces the decomposition can be checked on, and slow loops to check it with."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from attnscope.models.capabilities import GivesTrace
from attnscope.models.trace import Attention, Trace
from attnscope.tasks.batch import END, PAD, START, Batch, pad

WORDS = 7  # three special ones and four proper ones


def batch_of(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    source, source_mask = pad([np.array([*row, END]) for row in sources])
    target, target_mask = pad([np.array([*row, END]) for row in targets])
    return Batch(source, source_mask, target, target_mask, torch.arange(target.shape[1]).expand_as(target) + 1)


def random_batch(size: int, seed: int, shortest: int = 1, longest: int = 7) -> Batch:
    """Source and target of different lengths, drawn one by one: some shorter than the five top positions."""
    random = np.random.default_rng(seed)

    def rows() -> list[list[int]]:
        return [random.integers(3, WORDS, random.integers(shortest, longest + 1)).tolist() for _ in range(size)]

    return batch_of(rows(), rows())


def rows_of(batch: Batch, rows: slice) -> Batch:
    fields = ("source", "source_mask", "target", "target_mask", "gold_attention")
    return replace(batch, **{name: getattr(batch, name)[rows] for name in fields})


def padded(batch: Batch, more: int) -> Batch:
    """The same sentences behind more padding."""

    def wider(values: Tensor, fill: int) -> Tensor:
        return torch.cat([values, values.new_full((len(values), more), fill)], 1)

    return Batch(
        wider(batch.source, PAD), wider(batch.source_mask, False), wider(batch.target, PAD),
        wider(batch.target_mask, False), wider(batch.gold_attention, -1),
    )  # fmt: skip


class Tiny(GivesTrace, nn.Module):
    """A GRU on each side and dot attention, with several heads, in double precision."""

    def __init__(self, units: int = 8, heads: int = 2, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.heads = heads
        self.words = nn.Embedding(WORDS, units)
        self.encoder, self.decoder = (nn.GRU(units, units, batch_first=True) for _ in range(2))
        self.output = nn.Linear(units, WORDS)
        self.dropout = nn.Dropout(0.5)
        self.double()

    def forward(self, batch: Batch) -> Trace:
        fed = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
        embedded = self.dropout(self.words(batch.source))
        encoder, _ = self.encoder(embedded)
        decoder, _ = self.decoder(self.words(fed))
        return trace_of(batch, fed, embedded, encoder, decoder, self.output(decoder), self.heads)


def trace_of(
    batch: Batch, fed: Tensor | None, embedded: Tensor, encoder: Tensor, decoder: Tensor, logits: Tensor, heads: int = 1
) -> Trace:
    queries, keys = (states.unflatten(-1, (heads, -1)).transpose(1, 2) for states in (decoder, encoder))
    alignment = queries @ keys.mT
    weights = alignment.masked_fill(~batch.source_mask[:, None, None], -torch.inf).softmax(-1)
    context = (weights @ keys).transpose(1, 2).flatten(2)
    attention = Attention(queries=queries, keys=keys, values=keys, scores=alignment, weights=weights)
    return Trace.of(
        batch,
        decoder_input=fed,
        embedded=embedded,
        encoder=encoder,
        decoder=decoder,
        layers=(attention,),
        context=context,
        logits=logits,
    )


class Table(GivesTrace, nn.Module):
    """States read off two tables: what each time step adds, and what each word adds. No delta at all."""

    def __init__(self, time: Tensor, word: Tensor, query_word: Tensor):
        super().__init__()
        self.time, self.word, self.query_word = time, word, query_word

    def forward(self, batch: Batch) -> Trace:
        fed = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
        encoder = self.time[: batch.source.shape[1]] + self.word[batch.source]
        decoder = self.time[: batch.target.shape[1]] + self.query_word[fed]
        return trace_of(batch, fed, encoder, encoder, decoder, decoder)


def states_of(trace: Trace, side: str, head: int) -> list[tuple[int, int, np.ndarray]]:
    """(word, time, vector) of every state that is no padding, one by one."""
    vectors = trace.last.keys if side == "encoder" else trace.last.queries
    words, mask = (trace.source, trace.source_mask) if side == "encoder" else (trace.decoder_input, trace.target_mask)
    return [
        (int(words[b, t]), t, vectors[b, head, t].detach().numpy())
        for b in range(len(words))
        for t in range(words.shape[1])
        if mask[b, t]
    ]


def slow_components(
    states: list[tuple[int, int, np.ndarray]],
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Eq. 1 of aitken2021, word for word."""
    times = {t for _, t, _ in states}
    words = {w for w, _, _ in states}
    temporal = {time: np.mean([h for _, t, h in states if t == time], axis=0) for time in times}
    input_ = {word: np.mean([h - temporal[t] for w, t, h in states if w == word], axis=0) for word in words}
    return temporal, input_
