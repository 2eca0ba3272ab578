"""Do states of regularised models retain more of the word, and tokens alone predict less? (tutek2020 §3.4, §4.2, §5)

Table 2 has the mutual information of words and states. Table 3 and figures 2 to 7 (§5, eq. 9, appendix D) have the
prediction of each token alone. The paper draws its figures from sentences that it picks. Here they are picked by rule,
from the validation split of SST: of those that base classifies correctly, the surest, a typical and the least sure one,
a long one, and one that it gets wrong; each by the lowest number among equals.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.models import Model
from attnscope.probes.grounding import TokenProbabilities, batch_token_probabilities, plot_sentence
from attnscope.probes.information import Information, information
from attnscope.studies.bars import Panel, draw_panels, label_panels, panel
from attnscope.studies.claims import UNIT, ClaimVerdict
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, TrainedCase, cases
from attnscope.studies.tutek2020.decisions import (
    batches_on_device,
    corpus_and_attention,
    label_columns,
    published_in,
    token_grounding,
    trained_classifier,
)
from attnscope.studies.tutek2020.experiments import (
    BASE,
    COMPARED,
    CONCAT,
    MLM,
    REGULARISED,
    RESIDUAL,
    TYING,
    AdditiveLabel,
    ModelLabel,
    Sizes,
    model_experiment,
)
from attnscope.tasks import Batch, Classification
from attnscope.tasks.text import UNKNOWN

# Table 2: mutual information -----------------------------------------------------------------------------------------

INFORMATION_MODELS = (BASE, RESIDUAL, TYING, MLM, CONCAT)  # the last one is not in the paper's table
INFORMATIVE = (RESIDUAL, TYING, MLM)
CHOICES = {"frequent": "the most frequent words (MF)", "sampled": "sampled words (RS)"}
INFORMATION_QUANTITIES = {
    f"{choice}{suffix}": f"{text}, {words}"
    for choice, words in CHOICES.items()
    for suffix, text in (
        ("", "embedding and state, nats"),
        ("_chance", "the same, shuffled"),
        ("_most", "upper bound with these clusters"),
        ("_word", "word and state, nats"),
        ("_word_chance", "the same, shuffled"),
        ("_tokens", "occurrences in a cluster"),
    )
} | {"frequent_untrained": "embedding and state before training, the most frequent words"}


@dataclass(frozen=True)
class InformationSettings:
    """How many words, clusters and occurrences are measured; whether the untrained network is measured as well."""

    num_words: int
    num_clusters: int
    max_vectors: int
    untrained: bool


def information_experiments(sizes: Sizes) -> dict[AdditiveLabel, Case]:
    def case(label: AdditiveLabel) -> Case:
        settings = InformationSettings(sizes.num_words, sizes.num_clusters, sizes.max_vectors, label.model == BASE)
        return Case({"model": model_experiment(sizes, label.corpus, "additive", label.model)}, settings)

    return cases((AdditiveLabel(*parts) for parts in product(sizes.corpora, INFORMATION_MODELS)), case)


def measure_information(subject: TrainedCase[InformationSettings]) -> Measurement:
    """Return mutual information on the training split, which has the most words."""
    run = subject.runs["model"]
    numbers: dict[str, float] = {}
    for choice in CHOICES:
        shared = information_of(subject, run.model(), choice)
        numbers |= {
            choice: shared.embedding.nats, f"{choice}_chance": shared.embedding.by_chance,
            f"{choice}_most": shared.embedding.at_most, f"{choice}_tokens": shared.tokens_per_cluster,
            f"{choice}_word": shared.word.nats, f"{choice}_word_chance": shared.word.by_chance,
        }  # fmt: skip
    if subject.settings.untrained:
        untrained = run.experiment.new_model().to(subject.device).eval()
        numbers["frequent_untrained"] = information_of(subject, untrained, "frequent").embedding.nats
    return numbers


def information_of(subject: TrainedCase[InformationSettings], model: Model, choice: str) -> Information:
    settings, batches = subject.settings, partial(subject.runs["model"].task.batches, "training")
    sizes = (settings.num_words, settings.max_vectors, settings.num_clusters)
    return information(model, batches, choice, *sizes, seed=subject.seed, without=(UNKNOWN,))


def claims_about_information(measured: Measurements) -> list[ClaimVerdict]:
    text = "{}, {}: the states of {} share more with their words than those of base"
    return [
        measured.more_than(text.format(base.corpus, words, model), base._replace(model=model), base, choice)
        for base in measured.where(model=BASE)
        for choice, words in CHOICES.items()
        for model in INFORMATIVE
    ]


TABLE2 = Finding(
    name="table2",
    title="Mutual information between words and states is higher in regularised models",
    section="§4.2, table 2",
    experiments=information_experiments, measure=measure_information, table=INFORMATION_QUANTITIES,
    published=published_in("table2"), columns=label_columns, claims=claims_about_information,
    figure=label_panels(CHOICES, lambda label: label.corpus, lambda label: label.model, published_in("table2")),
    draw=partial(draw_panels, ylabels={choice: f"nats, {words.split(' (')[0]}" for choice, words in CHOICES.items()}),
    notes=(
        "Words and states of the training split; the paper does not say which split it took. Additive attention, as in "
        "the paper.",
        "A word has one embedding, so clusters of embeddings are clusters of words, and a thousand clusters of a "
        "thousand words lose what mini-batch k-means merges. The mutual information of word and state is given too, "
        "and that of shuffled words, which is the bias of the estimate.",
        "Embeddings are frozen in all models; the paper may train those of base and tying.",
        "The unknown token is left out.",
        "Mini-batch k-means of today's scikit-learn uses some 600 of 1,000 clusters of embeddings, which bounds the "
        "estimate: on SST below the published numbers of residual and tying. The bound stands beside each number.",
        "The paper leaves out concat, whose states are larger than its embeddings; cluster labels can be compared all "
        "the same.",
    ),
)  # fmt: skip


# Table 3: tokens alone -----------------------------------------------------------------------------------------------

TOKEN_QUANTITIES = {
    "probability": "probability of the predicted class given a token alone",
    "decision": "the same given the text",
    "leakage": "share of tokens that alone suffice for the decision",
    "correct": "share of texts classified correctly",
}
published_token = published_in("table3")


@dataclass(frozen=True)
class WholeTestSplit:
    """All texts of the test split are measured."""


def token_experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    def case(label: ModelLabel) -> Case:
        return Case({"model": model_experiment(sizes, *label)}, WholeTestSplit())

    return cases(ModelLabel.product(sizes.corpora, COMPARED), case)


def measure_tokens(subject: TrainedCase[WholeTestSplit]) -> Measurement:
    grounding = token_grounding(trained_classifier(subject), batches_on_device(subject))
    return {
        "probability": grounding.probability,
        "decision": grounding.decision,
        "leakage": grounding.leakage,
        "correct": grounding.correct / grounding.texts,
    }


def claims_about_tokens(measured: Measurements) -> list[ClaimVerdict]:
    text = "{}: a token alone predicts the decision less in {} than in base"
    return [
        measured.more_than(
            text.format(corpus_and_attention(base), model), base, base._replace(model=model), "probability"
        )
        for base in measured.where(model=BASE)
        for model in REGULARISED
    ]


def draw_tokens(data: Panel) -> Figure:
    ylabel = "probability of the decision,\na token alone"
    return draw_panels({ylabel: data}, within={ylabel: UNIT}, row=(2.6 + 1.1 * max(len(data), 3), 3.3))


TABLE3 = Finding(
    name="table3",
    title="In regularised models a token alone predicts the decision less",
    section="§5, table 3",
    experiments=token_experiments, measure=measure_tokens, table=TOKEN_QUANTITIES, published=published_token,
    columns=label_columns, claims=claims_about_tokens, figure=lambda measured: panel(
        measured, "probability", corpus_and_attention, lambda label: label.model, published_token
    ), draw=draw_tokens,
    notes=(
        "The mean over the words of each text that is classified correctly, then over texts of the test split. Start "
        "and end tokens are left out.",
        "A token alone suffices if its probability of the predicted class is above one half and at most 0.1 below that "
        "of the text: our measure of the leakage that the paper describes in words.",
        "There is no claim about residual: in the paper's own table its numbers with dot attention are above base's.",
        "What this does not show: that a token whose probability is near one half does not matter to the decision; the "
        "states of its neighbours may contain it.",
    ),
)  # fmt: skip


# Figures 2 to 7: sentences -------------------------------------------------------------------------------------------

CORPUS = "sst"
SURE, UNSURE = 0.9, 0.7  # the probability of the predicted class: at least, below
READABLE = range(8, 26)  # words of a sentence to show; of a long one, more
SENTENCE_QUANTITIES = {
    **{f"{model}_leakage": f"{model}: share of tokens that alone suffice for the decision" for model in COMPARED},
    **{f"{model}_sure": f"{model}: loss of a token's probability, where base is sure" for model in REGULARISED},
    **{f"{model}_unsure": f"{model}: the same where base is not" for model in REGULARISED},
}


@dataclass(frozen=True)
class SentenceSettings:
    """The split from which sentences are picked."""

    split: str = "validation"


def sentence_experiments(sizes: Sizes) -> dict[str, Case]:
    def case(corpus: str) -> Case:
        runs = {model: model_experiment(sizes, corpus, "additive", model) for model in COMPARED}
        return Case(runs, SentenceSettings())

    return cases([CORPUS], case)


def measure_sentences(subject: TrainedCase[SentenceSettings]) -> Measurement:
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


def sentence(task: Classification, batch: Batch, positive: Mapping[str, TokenProbabilities], row: int) -> FigureData:
    """Return a sentence of the figure: by model, probabilities of the positive class by token, and of the text."""
    words = ~positive[BASE].tokens[row].isnan().cpu()
    return {
        "words": task.source_vocabulary.decode(batch.source[row][words].tolist()),
        "gold": task.classes[int(positive[BASE].gold[row])],
        "probabilities": {model: each.of_text(row) for model, each in positive.items()},
        "decisions": {model: each.decision[row].item() for model, each in positive.items()},
    }


def claims_about_sentences(measured: Measurements) -> list[ClaimVerdict]:
    fewer, most = "fewer tokens do in {}", "base: most tokens have nearly the probability of the decision"
    strong = "{} lowers the prediction of a token alone more where base is sure than where it is not (figure 6)"
    return [
        measured.at_least(most, CORPUS, f"{BASE}_leakage", 0.5),
        *(
            measured.greater(fewer.format(model), CORPUS, f"{BASE}_leakage", f"{model}_leakage")
            for model in REGULARISED
        ),
        *(measured.greater(strong.format(model), CORPUS, f"{model}_sure", f"{model}_unsure") for model in REGULARISED),
    ]


def draw_sentences(data: FigureData) -> Figure:
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
    experiments=sentence_experiments, measure=measure_sentences, table=SENTENCE_QUANTITIES,
    columns=lambda corpus: {"corpus": corpus}, claims=claims_about_sentences,
    figure=lambda measured: measured.first(CORPUS)["picture"], draw=draw_sentences,
    notes=(
        "Sentences are picked by rule from the validation split of SST, by the first seed's base model: the "
        "paper picks its own from the first batches of that split. All have additive attention. Dotted lines "
        "are the predictions from the text.",
        f"Sure: the decision has a probability of at least {SURE}; not sure: below {UNSURE}. The prediction of a "
        "token alone is the probability of the class that base predicts.",
    ),
)  # fmt: skip
