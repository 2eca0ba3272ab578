"""How do AED, AO and VED translate word by word? (aitken2021 §3, figure 2a to 2f)

Networks with attention do it alike: encoder and decoder walk the same curve in time, and attention is where the two
meet; words are vertices of a simplex, at right angles to time, each facing the readout of its translation. Without
attention, states must carry what was read before, and word and time no longer tell what a state is.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import EncoderDecoderSettings
from attnscope.probes.decomposition.words import max_deviation_from_simplex
from attnscope.studies.aitken2021.experiments import AED, AO, VED, Sizes, one_to_one
from attnscope.studies.aitken2021.look import Look, between, look
from attnscope.studies.aitken2021.pictures import cloud, draw_cloud, draw_paths, draw_temporal_attention, paths
from attnscope.studies.claims import ClaimVerdict, always, at_least, at_most, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements, published_by
from attnscope.studies.result import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

published = published_by("aitken2021")
Numbers = Callable[[str], list[float]]  # of a quantity, one a seed

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
    "dictionary_errors": "words whose readout faces another word",
    "temporal_principal": "variance of temporal components in 3 PCs",
    "cloud_principal": "variance of input-delta clouds in 3 PCs",
}


# With attention: AED and AO ----------------------------------------------------------------------------------------


def measure_attending(run: Run) -> Measurement:
    seen = look(run)
    measured = seen.measured
    assert measured.decoder is not None
    encoder, decoder = measured.encoder.geometry, measured.decoder.geometry
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "matching": seen.walks.matching,
        "peak_at_own_step": seen.walks.peak_at_own_step,
        "temporal_share": seen.between.shares.temporal[0].item(),
        "temporal_share_held_out": between(seen.held_out).shares.temporal[0].item(),
        "orthogonality": seen.between.cosine[0].item(),
        "encoder_delta": (encoder.length("delta") / encoder.length("input"))[0].item(),
        "decoder_input_delta": (decoder.length("input-delta") / decoder.length("temporal"))[0].item(),
        "simplex": max_deviation_from_simplex(np.stack(list(seen.word_components().values()))),
        "dictionary_errors": dictionary_errors(seen),
        "temporal_principal": seen.walks.in_few_directions(),
        "cloud_principal": measured.encoder.principal[0].explained.sum().item(),
        "picture": {**paths(seen), **cloud(seen)},
    }


def dictionary_errors(seen: Look) -> int:
    """Output words whose readout vector is best aligned with the component of another word than their own."""
    dictionary = seen.decomposition.readout(seen.model.context_readout).dictionary()
    return sum(output != word for output, word in dictionary.items())  # the same number on both sides


def claims_attending(model: str, measured: Measurements) -> list[ClaimVerdict]:
    values = partial(measured.values, model)
    return [
        at_least(f"{model} learns the task: word accuracy at least 0.98", values("word_accuracy"), 0.98),
        *time_meets_time(values),
        *time_and_words_are_apart(values),
        *words_face_their_translations(values),
        at_least("3 PCs hold over 90 % of the variance of temporal components", values("temporal_principal"), 0.9),
        at_least("3 PCs hold over 90 % of the variance of input-delta clouds", values("cloud_principal"), 0.9),
    ]


def time_meets_time(values: Numbers) -> list[ClaimVerdict]:
    matching = "temporal components of encoder and decoder trace matching curves: cosine at s = t at least 0.5"
    dominates = "temporal · temporal dominates the alignment: more than the other eight terms together"
    closest = "they are closest to alignment at s = t: at least 90 % of the decoder steps"
    return [
        at_least(matching, values("matching"), 0.5),
        at_least(closest, values("peak_at_own_step"), 0.9),
        at_least(dominates, values("temporal_share"), 0.5),
    ]


def time_and_words_are_apart(values: Numbers) -> list[ClaimVerdict]:
    encoder = "the encoder's delta is small: at most half as long as the input component"
    decoder = "the decoder's input-delta is small: at most half as long as the temporal component"
    return [
        at_most("temporal and input-delta parts are orthogonal: |cosine| at most 0.2", values("orthogonality"), 0.2),
        at_most(encoder, values("encoder_delta"), 0.5),
        at_most(decoder, values("decoder_input_delta"), 0.5),
    ]


def words_face_their_translations(values: Numbers) -> list[ClaimVerdict]:
    dictionary = (
        "input components align with the readout of their translation: the dictionary is read off without an error"
    )
    return [
        at_most("input components sit on the vertices of a simplex: cosines within 0.2", values("simplex"), 0.2),
        always(dictionary, [errors == 0 for errors in values("dictionary_errors")]),
    ]


def table(measured: Measurements) -> list[Row]:
    in_three = ("temporal_principal", "cloud_principal")
    return measured.table(
        QUANTITIES, lambda label, name: published("one_to_one", "principal_3") if name in in_three else {}
    )


def figure(model: str, measured: Measurements) -> Any:
    return measured.first(model)["picture"]


def draw_attending(data: Any) -> "Figure":
    picture, (left, middle, right) = plots.panels(1, 3, size=(4.3, 3.8))
    draw_paths(data, left, "temporal components")
    draw_temporal_attention(data["temporal attention"], middle, "softmax of μ(s) · μ(t)")
    draw_cloud(data, right, "input-delta components, readouts")
    return picture


# Without: VED ------------------------------------------------------------------------------------------------------


QUANTITIES_VED = {
    "word_accuracy": "word accuracy",
    "encoder_delta": "encoder delta / input component",
    "adjacent": "temporal components next to their neighbours in time",
    "meeting_step": "encoder step nearest to the decoder's first",
    "temporal_principal": "variance of temporal components in 3 PCs",
}


def experiments_ved(sizes: Sizes) -> dict[str, Experiment]:
    return {name: one_to_one(model, sizes) for name, model in (("VED", VED), ("AED", AED), ("AO", AO))}


def measure_ved(run: Run) -> Measurement:
    seen = look(run)
    encoder = seen.measured.encoder.geometry
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "encoder_delta": (encoder.length("delta") / encoder.length("input"))[0].item(),
        "adjacent": seen.walks.adjacent,
        "meeting_step": seen.walks.meeting_step,
        "temporal_principal": seen.walks.in_few_directions(),
        "picture": {**paths(seen), **cloud(seen)},
    }


def claims_ved(measured: Measurements) -> list[ClaimVerdict]:
    values = measured.values
    shortest = 15  # of the task: no sentence ends before this step
    return [
        at_least("VED learns the task: word accuracy at least 0.98", values("VED", "word_accuracy"), 0.98),
        at_least(
            "temporal components of adjacent steps are nearest neighbours: at least 90 % of them",
            values("VED", "adjacent"),
            0.9,
        ),
        always(
            "the encoder's last lies next to the decoder's first: of all encoder steps, one at which sentences end",
            [step >= shortest for step in values("VED", "meeting_step")],
        ),
        more_than(
            "deltas are larger than in AED (relative to the input component)",
            values("VED", "encoder_delta"),
            values("AED", "encoder_delta"),
        ),
        more_than(
            "deltas are larger than in AO (relative to the input component)",
            values("VED", "encoder_delta"),
            values("AO", "encoder_delta"),
        ),
    ]


def draw_ved(data: Any) -> "Figure":
    picture, (left, right) = plots.panels(1, 2, size=(4.6, 3.9))
    draw_paths(data, left, "temporal components")
    draw_cloud(data, right, "input-delta components, readouts")
    return picture


# The three findings ------------------------------------------------------------------------------------------------

LIMITS = (
    "What this does not show: one-to-one translation can be solved without attention or recurrence of any kind; that a "
    "network solves it in this way says little about harder tasks. The pictures are of the first seed.",
)


def attending(name: str, model: str, settings: EncoderDecoderSettings) -> Finding:
    return Finding(
        name=name,
        title=f"How {model} translates word by word",
        section="§3, figure 2",
        experiments=lambda sizes: {model: one_to_one(settings, sizes)}, measure=measure_attending, table=table,
        claims=partial(claims_attending, model), figure=partial(figure, model), draw=draw_attending,
        notes=LIMITS,
    )  # fmt: skip


FIG2_AED = attending("fig2-aed", "AED", AED)
FIG2_AO = attending("fig2-ao", "AO", AO)
FIG2_VED = Finding(
    name="fig2-ved",
    title="How VED translates word by word, without attention",
    section="§3, figure 2e and 2f",
    experiments=experiments_ved, measure=measure_ved, table=lambda measured: measured.table(QUANTITIES_VED),
    claims=claims_ved, figure=partial(figure, "VED"), draw=draw_ved,
    notes=LIMITS,
)  # fmt: skip
