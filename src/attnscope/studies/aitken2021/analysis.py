"""A trained network decomposed (§2): the statistics and pictures that findings of aitken2021 share."""

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from matplotlib.axes import Axes

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.models import EncoderDecoder, Trace
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import evaluating
from attnscope.probes.decomposition import (
    AttentionMeasures,
    Components,
    Decomposition,
    DecompositionMeasures,
    Parts,
    Term,
    attention_from_terms,
    decompose,
    temporal_paths,
    terms,
)
from attnscope.probes.decomposition.trajectories import (
    TemporalTrajectories,
    centres,
    input_plane,
    temporal_trajectories,
)
from attnscope.studies.finding import FigureData
from attnscope.tasks import SPECIALS, Batch, Translation

ENDS = 3  # decoder steps that count as the beginning of a sentence, and as its end
MAX_POINTS = 400  # of a cloud in a picture


@dataclass(frozen=True)
class NetworkAnalysis:
    """A run's network, its decomposition, and the trace of an example."""

    run: Run

    @cached_property
    def model(self) -> EncoderDecoder:
        model = self.run.model()
        assert isinstance(model, EncoderDecoder)
        return model

    @property
    def attends(self) -> bool:
        """Whether the network has attention: VED has none."""
        return self.model.attend is not None

    @property
    def translates(self) -> bool:
        """Whether the task is translation, where most words are rare and no expected offset is known."""
        return isinstance(self.run.task, Translation)

    @property
    def teacher_forcing(self) -> float:
        """Probability of teacher forcing, as in training."""
        return self.run.experiment.training.teacher_forcing

    @cached_property
    def decomposition(self) -> Decomposition:
        """Components of the test set, measured on it as in the paper, and on the validation set as held out."""
        of = "attention" if self.attends else "states"
        test, held_out = (partial(self.run.task.batches, split, 250) for split in ("test", "validation"))
        decoding: Decoding = "teacher_forced" if self.teacher_forcing == 1 else "greedy"
        return decompose(self.model, test, held_out, decoding, of)

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
    def trajectories(self) -> TemporalTrajectories:
        return temporal_trajectories(self.encoder, self.decoder)

    @property
    def delta_ratio(self) -> float:
        """Length of the encoder's delta component over that of its input component."""
        geometry = self.measured.encoder.geometry
        return (geometry.length("delta") / geometry.length("input"))[0].item()

    @property
    def source_tokens(self) -> tuple[str, ...]:
        return self.run.task.source_vocabulary.tokens

    @property
    def target_tokens(self) -> tuple[str, ...]:
        return self.run.task.target_vocabulary.tokens

    def trace(self, batch: Batch) -> Trace:
        """Return the network's trace of a batch, decoded as in training."""
        with evaluating(self.model):
            trace: Trace = self.model(batch.to(self.run.experiment.device), teacher_forcing=self.teacher_forcing)
        return trace

    @cached_property
    def example(self) -> Trace:
        """The trace of the first test sentence."""
        return self.trace(next(self.run.task.batches("test", 1)))

    def parts(self, trace: Trace) -> tuple[Parts, Parts]:
        """Return the temporal, input and delta parts of a trace's queries and of its keys."""
        layer = trace.last
        assert layer.queries is not None
        assert layer.keys is not None
        assert trace.decoder_input is not None
        return self.decoder.split(layer.queries, trace.decoder_input), self.encoder.split(layer.keys, trace.source)

    def word_components(self) -> dict[str, np.ndarray]:
        """Return the input component χ of every source word, special tokens left out."""
        components = self.encoder.input[0].cpu().numpy()
        return dict(zip(self.source_tokens[len(SPECIALS) :], components[len(SPECIALS) :], strict=True))


def between(measured: DecompositionMeasures) -> AttentionMeasures:
    """Return what was measured between queries and keys, of a network with attention."""
    assert measured.attention is not None
    return measured.attention


@lru_cache(maxsize=1)
def analyse(run: Run) -> NetworkAnalysis:
    """Return the analysis of a run, kept for the next finding that measures the same run."""
    return NetworkAnalysis(run)


# Pictures ------------------------------------------------------------------------------------------------------------


def paths(analysis: NetworkAnalysis) -> dict[str, FigureData]:
    """Return the temporal components of both sides in their common plane, and the attention that they give alone."""
    picture = {"paths": temporal_paths(analysis.encoder, analysis.decoder)}
    return picture | ({"temporal attention": analysis.trajectories.attention} if analysis.attends else {})


def draw_paths(data: FigureData, ax: Axes, title: str) -> None:
    plots.trajectories({name: np.array(path) for name, path in data["paths"].items()}, ax=ax)
    ax.set_title(title)


def draw_temporal_attention(data: FigureData, ax: Axes, title: str) -> None:
    attention = np.array(data["temporal attention"])
    plots.heatmap(attention, ax=ax, title=title, xlabel="encoder step t", ylabel="decoder step s")


def cloud(analysis: NetworkAnalysis) -> dict[str, FigureData]:
    """Return input-delta vectors by word, input components and readout vectors in the plane of the input components."""
    plane = input_plane(analysis.encoder)
    points = analysis.measured.encoder.cloud
    readout = analysis.model.context_readout.detach()[len(SPECIALS) :]
    arrows = plane.project(readout.double().cpu(), centred=False)
    arrows = arrows / arrows.norm(dim=1).max() * plane.project(points.vectors[:, 0].double().cpu()).norm(dim=1).max()
    return {
        "points": plane.project(points.vectors[:MAX_POINTS, 0].double().cpu()),
        "labels": [analysis.source_tokens[word] for word in points.words[:MAX_POINTS].tolist()],
        "centres": centres(analysis.encoder, plane, analysis.source_tokens),
        "arrows": dict(zip(analysis.target_tokens[len(SPECIALS) :], arrows.tolist(), strict=True)),
    }


def draw_cloud(data: FigureData, ax: Axes, title: str) -> None:
    centres, arrows = ({word: np.array(xy) for word, xy in data[part].items()} for part in ("centres", "arrows"))
    plots.clouds(np.array(data["points"]), data["labels"], centres, arrows, ax=ax)
    ax.set_title(title)


def matrix(analysis: NetworkAnalysis, trace: Trace, keep: tuple[Term, ...] | None = None) -> dict[str, FigureData]:
    """Return the attention of one sentence, or that which some of the nine terms alone would give."""
    weights = trace.attention
    if keep is not None:
        queries, keys = analysis.parts(trace)
        weights = attention_from_terms(terms(queries, keys), trace.source_mask, keep)
    return {
        "weights": weights[0, 0].cpu(),
        "source": [analysis.source_tokens[word] for word in trace.source[0].tolist()],
        "target": [analysis.target_tokens[word] for word in trace.target[0].tolist()],
    }


def draw_matrix(data: FigureData, ax: Axes, title: str) -> None:
    plots.heatmap(np.array(data["weights"]), rows=data["target"], columns=data["source"], ax=ax, title=title)
