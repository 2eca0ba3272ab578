"""The experiments of tutek2020: corpora, models, training and profiles. (§3, table 4, table 5)

Settings are the paper's; where it is silent, those of the code that it builds on (Jain and Wallace 2019): start and end
tokens that are read but not attended to, AMSGrad, eight epochs, of which the best by the validation split.

Anemia and diabetes (§3.5) come from MIMIC, which needs credentials. Users who have them put JSON lines with the fields
`text` (a string, or a list of its words), `label` (0 or 1) and `split` (train, dev, test), as the code of Jain and
Wallace 2019 makes them, into mimic/anemia.jsonl.gz and mimic/diabetes.jsonl.gz below the folder that ATTNSCOPE_DATA
names. Tables 1 and 5 of the profile paper then include them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from attnscope.lab.experiment import Experiment
from attnscope.models import ClassifierSettings, Start
from attnscope.studies.finding import Profile, study_toml
from attnscope.tasks import CORPORA, Classification, MissingCorpus, Preparation, Splits, Words
from attnscope.tasks.text import Vectors
from attnscope.training import CrossEntropy, MaskedWords, Objective, TrainingSettings, Tying

GLOVE = Vectors("glove/glove.6B.100d.float16.npz")
ATTENTIONS = ("additive", "dot")
DELTAS = (1.0, 10.0, 20.0, 30.0)  # §3.1; table 4 leaves the first one out
ETAS = (0.1, 0.3, 1.0, 3.0, 5.0)  # table 4
UNTRIED = {"delta": 10.0, "eta": 1.0}  # our choice, for a corpus of one's own

# The models of table 1; the last one shows what it costs to keep the words as they are published.
BASE, CONCAT, RESIDUAL, TYING, MLM, FREE = "base", "concat", "residual", "tying", "mlm", "base, words trained"
MODELS = (BASE, CONCAT, RESIDUAL, TYING, MLM, FREE)
REGULARISED = (TYING, MLM)


class ModelLabel(NamedTuple):
    """A model on a corpus; as text, what it is called in results.

    >>> str(ModelLabel("sst", "dot", FREE))
    'sst, dot, base, words trained'
    """

    corpus: str
    attention: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)


def labels(corpora: Iterable[str], models: Iterable[str], attentions: Iterable[str] = ATTENTIONS) -> list[ModelLabel]:
    return [ModelLabel(*parts) for parts in product(corpora, attentions, models)]


def corpus(name: str, splits: Splits, words: Words, **preparation: object) -> Classification:
    """A named corpus, prepared for this study."""
    given = CORPORA[name]
    assert isinstance(given, Classification)
    prepared = replace(given.preparation, unknown_integers=False, **preparation)  # type: ignore[arg-type]
    return replace(given, special="both", splits=splits, vocabulary=words, preparation=prepared)


# Splits are those of Jain and Wallace as far as they are known. Words are as many as table 5 has, within reach.
TEXTS: dict[str, Classification] = {
    "sst": corpus("sst", Splits(("train",), ("dev",), ("test",)), Words(min_count=1)),
    "ag_news": replace(
        corpus("ag_news", Splits(("train",), test=("test",), validation_share=0.15), Words(min_count=1)), text=("text",)
    ),
    "20newsgroups": corpus(
        "20newsgroups", Splits(("train", "test"), validation_share=0.16, test_share=0.2), Words(min_count=1),
        strip_quotes=True, min_length=6, max_length=500, too_long="drop",
    ),
    "imdb": corpus(
        "imdb", Splits(("train",), test=("test",), validation_share=0.2, max_test=5000), Words(min_count=2),
        max_length=400, too_long="truncate",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sizes(Profile):
    """Corpora, networks, epochs, and how much is measured."""

    corpora: tuple[str, ...]
    input_size: int
    epochs: Mapping[str, int]
    draws: int  # of permuted attention
    words: int  # that mutual information is measured on, and of clusters:
    clusters: int
    vectors: int  # occurrences of those words, at most
    texts: int  # that are searched for other attention, left out word by word, and erased
    layers: tuple[int, ...]  # of table 6
    longest: int | None = None  # texts are cut to so many words; None: as the corpus says

    imitated: tuple[str, ...] = ("sst",)  # corpora of fig1
    tested: tuple[str, ...] = ("sst",)  # corpora of jain-wallace and deceptive
    lambdas: tuple[float, ...] = (0.0, 0.03, 1.0)  # of trained adversaries; the paper does not give its own
    telling: float = 0.1  # of the running words, those that a deceptive model hides

    def task(self, name: str) -> Classification:
        whole = TEXTS[name]
        cut = replace(whole.preparation, max_length=self.longest, too_long="truncate")
        return whole if self.longest is None else replace(whole, preparation=cut)

    @property
    def units(self) -> int:
        """Of each direction, so that states have the size of words."""
        return self.input_size // 2


PROFILES = {
    "paper": Sizes(
        "paper", seeds=5, corpora=tuple(TEXTS), input_size=300,
        epochs={"sst": 8, "ag_news": 8, "20newsgroups": 8, "imdb": 4},  # four are our choice: the second is best
        draws=100, words=1000, clusters=1000, vectors=1_000_000, texts=1000, layers=(1, 2, 3),
        imitated=("sst", "20newsgroups"), tested=("sst", "ag_news", "20newsgroups"),
        lambdas=(0.0, 0.01, 0.02, 0.04, 0.1, 1.0),
    ),
    "quick": Sizes(
        "quick", seeds=3, corpora=("sst", "20newsgroups"), input_size=100,
        epochs={"sst": 3, "20newsgroups": 10}, draws=100, words=500, clusters=200, vectors=20_000, texts=200,
        layers=(1, 2), longest=100,
    ),
}  # fmt: skip


def network(sizes: Sizes, attention: str, model: str, layers: int = 1) -> ClassifierSettings:
    return ClassifierSettings(
        input_size=sizes.input_size,
        units=sizes.units,
        layers=layers,
        attention=attention,
        hidden=sizes.units,  # half of a state, as in the code that the paper builds on
        grounding=model if model in (CONCAT, RESIDUAL) else "none",
        specials_attended=False,
    )


def training(sizes: Sizes, name: str, model: str) -> TrainingSettings:
    epoch = sizes.task(name).steps(32)
    return TrainingSettings(
        steps=sizes.epochs[name] * epoch,
        batch_size=32,  # table 4, as the three below
        learning_rate=1e-3,
        weight_decay=1e-5,
        max_grad_norm=5.0,
        betas=(0.9, 0.999),
        amsgrad=True,
        evaluate_every=epoch,
        keep_weights="best",
        best_metric="word_accuracy",
        trained="all" if model == FREE else "all but words",
    )


def objective(name: str, attention: str, model: str) -> Objective:
    """What a model is paid for, with the weight that was chosen for it."""
    extra = {
        TYING: Tying(chosen(name, attention, "delta"), per_dimension=True),  # `ablation` says why
        MLM: MaskedWords(chosen(name, attention, "eta")),
    }
    return CrossEntropy() + extra[model] if model in extra else CrossEntropy()


def chosen(name: str, attention: str, weight: str) -> float:
    """δ or η of a corpus and an attention: the one with the best F1 on the validation split (finding `ablation`).

    Where an attention was not tried, it is that of additive attention.
    """
    by_attention = study_toml("tutek2020", "chosen.toml").get(name, {})
    return float(by_attention.get(attention, by_attention.get("additive", UNTRIED))[weight])


def trained(sizes: Sizes, name: str, attention: str, model: str, layers: int = 1) -> Experiment:
    """A model of a table. Words start from GloVe, whose 100 numbers are the first of each word's."""
    return Experiment(
        sizes.task(name),
        network(sizes, attention, model, layers),
        training(sizes, name, model),
        objective(name, attention, model),
        start=Start(vectors=GLOVE),
    )


LICENSED_FILES = {"anemia": "mimic/anemia.jsonl.gz", "diabetes": "mimic/diabetes.jsonl.gz"}
LICENSED_EPOCHS = 8  # Jain and Wallace 2019
LICENSED_NOTE = (
    "Anemia and diabetes need credentialed data (MIMIC), which we do not have. Put a copy of your own at "
    "mimic/anemia.jsonl.gz and mimic/diabetes.jsonl.gz below the folder of corpora, as JSON lines with text, label "
    "(0 or 1) and split (train, dev, test), and the profile paper has them too, with δ = 10 and η = 1."
)


def with_own_copies(sizes: Sizes) -> Sizes:
    """The profile paper with those of these corpora that are on this machine; any other as it is."""
    if sizes.name == "paper":
        for name, file in LICENSED_FILES.items():
            if is_here(task := discharge_summaries(file)):
                sizes = added(sizes, name, task)
    return sizes


def added(sizes: Sizes, name: str, task: Classification, epochs: int = LICENSED_EPOCHS) -> Sizes:
    """A profile with another corpus, which is among TEXTS from now on."""
    TEXTS[name] = task
    corpora = tuple(dict.fromkeys([*sizes.corpora, name]))
    return replace(sizes, corpora=corpora, epochs={**sizes.epochs, name: epochs})


def discharge_summaries(file: str) -> Classification:
    """Words as they come: the code that makes these files has cut them already."""
    return Classification(
        file,
        labels=("0", "1"),
        special="both",
        splits=Splits(("train",), ("dev",), ("test",)),
        preparation=Preparation("whitespace"),
        vocabulary=Words(min_count=1),
    )


def is_here(task: Classification) -> bool:
    try:
        task.resolved()
    except MissingCorpus:
        return False
    return True
