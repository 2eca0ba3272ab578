"""What would each token alone predict? Single-token predictions and leakage (tutek2020 §5, eq. 9, table 3, figures 2-7)

The logits of a classifier are Σ α_i p̂_i, where p̂_i = W h_i + b are its logits with the whole attention on token i. That
is the lexical probe β of the class it predicts, in place of the gold one. Where attention is to explain a prediction,
only tokens that matter to it should lean to its side.

The *leakage* of a prediction is the share of its tokens that suffice for it alone: tokens whose probability of the
predicted class is above chance (1/2 of two classes, 1/k of k), and no more than 0.1 below that of the prediction. A
token that is more confident than the prediction counts. Where a prediction is unsure, so does every token just above
chance: the paper expects leakage with confident predictions only (figure 6), and `by_confidence` tells the two apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.capabilities import ReadsOut, needs
from attnscope.models.inference import Model, evaluating, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Interventions, Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.counterfactual import check_classifier
from attnscope.probes.lexical import lexical_scores
from attnscope.tasks import SPECIALS, Batch

MARGIN = 0.1  # below the prediction's probability by at most this: "nearly the same probability" (tutek2020 §5)
BINS = 10  # of the prediction's probability


@dataclass(frozen=True)
class TokenProbabilities:
    """The probability of a class given each token alone, and given the text. NaN where there is no word."""

    tokens: Float[Tensor, "batch source"]
    decision: Float[Tensor, " batch"]  # given the text, with the attention of the trace
    target_class: Int[Tensor, " batch"]  # that class, counted from 0
    predicted: Int[Tensor, " batch"]
    gold: Int[Tensor, " batch"]
    classes: int

    @property
    def correct(self) -> Bool[Tensor, " batch"]:
        return self.predicted == self.gold

    @property
    def mean(self) -> Float[Tensor, " batch"]:
        """Over the tokens of each text."""
        return self.tokens.nanmean(1)

    def leakage(self, margin: float = MARGIN) -> Float[Tensor, " batch"]:
        """Return the share of tokens that suffice for this prediction alone, nearly as confidently."""
        sufficient = self.tokens >= self.decision[:, None] - margin  # false where there is no word
        sufficient &= self.tokens > 1 / self.classes
        return sufficient.sum(1) / (~self.tokens.isnan()).sum(1)

    def of_text(self, row: int = 0) -> Float[np.ndarray, " words"]:
        """Return the probabilities of one text, for plot_sentence."""
        tokens = self.tokens[row]
        return np.asarray(tokens[~tokens.isnan()].cpu().numpy())


def batch_token_probabilities(
    model: ReadsOut, batch: Batch, target_class: int | None = None, attention: Interventions | None = None
) -> TokenProbabilities:
    """Return the single-token predictions of a batch; `attention` is that of the forward pass."""
    with evaluating(model):
        trace = model(batch, attention=attention)
    return token_probabilities(model, trace, target_class)


def token_probabilities(model: ReadsOut, trace: Trace, target_class: int | None = None) -> TokenProbabilities:
    """Return the probability of a class given each token alone.

    Start and end tokens are left out, whether or not the model attends to them; a text without words keeps them.

    Args:
        model: A classifier that declares ReadsOut.
        trace: A pass over texts.
        target_class: The class, counted from 0; None: the one that is predicted for each text.
    """
    needs(model, ReadsOut, by="the single-token probe")
    check_classifier(trace)
    num_classes = trace.logits.shape[-1] - len(SPECIALS)
    in_range = target_class is None or 0 <= target_class < num_classes
    require(in_range, f"there is no class {target_class}; they are 0 to {num_classes - 1}")
    target = trace.predictions if target_class is None else torch.full_like(trace.target, target_class + len(SPECIALS))
    special = (target[:, 0] < len(SPECIALS)).nonzero().flatten().tolist()
    require(not special, f"the model predicts a special token, such as an end, for text {special[:1]}; leave it out")
    alone = lexical_scores(model, replace(trace, target=target)).probability[:, 0]
    words = trace.batch.word_mask
    words = torch.where(words.any(1, keepdim=True), words, trace.source_mask)
    classes = trace.logits.detach()[:, 0, len(SPECIALS) :].double().softmax(-1)
    class_ids, predicted, gold = (side[:, 0] - len(SPECIALS) for side in (target, trace.predictions, trace.target))
    return TokenProbabilities(
        tokens=alone.double().masked_fill(~words, torch.nan), decision=classes.gather(1, class_ids[:, None])[:, 0],
        target_class=class_ids, predicted=predicted, gold=gold, classes=num_classes,
    )  # fmt: skip


def grounding(model: Model, data: Data = None, margin: float = MARGIN, bins: int = BINS) -> "Grounding":
    """Return how confidently single tokens alone predict the class of their text (table 3).

    Args:
        model: A classifier that declares ReadsOut.
        data: See `as_batches`.
        margin: How much less confident than the prediction a token may be to count as leakage.
        bins: Ranges of the prediction's probability.
    """
    needs(model, ReadsOut, by="grounding")
    module = module_of(model)
    assert isinstance(module, ReadsOut)
    accumulator = GroundingAccumulator(margin, bins)
    for _, trace in traces(model, data):
        accumulator.update(token_probabilities(module, trace))
    return accumulator.result()


@dataclass(frozen=True)
class Grounding(Displayed):
    """Means over correctly classified texts, of means over the tokens of each (table 3)."""

    probability: float  # of the predicted class given one token: table 3
    decision: float  # ... given the text
    leakage: float
    correct: int  # texts behind these means
    texts: int
    by_confidence: pd.DataFrame  # the same for each range of the prediction's probability that has a text

    def table(self) -> pd.DataFrame:
        """One row."""
        return pd.DataFrame([{name: value for name, value in vars(self).items() if name != "by_confidence"}])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw tokens and predictions by confidence: where they rise together, all tokens speak for the prediction."""
        from attnscope import plots

        names = {"decision": "the prediction", "probability": "a token alone", "leakage": "leakage (share of tokens)"}
        curves = {name: self.by_confidence[column].to_numpy() for column, name in names.items()}
        where, height = "probability of the prediction", "mean over correct texts"
        return plots.profiles(curves["the prediction"], curves, ax=ax, xlabel=where, ylabel=height)


@dataclass(frozen=True)
class GroundingSums(Sums):
    """Totals over correctly classified texts, by ranges of the prediction's probability."""

    probability: Float[Tensor, " bins"]
    decision: Float[Tensor, " bins"]
    leakage: Float[Tensor, " bins"]
    correct: Int[Tensor, " bins"]
    texts: Int[Tensor, ""]

    @classmethod
    def of(cls, texts: TokenProbabilities, margin: float, bins: int) -> "GroundingSums":
        right = texts.correct
        place = (texts.decision[right] * bins).long().clamp(max=bins - 1)
        empty = texts.decision.new_zeros(bins)
        means = {"probability": texts.mean, "decision": texts.decision, "leakage": texts.leakage(margin).double()}
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
    """Table 3 over batches; arguments are those of `grounding`."""

    def __init__(self, margin: float = MARGIN, bins: int = BINS):
        super().__init__()
        require(0 <= margin < 1, f"margin must be from 0 to below 1, not {margin}")
        require(bins > 0, f"bins={bins}: there must be at least one range of the prediction's probability")
        self.margin, self.bins = margin, bins

    @torch.no_grad()
    def update(self, texts: TokenProbabilities) -> None:
        """Add the single-token predictions of a batch, of the predicted classes."""
        predicted = torch.equal(texts.target_class, texts.predicted)
        require(predicted, "these are probabilities of one class; table 3 needs those of the predicted classes")
        self.add(GroundingSums.of(texts, self.margin, self.bins))

    def merge(self, other: Accumulator[GroundingSums]) -> None:
        if isinstance(other, GroundingAccumulator):
            alike = (self.margin, self.bins) == (other.margin, other.bins)
            require(alike, "these two have different margins or bins; merge those of equal settings")
        super().merge(other)

    def result(self) -> Grounding:
        return self.total.result()


def plot_sentence(
    words: Sequence[str],
    probabilities: Mapping[str, Sequence[float] | np.ndarray],
    decisions: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw figures 2 to 7: one line per model over the tokens of a text, and a dotted one at its prediction.

    Args:
        words: The tokens.
        probabilities: Probabilities of the positive class given each token, by model, from
            `token_probabilities(..., target_class=1).of_text()`.
        decisions: Probability of the positive class given the text.
        ax: The axes to draw on; None: new ones.
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
        lines = dict(zip(probabilities, ax.lines[before:], strict=True))
        for name, decision in (decisions or {}).items():
            ax.axhline(decision, color=lines[name].get_color(), linestyle=":", linewidth=1.4)
        ax.set(ylim=(-0.03, 1.03), xlim=(-0.5, len(words) - 0.5))
        label_tokens(ax, words)
    return ax


def label_tokens(ax: Axes, words: Sequence[str]) -> None:
    """Write each token under its position, slanted where there is room, upright and smaller where there is little."""
    wide = ax.get_window_extent().width * 72 / ax.figure.dpi / max(len(words), 1)  # points for each word
    slanted = wide >= 18
    ax.set_xticks(
        range(len(words)), labels=list(words), parse_math=False, fontsize=min(8.0, max(4.0, 0.85 * wide)),
        rotation=45 if slanted else 90, ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default",
    )  # fmt: skip
