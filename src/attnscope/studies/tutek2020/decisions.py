"""Predictions of a model with its own, uniform and permuted attention. (tutek2020 §3.2, §4.1, appendices B, C)

One measurement per run: tables 1 and 6 and appendix C are read from it. Scores are in percent, losses in points.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier
from attnscope.probes.counterfactual import trace_and_mask
from attnscope.probes.divergences import relative_entropy
from attnscope.probes.fragility import Fragility, fragility
from attnscope.probes.grounding import Grounding, GroundingAccumulator, batch_token_probabilities
from attnscope.studies.finding import (
    Case,
    Label,
    Measurement,
    PublishedNumber,
    PublishedOf,
    TrainedCase,
    case_unless_missing,
    published_by,
)
from attnscope.studies.tutek2020.experiments import AdditiveLabel, LayersLabel, ModelLabel, Sizes
from attnscope.tasks import Batch
from attnscope.training.evaluation import Decisions, decide

published = published_by("tutek2020")

PERTURBED = ("uniform", "permuted")  # attention; these names also stand for the loss of F1 under it
SCORES: dict[str, tuple[str, Callable[[Decisions], float]]] = {
    "f1": ("F1", lambda decisions: decisions.f1),
    "macro_f1": ("macro F1", lambda decisions: decisions.macro_f1),
    "accuracy": ("accuracy", lambda decisions: decisions.accuracy),
    "auc": ("AUC", lambda decisions: decisions.auc),
}
PAPER_QUANTITIES = {
    "f1": "F1, trained attention (Tr.)",
    "uniform": "loss of F1, uniform attention (Un.)",
    "permuted": "loss of F1, permuted attention (Pm.)",
}
EXTRA_QUANTITIES = {
    "permuted_sd": "sd of the loss of F1 over permutations",
    **{
        f"{score}{suffix}": f"{loss}{SCORES[score][0]}, {attention} attention"
        for score in ("macro_f1", "accuracy", "auc")
        for suffix, loss, attention in (
            ("", "", "trained"),
            ("_uniform", "loss of ", "uniform"),
            ("_permuted", "loss of ", "permuted"),
        )
    },
    "changed_uniform": "predictions changed by uniform attention, %",
    "changed_permuted": "predictions changed by permuted attention, %",
    "moved_uniform": "change of the output, uniform attention (TVD)",
    "moved_permuted": "change of the output, permuted attention (TVD)",
    "entropy": "entropy of attention, relative to uniform attention",
    "highest": "maximum attention weight of a text",
    "validation_f1": "F1 on the validation split",
    "validation_accuracy": "accuracy on the validation split",
}
QUANTITIES = PAPER_QUANTITIES | EXTRA_QUANTITIES
NOTES = (
    "F1 is that of the positive class: in table 1 a model loses 91.0 points of 91.0 (anemia), which a macro F1 cannot. "
    "A loss is what F1 has less of, in points; the paper prints it with a minus sign.",
    "A loss under permuted attention is the mean over permutations, 100 in the profile paper and fewer in quick: the "
    "paper does not say how many it samples. Start and end tokens are never attended to.",
    "Embeddings are frozen in all models but 'base, words trained': 100 dimensions of GloVe and, where embeddings are "
    "larger, random numbers of the same spread. The paper does not name its embeddings, and only says of MLM that they "
    "are frozen.",
    "Where the paper is silent, settings are those of Jain and Wallace 2019: special tokens, AMSGrad, eight epochs "
    "(IMDB: four, our choice), of which the best on the validation split is kept, here by accuracy.",
    "Corpora are not all the paper's: AG News has a sixth of its training texts; 20 Newsgroups and IMDB are split anew "
    "by the recipe of Jain and Wallace, and long reviews are truncated to 400 words rather than left out.",
    "Claims were written before any model was measured on a test split.",
)


@dataclass(frozen=True)
class DecisionSettings:
    """How often attention is permuted; whether networks and epochs are those of the paper."""

    num_permutations: int
    as_published: bool


def case(sizes: Sizes, make: Callable[[], Experiment]) -> Case:
    """Return the case of one model, or one that is reported as failed where its corpus is missing."""
    settings = DecisionSettings(sizes.num_permutations, sizes.name == "paper")
    return case_unless_missing(lambda: Case({"model": make()}, settings))


# One model -----------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    """Return scores and losses on the test split, and two scores on the validation split."""
    model, task = trained_classifier(subject), subject.runs["model"].task
    robustness = fragility(model, task.batches("test"), subject.settings.num_permutations)
    validation = decide(model, task.batches("validation"))
    return {
        "as_published": subject.settings.as_published,
        **scores_and_losses(robustness),
        **output_changes(robustness),
        **entropy_and_length(model, task.batches("test")),
        "validation_f1": 100 * validation.f1,
        "validation_accuracy": 100 * validation.accuracy,
    }


def trained_classifier(subject: TrainedCase, role: str = "model") -> Classifier:
    """Return the trained classifier of a case."""
    model = subject.runs[role].model()
    assert isinstance(model, Classifier)
    return model


def batches_on_device(subject: TrainedCase) -> list[Batch]:
    """Return the test split on the device of the case."""
    return [batch.to(subject.device) for batch in subject.runs["model"].task.batches("test")]


def scores_and_losses(robustness: Fragility) -> dict[str, float]:
    """Return each score, and its losses by the attention; losses of F1 have no prefix."""
    numbers: dict[str, float] = {}
    for name, (_, score) in SCORES.items():
        losses = zip(("uniform", "permuted", "permuted_sd"), robustness.losses(score), strict=True)
        prefix = "" if name == "f1" else f"{name}_"
        numbers |= {name: 100 * score(robustness.own)}
        numbers |= {f"{prefix}{attention}": 100 * loss for attention, loss in losses}
    return numbers


def output_changes(robustness: Fragility) -> dict[str, float]:
    """Return how many predictions change (percent), how far outputs move (TVD), and the maximum attention weight."""
    table = robustness.table().astype(float)
    changed = {f"changed_{how}": 100 * float(table["changed"][how]) for how in PERTURBED}
    moved = {f"moved_{how}": float(table["change"][how]) for how in PERTURBED}
    return {**changed, **moved, "highest": float(robustness.highest.mean())}


def token_grounding(model: Classifier, batches: Iterable[Batch]) -> Grounding:
    """Return the predictions of each token alone (eq. 9)."""
    grounding = GroundingAccumulator()
    for batch in batches:
        grounding.update(batch_token_probabilities(model, batch))
    return grounding.result()


def entropy_and_length(model: Classifier, batches: Iterable[Batch]) -> dict[str, float]:
    """Return means over texts: the entropy of attention relative to uniform attention, and the number of words."""
    entropies, lengths = [], []
    for batch in batches:
        trace, attended = trace_and_mask(model, batch)
        entropies.append(relative_entropy(trace.attention[:, 0, 0], attended))
        lengths.append(attended.sum(-1))
    return {"entropy": torch.cat(entropies).nanmean().item(), "length": torch.cat(lengths).double().mean().item()}


# Many models ---------------------------------------------------------------------------------------------------------


def published_in(table: str) -> PublishedOf:
    """Return the published numbers of a table: the fields of a label name its section."""

    def published_number(label: Label, name: str) -> PublishedNumber:
        parts = (label,) if isinstance(label, str) else label
        return published("_".join((table, *map(str, parts))), name)

    return published_number


def label_columns(label: ModelLabel | AdditiveLabel | LayersLabel) -> dict[str, str]:
    """Return one column per field of a label."""
    return {name: str(part) for name, part in label._asdict().items()}


def corpus_and_model(label: ModelLabel) -> dict[str, str]:
    """Return columns for corpus and model; the attention is the same for all."""
    return {"corpus": label.corpus, "model": label.model}


def corpus_and_attention(label: ModelLabel) -> str:
    """Return the name of a group of models."""
    return f"{label.corpus}, {label.attention}"
