"""The bag-of-words proxy: a model with uniform attention whose states know their own word only (snell2021 §2.3).

It is the mean of the source embeddings and one linear layer, with the same prediction for every target token. A
classifier is the same network with one target token, the class (§2.4).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from attnscope.errors import choose, require
from attnscope.kinds import check_kinds
from attnscope.models.attention import intervene, uniform
from attnscope.models.capabilities import GivesTrace, ReadsOut
from attnscope.models.initialise import INITIALISATIONS
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import Batch


@dataclass(frozen=True)
class BagOfWordsSettings:
    """Everything that defines the proxy except the vocabularies."""

    size: int = 256  # d: snell2021 A.10
    initialisation: str = "fan_in"  # every e_i and W_o from N(0, I / d): snell2021 §4.1

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.size > 0, f"size must be positive, not {self.size}")
        choose("initialisation", self.initialisation, INITIALISATIONS)


@dataclass(frozen=True)
class ProxyRecipe:
    """Training of the proxy: Adam on the summed loss, the weights of lowest validation loss (author's code)."""

    learning_rate: float
    epochs: int
    batch_size: int = 64


LONG_REVIEWS = ProxyRecipe(learning_rate=5e-5, epochs=60)  # snell2021, author's code: IMDB, Yelp, Amazon
SHORT_TEXTS = ProxyRecipe(learning_rate=1.5e-4, epochs=60)  # snell2021, author's code: the other classification sets
TRANSLATION = ProxyRecipe(learning_rate=1e-3, epochs=30)  # snell2021, author's code: all translation sets
RECIPES: dict[str, ProxyRecipe] = {
    "imdb": LONG_REVIEWS,
    "yelp": LONG_REVIEWS,
    "amazon_reviews": LONG_REVIEWS,
    "ag_news": SHORT_TEXTS,
    "20newsgroups_sports": SHORT_TEXTS,
    "sst": SHORT_TEXTS,
    "sms_spam": SHORT_TEXTS,
    "multi30k": TRANSLATION,
    "iwslt14": TRANSLATION,
    "tatoeba": TRANSLATION,
}


class BagOfWords(GivesTrace, ReadsOut, nn.Module):
    """p_t = softmax of the mean of W e over the source (eq. 5), for every t."""

    readout_is_exact = True

    def __init__(self, settings: BagOfWordsSettings, source_words: int, target_words: int):
        super().__init__()
        self.settings = settings
        self.embedding = nn.Parameter(torch.randn(source_words, settings.size))  # e
        self.output = nn.Linear(settings.size, target_words, bias=False)  # W
        INITIALISATIONS[settings.initialisation](self)

    def forward(
        self,
        batch: Batch,
        attention: Intervention | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass. There is no decoder and there are no gates, so the last two arguments change nothing."""
        embedded = embedding(batch.source, self.embedding)
        attended = uniform_attention(embedded, batch, attention)
        # Without an intervention every target token has the same context, which is computed once.
        weights = attended.weights if attention is not None else attended.weights[:, :, :1]
        context = self.context_of(weights @ attended.values)  # batch x (target or 1) x size
        steps = batch.target.shape[1]
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=embedded,
            layers=(attended,),
            context=context.expand(-1, steps, -1),
            logits=self.readout(context).expand(-1, steps, -1),
        )

    def readout(
        self, context: Float[Tensor, "*any size"], decoder: Tensor | None = None
    ) -> Float[Tensor, "*any words"]:
        """Return the logits with this context, W c; there is no decoder state.

        With the embedding of a single token as context, their softmax is β of the proxy (eq. 6).
        """
        return self.output(context)  # type: ignore[no-any-return]

    def context_of(self, values: Float[Tensor, "batch 1 target size"]) -> Float[Tensor, "batch target size"]:
        return values[:, 0]

    def total_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Return the loss summed over all target tokens (eq. 14), with one softmax per sentence."""
        weights = batch.source_mask / batch.source_mask.sum(1, keepdim=True)  # batch x source
        bag = (weights.to(self.embedding)[:, None] @ embedding(batch.source, self.embedding))[:, 0]
        log_probability = self.readout(bag).log_softmax(-1).gather(1, batch.target)  # batch x target
        return -log_probability.masked_fill(~batch.target_mask, 0.0).sum()

    @torch.no_grad()
    def translations(self, words: Int[Tensor, " chosen"] | None = None) -> Float[Tensor, "chosen target_words"]:
        """Return θ of the proxy (eq. 13): the translation of each source token alone, or of those chosen."""
        table = self.embedding if words is None else self.embedding[words]
        return self.readout(table).softmax(-1)

    @torch.no_grad()
    def translation_probabilities(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return β of the proxy (eq. 6); zero on padding."""
        probabilities = self.readout(embedding(batch.source, self.embedding)).softmax(-1)  # batch x source x words
        gold = batch.target[:, None].expand(-1, batch.source.shape[1], -1)  # batch x source x target
        return probabilities.gather(-1, gold).mT * (batch.target_mask[:, :, None] & batch.source_mask[:, None])


def uniform_attention(
    embedded: Float[Tensor, "batch source size"], batch: Batch, intervention: Intervention | None
) -> Attention:
    """Return one head of uniform attention, unless an intervention says otherwise."""
    scores = embedded.new_zeros(len(batch), 1, batch.target.shape[1], batch.source.shape[1])
    own = uniform(scores, batch.source_mask)
    weights = intervene(own, batch.source_mask, intervention)
    return Attention(queries=None, keys=None, values=embedded[:, None], scores=scores, weights=weights)
