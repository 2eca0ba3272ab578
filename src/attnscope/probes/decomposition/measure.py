"""Second pass: what do the components make of every state and every alignment? (aitken2021 §3 and §4.1)"""

from dataclasses import dataclass

import pandas as pd
import torch

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.decomposition.between import BetweenMeasured, BetweenSums, between_sums
from attnscope.probes.decomposition.clouds import LIMIT
from attnscope.probes.decomposition.fit import Fitted
from attnscope.probes.decomposition.one_side import Opened, SideMeasured, SideSums, opened, side_sums
from attnscope.probes.decomposition.shares import FEW, TOP, heads
from attnscope.probes.decomposition.sides import Reading, read


@dataclass(frozen=True)
class Measured(Displayed):
    """The answers for one stream of traces."""

    encoder: SideMeasured
    decoder: SideMeasured | None  # None for the states of a classifier
    between: BetweenMeasured | None  # None for states

    def table(self) -> pd.DataFrame:
        """A row a head, the main numbers as columns."""
        columns = {"word variance left": self.encoder.variance.mean}
        columns |= {"encoder delta / temporal": self.encoder.delta_over_temporal}
        if self.decoder is not None:
            columns |= {"decoder delta / temporal": self.decoder.delta_over_temporal}
        if self.between is not None:
            columns |= {"temporal share": self.between.shares.temporal}
            columns |= {"temporal query share": self.between.shares.temporal_query}
            columns |= {"predictability": self.between.predictability.overall}
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        return table.set_index(heads(len(table)))


@dataclass(frozen=True)
class MeasureSums(Sums):
    encoder: SideSums
    decoder: SideSums | None
    between: BetweenSums | None


class Measure(Accumulator[MeasureSums]):
    """Terms, shares, variances and angles of a stream, the same one that was fitted or one held out.

    `top`: how many of the largest alignments of each decoder step count; `few`: words seen less often are rare;
    `limit`: how many vectors to keep for a picture.
    """

    def __init__(self, fitted: Fitted, top: int = TOP, few: int = FEW, limit: int = LIMIT):
        super().__init__()
        require(top > 0, f"top={top}: at least one position of each decoder step must count")
        self.fitted, self.top, self.few, self.limit = fitted, top, few, limit

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        reading = read(trace, self.fitted.of)
        encoder = opened(reading.encoder, self.fitted.encoder)
        decoder = None
        if reading.decoder is not None and self.fitted.decoder is not None:
            decoder = opened(reading.decoder, self.fitted.decoder)
        self.add(
            MeasureSums(
                encoder=side_sums(encoder, self.room("encoder")),
                decoder=None if decoder is None else side_sums(decoder, self.room("decoder")),
                between=self.between(reading, decoder, encoder),
            )
        )

    def between(self, reading: Reading, queries: Opened | None, keys: Opened) -> BetweenSums | None:
        if reading.between is None or queries is None or self.fitted.attention is None:
            return None
        return between_sums(reading.between, queries, keys, self.fitted.attention, self.top, self.few)

    def room(self, side: str) -> int:
        """How many vectors of that side are still wanted for a picture."""
        so_far: SideSums | None = getattr(self.sums, side, None)
        return self.limit if so_far is None else so_far.cloud.room

    def result(self) -> Measured:
        total, fitted = self.total, self.fitted
        decoder = None
        if total.decoder is not None and fitted.decoder is not None:
            decoder = total.decoder.measured(fitted.decoder, self.few)
        return Measured(
            encoder=total.encoder.measured(fitted.encoder, self.few),
            decoder=decoder,
            between=None if total.between is None else total.between.measured(),
        )
