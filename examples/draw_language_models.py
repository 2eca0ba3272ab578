"""Figures of what examples/train_language_models.py has measured.

    python examples/draw_language_models.py RESULTS FOLDER

reads RESULTS/MODEL/*.csv and writes to FOLDER

    language-models-formation.png    loss, kinds of heads, dependence on attention and A(α, β), over training steps
    language-models-heads.png        scores of all heads after the last step; marked: confirmed by ablation
    language-models-maps.png         attention of the best head of each kind on one sentence
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from attnscope import plots

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
TITLES = ("loss (nats)", "largest score of a head", "does the output depend on it?", "A(α, β), last layer")


def main() -> None:
    results, out = Path(sys.argv[1]), Path(sys.argv[2])
    models = sorted(path.parent for path in results.glob("*/curves.csv"))
    with plots.style():
        for draw, columns, size in (
            (formation, 4, (3.3, 2.7)),
            (heads, len(SCORES), (2.7, 1.9)),
            (maps, 4, (3.6, 3.6)),
        ):
            figure, axes = plots.panels(len(models), columns, size)
            for i, folder in enumerate(models):
                draw(folder, axes[i * columns : (i + 1) * columns])
            figure.savefig(out / f"language-models-{draw.__name__}.png", dpi=130)


def formation(folder: Path, axes: list[Axes]) -> None:
    curves, heads = pd.read_csv(folder / "curves.csv").set_index("step"), pd.read_csv(folder / "heads.csv")
    axes[0].plot(np.log(curves["validation perplexity"]), "o-", color="black", label="held-out text")
    axes[0].plot(curves["loss, random tokens"], "o:", color="C7", label="random tokens")
    axes[0].plot(curves["loss, their repetition"], "o-", color="C3", label="their repetition")
    axes[0].set_ylabel(folder.name)
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
        ax.set_title(title, fontsize="small")
        ax.set_xlabel("training step")
        for line in ax.lines:
            line.set_markersize(3)
        ax.legend(fontsize="xx-small")


def heads(folder: Path, axes: list[Axes]) -> None:
    table, on_random, on_texts = (pd.read_csv(folder / f"{name}.csv") for name in ("heads", "kinds", "kinds-on-texts"))
    last = table["step"].max()
    table, on_random = table[table["step"] == last], on_random[on_random["step"] == last]
    for ax, (kind, column) in zip(axes, SCORES.items(), strict=True):
        cells = table.pivot_table(index="layer", columns="head", values=column)
        ax.imshow(cells, cmap="Greys", vmin=0, vmax=2)
        kinds = on_random if "repeated" in column else on_texts
        confirmed = kinds[(kinds["kind"] == kind) & kinds["confirmed"]]
        marked = {(row.layer, row.head) for row in confirmed.itertuples()}
        for (row, layer), (column_number, head) in (
            (one, two) for one in enumerate(cells.index) for two in enumerate(cells.columns)
        ):
            star = (layer, head) in marked
            ax.text(
                column_number, row, f"{cells.loc[layer, head]:.2f}{'*' if star else ''}", ha="center", va="center",
                fontsize=7,
                color="C3" if star else "black",
            )  # fmt: skip
        ax.set_xticks(range(cells.shape[1]), cells.columns)
        ax.set_yticks(range(cells.shape[0]), cells.index)
        ax.set_title(f"{kind} (share)" if kind == "positional" else kind, fontsize="small")
        ax.set_xlabel("head")
        ax.set_ylabel(f"{folder.name}\nlayer" if ax is axes[0] else "layer", fontsize="small")


def maps(folder: Path, axes: list[Axes]) -> None:
    table = pd.read_csv(folder / "maps.csv", keep_default_na=False)
    for ax, kind in zip(axes, SCORES, strict=False):
        rows = table[table["kind"] == kind]
        cells = rows.pivot_table(index="target", columns="source", values="weight")
        names = rows.drop_duplicates("source").sort_values("source")["source_token"]
        names = names.str.replace("Ġ", "").str.replace("<|endoftext|>", "(start)").tolist()  # as GPT-2 writes a space
        ax.imshow(cells.astype(float), cmap="Greys", vmin=0, vmax=1)
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=5)
        ax.set_yticks(range(len(names)), names, fontsize=5)
        layer, head = rows.iloc[0][["layer", "head"]]
        ax.set_title(f"{folder.name}: {kind}\n(layer {layer}, head {head})", fontsize="small")


if __name__ == "__main__":
    main()
