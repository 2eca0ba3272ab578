"""How good are a model's decisions, and how much do they depend on attention? (tutek2020 §3.2, §4.1, appendices B, C)

One measurement a run: tables 1 and 6 and appendix C are read off it. Scores are in percent, losses in points.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier
from attnscope.probes.counterfactual import trace_and_mask
from attnscope.probes.entropy import relative_entropy
from attnscope.probes.fragility import Fragility, fragility
from attnscope.probes.grounding import Grounding, GroundingAccumulator, batch_token_probabilities
from attnscope.studies.finding import Case, Measurement, PublishedOf, TrainedCase, case_unless_missing, published_by
from attnscope.studies.tutek2020.experiments import Sizes
from attnscope.tasks import Batch
from attnscope.training.decisions import Decisions, decide

published = published_by("tutek2020")

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
QUANTITIES = AS_IN_THE_PAPER | BESIDE
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
    return case_unless_missing(lambda: Case({"model": make()}, Asked(sizes.draws, sizes.name == "paper")))


# One model -----------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    """Everything on the test split but what says so."""
    run = subject.runs["model"]
    model = run.model()
    assert isinstance(model, Classifier)
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


def grounded(model: Classifier, batches: Iterable[Batch]) -> Grounding:
    """What each token alone would say (eq. 9)."""
    ground = GroundingAccumulator()
    for batch in batches:
        ground.update(batch_token_probabilities(model, batch))
    return ground.result()


def looked(model: Classifier, batches: Iterable[Batch]) -> dict[str, float]:
    """The entropy of attention, relative to uniform attention's, and the length of texts in words: means over texts."""
    entropies, lengths = [], []
    for batch in batches:
        trace, attended = trace_and_mask(model, batch)
        entropies.append(relative_entropy(trace.attention[:, 0, 0], attended))
        lengths.append(attended.sum(-1))
    return {"entropy": torch.cat(entropies).nanmean().item(), "length": torch.cat(lengths).double().mean().item()}


# Many models ---------------------------------------------------------------------------------------------------------


def stated_by(table: str) -> PublishedOf:
    """What a table of the paper states of a label, whose parts name its section."""
    return lambda label, name: published("_".join((table, *map(str, label))), name)


def by_parts(label: Any) -> dict[str, str]:
    """A column for each part of a label."""
    return {name: str(part) for name, part in label._asdict().items()}


def by_corpus_and_model(label: Any) -> dict[str, str]:
    return {"corpus": label.corpus, "model": label.model}
