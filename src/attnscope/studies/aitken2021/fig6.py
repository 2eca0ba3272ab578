"""How are 'twice', 'left' and 'and' processed? (aitken2021 §4.2, figure 6)

AED remembers: its state at 'twice' is close to that of the verb before. AO cannot: there the key of 'twice' points away
from the decoder's temporal component, so that attention falls back on the word before it.
"""

from collections.abc import Iterator

import numpy as np
import torch
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.probes.decomposition.trajectories import input_plane
from attnscope.probes.decomposition.words import (
    DecomposedBatch,
    scores_around_word,
    states_by_preceding_word,
    variance_between_groups,
    word_time_products,
)
from attnscope.studies.aitken2021.analysis import NetworkAnalysis, analyse
from attnscope.studies.aitken2021.experiments import AO, Sizes, escan, escan_networks
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements
from attnscope.tasks.scan import VERBS

SAME_LENGTH = "AO, T = S"
OFFSETS = range(-5, 6)
WORDS = ("run", "left", "and", "twice")
PARTS = {"temporal": "temporal part", "full": "full state"}  # of the decoder's state
QUANTITIES = {
    "word_accuracy": "word accuracy",
    "split_by_verb": "variance of 'twice' between preceding verbs (η²)",
    "distance_to_own_verb": "distance of 'twice' to its verb / of two verbs",
    "falls_on_word_before": "attention at t = s − 1 where 'twice' is at t = s",
    "twice_at_s": "μ(s)·(χ + Δ) of 'twice' at t = s",
    "left_at_s": "μ(s)·(χ + Δ) of 'left' at t = s",
    "and_at_s": "μ(s)·(χ + Δ) of 'and' at t = s",
    "run_at_s": "μ(s)·(χ + Δ) of 'run' at t = s",
    "left_gain_temporal": "gain of 'left' per step ahead, μ(s)",
    "left_gain_full": "gain of 'left' per step ahead, full state",
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {**escan_networks(sizes), SAME_LENGTH: escan(AO, sizes, same_length=True)}


def measure(run: Run) -> Measurement:
    analysis = analyse(run)
    token = {word: analysis.source_tokens.index(word) for word in (*WORDS, *VERBS)}
    present = {word: token[word] for word in WORDS if analysis.encoder.counts[token[word]].any()}
    after = states_by_preceding_word(sentences(analysis), token["twice"], {verb: token[verb] for verb in VERBS})
    lookback = scores_around_word(sentences(analysis), token["twice"], OFFSETS)
    leanings = {part: word_time_products(sentences(analysis), present, OFFSETS, part == "temporal") for part in PARTS}
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "split_by_verb": variance_between_groups(after),
        "nearest_is_own_verb": nearest_is_own_verb(analysis, after),
        "distance_to_own_verb": distance_to_own_verb(analysis, after),
        **{f"{word}_at_s": leanings["temporal"].at(word) for word in present},
        **{f"{word}_gain_{part}": curves.gain(word) for part, curves in leanings.items() for word in present},
        **{f"{word}_largest_{part}": curves.largest(word) for part, curves in leanings.items() for word in present},
        "falls_on_word_before": lookback.share,
        "picture": {
            "leaning": {part: curves.curves for part, curves in leanings.items()},
            "lookback": {"curves": lookback.curves, "share": lookback.share},
            "twice": picture_of_twice(analysis, after),
        },
    }


def sentences(analysis: NetworkAnalysis) -> Iterator[DecomposedBatch]:
    for batch in analysis.run.task.batches("test", 250):
        trace = analysis.trace(batch)
        yield DecomposedBatch(trace.source, trace.source_mask, trace.target_mask, *analysis.parts(trace))


def nearest_is_own_verb(analysis: NetworkAnalysis, after: dict[str, np.ndarray]) -> bool:
    """Return whether the mean 'twice' after each verb is nearest, of all input components, to that verb's."""
    words = analysis.word_components()
    return all(
        min((w for w in words if w != "twice"), key=lambda w: np.linalg.norm(words[w] - states.mean(0))) == verb
        for verb, states in after.items()
    )


def distance_to_own_verb(analysis: NetworkAnalysis, after: dict[str, np.ndarray]) -> float:
    """Return the distance of 'twice' after a verb to that verb, over the distance of two verbs."""
    words = analysis.word_components()
    own = np.mean([np.linalg.norm(states.mean(0) - words[verb]) for verb, states in after.items()])
    apart = np.mean([np.linalg.norm(words[a] - words[b]) for a in VERBS for b in VERBS if a != b])
    return float(own / apart)


def picture_of_twice(analysis: NetworkAnalysis, after: dict[str, np.ndarray]) -> FigureData:
    plane, components = input_plane(analysis.encoder), analysis.word_components()
    points = {f"{verb} twice": plane.project(torch.from_numpy(states[:80])) for verb, states in after.items()}
    words = {word: plane.project(torch.from_numpy(chi)) for word, chi in components.items() if word != "twice"}
    return {
        "points": np.concatenate(list(points.values())),
        "labels": [label for label, group in points.items() for _ in group],
        "centres": words | {label: group.mean(0) for label, group in points.items()},
    }


# The finding ---------------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    at_least, at_most = measured.at_least, measured.at_most
    closest = "AED: 'twice' after a verb lies closest to that verb of all words"
    before = "where 'twice' is read at t = s, attention falls on t = s − 1 (at least 80 % of the cases)"
    away = "'twice' at t = s points away from the decoder's temporal component"
    return [
        at_least("AED: 'twice' splits by the preceding verb (η² at least 0.5)", "AED", "split_by_verb", 0.5),
        measured.proportion(closest, "AED", "nearest_is_own_verb"),
        at_most("AED: at most half as far from it as two verbs are apart", "AED", "distance_to_own_verb", 0.5),
        at_most("AO: 'twice' does not split by verb (η² at most 0.05)", "AO", "split_by_verb", 0.05),
        *(at_most(f"{label}: {away}", label, "twice_at_s", 0.0) for label in ("AO", SAME_LENGTH)),
        at_least(f"AO, T = S: {before}", SAME_LENGTH, "falls_on_word_before", 0.8),
        *(at_most(f"AO: '{word}' is negative at t = s", "AO", f"{word}_at_s", 0.0) for word in ("left", "and")),
        *(verdict for part, text in PARTS.items() for verdict in claims_at_every_offset(measured, part, text)),
    ]


def claims_at_every_offset(measured: Measurements, part: str, text: str) -> list[ClaimVerdict]:
    negative, words = f"is negative at all offsets from −5 to 5 (decoder's {text})", ("and", "twice")
    return [
        measured.at_least(f"AO: 'left' gains with offset (decoder's {text})", "AO", f"left_gain_{part}", 0.0),
        *(measured.at_most(f"AO: '{word}' {negative}", "AO", f"{word}_largest_{part}", 0.0) for word in words),
    ]


def draw(data: FigureData) -> Figure:
    picture, axes = plots.panels(3, 2, size=(4.8, 3.7))
    for model, ax in (("AED", axes[0]), ("AO", axes[1])):
        content = data[model]["twice"]
        plots.clouds(np.array(content["points"]), content["labels"], content["centres"], {}, ax=ax)
        ax.set_title(f"{model}: 'twice' by the verb before it")
    for label, ax in (("AO", axes[2]), (SAME_LENGTH, axes[3])):
        curves = {name: np.array(values) for name, values in data[label]["lookback"]["curves"].items()}
        plots.profiles(np.array(OFFSETS), curves, ax=ax, xlabel="offset t − s", ylabel="alignment")
        ax.set_title(f"{label}: alignment with 'twice' at t = s")
    for part, ax in zip(PARTS, axes[4:], strict=True):
        curves = {word: np.array(values) for word, values in data["AO"]["leaning"][part].items()}
        query = "μ(s)" if part == "temporal" else "h(s)"
        plots.profiles(np.array(OFFSETS), curves, ax=ax, xlabel="offset t − s", ylabel=f"{query} · (χ + Δ)")
        ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
        ax.set_title(f"AO: alignment of words with {query}")
    return picture


FIG6 = Finding(
    name="fig6",
    title="How 'twice', 'left' and 'and' are processed",
    section="§4.2, figure 6",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, draw=draw,
    notes=(
        "A sentence is as long as its translation (T = S) only if it has no 'and', which nine tenths of the commands "
        "have. A network trained on all of eSCAN has almost no such sentence, so one trained on these alone stands "
        "beside it.",
        "What this does not show: dot products are averages over sentences; the curves are of the first seed.",
    ),
)  # fmt: skip
