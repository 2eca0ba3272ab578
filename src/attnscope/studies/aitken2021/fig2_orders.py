"""What if the output is reversed, or sorted? (aitken2021 §3 "Additional Tasks", figure 2g and 2h)

Reversed, one of the two curves is walked the other way round, and attention becomes anti-diagonal. Sorted, where to
look depends on what was read, so time can contribute nothing: the decoder's delta asks for a word.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.probes.decomposition import TEMPORAL
from attnscope.probes.decomposition.terms import TERMS, term_name
from attnscope.studies.aitken2021.experiments import AED, AO, Sizes, reversed_one_to_one, sorting
from attnscope.studies.aitken2021.look import look
from attnscope.studies.aitken2021.pictures import draw_matrix, draw_paths, draw_temporal_attention, matrix, paths
from attnscope.studies.claims import ClaimVerdict, always, at_least, at_most
from attnscope.studies.finding import Finding, Measurement, Measurements
from attnscope.tasks import ReversedOneToOne

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED = "AO, length 20"  # AO cannot see how long a sentence is, and where to look first depends on it


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
    seen = look(run)
    assert isinstance(run.task, ReversedOneToOne)
    steps = run.task.min_length  # steps of words in every sentence: the end token, which answers the end token, is none
    peaks = seen.walks.products[:steps].argmax(1)
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "direction": float(np.corrcoef(np.arange(steps), peaks)[0, 1]) if peaks.std() > 0 else 0.0,
        "temporal_share": seen.between.shares.temporal[0].item(),
        "picture": paths(seen),
    }


def claims_reversed(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for model in measured:
        learnt = f"{model} learns the reversed task: word accuracy at least 0.98"
        backward = f"{model}: the temporal attention is anti-diagonal (correlation of s and its peak at most -0.9)"
        verdicts += [
            at_least(learnt, measured.values(model, "word_accuracy"), 0.98),
            at_most(backward, measured.values(model, "direction"), -0.9),
        ]
    return verdicts


def figure_reversed(measured: Measurements) -> Any:
    return {model: measured.first(model)["picture"] for model in ("AED", FIXED)}


def draw_reversed(data: Any) -> "Figure":
    picture, axes = plots.panels(2, 2, size=(4.4, 3.6))
    for model, (left, right) in zip(data, (axes[:2], axes[2:]), strict=True):
        draw_paths(data[model], left, f"{model}: temporal components")
        draw_temporal_attention(data[model]["temporal attention"], right, f"{model}: softmax of μ(s) · μ(t)")
    return picture


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
    seen = look(run)
    shares = seen.between.shares.absolute[0]
    largest = TERMS[int(shares.flatten().argmax())]
    return {
        "word_accuracy": run.summary["word_accuracy"],
        **{term_name(term): share.item() for term, share in zip(TERMS, shares.flatten(), strict=True)},
        "delta_input_is_largest": largest == ("delta", "input"),
        "picture": {title: matrix(seen, seen.example, keep) for title, keep in SHOWN.items()},
    }


def claims_sorting(measured: Measurements) -> list[ClaimVerdict]:
    return [
        at_least("AED learns to sort: word accuracy at least 0.98", measured.values("AED", "word_accuracy"), 0.98),
        at_most(
            "temporal · temporal is negligible: at most a tenth of the alignment",
            measured.values("AED", "temporal·temporal"),
            0.1,
        ),
        always(
            "decoder delta · encoder input dominates: it is the largest of the nine terms",
            measured.flags("AED", "delta_input_is_largest"),
        ),
    ]


def draw_sorting(data: Any) -> "Figure":
    picture, axes = plots.panels(2, 2, size=(4.4, 4.0))
    for (title, content), ax in zip(data.items(), axes, strict=True):
        draw_matrix(content, ax, title)
    return picture


FIG2G = Finding(
    name="fig2g",
    title="Reversed output: the temporal attention turns anti-diagonal",
    section="§3, figure 2g",
    experiments=experiments_reversed, measure=measure_reversed,
    table=lambda measured: measured.table(QUANTITIES_REVERSED), claims=claims_reversed, figure=figure_reversed,
    draw=draw_reversed,
    notes=(
        "AO has no way to know how long a sentence is, and the first word to say is the last one read; so AO is "
        "trained at a single length, too.",
        "What this does not show: where sentences differ in length, the anti-diagonal of the mean is a blur.",
    ),
)  # fmt: skip
FIG2H = Finding(
    name="fig2h",
    title="Sorting: attention depends on the words, not on time",
    section="§3, figure 2h",
    experiments=lambda sizes: {"AED": sorting(AED, sizes)}, measure=measure_sorting,
    table=lambda measured: measured.table(QUANTITIES_SORTING), claims=claims_sorting,
    figure=lambda measured: measured.first("AED")["picture"], draw=draw_sorting,
    notes=(
        "The paper does not say how many letters it sorts, nor how many kinds there are: ours are 15 to 20 of 10.",
        "What this does not show: a share of |terms| counts terms that cancel each other, too.",
    ),
)  # fmt: skip
