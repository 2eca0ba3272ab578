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
DEFAULT_WEIGHTS = {"delta": 10.0, "eta": 1.0}  # our choice, for corpora without chosen weights

# The models of table 1; the last one shows the cost of frozen embeddings.
BASE, CONCAT, RESIDUAL, TYING, MLM, FREE = "base", "concat", "residual", "tying", "mlm", "base, words trained"
MODELS = (BASE, CONCAT, RESIDUAL, TYING, MLM, FREE)
REGULARISED = (TYING, MLM)
COMPARED = (BASE, RESIDUAL, *REGULARISED)  # models of most other findings


class ModelLabel(NamedTuple):
    """A model on a corpus; its text is its name in results.

    >>> str(ModelLabel("sst", "dot", FREE))
    'sst, dot, base, words trained'
    """

    corpus: str
    attention: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)

    @classmethod
    def product(
        cls, corpora: Iterable[str], models: Iterable[str], attentions: Iterable[str] = ATTENTIONS
    ) -> "list[ModelLabel]":
        """Return the labels of all combinations."""
        return [cls(*parts) for parts in product(corpora, attentions, models)]


class AdditiveLabel(NamedTuple):
    """A model with additive attention on a corpus."""

    corpus: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)


class LayersLabel(NamedTuple):
    """A model of several layers with additive attention.

    >>> str(LayersLabel("sst", 2, MLM)), str(LayersLabel("sst", 1, BASE))
    ('sst, additive, mlm, 2 layers', 'sst, additive, base, 1 layer')
    """

    corpus: str
    layers: int
    model: str

    def __str__(self) -> str:
        return f"{self.corpus}, additive, {self.model}, {self.layers} layer{'s' if self.layers > 1 else ''}"


def prepared_corpus(name: str, splits: Splits, words: Words, **preparation: object) -> Classification:
    """Return a named corpus, prepared for this study."""
    corpus = CORPORA[name]
    assert isinstance(corpus, Classification)
    prepared = replace(corpus.preparation, unknown_integers=False, **preparation)  # type: ignore[arg-type]
    return replace(corpus, special="both", splits=splits, vocabulary=words, preparation=prepared)


# Splits are those of Jain and Wallace as far as they are known; vocabularies are close to the sizes in table 5.
TEXTS: dict[str, Classification] = {
    "sst": prepared_corpus("sst", Splits(("train",), ("dev",), ("test",)), Words(min_count=1)),
    "ag_news": replace(
        prepared_corpus("ag_news", Splits(("train",), test=("test",), validation_share=0.15), Words(min_count=1)),
        text=("text",),
    ),
    "20newsgroups": prepared_corpus(
        "20newsgroups", Splits(("train", "test"), validation_share=0.16, test_share=0.2), Words(min_count=1),
        strip_quotes=True, min_length=6, max_length=500, too_long="drop",
    ),
    "imdb": prepared_corpus(
        "imdb", Splits(("train",), test=("test",), validation_share=0.2, max_test=5000), Words(min_count=2),
        max_length=400, too_long="truncate",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sizes(Profile):
    """Corpora, networks, epochs, and the sizes of measurements."""

    corpora: tuple[str, ...]
    input_size: int
    epochs: Mapping[str, int]
    num_permutations: int  # of attention
    num_words: int  # for mutual information
    num_clusters: int
    max_vectors: int  # occurrences of those words
    max_texts: int  # for tests of faithfulness
    layers: tuple[int, ...]  # of table 6
    max_length: int | None = None  # texts are truncated to this many words; None: as the corpus says

    adversary_corpora: tuple[str, ...] = ("sst",)  # fig1
    faithfulness_corpora: tuple[str, ...] = ("sst",)  # jain-wallace and deceptive
    lambdas: tuple[float, ...] = (0.0, 0.03, 1.0)  # of trained adversaries; the paper does not give its own
    indicative_share: float = 0.1  # fraction of all tokens that a deceptive model hides

    def task(self, name: str) -> Classification:
        """Return a corpus, truncated as this profile asks."""
        task = TEXTS[name]
        truncated = replace(task.preparation, max_length=self.max_length, too_long="truncate")
        return task if self.max_length is None else replace(task, preparation=truncated)

    @property
    def units(self) -> int:
        """Units per direction: states are as large as embeddings."""
        return self.input_size // 2


PROFILES = {
    "paper": Sizes(
        "paper", seeds=5, corpora=tuple(TEXTS), input_size=300,
        epochs={"sst": 8, "ag_news": 8, "20newsgroups": 8, "imdb": 4},  # four are our choice: the second is best
        num_permutations=100, num_words=1000, num_clusters=1000, max_vectors=1_000_000, max_texts=1000,
        layers=(1, 2, 3),
        adversary_corpora=("sst", "20newsgroups"), faithfulness_corpora=("sst", "ag_news", "20newsgroups"),
        lambdas=(0.0, 0.01, 0.02, 0.04, 0.1, 1.0),
    ),
    "quick": Sizes(
        "quick", seeds=3, corpora=("sst", "20newsgroups"), input_size=100,
        epochs={"sst": 3, "20newsgroups": 10}, num_permutations=100, num_words=500, num_clusters=200,
        max_vectors=20_000, max_texts=200, layers=(1, 2), max_length=100,
    ),
}  # fmt: skip


def network(sizes: Sizes, attention: str, model: str, layers: int = 1) -> ClassifierSettings:
    """Return the architecture of a model."""
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
    """Return how a model is trained."""
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
    """Return the loss of a model, with the weights that were chosen for it."""
    extra = {
        TYING: Tying(chosen_weight(name, attention, "delta"), per_dimension=True),  # `ablation` says why
        MLM: MaskedWords(chosen_weight(name, attention, "eta")),
    }
    return CrossEntropy() + extra[model] if model in extra else CrossEntropy()


def chosen_weight(name: str, attention: str, weight: str) -> float:
    """Return δ or η of a corpus and an attention: the best by F1 on the validation split (finding `ablation`).

    An attention that was not tried has the weights of additive attention.
    """
    by_attention = study_toml("tutek2020", "chosen.toml").get(name, {})
    return float(by_attention.get(attention, by_attention.get("additive", DEFAULT_WEIGHTS))[weight])


def model_experiment(sizes: Sizes, name: str, attention: str, model: str, layers: int = 1) -> Experiment:
    """Return the experiment of a model. Embeddings start from GloVe, which fills their first 100 dimensions."""
    return Experiment(
        sizes.task(name),
        network(sizes, attention, model, layers),
        training(sizes, name, model),
        objective(name, attention, model),
        start=Start(vectors=GLOVE),
    )


# Corpora that need credentials ---------------------------------------------------------------------------------------

LICENSED_FILES = {"anemia": "mimic/anemia.jsonl.gz", "diabetes": "mimic/diabetes.jsonl.gz"}
LICENSED_EPOCHS = 8  # Jain and Wallace 2019
LICENSED_NOTE = (
    "Anemia and diabetes need credentialed data (MIMIC), which we do not have. Put a copy of your own at "
    "mimic/anemia.jsonl.gz and mimic/diabetes.jsonl.gz below the folder of corpora, as JSON lines with text, label "
    "(0 or 1) and split (train, dev, test), and the profile paper has them too, with δ = 10 and η = 1."
)


def with_licensed_corpora(sizes: Sizes) -> Sizes:
    """Return the profile paper with the licensed corpora that are on this machine; other profiles unchanged."""
    for name, file in LICENSED_FILES.items() if sizes.name == "paper" else ():
        task = discharge_summaries(file)
        try:
            task.resolved()
        except MissingCorpus:
            continue
        sizes = add_corpus(sizes, name, task)
    return sizes


def add_corpus(sizes: Sizes, name: str, task: Classification) -> Sizes:
    """Return a profile with another corpus, and register it in TEXTS."""
    TEXTS[name] = task
    corpora = tuple(dict.fromkeys([*sizes.corpora, name]))
    return replace(sizes, corpora=corpora, epochs={**sizes.epochs, name: LICENSED_EPOCHS})


def discharge_summaries(file: str) -> Classification:
    """Return a MIMIC corpus; its texts are tokenised already."""
    return Classification(
        file,
        labels=("0", "1"),
        special="both",
        splits=Splits(("train",), ("dev",), ("test",)),
        preparation=Preparation("whitespace"),
        vocabulary=Words(min_count=1),
    )
