"""Agreement over training: of another seed, from which ξ is read, and of β^uf. (snell2021 figure 2, A.7)"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.probes.agreement import LearningCurve
from attnscope.studies.bars import draw_curves
from attnscope.studies.claims import UNIT, ClaimVerdict, more_than
from attnscope.studies.finding import FigureData, Finding, Measurements
from attnscope.studies.snell2021.agreements import measure
from attnscope.studies.snell2021.experiments import corpus_cases
from attnscope.studies.snell2021.tables import CHOICES, SEE_TABLE5

QUANTITIES = {
    "validation.top.attention_uniform": "A(α, β^uf(τ)) at its best",
    "validation.top.best_step": "step τ at which it is best",
    "validation.top.attention_uniform_last": "A(α, β^uf(τ)) when training ends",
    "validation.top.attention_again": "A(α, α̂(τ)) when training ends",
    "validation.top.xi_attention_uniform": "ξ(α, β^uf)",
    "validation.top.xi_final": "ξ*",
}


def ends(measured: Measurements, corpus: str, curve: str) -> tuple[list[float], list[float]]:
    """Return a curve at the end and at the start of training, one number per seed."""
    curves = [curves["validation"][curve] for curves in measured.per_seed(corpus, "curves")]
    return [curve[-1] for curve in curves], [curve[0] for curve in curves]


def claims(measured: Measurements) -> list[ClaimVerdict]:
    rising = {"again_top": "A(α, α̂(τ))", "xi": "p̂(τ)"}
    turns = "{}: A(α, β^uf(τ)) rises, then falls: it is best between the first and the last checkpoint"
    return [
        *(measured.proportion(turns.format(corpus), corpus, "validation.top.rises_then_falls") for corpus in measured),
        *(
            more_than(f"{corpus}: {text} increases: higher at the end than at the start", *ends(measured, corpus, name))
            for name, text in rising.items()
            for corpus in measured
        ),
    ]


def figure(measured: Measurements) -> FigureData:
    """Return by corpus the curves of all seeds (steps, α̂(τ), β^uf(τ), p̂(τ)), and means of agreements and of chance."""
    means = ("attention_uniform", "attention_lexical", "chance_attention_uniform")
    return {
        corpus: {
            "curves": [curves["validation"] for curves in measured.per_seed(corpus, "curves")],
            **{name: float(np.mean(measured.values(corpus, f"validation.top.{name}"))) for name in means},
        }
        for corpus in measured
        if measured[corpus]
    }


def draw(data: FigureData) -> Figure:
    """Draw one row per corpus: figure 2 as a mean over seeds, and β^uf during training."""
    picture, axes = plots.panels(max(len(data), 1), 2, size=(6.4, 2.8))
    for left, right, (corpus, panel) in zip(axes[::2], axes[1::2], data.items(), strict=False):
        levels = {"A(α, β^uf)": panel["attention_uniform"], "A(α, β)": panel["attention_lexical"]}
        seeds = [LearningCurve(tuple(c["steps"]), tuple(c["again_top"]), tuple(c["xi"])) for c in panel["curves"]]
        LearningCurve.mean(seeds).plot(left, levels).set_ylabel("agreement, p̂")
        left.set_title(f"{corpus}: another seed, and where it first agrees more")
        draw_uniform(panel["curves"], panel["chance_attention_uniform"], right)
        right.set_title(f"{corpus}: β^uf during training")
    return picture


def draw_uniform(curves: FigureData, chance: float, ax: Axes) -> None:
    """Draw A(α, β^uf(τ)), the mean over seeds and their interval, with its best step."""
    steps, seeds = curves[0]["steps"], np.array([seed["uniform_top"] for seed in curves])
    name, level = "A(α, β^uf(τ))", np.full((1, len(steps)), chance)
    marks = {name: steps[int(seeds.mean(0).argmax())]}
    draw_curves(
        steps, {name: seeds, "chance Â": level}, ax, UNIT, xlabel="training step τ", ylabel="agreement", marks=marks
    )


FIG2 = Finding(
    name="fig2",
    title="Another seed's attention comes to agree, and β^uf agrees best midway",
    section="§3.1, figure 2; A.7",
    experiments=lambda sizes: corpus_cases(sizes.text, sizes.text.in_tables), measure=measure, table=QUANTITIES,
    columns=lambda corpus: {"corpus": corpus}, claims=claims, figure=figure, draw=draw,
    notes=(
        "The paper draws figure 2 as a sketch; here it is drawn from the runs, as a mean over seeds, for every corpus. "
        "p̂ is accuracy; in translation it is that of words, under teacher forcing.",
        "The profile 'quick' may end before A(α, β^uf(τ)) has turned down, in translation above all; the claim that it "
        "falls is then reported as failed.",
        *CHOICES[:2],
        *SEE_TABLE5,
        "What this does not show: that β^uf gets worse as such; it only agrees less with this α.",
    ),
)  # fmt: skip
