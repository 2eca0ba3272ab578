"""A trained network taken apart: what all findings of aitken2021 look at."""

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from attnscope.lab.experiment import Run
from attnscope.models import EncoderDecoder, Trace
from attnscope.models.inference import evaluating
from attnscope.probes.decomposition import (
    AttentionMeasures,
    Components,
    Decomposition,
    DecompositionMeasures,
    Parts,
    decompose,
)
from attnscope.probes.decomposition.trajectories import TemporalTrajectories, temporal_trajectories
from attnscope.tasks import SPECIALS, Batch, Translation

ENDS = 3  # steps that stand for the beginning of a sentence, and for its end


@dataclass(frozen=True)
class Look:
    """A run's network, its decomposition, and a batch to show."""

    run: Run

    @cached_property
    def model(self) -> EncoderDecoder:
        model = self.run.model()
        assert isinstance(model, EncoderDecoder)
        return model

    @property
    def attends(self) -> bool:
        return self.model.attend is not None

    @property
    def translates(self) -> bool:
        return isinstance(self.run.task, Translation)

    @property
    def teacher_forcing(self) -> float:
        """The decoder hears what it heard when it learned."""
        return self.run.experiment.training.teacher_forcing

    @cached_property
    def decomposition(self) -> Decomposition:
        """Fitted on the test set and measured on it, as in the paper, and on the validation set, as held out."""
        of = "attention" if self.attends else "states"
        test, held_out = (partial(self.run.task.batches, split, 250) for split in ("test", "validation"))
        return decompose(self.model, test, held_out, of=of, teacher_forcing=self.teacher_forcing)

    @property
    def measured(self) -> DecompositionMeasures:
        return self.decomposition.in_sample

    @property
    def between(self) -> AttentionMeasures:
        return between(self.measured)

    @property
    def held_out(self) -> DecompositionMeasures:
        assert self.decomposition.held_out is not None
        return self.decomposition.held_out

    @property
    def encoder(self) -> Components:
        return self.decomposition.encoder

    @property
    def decoder(self) -> Components:
        assert self.decomposition.decoder is not None
        return self.decomposition.decoder

    @cached_property
    def walks(self) -> TemporalTrajectories:
        return temporal_trajectories(self.encoder, self.decoder)

    @property
    def source_vocabulary(self) -> tuple[str, ...]:
        return self.run.task.source_vocabulary.tokens

    @property
    def target_vocabulary(self) -> tuple[str, ...]:
        return self.run.task.target_vocabulary.tokens

    def trace(self, batch: Batch) -> Trace:
        with evaluating(self.model):
            trace: Trace = self.model(batch.to(self.run.experiment.device), teacher_forcing=self.teacher_forcing)
        return trace

    @cached_property
    def example(self) -> Trace:
        """The first test sentence."""
        return self.trace(next(self.run.task.batches("test", 1)))

    def parts(self, trace: Trace) -> tuple[Parts, Parts]:
        """Queries and keys of a trace, taken apart."""
        layer = trace.last
        assert layer.queries is not None
        assert layer.keys is not None
        assert trace.decoder_input is not None
        return self.decoder.split(layer.queries, trace.decoder_input), self.encoder.split(layer.keys, trace.source)

    def word_components(self) -> dict[str, np.ndarray]:
        """χ of every source word proper, by name."""
        return {
            word: self.encoder.input[0, number].cpu().numpy()
            for number, word in enumerate(self.source_vocabulary)
            if number >= len(SPECIALS)
        }


def between(measured: DecompositionMeasures) -> AttentionMeasures:
    assert measured.between is not None
    return measured.between


@lru_cache(maxsize=1)
def look(run: Run) -> Look:
    """The same look for all findings that ask about one run in turn."""
    return Look(run)
