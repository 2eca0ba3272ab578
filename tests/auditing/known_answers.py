"""Models whose attention is an explanation, or is not, by construction; and texts with one known indicative word."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from attnscope.auditing import Example
from attnscope.models import Attention, Trace
from attnscope.models.adapters import WordReader
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, GivesTrace, ReadsOut, ReadsTexts
from attnscope.tasks import SPECIALS

WORDS = ("good", "bad", *(f"word{i}" for i in range(8)))
WORTH = {"good": 1.0, "bad": -1.0}


class OneHead(GivesTrace, ReadsOut, EmbedsSource, ReadsTexts, nn.Module):
    """Decides by a weighted mean of what words are worth; neutral texts are negative.

    An honest one looks at the word that decides. One that hides looks at other words, and its states have all been told
    about that word, so that it decides as well wherever it looks.
    """

    def __init__(self, honest: bool):
        super().__init__()
        self.honest, self.reader = honest, WordReader(WORDS, classes=("negative", "positive"))
        worth = [WORTH.get(word, 0.0) for word in WORDS]
        self.source_inputs = nn.Embedding.from_pretrained(torch.tensor(worth)[:, None])
        self.strength = nn.Parameter(torch.tensor(6.0))

    def forward(self, batch, attention=None, teacher_forcing=1.0, gates=False):
        embedded = self.source_inputs(batch.source)
        telling = embedded.abs().mT[:, None]  # batch x 1 x 1 x source
        states = embedded
        if not self.honest:
            states = (embedded * batch.source_mask[..., None]).sum(1, keepdim=True).expand_as(embedded)
        own = masked_softmax(5 * telling if self.honest else -5 * telling, batch.source_mask)
        layer = Attention(
            queries=None,
            keys=None,
            values=states[:, None],
            scores=telling,
            weights=intervene(own, batch.source_mask, attention),
        )
        context = self.context_of(layer.weights @ layer.values)
        return Trace.of(
            batch, embedded=embedded, encoder=states, layers=(layer,), context=context, logits=self.readout(context)
        )

    def context_of(self, values):
        return values[:, 0]

    def readout(self, context, decoder=None):
        positive = self.strength * context - 2
        return pad(torch.cat([-positive, positive], -1) / 2, (len(SPECIALS), 0), value=-math.inf)


def honest():
    return OneHead(honest=True)


def hiding():
    return OneHead(honest=False)


def marked_examples(count, seed=0):
    """Texts of 4 to 8 words, one of which decides; people would mark it."""
    random = np.random.default_rng(seed)
    return [marked_example(random, number) for number in range(count)]


def marked_example(random, number):
    words = random.choice(WORDS[2:], random.integers(4, 9)).tolist()
    place = int(random.integers(len(words)))
    words[place] = WORDS[number % 2]
    return Example(tuple(words), ("positive", "negative")[number % 2], np.eye(len(words))[place])
