"""Is more of the word left in the states of regularised models? Mutual information. (tutek2020 §3.4, §4.2, table 2)"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from attnscope.models import Model
from attnscope.probes.information import Information, information
from attnscope.studies.bars import Panel, draw_panels, panel
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import by_parts, stated_by
from attnscope.studies.tutek2020.experiments import BASE, CONCAT, MLM, RESIDUAL, TYING, Sizes, trained
from attnscope.tasks.text import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = (BASE, RESIDUAL, TYING, MLM, CONCAT)  # the last one is not in the paper's table
REGULARISED = (RESIDUAL, TYING, MLM)
CHOICES = {"frequent": "the most frequent words (MF)", "sampled": "sampled words (RS)"}
QUANTITIES = {
    f"{choice}{ending}": f"{text}, {words}"
    for choice, words in CHOICES.items()
    for ending, text in (
        ("", "embedding and state, nats"),
        ("_chance", "the same, shuffled"),
        ("_most", "most that it could be with these clusters"),
        ("_word", "word and state, nats"),
        ("_word_chance", "the same, shuffled"),
        ("_tokens", "occurrences in a cluster"),
    )
} | {"frequent_untrained": "embedding and state before training, the most frequent words"}


stated = stated_by("table2")


class AdditiveLabel(NamedTuple):
    """A model with additive attention, of which table 2 speaks alone."""

    corpus: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)


@dataclass(frozen=True)
class Clustered:
    """How many words, into how many clusters, and of how many of their occurrences at most."""

    words: int
    clusters: int
    most: int
    untrained: bool  # whether the network as it starts is asked as well


def experiments(sizes: Sizes) -> dict[AdditiveLabel, Case]:
    def case(label: AdditiveLabel) -> Case:
        how = Clustered(sizes.words, sizes.clusters, sizes.vectors, untrained=label.model == BASE)
        return Case({"model": trained(sizes, label.corpus, "additive", label.model)}, how)

    labels = [AdditiveLabel(*parts) for parts in product(sizes.corpora, MODELS)]
    return {label: case_unless_missing(partial(case, label)) for label in labels}


def measure(subject: TrainedCase) -> Measurement:
    """On the training split: no other has as many words."""
    run = subject.runs["model"]
    found: dict[str, float] = {}
    for choice in CHOICES:
        shared = asked(subject, run.model(), choice)
        found |= {
            choice: shared.embedding.nats, f"{choice}_chance": shared.embedding.by_chance,
            f"{choice}_most": shared.embedding.at_most, f"{choice}_tokens": shared.tokens_per_cluster,
            f"{choice}_word": shared.word.nats, f"{choice}_word_chance": shared.word.by_chance,
        }  # fmt: skip
    if subject.settings.untrained:
        fresh = run.experiment.new_model().to(subject.device).eval()
        found["frequent_untrained"] = asked(subject, fresh, "frequent").embedding.nats
    return found


def asked(subject: TrainedCase, model: Model, choice: str) -> Information:
    how, batches = subject.settings, partial(subject.runs["model"].task.batches, "training")
    return information(model, batches, choice, how.words, how.most, how.clusters, seed=subject.seed, without=(UNKNOWN,))


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, stated, by_parts)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        more_than(
            f"{corpus}, {words}: the states of {model} share more with their words than those of base",
            measured.values(AdditiveLabel(corpus, model), choice),
            measured.values(AdditiveLabel(corpus, BASE), choice),
        )
        for corpus in measured.each("corpus")
        for choice, words in CHOICES.items()
        for model in REGULARISED
    ]


def figure(measured: Measurements) -> dict[str, Panel]:
    """By choice of words, corpus and model."""
    return {
        choice: panel(measured, choice, lambda label: label.corpus, lambda label: label.model, stated)
        for choice in CHOICES
    }


def draw(data: Any) -> "Figure":
    return draw_panels({f"nats, {CHOICES[choice].split(' (')[0]}": content for choice, content in data.items()})


TABLE2 = Finding(
    name="table2",
    title="Mutual information between words and states is higher in regularised models",
    section="§4.2, table 2",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "Words and states of the training split; the paper does not say which split it took. Additive attention, as in "
        "the paper.",
        "A word has one embedding, so clusters of embeddings are clusters of words, and a thousand clusters of a "
        "thousand words lose what mini-batch k-means puts together. Word against state is given beside it, and what "
        "both would be if words were shuffled, which is the bias of the estimate.",
        "The words keep the vectors that they start from, in all models: the paper's may move in base and tying.",
        "The unknown word is left out.",
        "Mini-batch k-means of today's scikit-learn uses some 600 of 1,000 clusters of embeddings, which bounds what "
        "can be found: on SST below the published numbers of residual and tying. The bound stands beside each number.",
        "The paper leaves out concat, whose states are larger than its words; labels of clusters can be compared all "
        "the same.",
    ),
)  # fmt: skip
