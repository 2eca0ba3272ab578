"""Training objectives: cross entropy, L2, attentive guidance (baan2019 §2.2), and regularisers that keep the state of a
word close to its embedding (tutek2020 §3.1).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn.functional import cosine_similarity, cross_entropy

from attnscope.errors import BadSetting, check_kinds, require
from attnscope.models import BagOfWords, Classifier, Trace, TransformerClassifier
from attnscope.models.classifier import WordTable
from attnscope.models.recurrent import uniform_like
from attnscope.tasks import NOWHERE, SPECIALS, Batch

IGNORED = -100


class Objective(ABC):
    """A loss to be minimised, given a model, a batch and the Trace of the forward pass on it."""

    @abstractmethod
    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor: ...

    def __add__(self, other: "Objective") -> "Objective":
        return Sum((*self.terms, *other.terms))

    @property
    def terms(self) -> tuple["Objective", ...]:
        return (self,)

    def __post_init__(self) -> None:
        if is_dataclass(self):
            check_kinds(self)


@dataclass(frozen=True)
class Sum(Objective):
    """The sum of several objectives."""

    parts: tuple[Objective, ...]

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        return torch.stack([part(model, batch, trace) for part in self.parts]).sum()

    @property
    def terms(self) -> tuple[Objective, ...]:
        return self.parts


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross entropy: the mean over target tokens, the end token included; with `total`, their sum."""

    total: bool = False

    def __call__(self, model: object, batch: Batch, trace: Trace) -> Tensor:
        if isinstance(model, BagOfWords) and trace.logits.stride(1) == 0:  # the same logits for all words: one softmax
            total = model.total_loss(batch)
            return total if self.total else total / batch.target_mask.sum()
        # Padding is masked by its label, not by indexing: its amount must not change the shape of the computation.
        target = batch.target.masked_fill(~batch.target_mask, IGNORED)
        return cross_entropy(
            trace.logits.flatten(0, 1),
            target.flatten(),
            ignore_index=IGNORED,
            reduction="sum" if self.total else "mean",
        )


@dataclass(frozen=True)
class L2(Objective):
    """The sum of squares of all parameters (aitken2021, author's code)."""

    weight: float = 1e-5

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        squares = [parameter.square().sum() for parameter in model.parameters()]
        return self.weight * torch.stack(squares).sum()


POSITIONS = 1 << 20  # more than a sentence has
HASH_LEVELS = 1 << 24  # values of a hash from 0 to 1 that single precision can represent
MIN_WEIGHT = 1e-20  # attention below it counts as this much (baan2019, author's code)


@dataclass(frozen=True)
class Guidance(Objective):
    """Attentive guidance: the cross entropy between attention and gold attention (baan2019).

    Per target word it is −log of the weight at the gold position, the mean over heads; zero where that is NOWHERE. It
    is averaged over all target words or, with `total`, summed, as CrossEntropy is, so that the losses of words and of
    attention stay in proportion. baan2019, whose batches are single sentences, adds CrossEntropy(total=True) and
    Guidance(1.0, total=True).

    With a `share` below 1 only that fraction of words is guided: always the same words of a sentence, and those of a
    smaller share are among those of a larger one. Another `seed` selects other words.

    Only the last layer is guided; with `head`, that head alone. As a control, `shift` guides to the position so many
    places after the gold one, modulo the length of the source.
    """

    weight: float = 1.0
    total: bool = False
    share: float = 1.0
    seed: int = 0
    head: int | None = None
    shift: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.weight >= 0, f"the weight of guidance must not be negative, but is {self.weight}")
        require(0 <= self.share <= 1, f"the share of guided words is from 0 to 1, not {self.share}")

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        if batch.gold_attention is None:
            raise BadSetting("guidance needs a task with gold attention, such as lookup_tables; this one has none")
        if not trace.layers:
            raise BadSetting("guidance needs a model with attention; this one has none (attention='none')")
        weights = weight_at(trace, self.places(batch))  # batch x heads x target
        if self.head is not None:
            heads = weights.shape[1]
            require(0 <= self.head < heads, f"there is no head {self.head} to guide: the last layer has {heads}")
            weights = weights[:, self.head, None]
        losses = -weights.clamp(min=MIN_WEIGHT).log().mean(1) * self.guided_mask(batch)
        return self.weight * losses.sum() / (1 if self.total else batch.target_mask.sum())

    def places(self, batch: Batch) -> Int[Tensor, "batch target"]:
        """Return the source position that each target word is guided to; arbitrary where there is none."""
        assert batch.gold_attention is not None
        gold = batch.gold_attention.clamp(min=0)
        lengths = batch.source_mask.sum(1, keepdim=True).clamp(min=1)  # sentences added as padding are empty
        return (gold + self.shift) % lengths if self.shift else gold

    def guided_mask(self, batch: Batch) -> Bool[Tensor, "batch target"]:
        """Return which target words are guided."""
        assert batch.gold_attention is not None
        has_gold = (batch.gold_attention != NOWHERE) & batch.target_mask
        if self.share == 1:
            return has_gold
        return has_gold & (hash_uniform(batch, self.seed) < self.share)


def hash_uniform(batch: Batch, seed: int) -> Float[Tensor, "batch target"]:
    """Return a hash from 0 to 1 of each target position and its source sentence, independent of padding.

    Unlike numbers of a generator, it is the same in every epoch and on every device.
    """
    places, steps = (torch.arange(side.shape[1], device=side.device) for side in (batch.source, batch.target))
    sentence = (splitmix64(batch.source * POSITIONS + places) * batch.source_mask).sum(1, keepdim=True)
    hashed = splitmix64(sentence + splitmix64(steps + seed * POSITIONS))
    return (hashed & (HASH_LEVELS - 1)) / HASH_LEVELS


def splitmix64(numbers: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    """Return the splitmix64 hash (Steele et al. 2014) of each number; products wrap around."""
    mixed = numbers * -0x61C8864680B583EB  # constants beyond 2**63, as signed numbers
    mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
    mixed = (mixed ^ (mixed >> 27)) * -0x6B2FB644ECCEEE15
    return mixed ^ (mixed >> 31)


BLANK, OTHER = 0.8, 0.1  # fractions of the masked words that are zeroed and replaced; the rest stays
SPARE = 1.25  # times the expected number of masked words, so that the size depends on a batch's shape alone


@dataclass(frozen=True)
class Tying(Objective):
    """δ times the squared distance between a word's state and its embedding, the mean over words (eq. 4).

    `squared=False` takes the distance itself, as code published after the paper does. With `per_dimension` the square
    is a mean over the dimensions of a vector, as in torch's mse_loss, and not their sum: with 300 dimensions, δ has
    1/300 of the effect.
    """

    delta: float
    squared: bool = True
    per_dimension: bool = False

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        states, embedded = states_and_embeddings(trace)
        differences = (states - embedded).square()
        squares = differences.mean(-1) if self.per_dimension else differences.sum(-1)
        distances = squares if self.squared else (squares + 1e-12).sqrt()  # the root has no finite gradient at zero
        return self.delta * masked_mean(distances, batch.source_mask)


@dataclass(frozen=True)
class MaskedWords(Objective):
    """η times the masked language modelling loss: words predicted from the states at masked positions (eq. 5).

    In a separate pass over the sentence, a fraction `p` of its words is masked: of these, 80 % become a zero vector,
    10 % a random word, and 10 % stay (Devlin et al. 2019). The output embedding is the table of word vectors, which
    gets no gradient. The loss is the mean over masked words.
    """

    eta: float
    p: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.p < 1, f"the share of hidden words is between 0 and 1, not {self.p}")

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        if not isinstance(model, Classifier | TransformerClassifier):
            raise BadSetting("masked words need a classifier, whose states have the size of its words")
        states_and_embeddings(trace)
        keys, actions, others = (uniform_like(trace.embedded[..., 0].detach()) for _ in range(3))
        keys = keys.masked_fill(~batch.word_mask, 1.0)
        blank, random_word = (
            (keys < self.p) & (actions < BLANK),
            (keys < self.p) & (actions >= BLANK) & (actions < BLANK + OTHER),
        )
        assert isinstance(model.source_inputs, WordTable)
        table = model.source_inputs.table.detach()
        words = torch.where(random_word, random_token(others, len(table)), batch.source)
        states = model.states(model.source_inputs(words) * ~blank[..., None], batch.source_mask)
        places = self.masked_positions(keys.flatten())
        logits = states.flatten(0, 1)[places] @ table.mT
        losses = cross_entropy(logits, batch.source.flatten()[places], reduction="none")
        return self.eta * masked_mean(losses, keys.flatten()[places] < self.p)

    def masked_positions(self, keys: Float[Tensor, " words"]) -> Int[Tensor, " masked"]:
        """Return the positions of keys below p; on a GPU, and in an ensemble, a fixed number of the smallest keys."""
        if not (keys.is_cuda or is_batchedtensor(keys)):
            return (keys < self.p).nonzero()[:, 0]
        return keys.topk(min(len(keys), math.ceil(SPARE * self.p * len(keys)) + 8), largest=False).indices


@dataclass(frozen=True)
class Conicity(Objective):
    """The conicity of a sentence's states: the mean cosine between a state and their mean (Mohankumar et al. 2020)."""

    weight: float

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        mask = batch.source_mask[..., None]
        mean = (trace.encoder * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.weight * masked_mean(cosine_similarity(trace.encoder, mean, dim=-1), batch.source_mask)


@dataclass(frozen=True)
class Hiding(Objective):
    """A penalty on attention to certain words, so that a model learns to use them without it (Pruthi et al. 2020).

    It is −log of the attention on all other words, the mean over sentences. Such models have a known answer for tests
    of faithfulness.
    """

    weight: float
    token_ids: tuple[int, ...]

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        hidden = (batch.source[..., None] == on_device(self.token_ids, batch.source.device)).any(-1)
        attended = (trace.attention * hidden[:, None, None]).sum(-1)
        losses = torch.log1p(-attended.clamp(max=1 - 1e-6)).mean(1)  # batch x target, as the mask
        return -self.weight * masked_mean(losses, batch.target_mask)


@dataclass(frozen=True)
class HidingGold(Objective):
    """As `Hiding`, for translators: a penalty on attention to the source position that each target token comes from."""

    weight: float

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        if batch.gold_attention is None:
            raise BadSetting("hiding_gold needs a task with gold attention; this one has none")
        has_gold = (batch.gold_attention != NOWHERE) & batch.target_mask
        attended = weight_at(trace, batch.gold_attention.clamp(min=0))
        return -self.weight * masked_mean(torch.log1p(-attended.clamp(max=1 - 1e-6)).mean(1), has_gold)


@dataclass(frozen=True)
class Relay(Objective):
    """−log of the attention on the last source token, so that its state has to carry all information that is used."""

    weight: float

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        last = (batch.source_mask.sum(1, keepdim=True) - 1).clamp(min=0).expand_as(batch.target)
        losses = -weight_at(trace, last).clamp(min=MIN_WEIGHT).log().mean(1)
        return self.weight * masked_mean(losses, batch.target_mask)


def weight_at(trace: Trace, places: Int[Tensor, "batch target"]) -> Float[Tensor, "batch heads target"]:
    """Return the attention of each target token on one source position."""
    index = places[:, None, :, None].expand(-1, trace.attention.shape[1], -1, -1)
    return trace.attention.gather(-1, index)[..., 0]


@lru_cache(maxsize=16)
def on_device(words: tuple[int, ...], device: torch.device) -> Int[Tensor, " words"]:
    """Return token ids as a tensor, moved once: nothing can be moved while a step is captured as a CUDA graph."""
    return torch.tensor(words, device=device)


def states_and_embeddings(trace: Trace) -> tuple[Tensor, Tensor]:
    if trace.encoder.shape[-1] != trace.embedded.shape[-1]:
        raise BadSetting(
            f"states have {trace.encoder.shape[-1]} dimensions and words {trace.embedded.shape[-1]}: this objective "
            "compares them, so units (of both directions) must add up to input_size"
        )
    return trace.encoder, trace.embedded


def random_token(keys: Float[Tensor, "batch source"], words: int) -> Int[Tensor, "batch source"]:
    """Return token ids for keys from 0 to 1, none of them special."""
    return (keys * (words - len(SPECIALS))).long() + len(SPECIALS)


def masked_mean(values: Tensor, mask: Bool[Tensor, "*any"]) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "l2": L2,
    "guidance": Guidance,
    "tying": Tying,
    "masked_words": MaskedWords,
    "conicity": Conicity,
    "hiding": Hiding,
    "hiding_gold": HidingGold,
    "relay": Relay,
}
