"""First pass: what do each time step and each word add, and where does attention lie on average? (aitken2021 §2.1)"""

from dataclasses import dataclass

import torch

from attnscope.errors import choose
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.decomposition.components import Components, ComponentSums, component_sums
from attnscope.probes.decomposition.predictability import AttentionSums, MeanAttention, attention_sums
from attnscope.probes.decomposition.sides import OF, Reading, read


@dataclass(frozen=True)
class Fitted:
    """The components of both sides, and the mean attention."""

    of: str
    encoder: Components
    decoder: Components | None  # None for the states of a classifier
    attention: MeanAttention | None  # None for states


@dataclass(frozen=True)
class FitSums(Sums):
    encoder: ComponentSums
    decoder: ComponentSums | None
    attention: AttentionSums | None


class Fit(Accumulator[FitSums]):
    """Sums per time step and per word, so that one pass gives both temporal and input components."""

    def __init__(self, of: str = "attention"):
        super().__init__()
        self.of = choose("way to take a trace apart", of, OF)

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        self.add(fit_sums(read(trace, self.of)))

    def result(self) -> Fitted:
        encoder, decoder, attention = self.total.encoder, self.total.decoder, self.total.attention
        return Fitted(
            of=self.of,
            encoder=encoder.components(),
            decoder=None if decoder is None else decoder.components(),
            attention=None if attention is None else attention.mean(),
        )


def fit_sums(reading: Reading) -> FitSums:
    """The totals of one batch."""
    decoder, between = reading.decoder, reading.between
    return FitSums(
        encoder=component_sums(reading.encoder),
        decoder=None if decoder is None else component_sums(decoder),
        attention=None if between is None else attention_sums(between.attention, between.target_mask),
    )
