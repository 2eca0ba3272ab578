"""How good are a model's decisions, and how much do they depend on attention? (tutek2020 §3.2, §4.1, appendices B, C)

One measurement a run: tables 1 and 6 and appendix C are read off it. Scores are in percent, losses in points.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.probes.fragility import Fragility, fragility
from attnscope.probes.reweighing import read
from attnscope.studies.claims import Verdict, at_least, spread, untested
from attnscope.studies.finding import Case, Measured, Measurement, Subject, unless_absent
from attnscope.studies.published import published_by
from attnscope.studies.result import Row, row
from attnscope.studies.tutek2020.experiments import Sizes
from attnscope.tasks import Batch
from attnscope.training.decisions import Decisions, decide

if TYPE_CHECKING:
    from matplotlib.axes import Axes

published = published_by("tutek2020")
Panel = Mapping[str, Mapping[str, Any]]  # cells by group and bar

PERTURBED = ("uniform", "permuted")  # attention; in a measurement, what F1 loses with it
SCORES: dict[str, tuple[str, Callable[[Decisions], float]]] = {
    "f1": ("F1", lambda made: made.f1),
    "macro_f1": ("macro F1", lambda made: made.macro_f1),
    "accuracy": ("accuracy", lambda made: made.accuracy),
    "auc": ("AUC", lambda made: made.auc),
}
AS_IN_THE_PAPER = {
    "f1": "F1, trained attention (Tr.)",
    "uniform": "loss of F1, uniform attention (Un.)",
    "permuted": "loss of F1, permuted attention (Pm.)",
}
BESIDE = {
    "permuted_sd": "sd of the loss of F1 over permutations",
    **{
        f"{score}{ending}": f"{how}{SCORES[score][0]}{attention}"
        for score in ("macro_f1", "accuracy", "auc")
        for ending, how, attention in (
            ("", "", ", trained attention"),
            ("_uniform", "loss of ", ", uniform attention"),
            ("_permuted", "loss of ", ", permuted attention"),
        )
    },
    "changed_uniform": "decisions that uniform attention changes, %",
    "changed_permuted": "decisions that permuted attention changes, %",
    "moved_uniform": "change of the output, uniform attention (TVD)",
    "moved_permuted": "change of the output, permuted attention (TVD)",
    "entropy": "entropy of attention over that of uniform attention",
    "highest": "highest weight of a text",
    "validation_f1": "F1 on the validation split",
    "validation_accuracy": "accuracy on the validation split",
}
NOTES = (
    "F1 is that of the positive class: in table 1 a model loses 91.0 points of 91.0 (anemia), which a macro F1 cannot. "
    "A loss is what F1 has less of, in points; the paper prints it with a minus sign.",
    "A loss under permuted attention is the mean over draws, 100 in the profile paper and fewer in quick: the paper "
    "does not say whether it drew once. Only real words take part: start and end tokens are never attended to.",
    "Words keep the vectors that they start from, in all models but 'base, words trained': 100 numbers of GloVe and, "
    "where words are larger, random ones as widely spread. The paper does not name its vectors, and says only of MLM "
    "that words stay as they are.",
    "Where the paper is silent, settings are those of Jain and Wallace 2019: special tokens, AMSGrad, eight epochs "
    "(IMDB: four, our choice), of which the best on the validation split is kept, here by accuracy.",
    "Corpora are not all the paper's: AG News has a sixth of its training texts; 20 Newsgroups and IMDB are split anew "
    "by the recipe of Jain and Wallace, and long reviews are cut to 400 words rather than left out.",
    "Claims were written before any model was measured on a test split.",
)


@dataclass(frozen=True)
class Asked:
    """How often attention is permuted; and whether networks and epochs are those of the paper."""

    draws: int
    as_published: bool


def case(sizes: Sizes, make: Callable[[], Experiment]) -> Case:
    """A model to be asked; where its corpus is missing, that is reported."""
    return unless_absent(lambda: Case({"model": make()}, Asked(sizes.draws, sizes.name == "paper")))


# One model -----------------------------------------------------------------------------------------------------------


def measure(subject: Subject) -> Measurement:
    """Everything on the test split but what says so."""
    run = subject.runs["model"]
    model = run.model()
    found = fragility(model, run.task.batches("test"), subject.settings.draws)
    validation = decide(model, run.task.batches("validation"))
    return {
        "as_published": subject.settings.as_published,
        **in_percent(found),
        **moved(found),
        **looked(model, run.task.batches("test")),
        "validation_f1": 100 * validation.f1,
        "validation_accuracy": 100 * validation.accuracy,
    }


def in_percent(found: Fragility) -> dict[str, float]:
    """Each score, and what it loses; the losses of F1 are called after the attention alone."""
    numbers: dict[str, float] = {}
    for name, (_, score) in SCORES.items():
        uniform, permuted, over_draws = found.losses(score)
        beginning = "" if name == "f1" else f"{name}_"
        losses = {"uniform": uniform, "permuted": permuted, "permuted_sd": over_draws}
        numbers |= {name: 100 * score(found.own)}
        numbers |= {f"{beginning}{attention}": 100 * loss for attention, loss in losses.items()}
    return numbers


def moved(found: Fragility) -> dict[str, float]:
    table = found.table()
    return {
        f"{text}_{attention}": factor * float(table.loc[attention, column])  # type: ignore[arg-type]
        for attention in PERTURBED
        for text, column, factor in (("changed", "changed", 100.0), ("moved", "change", 1.0))
    } | {"highest": float(found.highest.mean())}


def looked(model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
    """The entropy of attention, relative to uniform attention's, and the length of texts in words: means over texts."""
    entropies, lengths = [], []
    for batch in batches:
        trace, attended = read(model, batch)
        entropies.append(relative_entropy(trace.attention[:, 0, 0], attended))
        lengths.append(attended.sum(-1))
    return {"entropy": torch.cat(entropies).nanmean().item(), "length": torch.cat(lengths).double().mean().item()}


def relative_entropy(
    weights: Float[Tensor, "batch source"], attended: Bool[Tensor, "batch source"]
) -> Float[Tensor, " batch"]:
    """From 0, all on one word, to 1, uniform; NaN for a text of one word, which has no choice.

    >>> mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    >>> relative_entropy(torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]), mask)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    entropy = torch.special.entr(weights.double()).sum(-1)
    most = attended.sum(-1).double().log()
    return torch.where(most > 0, entropy / most, torch.nan)


# Many models ---------------------------------------------------------------------------------------------------------


def rows(
    measured: Measured, label: str, section: str, quantities: Mapping[str, str], columns: Mapping[str, Any]
) -> list[Row]:
    """The rows of one label, with what the paper states in this section."""
    return [
        row(**columns, quantity=text, values=measured.values(label, name), **published(section, name))
        for name, text in quantities.items()
    ]


def no_lower(text: str, values: Sequence[float], others: Sequence[float], margin: float) -> Verdict:
    """Is a number at most so much lower than another one, seed by seed?"""
    if len(values) != len(others):
        return untested(text, "not as many seeds have one as have the other")
    return at_least(text, np.array(values) - np.array(others), -margin)


def cell(measured: Measured, label: str, section: str, name: str) -> dict[str, Any]:
    """What a figure needs: one number a seed, and the published one."""
    return {"ours": measured.values(label, name), "published": published(section, name).get("published")}


def bars(panel: Panel, ax: "Axes", ylabel: str) -> None:
    """A group a row, a bar a column: means, their deviation over seeds, and what is published where anything is."""
    means = frame(panel, lambda found: float(np.mean(found["ours"])))
    errors = frame(panel, lambda found: spread(found["ours"]))
    stated = frame(panel, lambda found: np.nan if found["published"] is None else found["published"])
    plots.bars(
        means,
        ax=ax,
        errors=errors if errors.any(axis=None) else None,
        published=stated if stated.notna().any(axis=None) else None,
        ylabel=ylabel,
    )


def frame(panel: Panel, summary: Callable[[Any], float]) -> pd.DataFrame:
    numbers = {name: {column: summary(found) for column, found in columns.items()} for name, columns in panel.items()}
    return pd.DataFrame.from_dict(numbers, orient="index", dtype=float)
