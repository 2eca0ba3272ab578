"""What becomes of the output when a head adds nothing, or looks at all positions alike?

The output is the gold one, or the model's own said again; the decoder hears the same words as before. A loss is what
the log-probability of an output word loses on average: positive where the head helped. `changed` is the share of output
words, or of a classifier's decisions, for which another word becomes the likeliest.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.models.adapters import ablated
from attnscope.models.adapters.interventions import Change
from attnscope.models.attention import uniform
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Sums
from attnscope.probes.heads.again import Again
from attnscope.probes.heads.each import Heads

CHANGES: dict[str, Change] = {"ablated": ablated, "uniform": uniform}


@dataclass(frozen=True)
class Effect:
    """Of one change, made to each head alone."""

    loss: Heads  # log-probability lost, per output word
    error: Heads  # its standard error, over sentences
    changed: Heads  # share of output words


@dataclass(frozen=True)
class EffectSums(Sums):
    """Totals over sentences, of what each lost and how many words it has; standard errors need squares."""

    loss: Float[Tensor, "changes layers heads"]
    squares: Float[Tensor, "changes layers heads"]
    products: Float[Tensor, "changes layers heads"]  # loss times words
    changed: Int[Tensor, "changes layers heads"]
    words: Int[Tensor, ""]
    squared_words: Int[Tensor, ""]
    sentences: int

    def effects(self) -> dict[str, Effect]:
        mean = self.loss / self.words
        # The mean is a ratio of two sums over sentences: its variance, to first order.
        around = self.squares - 2 * mean * self.products + mean**2 * self.squared_words
        small = self.sentences / (self.sentences - 1) if self.sentences > 1 else torch.nan
        error = (around.clamp_min(0) * small).sqrt() / self.words
        changed = self.changed / self.words
        return {name: Effect(*of_all) for name, *of_all in zip(CHANGES, mean, error, changed.double(), strict=True)}


def effect_sums(again: Again) -> EffectSums:
    """The totals of one batch: a pass for each change and head."""
    trace = again.trace
    own = said(trace)
    shape = len(CHANGES), len(trace.layers), trace.last.weights.shape[1]
    changes = [
        said(again.changed(layer, head, change))
        for change in CHANGES.values() for layer in range(shape[1]) for head in range(shape[2])
    ]  # fmt: skip
    lost = torch.stack([own.by_sentence - made.by_sentence for made in changes])  # changes x batch
    flipped = torch.stack([(own.likeliest != made.likeliest).sum() for made in changes])
    words = trace.target_mask.sum(1).cpu()
    return EffectSums(
        loss=lost.sum(1).view(shape), squares=(lost**2).sum(1).view(shape),
        products=(lost @ words.double()).view(shape),
        changed=flipped.cpu().view(shape), words=words.sum(), squared_words=(words**2).sum(), sentences=len(words),
    )  # fmt: skip


@dataclass(frozen=True)
class Said:
    """How likely each sentence of the output is, as a logarithm, and the likeliest word at each of its places."""

    by_sentence: Float[Tensor, " batch"]
    likeliest: Int[Tensor, " words"]


def said(trace: Trace) -> Said:
    mask: Bool[Tensor, "batch target"] = trace.target_mask
    logits = trace.logits[mask]  # words x vocabulary
    gold = logits.gather(1, trace.target[mask][:, None])[:, 0] - logits.logsumexp(1)
    each = gold.new_zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, gold.double())
    return Said(each.sum(1).cpu(), logits.argmax(1))
