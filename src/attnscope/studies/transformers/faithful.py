"""Can the remedies of tutek2020 make the attention of a Transformer classifier faithful?

Two-layer encoders on SST, AG News and 20 Newsgroups, read out by the last layer's attention of [CLS] or by attention
pooling. The remedies tie states to embeddings, add masked language modelling (MLM), or do both. All models are compared
at matched accuracy: of its strengths, a remedy gets the strongest that costs at most one point of validation accuracy;
base gets the best of as many dropout rates.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from attnscope.faithfulness.assessment import assess
from attnscope.faithfulness.criteria import AGREEMENT, COMPREHENSIVENESS, RANK_CORRELATION, ROUTE
from attnscope.lab.experiment import Experiment
from attnscope.models import Start, TransformerClassifierSettings
from attnscope.probes.fragility import fragility
from attnscope.probes.information import information
from attnscope.studies.bars import draw_panels, label_panels
from attnscope.studies.claims import COSINE, UNIT, ClaimVerdict, proportion
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, Profile, TrainedCase, cases
from attnscope.studies.tutek2020.experiments import BASE, GLOVE, MLM, TEXTS, TYING
from attnscope.studies.tutek2020.faithfulness import sample_texts
from attnscope.tasks import Classification, Words
from attnscope.tasks.text import UNKNOWN, WordPieces
from attnscope.training import CrossEntropy, MaskedWords, Objective, TrainingSettings, Tying

BOTH = "tying and mlm"
REMEDIES = (TYING, MLM, BOTH)
READOUTS = ("cls", "pooling")
MATCHED = 0.01  # of accuracy: one point
DROPOUT = 0.1  # of remedies


@dataclass(frozen=True)
class Sizes:
    """Corpora, networks and epochs of a profile, the settings that are tried, and the sizes of measurements."""

    corpora: tuple[str, ...]
    dropouts: tuple[float, ...]  # of base
    deltas: tuple[float, ...]  # of tying, the weakest first; as many as dropouts, so that all get the same search
    etas: tuple[float, ...]  # of MLM
    units: int
    vocabulary: Words | WordPieces
    epochs: Mapping[str, int]
    max_length: int
    max_texts: int  # of the test split, for tests of single words
    num_permutations: int
    num_words: int  # for mutual information, as the two below
    num_clusters: int
    max_vectors: int


SIZES = {
    "quick": Sizes(
        ("sst",), (0.1,), (1.0,), (0.03,), units=100, vocabulary=Words(max_size=3000), epochs={"sst": 1}, max_length=40,
        max_texts=80, num_permutations=20, num_words=200, num_clusters=100, max_vectors=5000,
    ),
    "paper": Sizes(
        ("sst", "ag_news", "20newsgroups"), (0.0, 0.1, 0.3), (0.3, 1.0, 3.0), (0.03, 0.1, 0.3), units=300,
        vocabulary=Words(min_count=2), epochs={"sst": 6, "ag_news": 6, "20newsgroups": 20}, max_length=256,
        max_texts=500, num_permutations=100, num_words=1000, num_clusters=500, max_vectors=100_000,
    ),
}  # fmt: skip


class FaithfulLabel(NamedTuple):
    """A model on a corpus.

    >>> str(FaithfulLabel("sst", "cls", TYING))
    'sst, cls, tying'
    """

    corpus: str
    readout: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)

    @property
    def group(self) -> str:
        return f"{self.corpus}, {self.readout}"


def experiments(profile: Profile) -> dict[FaithfulLabel, Case]:
    sizes = SIZES[profile.name]
    return all_cases(sizes, READOUTS, partial(experiment, sizes))


Make = Callable[[FaithfulLabel, int], Experiment]  # a model at the setting of this number


def all_cases(sizes: Sizes, readouts: Iterable[str], make: Make) -> dict[FaithfulLabel, Case]:
    """Return the case of every corpus, readout and model."""
    labels = [FaithfulLabel(*parts) for parts in product(sizes.corpora, readouts, (BASE, *REMEDIES))]
    return cases(labels, partial(case, sizes, make))


def case(sizes: Sizes, make: Make, label: FaithfulLabel) -> Case:
    """Return a model at all settings that are tried, and base beside it, which the accuracy is matched to."""
    models = dict.fromkeys((BASE, label.model))
    settings = product(models, range(len(sizes.dropouts)))
    runs = {f"{model} {i}": make(label._replace(model=model), i) for model, i in settings}
    return Case(runs, FaithfulSettings(label.model, sizes))


@dataclass(frozen=True)
class FaithfulSettings:
    """The model that is measured, and the sizes of measurements."""

    model: str
    sizes: Sizes


def task_of(sizes: Sizes, corpus: str) -> Classification:
    task = TEXTS[corpus]
    shorter = replace(task.preparation, max_length=sizes.max_length, too_long="truncate")
    return replace(task, preparation=shorter, vocabulary=sizes.vocabulary)


def experiment(sizes: Sizes, label: FaithfulLabel, number: int) -> Experiment:
    """Return a model at the setting of this number. Embeddings are GloVe's, frozen, as in tutek2020."""
    task = task_of(sizes, label.corpus)
    epoch = task.steps(32)
    return Experiment(
        task,
        TransformerClassifierSettings(
            units=sizes.units, heads=4, hidden=2 * sizes.units, max_length=sizes.max_length + 2,
            dropout=dropout(sizes, label.model, number), readout=label.readout,
        ),
        TrainingSettings(
            steps=sizes.epochs[label.corpus] * epoch, batch_size=32, learning_rate=1e-3, warmup=50,
            schedule="linear", betas=(0.9, 0.999), max_grad_norm=1.0, evaluate_every=epoch, keep_weights="best",
            best_metric="word_accuracy", trained="all but words",
        ),
        objective(sizes, label.model, number),
        start=Start(vectors=GLOVE),
    )  # fmt: skip


def dropout(sizes: Sizes, model: str, number: int) -> float:
    return sizes.dropouts[number] if model == BASE else DROPOUT


def objective(sizes: Sizes, model: str, number: int) -> Objective:
    terms = list[Objective]()
    if model in (TYING, BOTH):
        terms.append(Tying(sizes.deltas[number], per_dimension=True))
    if model in (MLM, BOTH):
        terms.append(MaskedWords(sizes.etas[number]))
    return sum(terms, start=CrossEntropy())


# Measurements --------------------------------------------------------------------------------------------------------


def chosen_setting(accuracies: Mapping[str, float], model: str) -> str:
    """Return the role of a model's setting, by validation accuracy alone.

    Of base it is the best; of a remedy the strongest that is at most one point below base, or else the best.
    """
    base = max(value for role, value in accuracies.items() if role.startswith(BASE))
    own = [role for role in accuracies if role.startswith(model)]
    near = [role for role in own if accuracies[role] >= base - MATCHED]
    return near[-1] if near and model != BASE else max(own, key=accuracies.__getitem__)


def measure(subject: TrainedCase[FaithfulSettings]) -> Measurement:
    """Return the accuracy of the chosen setting, and every test of its attention."""
    sizes = subject.settings.sizes
    accuracies = {role: float(run.log["word_accuracy"].max()) for role, run in subject.runs.items()}
    role = chosen_setting(accuracies, subject.settings.model)
    run = subject.runs[role]
    model, task = run.model(), run.task
    assert isinstance(task, Classification)
    texts = sample_texts(task, sizes.max_texts, subject.device)
    assessment = assess(model, texts, quick=True)
    robustness = fragility(model, texts, sizes.num_permutations)
    _, permuted, _ = robustness.losses(lambda decisions: decisions.accuracy)
    retained = information(
        model, partial(task.batches, "training"), "frequent", sizes.num_words, sizes.max_vectors, sizes.num_clusters,
        seed=subject.seed, without=(UNKNOWN,),
    )  # fmt: skip
    return {
        "setting": int(role.split()[-1]),
        "accuracy": run.summary["word_accuracy"],
        "permuted": permuted,
        "moved": float(robustness.median_changes.mean()),
        "information": retained.embedding.nats,
        "information_by_chance": retained.embedding.by_chance,
        **{name: assessment[criterion.name].value for name, criterion in TESTS.items()},
        **{answer: float(assessment.answer == text) for answer, text in ANSWERS.items()},
    }


TESTS = {
    "route": ROUTE, "agreement": AGREEMENT, "comprehensiveness": COMPREHENSIVENESS, "rank_correlation": RANK_CORRELATION
}  # fmt: skip
ANSWERS = {"yes": "yes", "with_care": "with care", "no": "no", "undecided": "undecided"}
QUANTITIES = {
    "accuracy": "accuracy",
    "setting": "setting that was chosen, from 0",
    "permuted": "loss of accuracy, permuted attention",
    "moved": "median change of the output, permuted attention (TVD)",
    "comprehensiveness": "comprehensiveness, random words 0, the most influential 1",
    "rank_correlation": "τ of attention with leave-one-out",
    "information": "mutual information of embeddings and states, nats",
    "information_by_chance": "... of shuffled labels",
    "route": "route: share of the effect of words that passes through attention",
    "agreement": "agreement: effect of the word attended to most, relative to the best word",
    **{name: f"share of seeds with the verdict {text!r}" for name, text in ANSWERS.items()},
}
MORE = {  # what a remedy should raise, in the words of a claim
    "permuted": "loses more accuracy under permuted attention",
    "comprehensiveness": "has a higher comprehensiveness",
    "rank_correlation": "has a higher τ of attention with leave-one-out",
    "information": "keeps more information on words in its states",
    "route": "has a larger share of effects that pass through attention",
    "agreement": "attends most to words of larger effect",
}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts: list[ClaimVerdict] = []
    for base in (label for label in measured if label.model == BASE):
        text = f"{base.group}: the audit does not say that base's attention is a reason"
        verdicts.append(proportion(text, [not yes for yes in measured.flags(base, "yes")]))
        for remedy in REMEDIES:
            verdicts += remedy_claims(measured, base, base._replace(model=remedy))
    return verdicts


def remedy_claims(measured: Measurements, base: FaithfulLabel, ours: FaithfulLabel) -> list[ClaimVerdict]:
    """Claim that a remedy keeps the accuracy, raises every measure, and that the audit then says yes."""
    where, name = base.group, ours.model
    matched = f"{where}: accuracy of {name} is at most one point lower than that of base"
    audited = f"{where}: with {name}, the audit says that attention is a reason"
    return [
        measured.no_lower(matched, ours, base, "accuracy", MATCHED),
        *(measured.more_than(f"{where}: {name} {text} than base", ours, base, key) for key, text in MORE.items()),
        measured.proportion(audited, ours, "yes"),
    ]


SHOWN = {
    "accuracy": "accuracy", "permuted": "accuracy lost, permuted", "route": "route", "agreement": "agreement",
    "rank_correlation": "τ, leave-one-out", "information": "information, nats",
}  # fmt: skip
RANGES = {"accuracy": UNIT, "route": UNIT, "rank_correlation": COSINE}


NOTES = (
    "Route, agreement and the verdict are those of the calibrated audit (`attnscope audit`), on a sample of the test "
    "split. [CLS] is the start token; attention is the last layer's, the mean over heads.",
    "Settings are chosen by validation accuracy, separately for each seed: base has three dropout rates, tying three δ "
    "(of the mean over dimensions), MLM three η, and their combination the pairs of these. So every model gets three "
    "runs; in the profile quick one.",
    "Embeddings are GloVe's, frozen in all models, as in our runs of tutek2020.",
    "What this does not show: whether larger Transformers, or other strengths, behave alike.",
)

FAITHFUL = Finding(
    name="faithful",
    title="Do tying and MLM make the attention of a Transformer classifier faithful?",
    section="ours; tutek2020",
    experiments=experiments, measure=measure, table=QUANTITIES, columns=FaithfulLabel._asdict, claims=claims,
    figure=label_panels(SHOWN, lambda label: label.group, lambda label: label.model),
    draw=partial(draw_panels, ylabels=SHOWN, within=RANGES), notes=NOTES,
)  # fmt: skip
