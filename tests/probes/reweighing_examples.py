"""Classifiers with answers that can be worked out by hand: each word has a score and a state of its own."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from attnscope.models import Attention, Classifier, ClassifierSettings, Trace
from attnscope.models.attention import intervene
from attnscope.models.capabilities import GivesTrace, ReadsOut
from attnscope.tasks import END, PAD, SPECIALS, START, Batch

FIRST = len(SPECIALS)  # number of the first word, and of the first class


class ByHand(GivesTrace, ReadsOut, nn.Module):
    """Attention is the softmax of the words' scores; `bend` comes between the context and a linear readout."""

    def __init__(
        self,
        scores: Sequence[float],
        states: Sequence[Sequence[float]],
        output: Sequence[Sequence[float]],
        bend: Callable[[Tensor], Tensor] = lambda context: context,
        heads: int = 1,
    ):
        super().__init__()
        nothing = [0.0] * FIRST
        self.scores = nn.Parameter(torch.tensor([*nothing, *scores]).double())
        self.table = nn.Parameter(torch.cat([torch.zeros(FIRST, len(states[0])), torch.tensor(states)]).double())
        self.output = nn.Parameter(torch.tensor(output).double())  # classes x size
        self.bend, self.heads = bend, heads

    def forward(self, batch: Batch, attention=None, teacher_forcing: float = 1.0, gates: bool = False) -> Trace:
        embedded = self.table[batch.source]
        values = embedded[:, None].expand(-1, self.heads, -1, -1)
        alignment = self.scores[batch.source][:, None, None].expand(-1, self.heads, -1, -1)
        own = alignment.masked_fill(~batch.source_mask[:, None, None], -math.inf).softmax(-1)
        weights = intervene(own, batch.source_mask, attention)
        context = self.context_of(weights @ values)
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=embedded,
            layers=(Attention(queries=None, keys=None, values=values, scores=alignment, weights=weights),),
            context=context,
            logits=self.readout(context),
        )

    def context_of(self, values: Tensor) -> Tensor:
        return values.mean(1)

    def readout(self, context: Tensor, decoder: None = None) -> Tensor:
        logits = self.bend(context) @ self.output.mT
        return torch.nn.functional.pad(logits, (FIRST, 0), value=-math.inf)


class Closed(GivesTrace, nn.Module):
    """The same model without a declared readout."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, batch: Batch, **forward) -> Trace:
        return self.inner(batch, **forward)


def by_hand(*rows: Sequence[int], classes: int = 2) -> Batch:
    """Texts of these words, numbered from 0, padded; each is of class 1, unless there are more classes."""
    longest = max(map(len, rows))
    source = torch.tensor([[FIRST + word for word in row] + [PAD] * (longest - len(row)) for row in rows])
    target = torch.tensor([[FIRST + (1 if classes == 2 else i % classes)] for i in range(len(rows))])
    return Batch(source, source != PAD, target, torch.ones_like(target, dtype=torch.bool))


def texts(
    count: int = 12, classes: int = 2, seed: int = 0, shortest: int = 3, longest: int = 9, words: int = 30
) -> Batch:
    """Random texts between a start and an end token, padded."""
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest + 2, longest + 3, (count, 1), generator=chance)
    places = torch.arange(int(lengths.max()))
    source = torch.randint(FIRST, words, (count, len(places)), generator=chance)
    source[:, 0] = START
    source = source.masked_fill(places == lengths - 1, END).masked_fill(places >= lengths, PAD)
    target = torch.randint(0, classes, (count, 1), generator=chance) + FIRST
    return Batch(source, places < lengths, target, torch.ones_like(target, dtype=torch.bool))


def classifier(classes: int = 2, seed: int = 0, words: int = 30, sharp: float = 4.0, **settings) -> Classifier:
    """Untrained, but with attention and output that are far from even."""
    torch.manual_seed(seed)
    chosen = {"input_size": 8, "units": 4, "hidden": 6, "attention": "additive", "specials_attended": False} | settings
    model = Classifier(ClassifierSettings(**chosen), words, FIRST + classes).double()
    with torch.no_grad():
        model.output.weight.mul_(10 * sharp)
        for parameter in model.attend.parameters():
            parameter.mul_(sharp)
    return model
