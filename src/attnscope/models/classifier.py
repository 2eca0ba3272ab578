"""Recurrent classifiers with attention (snell2021 §2.4, eq. 7 to 9; tutek2020 §2 and §3.1).

A classifier is a model with one target token, the class.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from attnscope.errors import check_kinds, choose, require
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, GivesTrace, ReadsOut
from attnscope.models.cells import LSTM
from attnscope.models.recurrent import Recurrent
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import SPECIALS, Batch


class FeedForward(nn.Module):
    """a = v · f(W h): f is ReLU, and both layers have biases (snell2021); or tanh, with one bias (tutek2020).

    A query from the instance adds U g to W h, where g is the mean state of the text.
    """

    def __init__(self, size: int, hidden: int, additive: bool = False, from_instance: bool = False):
        super().__init__()
        self.key = nn.Linear(size, hidden)
        self.score = nn.Linear(hidden, 1, bias=not additive)
        self.query = nn.Linear(size, hidden, bias=False) if from_instance else None
        self.activation = torch.tanh if additive else torch.relu

    def forward(self, states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Tensor:
        hidden = self.key(states)
        if self.query is not None:
            hidden = hidden + self.query(mean_state(states, mask))[:, None]
        return self.score(self.activation(hidden)).squeeze(-1)  # type: ignore[no-any-return]


class ScaledDot(nn.Module):
    """a = q · h / √d (tutek2020 eq. 10), where q is a parameter, or computed from the instance (footnote 8).

    A parameter starts from N(0, 1); by torch's default for a linear layer, uniform within 1 / √d, attention stays
    uniform (appendix C).
    """

    def __init__(self, size: int, start: str = "normal", from_instance: bool = False):
        super().__init__()
        self.query = nn.Linear(size, size if from_instance else 1, bias=False)
        self.from_instance = from_instance
        if start == "normal" and not from_instance:
            nn.init.normal_(self.query.weight)

    def queries(self, states: Tensor, mask: Tensor) -> Float[Tensor, "batch state"]:
        """Return queries that include the scale, so that a = q · h."""
        query = self.query(mean_state(states, mask)) if self.from_instance else self.query.weight
        return query.expand(len(states), -1) / math.sqrt(states.shape[-1])

    def forward(self, states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Tensor:
        return (states @ self.queries(states, mask)[..., None]).squeeze(-1)


Scorer = FeedForward | ScaledDot


def mean_state(states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Tensor:
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


ATTENTIONS = ("mlp", "additive", "dot")
GROUNDINGS = ("none", "concat", "residual")


@dataclass(frozen=True)
class ClassifierSettings:
    """snell2021 A.8: embeddings of size 300, one bidirectional layer of 256, a hidden layer of 256 in the attention."""

    input_size: int = 300
    units: int = 256  # of each direction
    layers: int = 1
    bidirectional: bool = True
    attention: str = "mlp"  # with ReLU; or "additive", "dot" (tutek2020)
    hidden: int = 256  # of the attention's network; a dot product has none
    query: str = "parameter"  # or "instance": the query depends on the text (tutek2020, footnote 8)
    query_start: str = "normal"  # or "default", of dot attention (tutek2020, appendix C)
    grounding: str = "none"  # states; or "concat": [h; e], "residual": h + e (tutek2020, eq. 2 and 3)
    dropout: float = 0.0
    specials_attended: bool = True  # author's code; otherwise start and end tokens are encoded but not attended to

    def __post_init__(self) -> None:
        check_kinds(self)
        for name in ("input_size", "units", "layers", "hidden"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        require(0 <= self.dropout < 1, f"dropout must be from 0 to below 1, not {self.dropout}")
        choose("attention of a classifier", self.attention, ATTENTIONS)
        choose("grounding", self.grounding, GROUNDINGS)
        choose("query", self.query, ("parameter", "instance"))
        choose("start of the query", self.query_start, ("normal", "default"))
        require(
            self.grounding != "residual" or self.encoder_size == self.input_size,
            f"grounding='residual' adds words of size {self.input_size} to states of size {self.encoder_size}",
        )

    @property
    def encoder_size(self) -> int:
        return self.units * (2 if self.bidirectional else 1)

    @property
    def state_size(self) -> int:
        """Size of the states that are attended to."""
        return self.encoder_size + (self.input_size if self.grounding == "concat" else 0)

    def scorer(self) -> Scorer:
        from_instance = self.query == "instance"
        if self.attention == "dot":
            return ScaledDot(self.state_size, self.query_start, from_instance)
        return FeedForward(self.state_size, self.hidden, self.attention == "additive", from_instance)


class WordTable(nn.Module):
    """A trained embedding."""

    def __init__(self, words: int, size: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, size))

    def forward(self, words: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps size"]:
        return embedding(words, self.table)


class Classifier(GivesTrace, ReadsOut, EmbedsSource, nn.Module):
    """A bidirectional LSTM, attention over its states (eq. 7), and a linear readout (eq. 8).

    Two classes have one logit between them, as in the paper; more have one each. The special tokens of the target
    vocabulary, which come first, are never predicted.
    """

    readout_is_exact = True

    def __init__(self, settings: ClassifierSettings, source_words: int, target_words: int):
        super().__init__()
        classes = target_words - len(SPECIALS)
        require(classes >= 2, f"a classifier needs at least two classes, not {classes}")
        self.settings = settings
        self.source_inputs = WordTable(source_words, settings.input_size)
        self.encoder = Recurrent(
            LSTM, settings.input_size, settings.units, settings.layers, settings.bidirectional, settings.dropout,
            trained_first=False,
        )  # fmt: skip
        self.attend = settings.scorer()
        self.output = nn.Linear(settings.state_size, 1 if classes == 2 else classes)

    def forward(
        self,
        batch: Batch,
        attention: Intervention | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass. There is no decoder, and LSTM gates are not shown, so the last two change nothing."""
        embedded = self.source_inputs(batch.source)
        states = self.states(embedded, batch.source_mask)
        layer = self.attention(states, batch, attention)
        context = self.context_of(layer.weights @ layer.values)
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=states,
            layers=(layer,),
            context=context,
            logits=self.readout(context),
        )

    def states(self, embedded: Float[Tensor, "batch source input"], mask: Bool[Tensor, "batch source"]) -> Tensor:
        """Return h of each token, grounded as the settings say."""
        states = self.encoder.read(embedded, mask, ends=False).states
        if self.settings.grounding == "concat":
            return torch.cat([states, embedded], -1)
        return states + embedded if self.settings.grounding == "residual" else states

    def attention(self, states: Tensor, batch: Batch, intervention: Intervention | None) -> Attention:
        """Return the one layer and head of attention."""
        mask = batch.source_mask if self.settings.specials_attended else word_or_source_mask(batch)
        scores = self.attend(states, mask)[:, None, None]  # batch x heads x target x source
        own = masked_softmax(scores, mask)
        queries = keys = None
        if isinstance(self.attend, ScaledDot):
            queries, keys = self.attend.queries(states, mask)[:, None, None], states[:, None]
        return Attention(
            queries=queries,
            keys=keys,
            values=states[:, None],
            scores=scores,
            weights=intervene(own, mask, intervention),
        )

    def context_of(self, values: Float[Tensor, "batch 1 target state"]) -> Float[Tensor, "batch target state"]:
        return values[:, 0]

    def readout(self, context: Float[Tensor, "*any state"], decoder: Tensor | None = None) -> Tensor:
        """Return the logits with this context."""
        return class_logits(self.output(context))


def class_logits(logits: Float[Tensor, "*any classes"]) -> Float[Tensor, "*any words"]:
    """Return logits behind those of special tokens; σ of a single logit is a softmax of 0 and that logit (eq. 8)."""
    logits = pad(logits, (1, 0)) if logits.shape[-1] == 1 else logits
    return pad(logits, (len(SPECIALS), 0), value=-math.inf)


def word_or_source_mask(batch: Batch) -> Tensor:
    """Return the mask of words; of a sentence without any, all its tokens, since something must be attended to."""
    words = batch.word_mask
    return torch.where(words.any(1, keepdim=True), words, batch.source_mask)
