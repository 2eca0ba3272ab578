"""Is attention learnt where every sentence has the same words? (snell2021 §3.3, figure 3; A.3)

Counts tell which word translates into which if words vary from sentence to sentence, and not if each sentence is a
permutation of the same words, nor of one of two such sets. Copying is as easy to express in all three cases.
"""

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Finding, Measurements
from attnscope.studies.result import Row
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.studies.snell2021.toys import (
    BLUE,
    FIRST_SEED,
    RED,
    WINDOW,
    CurvePictures,
    copying,
    draw_curves,
    ends,
    measure,
    pictures,
    sometimes,
    table_of,
)

DISTRIBUTIONS = {"permutations": "permutations", "control": "sampled", "mixture": "mixture"}
FAILURES = {f"within the {WINDOW} steps of the paper": "learnt_in_time", "at the end of training": "learnt"}
HARD = {"permutations": "permutations of 40 words", "mixture": "a mixture of permutations of 40 words and of 40 others"}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {label: copying(sizes.toys, distribution) for label, distribution in DISTRIBUTIONS.items()}


def table(measured: Measurements) -> list[Row]:
    return table_of(measured, lambda label, name: published(f"copying_{label}", name))


def claims(measured: Measurements) -> list[ClaimVerdict]:
    always = f"the control, 40 words out of 60, is learnt every time: 99 % of the words within {WINDOW} steps"
    verdicts = [measured.proportion(always, "control", "learnt_in_time")]
    for label, text in HARD.items():
        later = "delay: learnt later than the control (steps until 99 % of the words; never counts as the last step)"
        verdicts.append(measured.more_than(f"{text}: {later}", label, "control", "steps_needed"))
        for when, name in FAILURES.items():
            failures = [not learnt for learnt in measured.flags(label, name)]
            verdicts.append(sometimes(f"{text}: failure: sometimes not learnt {when}", failures))
    return verdicts


def draw(data: CurvePictures) -> Figure:
    """Draw the paper's two panels; below them, if training went on, the same to the end."""
    shown = ends(data)
    picture, axes = plots.panels(len(shown), 2, size=(4.9, 3.0))
    panels = iter(axes)
    for last in shown:
        for label in HARD:
            draw_curves(data, {label: RED, "control": BLUE}, next(panels), last, f"{label}, {last} steps")
    return picture


FIG3 = Finding(
    name="fig3",
    title="Attention is hard to learn where words always occur together",
    section="§3.3, figure 3; A.3",
    experiments=experiments, measure=measure, table=table, claims=claims,
    figure=lambda measured: pictures(measured, list(DISTRIBUTIONS)), draw=draw,
    notes=(
        "Accuracy on fresh sentences of the distribution of training, under teacher forcing, as in the "
        "author's code; the end token counts as a word. In the profile quick a run stops at 99 %, and its curve is "
        "continued at that height.",
        "Delay and failure are judged apart: in our first run (seeds 0 to 19) every network had learnt permutations by "
        "step 380, so a failure at step 300 was a delay. Training goes on for ten times as long as in the paper, and "
        "is judged on other seeds.",
        "What this does not show: that a network which has not learnt at the end never will.",
    ),
    first_seed=FIRST_SEED,
    seeds=lambda sizes: sizes.toys.seeds,
)  # fmt: skip
