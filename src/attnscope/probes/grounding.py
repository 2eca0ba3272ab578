"""What would each token alone predict? (tutek2020 §5, eq. 9, table 3, figures 2 to 7)

The logits of a classifier are Σ α_i p̂_i, where p̂_i = W h_i + b is what it would say if the whole attention lay on token
i. That is the lexical probe β of the class it decides for, in place of the gold one. Where attention is to explain a
decision, only tokens that matter to it should lean to its side.

The *leakage* of a decision is the share of its tokens that would make it as well, alone: tokens whose probability of
the predicted class is above chance (1/2 of two classes, 1/k of k), and no more than 0.1 below that of the decision. A
token that is surer than the decision counts. Where a decision is unsure, so does every token just above chance: the
paper expects leakage with sure decisions only (figure 6), and `by_confidence` tells the two apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.capabilities import ReadsOut
from attnscope.models.classifier import proper
from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.lexical import lexical
from attnscope.tasks import SPECIALS, Batch

MARGIN = 0.1  # below the decision's probability by at most this: "nearly the same probability" (tutek2020 §5)
BINS = 10  # of the decision's probability


@dataclass(frozen=True)
class TokenProbabilities:
    """The probability of a class given each token alone, and given the text. NaN where there is no word."""

    tokens: Float[Tensor, "batch source"]
    decision: Float[Tensor, " batch"]  # with the model's own attention, or the one it was given
    number: Int[Tensor, " batch"]  # that class, counted from 0
    predicted: Int[Tensor, " batch"]  # the one that the model predicts
    gold: Int[Tensor, " batch"]
    classes: int

    @property
    def correct(self) -> Bool[Tensor, " batch"]:
        return self.predicted == self.gold

    @property
    def mean(self) -> Float[Tensor, " batch"]:
        """Over the tokens of each text."""
        return self.tokens.nanmean(1)

    def leakage(self, near: float = MARGIN) -> Float[Tensor, " batch"]:
        """The share of tokens that would make this decision alone, nearly as surely."""
        as_sure = self.tokens >= self.decision[:, None] - near  # false where there is no word
        as_sure &= self.tokens > 1 / self.classes
        return as_sure.sum(1) / (~self.tokens.isnan()).sum(1)

    def of_text(self, row: int = 0) -> Float[np.ndarray, " words"]:
        """The numbers of one text, for plot_sentence."""
        tokens = self.tokens[row]
        return np.asarray(tokens[~tokens.isnan()].cpu().numpy())


def batch_token_probabilities(
    model: ReadsOut, batch: Batch, number: int | None = None, **forward: Any
) -> TokenProbabilities:
    """Of a batch. What else is given, such as attention=uniform, goes to the forward pass."""
    with evaluating(model):
        return token_probabilities(model, model(batch, **forward), number)


def token_probabilities(model: ReadsOut, trace: Trace, number: int | None = None) -> TokenProbabilities:
    """Of a pass already made: the probability of the predicted class or, with a number, of that class for all texts.

    Start and end tokens are left out, whether or not the model attends to them; a text without words keeps them.
    """
    check_classes(trace, number)
    said = trace.predictions if number is None else torch.full_like(trace.target, number + len(SPECIALS))
    alone = lexical(model, replace(trace, target=said)).probability[:, 0]
    words = proper(trace.batch)
    classes = trace.logits.detach()[:, 0, len(SPECIALS) :].double().softmax(-1)
    of, predicted, gold = (side[:, 0] - len(SPECIALS) for side in (said, trace.predictions, trace.target))
    return TokenProbabilities(
        tokens=alone.double().masked_fill(~words, torch.nan), decision=classes.gather(1, of[:, None])[:, 0],
        number=of, predicted=predicted, gold=gold, classes=classes.shape[1],
    )  # fmt: skip


def check_classes(trace: Trace, number: int | None) -> None:
    outputs, classes = trace.target.shape[1], trace.logits.shape[-1] - len(SPECIALS)
    require(outputs == 1, f"a classifier says one word, but this trace has {outputs}; ask the lexical probe instead")
    require(classes >= 2, f"a trace of {classes + len(SPECIALS)} output words has no two classes besides special words")
    require(number is None or 0 <= number < classes, f"there is no class {number}; they are 0 to {classes - 1}")


@dataclass(frozen=True)
class Grounding(Displayed):
    """Means over correctly classified texts, of means over the tokens of each (table 3)."""

    probability: float  # of the predicted class given a token alone: table 3
    decision: float  # ... given the text
    leakage: float
    correct: int  # texts behind these means
    texts: int
    by_confidence: pd.DataFrame  # the same for each range of the decision's probability that has a text

    def table(self) -> pd.DataFrame:
        """One row, a column a number."""
        return pd.DataFrame([{name: value for name, value in vars(self).items() if name != "by_confidence"}])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Tokens and decisions by how sure the decision is: where they rise together, all tokens speak for it."""
        from attnscope import plots

        names = {"decision": "the decision", "probability": "a token alone", "leakage": "leakage (share of tokens)"}
        curves = {name: self.by_confidence[column].to_numpy() for column, name in names.items()}
        where, height = "probability of the decision", "mean over correct texts"
        return plots.profiles(curves["the decision"], curves, ax=ax, xlabel=where, ylabel=height)


@dataclass(frozen=True)
class GroundingSums(Sums):
    """Totals over correctly classified texts, by the range that the decision's probability falls in."""

    probability: Float[Tensor, " bins"]
    decision: Float[Tensor, " bins"]
    leakage: Float[Tensor, " bins"]
    correct: Int[Tensor, " bins"]
    texts: Int[Tensor, ""]

    @classmethod
    def of(cls, found: TokenProbabilities, near: float, bins: int) -> "GroundingSums":
        right = found.correct
        place = (found.decision[right] * bins).long().clamp(max=bins - 1)
        empty = found.decision.new_zeros(bins)
        means = {"probability": found.mean, "decision": found.decision, "leakage": found.leakage(near).double()}
        totals = {name: empty.index_add(0, place, values[right]).cpu() for name, values in means.items()}
        return cls(**totals, correct=place.bincount(minlength=bins).cpu(), texts=torch.tensor(len(right)))

    def result(self) -> Grounding:
        correct = int(self.correct.sum())
        require(correct > 0, "no text was classified correctly, so there is nothing to average over")
        means = {name: float(getattr(self, name).sum()) / correct for name in ("probability", "decision", "leakage")}
        return Grounding(**means, correct=correct, texts=int(self.texts), by_confidence=self.by_bin())

    def by_bin(self) -> pd.DataFrame:
        bins = len(self.correct)
        table = pd.DataFrame({name: getattr(self, name).numpy() for name in ("probability", "decision", "leakage")})
        table = table.div(self.correct.numpy(), axis=0).assign(correct=self.correct.numpy())
        table.insert(0, "from", np.arange(bins) / bins)
        table.insert(1, "to", np.arange(1, bins + 1) / bins)
        return table[table["correct"] > 0].reset_index(drop=True)


class GroundingAccumulator(Accumulator[GroundingSums]):
    """Table 3 over a stream of batches. `near`: how much less sure than the decision a token may be to leak it."""

    def __init__(self, near: float = MARGIN, bins: int = BINS):
        super().__init__()
        require(0 <= near < 1, f"near must be from 0 to below 1, not {near}")
        require(bins > 0, f"bins={bins}: there must be at least one range of the decision's probability")
        self.near, self.bins = near, bins

    @torch.no_grad()
    def update(self, found: TokenProbabilities) -> None:
        """Take in what `token_probabilities` found for the predicted classes of a batch."""
        predicted = torch.equal(found.number, found.predicted)
        require(predicted, "these are probabilities of one class; table 3 needs those of the predicted classes")
        self.add(GroundingSums.of(found, self.near, self.bins))

    def merge(self, other: Accumulator[GroundingSums]) -> None:
        if isinstance(other, GroundingAccumulator):
            alike = (self.near, self.bins) == (other.near, other.bins)
            require(alike, "these two measured with another `near` or other bins; merge what measured alike")
        super().merge(other)

    def result(self) -> Grounding:
        return self.total.result()


def plot_sentence(
    words: Sequence[str],
    probabilities: Mapping[str, Sequence[float] | np.ndarray],
    decisions: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Figures 2 to 7: a line a model over the words of a text, and a dotted one at what the model decides.

    Both of the positive class: `grounding(..., number=1).of_text()`, and its `decision`.
    """
    from attnscope import plots
    from attnscope.plots.style import INK, axes

    unknown = sorted(set(decisions or {}) - set(probabilities))
    require(not unknown, f"there is a decision of {', '.join(unknown)}, but no probabilities of its tokens")
    with plots.style():
        ax = axes(ax, size=(2.0 + 0.2 * max(len(words), 12), 3.0))
        ax.axhline(0.5, color=INK, linewidth=0.6, zorder=0)
        before = len(ax.lines)
        plots.profiles(range(len(words)), dict(probabilities), ax=ax, ylabel="probability of the\npositive class")
        drawn = dict(zip(probabilities, ax.lines[before:], strict=True))
        for name, decision in (decisions or {}).items():
            ax.axhline(decision, color=drawn[name].get_color(), linestyle=":", linewidth=1.4)
        ax.set(ylim=(-0.03, 1.03), xlim=(-0.5, len(words) - 0.5))
        label_tokens(ax, words)
    return ax


def label_tokens(ax: Axes, words: Sequence[str]) -> None:
    """Each word under its place, slanted where there is room, upright and smaller where there is little."""
    wide = ax.get_window_extent().width * 72 / ax.figure.dpi / max(len(words), 1)  # points for each word
    slanted = wide >= 18
    ax.set_xticks(
        range(len(words)), labels=list(words), parse_math=False, fontsize=min(8.0, max(4.0, 0.85 * wide)),
        rotation=45 if slanted else 90, ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default",
    )  # fmt: skip
