"""A model of one's own as an adapter: `attnscope.load("adapter.py:model")` and `attnscope probe adapter.py:model`."""

import math

import torch
from torch import nn
from torch.nn.functional import pad

from attnscope.models import Attention, Trace
from attnscope.models.adapters import Adapter, WordReader
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, ReadsOut, ReadsTexts
from attnscope.tasks import SPECIALS

WORDS = ("<pad>", "<unk>", "a", "dull", "film", "fine", "not")  # word i has row i of the embedding


class Network(nn.Module):
    """A classifier that knows nothing of attnscope: a GRU with attention over its states."""

    def __init__(self, words, classes):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(words, 6), nn.GRU(6, 5, batch_first=True)
        self.score, self.output = nn.Linear(5, 1), nn.Linear(5, classes)


class NetworkAdapter(Adapter, EmbedsSource, ReadsOut, ReadsTexts):
    """The same network as a model that gives Traces, and what else it can do."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.source_inputs = network.embedding  # EmbedsSource: gradients are taken here
        self.reader = WordReader(WORDS, classes=("no", "yes"))  # ReadsTexts: from texts to Batches

    def forward(self, batch, attention=None, teacher_forcing=None, gates=False):
        embedded = self.source_inputs(batch.source)  # batch x source x input
        states, _ = self.network.rnn(embedded)  # batch x source x state
        scores = self.network.score(states).mT[:, None]  # batch x heads x target x source: one head, one target
        weights = intervene(masked_softmax(scores, batch.source_mask), batch.source_mask, attention)
        layer = Attention(values=states[:, None], scores=scores, weights=weights)
        context = self.context_of(layer.weights @ layer.values)
        return Trace.of(
            batch, embedded=embedded, encoder=states, layers=(layer,), context=context, logits=self.readout(context)
        )

    def context_of(self, values):  # ReadsOut: batch x heads x target x value to batch x target x context
        return values[:, 0]

    def readout(self, context, decoder=None):  # class k is the target id k + 3; special ids are never predicted
        return pad(self.network.output(context), (len(SPECIALS), 0), value=-math.inf)


def model():
    torch.manual_seed(0)
    return NetworkAdapter(Network(len(WORDS), classes=2))
