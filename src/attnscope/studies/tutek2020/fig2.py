"""Which words does a model rely on? Sentences with the prediction of each token alone. (tutek2020 §5, appendix D)

The paper draws figures 2 to 7 from sentences that it picks. Here they are picked by rule, from the validation split of
SST: of those that base classifies correctly, the surest, a typical and the least sure one, a long one, and one that it
gets wrong; each by the lowest number among equals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.grounding import TokenProbabilities, batch_token_probabilities, plot_sentence
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.tutek2020.experiments import BASE, COMPARED, REGULARISED, Sizes, model_experiment
from attnscope.tasks import Batch, Classification

CORPUS = "sst"
SURE, UNSURE = 0.9, 0.7  # the probability of the predicted class: at least, below
READABLE = range(8, 26)  # words of a sentence to show; of a long one, more
QUANTITIES = {
    **{f"{model}_leakage": f"{model}: share of tokens that alone suffice for the decision" for model in COMPARED},
    **{f"{model}_sure": f"{model}: loss of a token's probability, where base is sure" for model in REGULARISED},
    **{f"{model}_unsure": f"{model}: the same where base is not" for model in REGULARISED},
}


class Sentence(TypedDict):
    """A sentence in the figure: by model, probabilities of the positive class given each token, and given the text."""

    words: list[str]
    gold: str
    probabilities: Mapping[str, Sequence[float] | np.ndarray]
    decisions: Mapping[str, float]


@dataclass(frozen=True)
class SentenceSettings:
    """The split from which sentences are picked."""

    split: str = "validation"


def experiments(sizes: Sizes) -> dict[str, Case]:
    def models() -> Case:
        runs = {model: model_experiment(sizes, CORPUS, "additive", model) for model in COMPARED}
        return Case(runs, SentenceSettings())

    return {CORPUS: case_unless_missing(models)}


def measure(subject: TrainedCase[SentenceSettings]) -> Measurement:
    task = subject.runs[BASE].task
    assert isinstance(task, Classification)
    batch = task.sample_batch(subject.settings.split, 10**9)  # all of them, as one batch
    predicted = {model: token_predictions(run, batch) for model, run in subject.runs.items()}
    positive = {model: token_predictions(run, batch, number=1) for model, run in subject.runs.items()}
    base = predicted[BASE]
    sure, unsure = base.correct & (base.decision >= SURE), base.correct & (base.decision < UNSURE)
    gaps = {model: base.mean - mean_for_class(predicted[model], base) for model in REGULARISED}
    return {
        **{f"{model}_leakage": each.leakage()[each.correct].mean().item() for model, each in predicted.items()},
        **{f"{model}_sure": gap[sure].mean().item() for model, gap in gaps.items()},
        **{f"{model}_unsure": gap[unsure].mean().item() for model, gap in gaps.items()},
        "picture": {kind: sentence(task, batch, positive, row) for kind, row in pick_sentences(base).items()},
    }


def token_predictions(run: Run, batch: Batch, number: int | None = None) -> TokenProbabilities:
    """Return the probability of a class, the predicted one by default, given each token alone."""
    return batch_token_probabilities(run.model(), batch.to(run.experiment.device), number)


def mean_for_class(ours: TokenProbabilities, base: TokenProbabilities) -> Float[Tensor, " batch"]:
    """Return the mean over tokens of the probability that a model gives to the class that base predicts, of two."""
    return ours.mean.where(ours.predicted == base.predicted, 1 - ours.mean)


def pick_sentences(base: TokenProbabilities) -> dict[str, int]:
    """Return which sentences are shown: rows of the batch."""
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


def sentence(task: Classification, batch: Batch, positive: Mapping[str, TokenProbabilities], row: int) -> Sentence:
    words = ~positive[BASE].tokens[row].isnan().cpu()
    return {
        "words": task.source_vocabulary.decode(batch.source[row][words].tolist()),
        "gold": task.classes[int(positive[BASE].gold[row])],
        "probabilities": {model: each.of_text(row) for model, each in positive.items()},
        "decisions": {model: each.decision[row].item() for model, each in positive.items()},
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    def compare(text: str, one: str, other: str) -> ClaimVerdict:
        return more_than(text, measured.values(CORPUS, one), measured.values(CORPUS, other))

    most = "base: most tokens have nearly the probability of the decision"
    strong = "{} lowers the prediction of a token alone more where base is sure than where it is not (figure 6)"
    return [
        measured.at_least(most, CORPUS, f"{BASE}_leakage", 0.5),
        *(compare(f"fewer tokens do in {model}", f"{BASE}_leakage", f"{model}_leakage") for model in REGULARISED),
        *(compare(strong.format(model), f"{model}_sure", f"{model}_unsure") for model in REGULARISED),
    ]


def draw(data: Mapping[str, Sentence]) -> Figure:
    """Draw one panel per sentence, one line per model."""
    longest = max(len(sentence["words"]) for sentence in data.values())
    picture, axes = plots.panels(len(data), 1, size=(3.0 + 0.22 * max(longest, 20), 3.2))
    for ax, (kind, sentence) in zip(axes, data.items(), strict=True):
        plot_sentence(sentence["words"], sentence["probabilities"], sentence["decisions"], ax)
        ax.set_title(f"{kind} (class {sentence['gold']})")
    return picture


FIG2 = Finding(
    name="fig2",
    title="In the base model most tokens alone suffice for the decision; in regularised ones few do",
    section="§5, figures 2 to 7",
    experiments=experiments, measure=measure, table=QUANTITIES, columns=lambda corpus: {"corpus": corpus},
    claims=claims, figure=lambda measured: measured.first(CORPUS)["picture"], draw=draw,
    notes=(
        "Sentences are picked by rule from the validation split of SST, by the first seed's base model: the "
        "paper picks its own from the first batches of that split. All have additive attention. Dotted lines "
        "are the predictions from the text.",
        f"Sure: the decision has a probability of at least {SURE}; not sure: below {UNSURE}. The prediction of a "
        "token alone is the probability of the class that base predicts.",
    ),
)  # fmt: skip
