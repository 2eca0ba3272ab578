"""Which head points at the words that influence the output? (snell2021 §3.1 and §5.1, head by head)

Each head's attention beside a saliency, Δ unless another is asked for: Kendall's τ, and whether the word that the head
attends to most is among the 5 % most influential. Special tokens of the source take no part.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.probes.agreement import Agree
from attnscope.probes.agreement.scores import Scores
from attnscope.probes.heads.each import EachHead, Heads
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class Pointing:
    """Means over output words."""

    kendall: Heads
    top: Heads
    chance: float  # of `top`; that of τ is zero
    saliency: str  # its name


class PointHeads:
    """Agreement of every layer and head with a saliency, over a stream."""

    def __init__(self) -> None:
        self.agree = EachHead(Agree)
        self.name = ""

    @torch.no_grad()
    def update(
        self,
        weights: Float[Tensor, "layers batch heads target source"],
        saliency: Scores,
        batch: Batch,
        special: Bool[Tensor, "batch source"],
    ) -> None:
        self.name = saliency.name
        words = replace(batch, source_mask=batch.source_mask & ~special)
        for agree, head in self.agree.beside(layer.unbind(1) for layer in weights):
            agree.update(head, saliency.values, words)

    def merge(self, other: "PointHeads") -> None:
        self.name = self.name or other.name
        self.agree.merge(other.agree)

    def result(self) -> Pointing:
        kendall = self.agree.numbers(lambda agree: agree.result().kendall)
        top = self.agree.numbers(lambda agree: agree.result().top)
        return Pointing(kendall, top, self.agree.layers[0][0].result().chance, self.name)
