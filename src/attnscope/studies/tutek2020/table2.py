"""Do the states of regularised models retain more of the word? Mutual information. (tutek2020 §3.4, §4.2, table 2)"""

from dataclasses import dataclass
from functools import partial
from itertools import product

from matplotlib.figure import Figure

from attnscope.models import Model
from attnscope.probes.information import Information, information
from attnscope.studies.bars import Panel, draw_panels, panel
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.tutek2020.decisions import label_columns, published_in
from attnscope.studies.tutek2020.experiments import (
    BASE,
    CONCAT,
    MLM,
    RESIDUAL,
    TYING,
    AdditiveLabel,
    Sizes,
    model_experiment,
)
from attnscope.tasks.text import UNKNOWN

MODELS = (BASE, RESIDUAL, TYING, MLM, CONCAT)  # the last one is not in the paper's table
REGULARISED = (RESIDUAL, TYING, MLM)
CHOICES = {"frequent": "the most frequent words (MF)", "sampled": "sampled words (RS)"}
QUANTITIES = {
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


def experiments(sizes: Sizes) -> dict[AdditiveLabel, Case]:
    def case(label: AdditiveLabel) -> Case:
        settings = InformationSettings(sizes.num_words, sizes.num_clusters, sizes.max_vectors, label.model == BASE)
        return Case({"model": model_experiment(sizes, label.corpus, "additive", label.model)}, settings)

    labels = [AdditiveLabel(*parts) for parts in product(sizes.corpora, MODELS)]
    return {label: case_unless_missing(partial(case, label)) for label in labels}


def measure(subject: TrainedCase[InformationSettings]) -> Measurement:
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


def claims(measured: Measurements) -> list[ClaimVerdict]:
    text = "{}, {}: the states of {} share more with their words than those of base"
    return [
        measured.more_than(text.format(base.corpus, words, model), base._replace(model=model), base, choice)
        for base in measured.where(model=BASE)
        for choice, words in CHOICES.items()
        for model in REGULARISED
    ]


def figure(measured: Measurements) -> dict[str, Panel]:
    """Return panels by choice of words, with groups by corpus and bars by model."""
    return {
        choice: panel(measured, choice, lambda label: label.corpus, lambda label: label.model, published_in("table2"))
        for choice in CHOICES
    }


def draw(data: dict[str, Panel]) -> Figure:
    return draw_panels({f"nats, {CHOICES[choice].split(' (')[0]}": content for choice, content in data.items()})


TABLE2 = Finding(
    name="table2",
    title="Mutual information between words and states is higher in regularised models",
    section="§4.2, table 2",
    experiments=experiments, measure=measure, table=QUANTITIES, published=published_in("table2"),
    columns=label_columns, claims=claims, figure=figure, draw=draw,
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
