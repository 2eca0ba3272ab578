"""How widely does each head look, how far from the diagonal, and how much at special tokens?"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Sums
from attnscope.probes.heads.each import Heads
from attnscope.probes.heads.stream import Pass


@dataclass(frozen=True)
class Looking:
    """Means over output words, of each layer and head.

    `offset` is by how many positions attention lies behind the diagonal, `spread` the standard deviation of that, over
    output words and attention alike: a head that always looks at the same offset has none. `entropy` is that of
    attention over that of uniform attention: 0 looks at one position, 1 at all alike.
    """

    entropy: Heads
    offset: Heads
    spread: Heads
    specials: Heads  # the weight on special tokens
    specials_if_uniform: float


@dataclass(frozen=True)
class LookingSums(Sums):
    """The totals behind it."""

    entropy: Heads
    offset: Heads
    squares: Heads
    specials: Heads
    even: Float[Tensor, ""]
    words: Int[Tensor, ""]
    choices: Int[Tensor, ""]  # words with more than one position to look at: others have no entropy
    sentences: int

    def looking(self) -> Looking:
        offset = self.offset / self.words
        return Looking(
            entropy=self.entropy / self.choices,
            offset=offset,
            spread=(self.squares / self.words - offset**2).clamp_min(0).sqrt(),
            specials=self.specials / self.words,
            specials_if_uniform=float(self.even / self.words),
        )


def looking_sums(seen: Pass, special: Bool[Tensor, "batch source"]) -> LookingSums:
    """The totals of one batch."""
    weights, words = seen.weights.double(), seen.trace.target_mask  # layers x batch x heads x target x source
    places = seen.attended.sum(1).double()  # batch
    choice = words & (places > 1)[:, None]
    distances = from_diagonal(seen.trace)[:, None]  # batch x 1 x target x source
    even = (special & seen.attended).sum(1) / places
    return LookingSums(
        entropy=total(relative_entropy(weights, places), choice),
        offset=total((weights * distances).sum(-1), words),
        squares=total((weights * distances**2).sum(-1), words),
        specials=total((weights * special[:, None, None]).sum(-1), words),
        even=(even * words.sum(1)).sum().cpu(),
        words=words.sum().cpu(),
        choices=choice.sum().cpu(),
        sentences=len(words),
    )


def total(values: Float[Tensor, "layers batch heads target"], counted: Bool[Tensor, "batch target"]) -> Heads:
    return values.masked_fill(~counted[:, None], 0).sum((1, 3)).cpu()


def relative_entropy(
    weights: Float[Tensor, "layers batch heads target source"], places: Float[Tensor, " batch"]
) -> Float[Tensor, "layers batch heads target"]:
    """1 where all places are alike, 0 where one has all the weight; of one place, it has no meaning."""
    entropy: Tensor = torch.special.entr(weights).sum(-1)
    return entropy / places.log()[:, None, None]


def from_diagonal(trace: Trace) -> Float[Tensor, "batch target source"]:
    """How far each source position lies behind the place that corresponds to an output word.

    The diagonal goes from the beginning of both sentences to their ends, whatever their lengths: position t of T
    corresponds to (t + ½) L / T − ½. The one word of a classifier corresponds to the middle of the text.
    """
    source, target = (torch.arange(words.shape[1], device=words.device) for words in (trace.source, trace.target))
    lengths = trace.source_mask.sum(1) / trace.target_mask.sum(1).clamp_min(1)  # batch
    diagonal = (target + 0.5) * lengths[:, None].double() - 0.5  # batch x target
    return source - diagonal[:, :, None]
