"""What would be learned if attention stayed uniform and every state knew its own word only? (snell2021 §2.3)

The proxy: the mean of the source words' embeddings, one linear layer, and the same guess for every target word.
A classifier is the same network with one target word, the class (§2.4), of which there may be any number.
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
    """Everything that defines the proxy but the vocabularies."""

    size: int = 256  # d: snell2021 A.10
    initialisation: str = "fan_in"  # every e_i and W_o from N(0, I / d): snell2021 §4.1

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.size > 0, f"size must be positive, not {self.size}")
        choose("initialisation", self.initialisation, INITIALISATIONS)


@dataclass(frozen=True)
class ProxyRecipe:
    """How the proxy is trained: Adam on the summed loss, the weights of lowest validation loss kept (author's code)."""

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
        """As any model's. There is no decoder to hear a word and no gate to show, so the last two change nothing."""
        embedded = embedding(batch.source, self.embedding)
        attended = uniform_attention(embedded, batch, attention)
        # Without an intervention every target word has the same context: it is worked out once for all of them.
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
        """What would be said with this context: W c. The proxy has no decoder state; one that is given is not heard.

        With a single word's embedding for context, the softmax of this is β of the proxy (eq. 6).
        """
        return self.output(context)  # type: ignore[no-any-return]

    def context_of(self, values: Float[Tensor, "batch 1 target size"]) -> Float[Tensor, "batch target size"]:
        """The context, if these values were all that is attended to: there is one head, and nothing comes after it."""
        return values[:, 0]

    def total_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum over all target words (eq. 14), with one softmax a sentence instead of one a word."""
        weights = batch.source_mask / batch.source_mask.sum(1, keepdim=True)  # batch x source
        bag = (weights.to(self.embedding)[:, None] @ embedding(batch.source, self.embedding))[:, 0]
        said = self.readout(bag).log_softmax(-1).gather(1, batch.target)  # batch x target
        return -said.masked_fill(~batch.target_mask, 0.0).sum()

    @torch.no_grad()
    def translations(self, words: Int[Tensor, " chosen"] | None = None) -> Float[Tensor, "chosen target_words"]:
        """θ of the proxy (eq. 13): what each source word alone, or each of those chosen, would be translated to."""
        table = self.embedding if words is None else self.embedding[words]
        return self.readout(table).softmax(-1)

    @torch.no_grad()
    def translation_probabilities(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """β of the proxy (eq. 6), and zero on padding."""
        said = self.readout(embedding(batch.source, self.embedding)).softmax(-1)  # batch x source x words
        wanted = batch.target[:, None].expand(-1, batch.source.shape[1], -1)  # batch x source x target
        return said.gather(-1, wanted).mT * (batch.target_mask[:, :, None] & batch.source_mask[:, None])


def uniform_attention(
    embedded: Float[Tensor, "batch source size"], batch: Batch, intervention: Intervention | None
) -> Attention:
    """One head without queries and keys, as indifferent at every step, unless it is told otherwise."""
    indifferent = embedded.new_zeros(len(batch), 1, batch.target.shape[1], batch.source.shape[1])
    own = uniform(indifferent, batch.source_mask)
    weights = intervene(own, batch.source_mask, intervention)
    return Attention(queries=None, keys=None, values=embedded[:, None], scores=indifferent, weights=weights)
