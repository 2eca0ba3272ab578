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
from attnscope.probes.heads.looking import Heads
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
        self.agree: list[list[Agree]] = []
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
        self.agree = self.agree or [[Agree() for _ in range(weights.shape[2])] for _ in weights]
        words = replace(batch, source_mask=batch.source_mask & ~special)
        for layer, agrees in zip(weights, self.agree, strict=True):
            for head, agree in zip(layer.unbind(1), agrees, strict=True):
                agree.update(head, saliency.values, words)

    def merge(self, other: "PointHeads") -> None:
        if not self.agree:
            self.agree, self.name = other.agree, other.name
        else:
            for mine, theirs in zip(self.agree, other.agree, strict=False):
                for one, two in zip(mine, theirs, strict=True):
                    one.merge(two)

    def result(self) -> Pointing:
        found = [[agree.result() for agree in layer] for layer in self.agree]
        kendall, top = (
            torch.tensor([[getattr(agreement, name) for agreement in layer] for layer in found]).double()
            for name in ("kendall", "top")
        )
        return Pointing(kendall, top, found[0][0].chance, self.name)
