"""How much of a head's attention follows from positions, how much from tokens? (aitken2021 §3, on one scale)

aitken2021 splits hidden states into a temporal mean, an input mean and a rest. With rotary positions, a mean of keys
over positions mixes rotated vectors and is meaningless. So here the scores (attention logits) are split, which exist
under learned positions, rotary positions and position biases alike: the words of a text are permuted many
times at random, the query staying where it is, and the score of every position is split into

    score = mean of the row + effect of the position + effect of the word + rest.

The two effects are independent, because permutations are random. Shares are of the variance within rows, since softmax
ignores a row's mean. Each is the mean product of the scores under two different permutations, so that noise averages to
zero; a share may come out slightly below zero. So the share of position is the mean correlation of scores, position by
position, between two permutations, and the share of words the same word by word: the permutation test of positional
against symbolic heads (arXiv 2511.11579). The rest depends on what stands around a word.
Of an encoder-decoder, all decoder steps are queries, with the gold tokens of the original text as inputs, and
variances are sums over steps.
Texts as they are, without permutations: `distances`.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.adapters.causal import HFDecoderClassifier
from attnscope.models.capabilities import PredictsNextToken
from attnscope.models.inference import Model, evaluating, module_of, on_device_of
from attnscope.models.inputs import Data, as_batches
from attnscope.models.trace import Trace
from attnscope.tasks.batch import Batch

MIN_WORDS = 4  # of a text that is permuted


@dataclass(frozen=True)
class PositionShares(Displayed):
    """The shares of position and words in the scores of every head, by text."""

    position: Float[np.ndarray, "texts layers heads"]
    words: Float[np.ndarray, "texts layers heads"]

    def table(self) -> pd.DataFrame:
        """Return one row per layer and head: mean shares, their standard errors over texts, and what the head is.

        A head is positional, or symbolic, if that share is larger by more than two standard errors of the difference.
        """
        _, layers, heads = self.position.shape
        index = pd.MultiIndex.from_product([range(layers), range(heads)], names=["layer", "head"])
        difference = self.position - self.words
        z = difference.mean(0) / np.maximum(standard_error(difference), 1e-12)
        kind = np.where(z > 2, "positional", np.where(z < -2, "symbolic", "neither"))
        columns = {
            "position": self.position.mean(0), "position error": standard_error(self.position),
            "words": self.words.mean(0), "words error": standard_error(self.words),
            "rest": 1 - self.position.mean(0) - self.words.mean(0), "kind": kind,
        }  # fmt: skip
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the shares of position and of words, one point per head."""
        from attnscope import plots

        table = self.table()
        return plots.scatter(
            table["position"].to_numpy(), table["words"].to_numpy(), ax=ax, xlabel="share of position",
            ylabel="share of words",
        )  # fmt: skip


def standard_error(values: Float[np.ndarray, " texts *any"]) -> np.ndarray:
    several = len(values) > 1
    return values.std(0, ddof=1) / len(values) ** 0.5 if several else np.full(values.shape[1:], np.nan)


def position_shares(
    model: Model, data: Data, permutations: int = 16, max_tokens: int = 64, seed: int = 0
) -> PositionShares:
    """Return how much of each head's scores follows from positions and from words.

    Args:
        model: A language model, whose query is the last token, a classifier with layers, or an encoder-decoder.
        data: Texts, a path, a table or Batches. Special tokens stay where they are; so does the first token (a sink),
            except of an encoder-decoder.
        permutations: How often the words of each text are permuted.
        max_tokens: Longer texts are truncated to their last tokens, this many, behind special tokens at the start.
        seed: Random seed of the permutations.
    """
    require(permutations >= 2, f"permutations={permutations}: at least 2 are compared")
    shares = []
    for batch in on_device_of(model, as_batches(model, data)):
        is_language_model, one_step = isinstance(module_of(model), PredictsNextToken), batch.target.shape[1] == 1
        require(
            one_step or not is_language_model,
            "position_shares of a language model permutes the words before one token, and some answers have several; "
            "give prompts without answers",
        )
        for i in range(len(batch)):
            text = last_tokens(batch.rows(slice(i, i + 1)), max_tokens)
            movable = movable_words(model, text)
            if int(movable.sum()) >= MIN_WORDS:
                shares.append(shares_of_text(model, text, movable, permutations, seed))
    require(bool(shares), f"no text has at least {MIN_WORDS} words that could be permuted")
    position, words = (torch.stack(values).cpu().numpy() for values in zip(*shares, strict=True))
    return PositionShares(position, words)


def last_tokens(batch: Batch, count: int) -> Batch:
    """Return one text without padding, truncated to its last `count` tokens; special tokens before it stay."""
    place = torch.arange(batch.source.shape[1], device=batch.source.device)
    first = batch.word_mask.cumsum(1) == 0  # such as the token that a classifier reads
    keep = first | (place >= place.numel() - count + first.sum())
    return batch.keep(torch.tensor([0], device=place.device), keep)


def movable_words(model: Model, text: Batch) -> Bool[Tensor, " source"]:
    """Return the positions of one text whose words are permuted: neither the query's nor special tokens."""
    movable = text.word_mask[0].clone()
    movable[0] &= text.target.shape[1] > 1
    if isinstance(module_of(model), PredictsNextToken | HFDecoderClassifier):
        movable[-1] = False
    return movable


def shares_of_text(
    model: Model, text: Batch, movable: Bool[Tensor, " source"], permutations: int, seed: int
) -> tuple[Float[Tensor, "layers heads"], Float[Tensor, "layers heads"]]:
    """Return the shares of position and of words in one text."""
    places = movable.nonzero().flatten()
    random = torch.Generator().manual_seed(seed)
    count = len(places)
    orders = torch.stack([torch.randperm(count, generator=random) for _ in range(permutations)]).to(places.device)
    scores = permuted_scores(model, text, places, orders)
    centred = scores - scores.mean(-1, keepdim=True)
    index = orders.argsort(1)[:, None, None, None].expand_as(centred)
    by_word = centred.gather(-1, index)  # the score of each word, wherever it stands
    total = centred.square().mean((0, 3, 4)).clamp_min(1e-20)  # layers x heads
    return shared(centred) / total, shared(by_word) / total


def shared(scores: Float[Tensor, "permutations layers heads steps places"]) -> Float[Tensor, "layers heads"]:
    """Return the mean product of two permutations' scores at a place, over all pairs of permutations."""
    count = len(scores)
    return (scores.sum(0).square() - scores.square().sum(0)).mean((-2, -1)) / (count * (count - 1))


@torch.no_grad()
def permuted_scores(
    model: Model, text: Batch, places: Int[Tensor, " places"], orders: Int[Tensor, "permutations places"]
) -> Float[Tensor, "permutations layers heads steps places"]:
    """Return the scores of these places at every target step, with their words in each of these orders."""
    count = len(orders)
    source = text.source.repeat(count, 1)
    source[:, places] = text.source[0, places][orders]
    repeated = {name: value.expand(count, -1) for name, value in text.tensors().items()}
    with evaluating(model):
        trace: Trace = module_of(model)(Batch(**repeated | {"source": source}), teacher_forcing=1.0)
    steps = text.target_mask[0].nonzero()
    return torch.stack([layer.scores[:, :, steps, places] for layer in trace.layers], 1).double()
