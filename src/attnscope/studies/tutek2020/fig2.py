"""Which words does a model lean on? Sentences, and the probability that each word alone would give. (tutek2020 §5, D)

The paper draws figures 2 to 7 from sentences that it picks. Here they are picked by rule, from the validation split of
SST: of those that base classifies correctly, the surest, a typical and the least sure one, a long one, and one that it
gets wrong; each by the lowest number among equals.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.grounding import TokenProbabilities, batch_token_probabilities, plot_sentence
from attnscope.studies.claims import ClaimVerdict, at_least, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.experiments import BASE, MLM, RESIDUAL, TYING, Sizes, trained
from attnscope.tasks import Batch, Classification

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (BASE, RESIDUAL, TYING, MLM)
CORPUS = "sst"
SURE, UNSURE = 0.9, 0.7  # the probability of the decision: at least, below
READABLE = range(8, 26)  # words of a sentence to show; of a long one, more
QUANTITIES = {
    **{f"{model}_leakage": f"{model}: share of tokens that alone would decide as surely" for model in SHOWN},
    **{f"{model}_sure": f"{model}: less than base a token alone speaks, where base is sure" for model in (TYING, MLM)},
    **{f"{model}_unsure": f"{model}: the same where base is not" for model in (TYING, MLM)},
}


@dataclass(frozen=True)
class Sentences:
    """From this split."""

    split: str = "validation"


def experiments(sizes: Sizes) -> dict[str, Case]:
    def models() -> Case:
        return Case({model: trained(sizes, CORPUS, "additive", model) for model in SHOWN}, Sentences())

    return {CORPUS: case_unless_missing(models)}


def measure(subject: TrainedCase) -> Measurement:
    task = subject.runs[BASE].task
    assert isinstance(task, Classification)
    batch = task.draw(subject.settings.split, 10**9)  # all of them, as one batch
    decided = {model: alone(run, batch) for model, run in subject.runs.items()}
    positive = {model: alone(run, batch, number=1) for model, run in subject.runs.items()}
    base = decided[BASE]
    sure, unsure = base.correct & (base.decision >= SURE), base.correct & (base.decision < UNSURE)
    gaps = {model: base.mean - of_class(decided[model], base) for model in (TYING, MLM)}
    return {
        **{f"{model}_leakage": found.leakage()[found.correct].mean().item() for model, found in decided.items()},
        **{f"{model}_sure": gap[sure].mean().item() for model, gap in gaps.items()},
        **{f"{model}_unsure": gap[unsure].mean().item() for model, gap in gaps.items()},
        "picture": {kind: shown(task, batch, positive, row) for kind, row in picked(base).items()},
    }


def alone(run: Run, batch: Batch, number: int | None = None) -> TokenProbabilities:
    return batch_token_probabilities(run.model(), batch.to(run.experiment.device), number)


def of_class(found: TokenProbabilities, base: TokenProbabilities) -> Any:
    """The mean over tokens of the probability that a model gives to the class that base decides for; of two classes."""
    return found.mean.where(found.predicted == base.predicted, 1 - found.mean)


def picked(base: TokenProbabilities) -> dict[str, int]:
    """Which sentences are shown: rows of the batch."""
    confidence, right = base.decision.cpu().numpy(), base.correct.cpu().numpy()
    lengths = (~base.tokens.isnan()).sum(1).cpu().numpy()
    readable = np.isin(lengths, READABLE)
    typical = np.abs(confidence - np.median(confidence[right]))
    candidates = {
        "surest": (readable & right, -confidence),
        "typical": (readable & right, typical),
        "least sure": (readable & right, confidence),
        "long": (right & (lengths > max(READABLE)), typical),
        "wrong, and sure": (readable & ~right, -confidence),
    }
    return {
        kind: int(np.flatnonzero(allowed)[np.argmin(order[allowed])])
        for kind, (allowed, order) in candidates.items()
        if allowed.any()
    }


def shown(task: Classification, batch: Batch, positive: dict[str, TokenProbabilities], row: int) -> dict[str, Any]:
    words = ~positive[BASE].tokens[row].isnan().cpu()
    return {
        "words": task.source_vocabulary.decode(batch.source[row][words].tolist()),
        "gold": task.classes[int(positive[BASE].gold[row])],
        "probabilities": {model: found.of_text(row) for model, found in positive.items()},
        "decisions": {model: found.decision[row].item() for model, found in positive.items()},
    }


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, columns=lambda corpus: {"corpus": corpus})


def claims(measured: Measurements) -> list[ClaimVerdict]:
    def values(name: str) -> list[float]:
        return measured.values(CORPUS, name)

    return [
        at_least("base: most tokens have nearly the probability of the decision", values(f"{BASE}_leakage"), 0.5),
        *(
            more_than(f"fewer tokens do in {model}", values(f"{BASE}_leakage"), values(f"{model}_leakage"))
            for model in (TYING, MLM)
        ),
        *(
            more_than(
                f"{model} takes more from what a token alone says where base is sure than where it is not (figure 6)",
                values(f"{model}_sure"),
                values(f"{model}_unsure"),
            )
            for model in (TYING, MLM)
        ),
    ]


def figure(measured: Measurements) -> Any:
    return measured.first(CORPUS)["picture"]


def draw(data: Any) -> "Figure":
    """A panel a sentence, a line a model."""
    longest = max(len(sentence["words"]) for sentence in data.values())
    picture, axes = plots.panels(len(data), 1, size=(3.0 + 0.22 * max(longest, 20), 3.2))
    for ax, (kind, sentence) in zip(axes, data.items(), strict=True):
        plot_sentence(sentence["words"], sentence["probabilities"], sentence["decisions"], ax)
        ax.set_title(f"{kind} (class {sentence['gold']})")
    return picture


FIG2 = Finding(
    name="fig2",
    title="In the base model most words alone would make the decision; in regularised ones few",
    section="§5, figures 2 to 7",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "Sentences are picked by rule from the validation split of SST, by what the first seed's base model says: the "
        "paper picks its own from the first batches of that split. All are of additive attention. Dotted lines are "
        "decisions.",
        f"Sure: the decision has a probability of at least {SURE}; not sure: below {UNSURE}. What a token alone says "
        "is the probability of the class that base decides for.",
    ),
)  # fmt: skip
