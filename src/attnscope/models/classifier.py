"""A classifier is a translator that says one word: which class? (snell2021 §2.4, eq. 7 to 9)"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from attnscope.errors import BadSetting, require
from attnscope.models.attention import intervene
from attnscope.models.cells import LSTM
from attnscope.models.recurrent import Recurrent
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import SPECIALS, Batch


@dataclass(frozen=True)
class ClassifierSettings:
    """snell2021 A.8: words of size 300, one bidirectional layer of 256, a hidden layer of 256 in the attention."""

    input_size: int = 300
    units: int = 256  # of each direction
    layers: int = 1
    bidirectional: bool = True
    hidden: int = 256  # of the attention's network
    dropout: float = 0.0
    specials_attended: bool = True  # author's code; otherwise start and end tokens are read but not attended to

    def __post_init__(self) -> None:
        for name in ("input_size", "units", "layers", "hidden"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        require(0 <= self.dropout < 1, f"dropout must be from 0 to below 1, not {self.dropout}")


class WordTable(nn.Module):
    """A vector for each word; `vectors` to start from may be given, and frozen."""

    def __init__(self, words: int, size: int, vectors: Tensor | None = None, frozen: bool = False):
        super().__init__()
        start = torch.randn(words, size) if vectors is None else vectors.clone().to(torch.get_default_dtype())
        if start.shape != (words, size):
            raise BadSetting(f"word vectors have shape {tuple(start.shape)}; {words} words of size {size} are needed")
        self.table = nn.Parameter(start, requires_grad=not frozen)

    def forward(self, words: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps size"]:
        return embedding(words, self.table)


class Classifier(nn.Module):
    """A bidirectional LSTM, feed-forward attention over its states (eq. 7), and a linear readout (eq. 8).

    Two classes have one logit between them, as in the paper; more have one each. The special words of the target
    vocabulary, which come first, are never said.
    """

    def __init__(
        self,
        settings: ClassifierSettings,
        source_words: int,
        target_words: int,
        vectors: Tensor | None = None,
        frozen_vectors: bool = False,
    ):
        super().__init__()
        classes = target_words - len(SPECIALS)
        require(classes >= 2, f"a classifier needs at least two classes, not {classes}")
        self.settings = settings
        self.source_inputs = WordTable(source_words, settings.input_size, vectors, frozen_vectors)
        self.encoder = Recurrent(
            LSTM, settings.input_size, settings.units, settings.layers, settings.bidirectional, settings.dropout,
            trained_first=False,
        )  # fmt: skip
        size = self.encoder.state_size
        self.attend = nn.Sequential(nn.Linear(size, settings.hidden), nn.ReLU(), nn.Linear(settings.hidden, 1))
        self.output = nn.Linear(size, 1 if classes == 2 else classes)

    def forward(
        self,
        batch: Batch,
        attention: Intervention | None = None,
        teacher_forcing: float = 1.0,
        gates: bool = False,
    ) -> Trace:
        """As any model's; there is no decoder to be taught, and LSTM gates are not shown here."""
        embedded = self.source_inputs(batch.source)
        states = self.encoder.read(embedded, batch.source_mask, ends=False).states
        mask = batch.source_mask if self.settings.specials_attended else proper(batch)
        alignment = self.attend(states).mT[:, None]  # batch x heads (1) x target (1) x source
        own = alignment.masked_fill(~mask[:, None, None], -math.inf).softmax(-1)
        weights = intervene(own, mask, attention)
        layer = Attention(None, None, states[:, None], alignment, weights)
        context = self.context_of(weights @ layer.values)
        return Trace(
            batch.source, batch.source_mask, batch.target, batch.target_mask, None, embedded, states, None, (layer,),
            context, self.readout(context),
        )  # fmt: skip

    def context_of(self, values: Float[Tensor, "batch 1 target state"]) -> Float[Tensor, "batch target state"]:
        """What the one head picked is the context."""
        return values[:, 0]

    def readout(self, context: Float[Tensor, "*any state"], decoder: Tensor | None = None) -> Tensor:
        """What would be said with this context: the second door for probes."""
        logits = self.output(context)
        if logits.shape[-1] == 1:  # eq. 8: σ of one logit is a softmax of 0 and that logit
            logits = pad(logits, (1, 0))
        return pad(logits, (len(SPECIALS), 0), value=-math.inf)


def proper(batch: Batch) -> Tensor:
    """The real words; a sentence that has none keeps its special ones, since something must be attended to."""
    words = batch.source_mask & (batch.source >= len(SPECIALS))
    return torch.where(words.any(1, keepdim=True), words, batch.source_mask)
