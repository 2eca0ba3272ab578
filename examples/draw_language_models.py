"""Figures of what examples/train_language_models.py has measured.

    python examples/draw_language_models.py RESULTS AUDITS FOLDER

reads RESULTS/MODEL/*.csv and AUDITS/MODEL-PROMPTS/audit.json, and writes to FOLDER

    language-models-formation.png    loss, kinds of heads, dependence on attention and A(α, β), over training steps
    language-models-heads.png        scores of all heads after the last step; marked: confirmed by ablation
    language-models-maps.png         attention of the best heads on one sentence
    language-models-audits.png       route and agreement of every audit, for words and for named parts of a prompt
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from attnscope import plots
from attnscope.auditing.report import Report, tests_by_unit
from attnscope.faithfulness.criteria import AGREEMENT, ROUTE

SCORES = {  # columns of heads.csv, by kind: on held-out texts, but for kinds that only random tokens tell apart
    "previous token": "previous without sink", "induction": "induction without sink, repeated tokens",
    "duplicate token": "duplicate without sink, repeated tokens", "sink": "first", "positional": "position",
}  # fmt: skip
COLOURS = dict(zip(SCORES, ("C0", "C3", "C2", "C7", "C4"), strict=True))
DEPENDENCE = {
    "output change, shuffled": "output change if shuffled (TVD)",
    "decisions changed, shuffled": "decisions changed if shuffled",
    "τ with leave-one-out": "τ with leave-one-out",
}  # fmt: skip
LEXICAL = {"A(α, β)": "o-", "A(α, β) without sink": "o--", "A(α, β) by chance": ":"}
NAMES = {"gpt2": "GPT-2-like", "llama": "Llama-like"}  # by the beginning of a folder's name
PROMPTS = {"words": "next word", "news": "topic of news", "facts": "synthetic facts"}  # by the end of an audit's name
UNITS = {"word": "o", "named part": "s"}
TITLES = ("loss (nats)", "largest score of a head", "change if attention is shuffled; τ", "A(α, β), last layer")


def main() -> None:
    results, out = Path(sys.argv[1]), Path(sys.argv[3])
    models = sorted(path.parent for path in results.glob("*/curves.csv"))
    with plots.style():
        for draw, rows, size in ((formation, 4, (4.0, 2.4)), (heads, len(SCORES), (4.0, 2.1)), (maps, 3, (4.0, 4.2))):
            figure, axes = plots.panels(rows, len(models), size)
            for i, folder in enumerate(models):
                draw(folder, axes[i :: len(models)])
            figure.savefig(out / f"language-models-{draw.__name__}.png", dpi=110)
        figure, axes = plots.panels(1, len(models), (4.0, 3.4))
        for ax, folder in zip(axes, models, strict=True):
            audits(Path(sys.argv[2]), folder.name, ax)
        figure.savefig(out / "language-models-audits.png", dpi=110)


def title_of(folder: Path) -> str:
    return NAMES.get(folder.name.partition("-")[0], folder.name)


def formation(folder: Path, axes: list[Axes]) -> None:
    curves, heads = pd.read_csv(folder / "curves.csv").set_index("step"), pd.read_csv(folder / "heads.csv")
    axes[0].plot(np.log(curves["validation perplexity"]), "o-", color="black", label="held-out text")
    axes[0].plot(curves["loss, random tokens"], "o:", color="C7", label="random tokens")
    axes[0].plot(curves["loss, their repetition"], "o--", color="C3", label="their repetition")
    for kind in list(SCORES)[:4]:
        axes[1].plot(heads.groupby("step")[SCORES[kind]].max(), "o-", color=COLOURS[kind], label=kind)
    for column, name in DEPENDENCE.items():
        axes[2].plot(curves[column], "o-", label=name)
    for column, line in LEXICAL.items():
        axes[3].plot(curves[column], line, color="C1" if "o" in line else "0.4", label=column)
    for ax, title in zip(axes, TITLES, strict=True):
        ax.set_xscale("symlog", linthresh=float(curves.index[1]))
        ax.set_xlim(0)
        ax.set_ylim(min(0, ax.get_ylim()[0]))
        ax.set_title(f"{title_of(folder)}: {title}", fontsize="small")
        ax.set_xlabel("training step" if ax is axes[-1] else "")
        for line in ax.lines:
            line.set_markersize(3)
        ax.legend(fontsize="x-small")


def heads(folder: Path, axes: list[Axes]) -> None:
    table, on_random, on_texts = (pd.read_csv(folder / f"{name}.csv") for name in ("heads", "kinds", "kinds-on-texts"))
    last = table["step"].max()
    table, on_random = table[table["step"] == last], on_random[on_random["step"] == last]
    for ax, (kind, column) in zip(axes, SCORES.items(), strict=True):
        cells = table.pivot_table(index="layer", columns="head", values=column)
        ax.imshow(cells, cmap="Greys", vmin=0, vmax=2, aspect="auto")
        kinds = on_random if "repeated" in column else on_texts
        confirmed = kinds[(kinds["kind"] == kind) & kinds["confirmed"]]
        marked = {(row.layer, row.head) for row in confirmed.itertuples()}
        for (y, x), value in np.ndenumerate(cells.to_numpy()):
            star = (cells.index[y], cells.columns[x]) in marked
            colour = "C3" if star else "black"
            ax.text(x, y, f"{value:.2f}{'*' if star else ''}", ha="center", va="center", fontsize=8, color=colour)
        ax.set_xticks(range(cells.shape[1]), cells.columns)
        ax.set_yticks(range(cells.shape[0]), cells.index)
        ax.set_title(f"{title_of(folder)}: {'share of position' if kind == 'positional' else kind}", fontsize="small")
        ax.set_xlabel("head" if ax is axes[-1] else "")
        ax.set_ylabel("layer")


def maps(folder: Path, axes: list[Axes]) -> None:
    table = pd.read_csv(folder / "maps.csv", keep_default_na=False)
    kinds = [kind for kind in SCORES if kind in set(table["kind"])]
    best = {kind: tuple(table.loc[table["kind"] == kind, ["layer", "head"]].iloc[0]) for kind in kinds}
    for ax in axes:
        ax.set_axis_off()
    for ax, (layer, head) in zip(axes, dict.fromkeys(best.values()), strict=False):  # one head may be best in two kinds
        names = [kind for kind in kinds if best[kind] == (layer, head)]
        rows = table[table["kind"] == names[0]]
        cells = rows.pivot_table(index="target", columns="source", values="weight")
        tokens = rows.drop_duplicates("source").sort_values("source")["source_token"]
        tokens = tokens.str.replace("Ġ", "").str.replace("<|endoftext|>", "(start)").tolist()  # as GPT-2 writes a space
        ax.set_axis_on()
        ax.imshow(cells.astype(float), cmap="Greys", vmin=0, vmax=1)
        ax.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
        ax.set_yticks(range(len(tokens)), tokens, fontsize=7)
        ax.set_title(f"{title_of(folder)}, layer {layer}, head {head}:\n{', '.join(names)}", fontsize="small")


def audits(folder: Path, model: str, ax: Axes) -> None:
    """Draw route and agreement with their 95 % intervals, and the areas where they answer yes and no."""
    route, agreement = ROUTE.bounds, AGREEMENT.bounds
    assert route is not None
    assert agreement is not None
    ax.axvspan(-0.05, route.no, color="0.92", zorder=0)
    ax.axhspan(-0.25, agreement.no, color="0.92", zorder=0)
    ax.fill_between([route.yes, 1.05], agreement.yes, 1.05, color="C2", alpha=0.2, zorder=0, linewidth=0)
    for i, (prompts, title) in enumerate(PROMPTS.items()):
        tests = tests_by_unit(Report.load(folder / f"{model}-{prompts}" / "audit.json"))
        for unit, marker in UNITS.items():
            if unit in tests:
                x, y = (tests[unit][name] for name in (ROUTE.name, AGREEMENT.name))
                errors = ([[test.value - test.low], [test.high - test.value]] for test in (y, x))
                ax.errorbar(x.value, y.value, *errors, marker, color=f"C{i}", label=f"{title}, by {unit}", markersize=5)
    ax.text(1.03, 1.02, "yes", ha="right", va="top", color="C2")
    ax.text(0.02, -0.22, "no", color="0.4")
    ax.set(xlim=(-0.05, 1.05), ylim=(-0.25, 1.05), xlabel="route", ylabel="agreement")
    ax.set_title(NAMES[model.partition("-")[0]], fontsize="small")
    ax.legend(fontsize="x-small", loc="lower right")


if __name__ == "__main__":
    main()
