"""IBM Model 1's count tables, and the sizes of all findings that count or compare with counts. (snell2021 §4, A.1, A.2)

C (eq. 16) counts how often an input and an output word occur together; Trans (eq. 17) are its rows as shares; for a
pair of sentences, β (eq. 18) is Trans(y_t | x_l), and α (eq. 19) is β over its sum over l.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.sparse import csc_array

from attnscope.models import EncoderDecoderSettings
from attnscope.models.ibm import Bags
from attnscope.probes.agreement import translation_checkpoints
from attnscope.tasks import CORPORA, END, Batch, Classification, Preparation, Task, TextTask, Translation, Words
from attnscope.tasks.text import CLASSIFICATIONS, TRANSLATIONS
from attnscope.training import TrainingSettings

T = TypeVar("T", bound=TextTask)


@dataclass(frozen=True)
class NetworkSizes:
    """A translation network, its training, and the number of sentences that it is measured on."""

    task: Translation
    units: int  # of each direction of the encoder, of the decoder, of embeddings and of N
    steps: int
    batch_size: int
    checkpoints: tuple[int, ...]
    sentences: int

    def network(self, model: EncoderDecoderSettings) -> EncoderDecoderSettings:
        """Return an architecture at this size."""
        hidden = None if model.hidden is None else self.units
        shared = model.shared_inputs and self.task.vocabulary.shared
        return replace(model, units=self.units, input_size=self.units, hidden=hidden, shared_inputs=shared)

    @property
    def training(self) -> TrainingSettings:
        """Settings of all translations in the author's code."""
        return TrainingSettings(
            steps=self.steps, batch_size=self.batch_size, learning_rate=1e-3, betas=(0.9, 0.999), max_grad_norm=None,
            teacher_forcing=1.0, evaluate_every=max(1, self.steps // 10), checkpoints=self.checkpoints,
        )  # fmt: skip


@dataclass(frozen=True)
class CountSizes:
    """Sizes of the counted corpora. `translation`, `words` and `classification` are the reader's choice."""

    corpora: tuple[str, ...]  # of table 9
    widths: tuple[int, ...]  # d of eq. 15
    pairs: int  # sentence pairs of eq. 15
    initialisations: int  # seeds of eq. 15
    sentences: int  # artificial ones in a count table
    samples: int  # seeds of artificial sentences
    translation: Translation  # counted in figure 1
    words: tuple[str, ...]  # source words shown in figure 1; if none are named, frequent ones
    classification: Classification  # counted in figure 5
    optimal: NetworkSizes  # A.1
    aligner: NetworkSizes  # beyond the paper


def in_words(task: Translation) -> Translation:
    """Return the corpus in lower-case words, each with at least three occurrences."""
    return replace(task, preparation=Preparation(), vocabulary=Words())


def reverse(task: Translation) -> Translation:
    """Return the corpus with source and target exchanged."""
    return replace(task, source=task.target, target=task.source)


def with_checksum(task: T) -> T:
    """Return the settings with the checksum of the data, so that changed data are measured again."""
    return replace(task, fingerprint=task.resolved().fingerprint)


MULTI30K = TRANSLATIONS["multi30k_en_de"]
MULTI30K_FRENCH = in_words(TRANSLATIONS["multi30k_en_fr"])
TATOEBA_FRENCH = in_words(TRANSLATIONS["tatoeba_en_fr"])
LONG_TO_PREPARE = ("multi30k_en_fr", "tatoeba_en_de", "tatoeba_en_fr")  # and not in table 9

PAPER = CountSizes(
    corpora=tuple(CORPORA),
    widths=tuple(2**i for i in range(4, 15)),
    pairs=500,
    initialisations=10,
    sentences=10_000,
    samples=5,
    translation=reverse(in_words(MULTI30K)),  # German to English, as in figure 1
    words=(),
    classification=CLASSIFICATIONS["sst"],
    # 20 epochs of Multi30k in batches of 16: snell2021 A.8 and author's code.
    optimal=NetworkSizes(MULTI30K, units=256, steps=36_250, batch_size=16, checkpoints=(), sentences=1014),
    aligner=NetworkSizes(
        TATOEBA_FRENCH, units=256, steps=12_000, batch_size=64,
        checkpoints=tuple(sorted({250, 750, *translation_checkpoints(12_000)})), sentences=447,
    ),
)  # fmt: skip
QUICK = replace(
    PAPER,
    corpora=tuple(name for name in CORPORA if name not in LONG_TO_PREPARE),
    widths=tuple(2**i for i in range(4, 13)),
    pairs=200,
    initialisations=5,
    sentences=1000,
    samples=3,
    optimal=replace(PAPER.optimal, units=64, steps=400, sentences=30),
    aligner=NetworkSizes(
        MULTI30K_FRENCH, units=64, steps=1000, batch_size=32,
        checkpoints=(0, 25, 50, 100, 200, 300, 400, 600, 800, 1000), sentences=100,
    ),
)  # fmt: skip
SIZES = {"quick": QUICK, "paper": PAPER}


def bags_of(task: Task, batches: Iterable[Batch]) -> Bags:
    """Return the bags of words of sentence pairs, without end tokens."""
    return Bags.of(map(without_end_tokens, batches), len(task.source_vocabulary), len(task.target_vocabulary))


def without_end_tokens(batch: Batch) -> Batch:
    """Return the batch with end tokens masked: they co-occur with every word, and are not counted."""
    return replace(
        batch,
        source_mask=batch.source_mask & (batch.source != END),
        target_mask=batch.target_mask & (batch.target != END),
    )


def entries(table: csc_array, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
    """Return a few rows and columns of a sparse table."""
    return np.asarray(table.tocsr()[list(rows)].tocsc()[:, list(columns)].toarray())
