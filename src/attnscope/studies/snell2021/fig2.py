"""When did another seed agree as much? The curve that ξ is read off, and that of β^uf. (snell2021 figure 2, A.7)"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.probes.learning_curve import LearningCurve
from attnscope.studies.claims import ClaimVerdict, always, more_than
from attnscope.studies.finding import Finding, Measurements
from attnscope.studies.result import Row
from attnscope.studies.snell2021.agreements import measure
from attnscope.studies.snell2021.experiments import cases
from attnscope.studies.snell2021.layouts import CHOICES, ELSEWHERE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "attention_uniform": "A(α, β^uf(τ)) at its best",
    "best_step": "step τ at which it is best",
    "attention_uniform_last": "A(α, β^uf(τ)) when training ends",
    "attention_again": "A(α, α̂(τ)) when training ends",
    "xi_attention_uniform": "ξ(α, β^uf)",
    "xi_final": "ξ*",
}


def table(measured: Measurements) -> list[Row]:
    quantities = {f"validation.top.{name}": text for name, text in QUANTITIES.items()}
    return measured.table(quantities, columns=lambda corpus: {"corpus": corpus})


def ends(measured: Measurements, corpus: str, curve: str) -> tuple[list[float], list[float]]:
    """A curve when training ends and when it begins, one number a seed."""
    curves = [m["curves"]["validation"][curve] for m in measured[corpus]]
    return [curve[-1] for curve in curves], [curve[0] for curve in curves]


def claims(measured: Measurements) -> list[ClaimVerdict]:
    rising = {"again_top": "A(α, α̂(τ))", "xi": "p̂(τ)"}
    return [
        *(
            always(
                f"{corpus}: A(α, β^uf(τ)) rises, then falls: it is best between the first and the last checkpoint",
                measured.flags(corpus, "validation.top.rises_then_falls"),
            )
            for corpus in measured
        ),
        *(
            more_than(f"{corpus}: {text} increases: higher at the end than at the start", *ends(measured, corpus, name))
            for name, text in rising.items()
            for corpus in measured
        ),
    ]


def figure(measured: Measurements) -> Any:
    return {corpus: picture(measured, corpus) for corpus in measured if measured[corpus]}


def picture(measured: Measurements, corpus: str) -> dict[str, Any]:
    """The curves of all seeds, and the agreements that are put in context, as means."""
    names = ("attention_uniform", "attention_lexical", "chance_attention_uniform")
    return {
        "curves": [m["curves"]["validation"] for m in measured[corpus]],
        **{name: np.mean(measured.values(corpus, f"validation.top.{name}")) for name in names},
    }


def draw(data: Any) -> "Figure":
    """A row a corpus: figure 2 as a mean over seeds, and beside it β^uf during training."""
    drawn, axes = plots.panels(max(len(data), 1), 2, size=(6.4, 2.8))
    for left, right, (corpus, picture) in zip(axes[::2], axes[1::2], data.items(), strict=False):
        curves = picture["curves"]
        levels = {"A(α, β^uf)": picture["attention_uniform"], "A(α, β)": picture["attention_lexical"]}
        LearningCurve.mean([learning_curve(seed) for seed in curves]).plot(left, levels).set_ylabel("agreement, p̂")
        left.set_title(f"{corpus}: another seed, and where it first agrees more")
        draw_uniform(curves, picture["chance_attention_uniform"], right)
        right.set_title(f"{corpus}: β^uf during training")
    return drawn


def learning_curve(curves: dict[str, Any]) -> LearningCurve:
    return LearningCurve(tuple(curves["steps"]), tuple(curves["again_top"]), tuple(curves["xi"]))


def draw_uniform(curves: Sequence[dict[str, Any]], chance: float, ax: Any) -> None:
    """A(α, β^uf(τ)), the mean over seeds and their spread, with its best step."""
    steps, seeds = curves[0]["steps"], np.array([seed["uniform_top"] for seed in curves])
    name = "A(α, β^uf(τ))"
    plots.profiles(
        steps,
        {name: seeds.mean(0), "chance Â": [chance] * len(steps)},
        ax=ax,
        xlabel="training step τ",
        ylabel="agreement",
        marks={name: steps[int(seeds.mean(0).argmax())]},
        bands={name: seeds.std(0, ddof=min(1, len(seeds) - 1))},
    )


FIG2 = Finding(
    name="fig2",
    title="Another seed's attention comes to agree, and β^uf agrees best midway",
    section="§3.1, figure 2; A.7",
    experiments=lambda sizes: cases(sizes.text, sizes.text.in_tables), measure=measure, table=table, claims=claims,
    figure=figure, draw=draw,
    notes=(
        "The paper draws figure 2 as a sketch; here it is drawn from the runs, as a mean over seeds, for every corpus. "
        "p̂ is accuracy; in translation it is that of words, hearing the gold ones.",
        "The profile 'quick' may end before A(α, β^uf(τ)) has turned down, in translation above all; the claim that it "
        "falls is then reported as failed.",
        *CHOICES[:2],
        *ELSEWHERE,
        "What this does not show: that β^uf gets worse as such; it only agrees less with this α.",
    ),
)  # fmt: skip
