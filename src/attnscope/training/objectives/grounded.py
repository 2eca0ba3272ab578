"""What keeps the state of a word close to the word? (tutek2020 §3.1)"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn.functional import cosine_similarity, cross_entropy

from attnscope.errors import BadSetting, require
from attnscope.models import Classifier, Trace
from attnscope.models.recurrent import uniform_like
from attnscope.tasks import SPECIALS, Batch
from attnscope.training.objectives.base import Objective

BLANK, OTHER = 0.8, 0.1  # of the chosen words, how many are blanked out, and how many replaced; the rest stays
SPARE = 1.25  # room for more chosen words than are expected, so that a batch's shape says how many are looked at


@dataclass(frozen=True)
class Tying(Objective):
    """δ times the squared distance between a word's state and its embedding, the mean over words (eq. 4).

    `squared=False` takes the distance itself, as code that came after the paper does. With `per_number` the square is a
    mean over the numbers of a vector, as torch's mse_loss has it, and not their sum: with 300 of them, δ weighs so much
    less.
    """

    delta: float
    squared: bool = True
    per_dimension: bool = False

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        states, embedded = comparable(trace)
        apart = (states - embedded).square()
        squares = apart.mean(-1) if self.per_dimension else apart.sum(-1)
        distances = squares if self.squared else (squares + 1e-12).sqrt()  # a root has no slope at zero
        return self.delta * mean_over(distances, batch.source_mask)


@dataclass(frozen=True)
class MaskedWords(Objective):
    """η times the cross entropy of words that are hidden from the encoder, told from their states (eq. 5).

    A pass of its own over the sentence: of its words a share `p` is chosen, of which eight in ten are blanked out (a
    zero vector), one is replaced by any other word, one stays (Devlin et al. 2019). The readout is the table of word
    vectors, which this objective does not change. The mean over chosen words.
    """

    eta: float
    p: float = 0.15

    def __post_init__(self) -> None:
        require(0 < self.p < 1, f"the share of hidden words is between 0 and 1, not {self.p}")

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        if not isinstance(model, Classifier):
            raise BadSetting("masked words need a classifier, whose states have the size of its words")
        comparable(trace)
        lots, ways, others = (uniform_like(trace.embedded[..., 0].detach()) for _ in range(3))
        lots = lots.masked_fill(~real_words(batch), 1.0)
        blank, replaced = (lots < self.p) & (ways < BLANK), (lots < self.p) & (ways >= BLANK) & (ways < BLANK + OTHER)
        table = model.source_inputs.table.detach()
        words = torch.where(replaced, any_word(others, len(table)), batch.source)
        states = model.states(model.source_inputs(words) * ~blank[..., None], batch.source_mask)
        places = self.chosen(lots.flatten())
        told = states.flatten(0, 1)[places] @ table.mT
        price = cross_entropy(told, batch.source.flatten()[places], reduction="none")
        return self.eta * mean_over(price, lots.flatten()[places] < self.p)

    def chosen(self, lots: Float[Tensor, " words"]) -> Int[Tensor, " chosen"]:
        """The places of the lots below p. On a GPU, and of replicas, of the smallest: all of these and some more."""
        if not (lots.is_cuda or is_batchedtensor(lots)):
            return (lots < self.p).nonzero()[:, 0]
        return lots.topk(min(len(lots), math.ceil(SPARE * self.p * len(lots)) + 8), largest=False).indices


@dataclass(frozen=True)
class Conicity(Objective):
    """How alike a sentence's states are: the mean cosine between a state and their mean (Mohankumar et al. 2020)."""

    weight: float

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        mask = batch.source_mask[..., None]
        mean = (trace.encoder * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.weight * mean_over(cosine_similarity(trace.encoder, mean, dim=-1), batch.source_mask)


@dataclass(frozen=True)
class Hiding(Objective):
    """A price on attention to certain words, so that a model learns to use them unseen (Pruthi et al. 2020).

    −log of the attention that stays off them, the mean over sentences: the known answer of a test of faithfulness.
    """

    weight: float
    token_ids: tuple[int, ...]

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        hidden = (batch.source[..., None] == on_device(self.token_ids, batch.source.device)).any(-1)
        shown = (trace.attention * hidden[:, None, None]).sum(-1)
        price = torch.log1p(-shown.clamp(max=1 - 1e-6)).mean(1)  # batch x target, as the mask
        return -self.weight * mean_over(price, batch.target_mask)


@cache
def on_device(words: tuple[int, ...], device: torch.device) -> Int[Tensor, " words"]:
    """Brought there once: while a step is being recorded on a GPU, nothing can be."""
    return torch.tensor(words, device=device)


def comparable(trace: Trace) -> tuple[Tensor, Tensor]:
    if trace.encoder.shape[-1] != trace.embedded.shape[-1]:
        raise BadSetting(
            f"states have {trace.encoder.shape[-1]} numbers and words {trace.embedded.shape[-1]}: this objective "
            "compares them, so units (of both directions) must add up to input_size"
        )
    return trace.encoder, trace.embedded


def real_words(batch: Batch) -> Bool[Tensor, "batch source"]:
    return batch.source_mask & (batch.source >= len(SPECIALS))


def any_word(lots: Float[Tensor, "batch source"], words: int) -> Int[Tensor, "batch source"]:
    """A word by lot, no special one."""
    return (lots * (words - len(SPECIALS))).long() + len(SPECIALS)


def mean_over(values: Tensor, mask: Bool[Tensor, "*any"]) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)
