"""How do networks solve one-to-one translation, reversed or sorted output? (aitken2021 §3, figure 2)

Networks with attention solve it alike: the temporal components of encoder and decoder trace the same curve, and
attention is where the two meet; words are vertices of a simplex, orthogonal to time, each aligned with the readout of
its translation. Without attention, states must carry what was read before, and word and time no longer determine a
state. Reversed, one of the two curves is traced in the other direction, and attention is anti-diagonal. Sorted, the
position to attend to depends on the words read, so time contributes nothing: the decoder's delta selects a word.
"""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import EncoderDecoderSettings
from attnscope.probes.decomposition import TEMPORAL
from attnscope.probes.decomposition.terms import TERMS, term_name
from attnscope.probes.decomposition.words import max_deviation_from_simplex
from attnscope.studies.aitken2021.analysis import (
    NetworkAnalysis,
    analyse,
    between,
    cloud,
    draw_cloud,
    draw_matrix,
    draw_paths,
    draw_temporal_attention,
    matrix,
    paths,
)
from attnscope.studies.aitken2021.experiments import (
    AED,
    AO,
    VED,
    Sizes,
    one_to_one,
    published,
    reversed_one_to_one,
    sorting,
)
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, PublishedNumber
from attnscope.tasks import ReversedOneToOne

QUANTITIES = {
    "word_accuracy": "word accuracy",
    "matching": "cosine of the two curves at s = t",
    "peak_at_own_step": "decoder steps whose μ·μ is largest at t = s",
    "temporal_share": "share of μ·μ in the alignment",
    "temporal_share_held_out": "the same, held out",
    "orthogonality": "|cosine| of decoder time, encoder input-delta",
    "encoder_delta": "encoder delta / input component",
    "decoder_input_delta": "decoder input-delta / temporal",
    "simplex": "largest |cosine of two words + 1/(N − 1)|",
    "dictionary_errors": "words whose readout is aligned with another word",
    "temporal_principal": "variance of temporal components in 3 PCs",
    "cloud_principal": "variance of input-delta clouds in 3 PCs",
}


# With attention: AED and AO ------------------------------------------------------------------------------------------


def measure_attending(run: Run) -> Measurement:
    analysis = analyse(run)
    measured = analysis.measured
    assert measured.decoder is not None
    decoder = measured.decoder.geometry
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "matching": analysis.trajectories.matching,
        "peak_at_own_step": analysis.trajectories.peak_at_own_step,
        "temporal_share": analysis.between.shares.temporal[0].item(),
        "temporal_share_held_out": between(analysis.held_out).shares.temporal[0].item(),
        "orthogonality": analysis.between.cosine[0].item(),
        "encoder_delta": analysis.delta_ratio,
        "decoder_input_delta": (decoder.length("input-delta") / decoder.length("temporal"))[0].item(),
        "simplex": max_deviation_from_simplex(np.stack(list(analysis.word_components().values()))),
        "dictionary_errors": dictionary_errors(analysis),
        "temporal_principal": analysis.trajectories.variance_explained(),
        "cloud_principal": measured.encoder.principal[0].explained.sum().item(),
        "picture": {**paths(analysis), **cloud(analysis)},
    }


def dictionary_errors(analysis: NetworkAnalysis) -> int:
    """Return how many output words have a readout that is best aligned with the component of another word."""
    dictionary = analysis.decomposition.readout(analysis.model.context_readout).dictionary()
    return sum(output != word for output, word in dictionary.items())  # a word and its translation have the same id


def claims_attending(model: str, measured: Measurements) -> list[ClaimVerdict]:
    at_least = {
        "word_accuracy": ("learns the task: word accuracy at least 0.98", 0.98),
        "matching": ("temporal components of both sides trace matching curves: cosine at s = t at least 0.5", 0.5),
        "peak_at_own_step": ("they align best at s = t: at least 90 % of the decoder steps", 0.9),
        "temporal_share": ("μ·μ dominates: more than the other eight terms together", 0.5),
        "temporal_principal": ("3 PCs hold over 90 % of the variance of temporal components", 0.9),
        "cloud_principal": ("3 PCs hold over 90 % of the variance of input-delta clouds", 0.9),
    }
    at_most = {
        "orthogonality": ("temporal and input-delta parts are orthogonal: |cosine| at most 0.2", 0.2),
        "encoder_delta": ("the encoder's delta is at most half as long as its input component", 0.5),
        "decoder_input_delta": ("the decoder's input-delta is at most half as long as its temporal component", 0.5),
        "simplex": ("input components are vertices of a simplex: cosines within 0.2", 0.2),
    }
    aligned = f"{model}: each readout is best aligned with the input component of its own word"
    return [
        *(measured.at_least(f"{model}: {text}", model, name, end) for name, (text, end) in at_least.items()),
        *(measured.at_most(f"{model}: {text}", model, name, end) for name, (text, end) in at_most.items()),
        measured.proportion(aligned, model, "dictionary_errors", lambda errors: errors == 0),
    ]


def published_number(label: str, name: str) -> PublishedNumber:
    return published("one_to_one", "principal_3") if name in ("temporal_principal", "cloud_principal") else {}


def draw_attending(data: FigureData) -> Figure:
    picture, (left, middle, right) = plots.panels(1, 3, size=(4.3, 3.8))
    draw_paths(data, left, "temporal components")
    draw_temporal_attention(data, middle, "softmax of μ(s) · μ(t)")
    draw_cloud(data, right, "input-delta components, readouts")
    return picture


LIMITS = (
    "What this does not show: one-to-one translation can be solved without attention or recurrence of any kind; that a "
    "network solves it in this way says little about harder tasks. The pictures are of the first seed.",
)


def first_picture(model: str, measured: Measurements) -> FigureData:
    return measured.first(model)["picture"]


def attending(name: str, model: str, settings: EncoderDecoderSettings) -> Finding:
    return Finding(
        name=name,
        title=f"How {model} solves one-to-one translation",
        section="§3, figure 2",
        experiments=lambda sizes: {model: one_to_one(settings, sizes)}, measure=measure_attending,
        table=QUANTITIES, published=published_number,
        claims=partial(claims_attending, model), figure=partial(first_picture, model), draw=draw_attending,
        notes=LIMITS,
    )  # fmt: skip


FIG2_AED = attending("fig2-aed", "AED", AED)
FIG2_AO = attending("fig2-ao", "AO", AO)


# Without attention: VED ----------------------------------------------------------------------------------------------

QUANTITIES_VED = {
    "word_accuracy": "word accuracy",
    "encoder_delta": "encoder delta / input component",
    "adjacent": "temporal components next to their neighbours in time",
    "meeting_step": "encoder step nearest to the decoder's first",
    "temporal_principal": "variance of temporal components in 3 PCs",
}
MIN_LENGTH = 15  # of the task: no sentence ends before this step


def measure_ved(run: Run) -> Measurement:
    analysis = analyse(run)
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "encoder_delta": analysis.delta_ratio,
        "adjacent": analysis.trajectories.adjacent,
        "meeting_step": analysis.trajectories.meeting_step,
        "temporal_principal": analysis.trajectories.variance_explained(),
        "picture": {**paths(analysis), **cloud(analysis)},
    }


def claims_ved(measured: Measurements) -> list[ClaimVerdict]:
    adjacent = "temporal components of adjacent steps are nearest neighbours: at least 90 % of them"
    meeting = "the encoder step nearest to the decoder's first is one at which sentences end"
    larger = "deltas are larger than in {} (relative to the input component)"
    return [
        measured.at_least("VED learns the task: word accuracy at least 0.98", "VED", "word_accuracy", 0.98),
        measured.at_least(adjacent, "VED", "adjacent", 0.9),
        measured.proportion(meeting, "VED", "meeting_step", lambda step: step >= MIN_LENGTH),
        *(measured.more_than(larger.format(model), "VED", model, "encoder_delta") for model in ("AED", "AO")),
    ]


def draw_ved(data: FigureData) -> Figure:
    picture, (left, right) = plots.panels(1, 2, size=(4.6, 3.9))
    draw_paths(data, left, "temporal components")
    draw_cloud(data, right, "input-delta components, readouts")
    return picture


FIG2_VED = Finding(
    name="fig2-ved",
    title="How VED solves one-to-one translation, without attention",
    section="§3, figure 2e and 2f",
    experiments=lambda sizes: {name: one_to_one(one, sizes) for name, one in (("VED", VED), ("AED", AED), ("AO", AO))},
    measure=measure_ved, table=QUANTITIES_VED, claims=claims_ved,
    figure=partial(first_picture, "VED"), draw=draw_ved,
    notes=LIMITS,
)  # fmt: skip


# Reversed output -----------------------------------------------------------------------------------------------------

# AO has no access to the length of a sentence, on which the first position to attend to depends.
FIXED = "AO, length 20"
QUANTITIES_REVERSED = {
    "word_accuracy": "word accuracy",
    "direction": "correlation of s and the t of the largest μ(s)·μ(t)",
    "temporal_share": "share of μ·μ in the alignment",
}


def experiments_reversed(sizes: Sizes) -> dict[str, Experiment]:
    return {
        "AED": reversed_one_to_one(AED, sizes),
        "AO": reversed_one_to_one(AO, sizes),
        FIXED: reversed_one_to_one(AO, sizes, min_length=20),
    }


def measure_reversed(run: Run) -> Measurement:
    analysis = analyse(run)
    assert isinstance(run.task, ReversedOneToOne)
    steps = run.task.min_length  # word steps of every sentence: the end token, which is not reversed, is left out
    peaks = analysis.trajectories.products[:steps].argmax(1)
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "direction": float(np.corrcoef(np.arange(steps), peaks)[0, 1]) if peaks.std() > 0 else 0.0,
        "temporal_share": analysis.between.shares.temporal[0].item(),
        "picture": paths(analysis),
    }


def claims_reversed(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for model in measured:
        learns = f"{model} learns the reversed task: word accuracy at least 0.98"
        backward = f"{model}: the temporal attention is anti-diagonal (correlation of s and its peak at most -0.9)"
        verdicts += [
            measured.at_least(learns, model, "word_accuracy", 0.98),
            measured.at_most(backward, model, "direction", -0.9),
        ]
    return verdicts


def draw_reversed(data: FigureData) -> Figure:
    picture, axes = plots.panels(2, 2, size=(4.4, 3.6))
    for model, (left, right) in zip(data, (axes[:2], axes[2:]), strict=True):
        draw_paths(data[model], left, f"{model}: temporal components")
        draw_temporal_attention(data[model], right, f"{model}: softmax of μ(s) · μ(t)")
    return picture


FIG2G = Finding(
    name="fig2g",
    title="Reversed output: the temporal attention is anti-diagonal",
    section="§3, figure 2g",
    experiments=experiments_reversed, measure=measure_reversed, table=QUANTITIES_REVERSED, claims=claims_reversed,
    figure=lambda measured: measured.only("AED", FIXED).pictures(), draw=draw_reversed,
    notes=(
        "AO has no access to the length of a sentence, and the first output word is the last input word; so AO is "
        "trained at a single length, too.",
        "What this does not show: where sentences differ in length, the anti-diagonal of the mean is blurred.",
    ),
)  # fmt: skip


# Sorted output -------------------------------------------------------------------------------------------------------

QUANTITIES_SORTING = {
    "word_accuracy": "word accuracy",
    **{term_name(term): f"share of {term_name(term)} (decoder·encoder)" for term in TERMS},
}
SHOWN = {
    "full": None,
    "μ · μ": TEMPORAL,
    "decoder input · encoder delta": (("input", "delta"),),
    "decoder delta · encoder input": (("delta", "input"),),
}


def measure_sorting(run: Run) -> Measurement:
    analysis = analyse(run)
    shares = analysis.between.shares.absolute[0].flatten()
    return {
        "word_accuracy": run.summary["word_accuracy"],
        **{term_name(term): share.item() for term, share in zip(TERMS, shares, strict=True)},
        "delta_input_is_largest": TERMS[int(shares.argmax())] == ("delta", "input"),
        "picture": {title: matrix(analysis, analysis.example, keep) for title, keep in SHOWN.items()},
    }


def claims_sorting(measured: Measurements) -> list[ClaimVerdict]:
    dominates = "decoder delta · encoder input dominates: it is the largest of the nine terms"
    return [
        measured.at_least("AED learns to sort: word accuracy at least 0.98", "AED", "word_accuracy", 0.98),
        measured.at_most("μ·μ is negligible: at most a tenth of the alignment", "AED", "temporal·temporal", 0.1),
        measured.proportion(dominates, "AED", "delta_input_is_largest"),
    ]


def draw_sorting(data: FigureData) -> Figure:
    picture, axes = plots.panels(2, 2, size=(4.4, 4.0))
    for (title, content), ax in zip(data.items(), axes, strict=True):
        draw_matrix(content, ax, title)
    return picture


FIG2H = Finding(
    name="fig2h",
    title="Sorting: attention depends on the words, not on time",
    section="§3, figure 2h",
    experiments=lambda sizes: {"AED": sorting(AED, sizes)}, measure=measure_sorting, table=QUANTITIES_SORTING,
    claims=claims_sorting, figure=partial(first_picture, "AED"), draw=draw_sorting,
    notes=(
        "The paper does not say how many letters it sorts, nor how many kinds there are: ours are 15 to 20 of 10.",
        "What this does not show: a share of |terms| also counts terms that cancel each other.",
    ),
)  # fmt: skip
