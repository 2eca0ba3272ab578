"""Named corpora and how they are prepared (snell2021 A.5, A.8), and statistics of any corpus (snell2021 table 9).

Files are relative to ATTNSCOPE_DATA. Where the paper has a training and a test set only, it validates on at most 4,000
sentences of the test set, and so do we: nothing selected on that validation set may be reported on the test set. Where
words are the tokens, all text is in lower case, which is our choice.

Published word vectors, with which embeddings may be initialised, are text files with a word and its vector on each
line, as those of GloVe (.txt) and fastText (.vec, whose first line gives the sizes), plain or packed with gzip; or an
.npz file with the array `vectors`, beside a `vocab.txt` with one word per line.
"""

import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.tasks.batch import PAD, SPECIALS, Vocabulary, lengths
from attnscope.tasks.text.preparation import PARTS, Part, Preparation, Splits
from attnscope.tasks.text.rows import PublishedFile, find_corpus, read_lines
from attnscope.tasks.text.tasks import Classification, TextTask, Translation
from attnscope.tasks.text.vocabularies import UNKNOWN, Subwords

SNELL2021_SPLITS = Splits(("train",), ("test",), ("test",), max_validation=4000)  # snell2021 A.8
MULTI30K = Splits(("train",), ("val",), ("test2016",))
SAMPLED_PAIRS = Splits(("all",), validation_share=0.02, test_share=0.02)
YELP = ("50words", "100words", "200words", "part7")  # by their length, not for training and testing
WHOLE_SENTENCES = Preparation("spaces", lower=False)  # subwords need no tokeniser

CLASSIFICATIONS: dict[str, Classification] = {
    "imdb": Classification(
        "imdb/imdb.jsonl.gz", splits=SNELL2021_SPLITS, labels=("0", "1"), preparation=Preparation(strip_tags=True)
    ),
    "ag_news": Classification(
        "ag_news/ag_news.jsonl.gz",
        text=("title", "text"),
        labels=("World", "Business"),
        exclude_labels=("Sports", "Sci/Tech"),
        splits=SNELL2021_SPLITS,
        preparation=Preparation(unknown_integers=True),
    ),
    "20newsgroups": Classification(
        "20newsgroups_sports/20newsgroups_sports.jsonl.gz",
        splits=SNELL2021_SPLITS,
        # Our choice: no headers, because they name the class, and at most 1,000 words of a message.
        preparation=Preparation(
            strip_headers=True, split_underscores=True, unknown_integers=True, max_length=1000, too_long="truncate"
        ),
    ),
    "sst": Classification(
        "sst/sst.jsonl.gz",
        text=("tokens",),
        label="binary_label",
        labels=("0", "1"),
        exclude_labels=("null",),  # the neutral ones
        splits=Splits(("train",), ("dev",), ("test",)),
    ),
    "amazon": Classification(
        "amazon_reviews/amazon_reviews.jsonl.gz", labels=("0", "1"), preparation=Preparation(max_length=399)
    ),
    "yelp": Classification(
        "yelp_human_attention/yelp_human_attention.jsonl.gz", labels=("0", "1"), splits=Splits(YELP)
    ),
    # The same texts in the same splits; 'great!' is one word that people marked, and is read as 'great'.
    "yelp_rationales": Classification(
        "yelp_human_attention/yelp_human_attention.jsonl.gz",
        labels=("0", "1"),
        splits=Splits(YELP),
        preparation=Preparation("trimmed"),
        rationale="rationales",  # of each annotator; the published `rationale` is their majority
    ),
    # Whole reviews of up to 2,809 words, all annotated. `max_length` with too_long="truncate" cuts rationales too.
    # In the test split, as it came to us, most annotated passages (six in ten) end one word early.
    "eraser_movies": Classification(
        "eraser_movies/eraser_movies.jsonl.gz",
        labels=("NEG", "POS"),
        splits=Splits(("train",), ("val",), ("test",)),
        preparation=Preparation("whitespace"),
        rationale="rationale",
    ),
    "sms": Classification(
        "sms_spam/sms_spam.jsonl.gz",
        labels=("ham", "spam"),
        splits=Splits(validation_share=0.18, test_share=0.18),  # leaves about the 3,500 to train on of A.9
    ),
}


def subwords(file: str, splits: Splits) -> Translation:
    """Return a translation task with 8,000 subwords, shared between the two languages (snell2021 A.8)."""
    return Translation(file, splits=splits, preparation=WHOLE_SENTENCES, vocabulary=Subwords())


TRANSLATIONS: dict[str, Translation] = {
    "multi30k_en_de": subwords("multi30k/en-de.jsonl.gz", MULTI30K),
    # snell2021 says English to German; its author's code reads the same files the other way round.
    "multi30k_de_en": replace(subwords("multi30k/en-de.jsonl.gz", MULTI30K), source="target", target="source"),
    "multi30k_en_fr": subwords("multi30k/en-fr.jsonl.gz", MULTI30K),
    "tatoeba_en_de": subwords("tatoeba/en-de.jsonl.gz", SAMPLED_PAIRS),
    "tatoeba_en_fr": subwords("tatoeba/en-fr.jsonl.gz", SAMPLED_PAIRS),
    "iwslt14_de_en": subwords("iwslt14/de-en.jsonl.gz", Splits(("train_sample",), ("valid",), ("test",))),
}

CORPORA: dict[str, Classification | Translation] = {**CLASSIFICATIONS, **TRANSLATIONS}


def statistics(task: TextTask) -> pd.DataFrame:
    """Return one row per split: sentences, lengths without special tokens, vocabularies, and what was dropped or cut.

    `repeated` counts sentences whose source, as token ids, is in the training split too; `left_out` counts the rows of
    the file whose class or split the settings exclude.

    Args:
        task: The corpus to describe.
    """
    return pd.DataFrame([{"split": name} | split_statistics(task, name) for name in PARTS]).set_index("split")


def split_statistics(task: TextTask, name: str) -> dict[str, float | None]:
    part = task.part(name)
    row: dict[str, float | None] = {"sentences": len(part)}
    row |= length_statistics("source", part.source, task.marks[0].count)
    row |= {"source_vocabulary": len(task.source_vocabulary), "unknown": unknown_fraction(part.source)}
    if isinstance(task, Classification):
        row |= {"classes": len(task.classes), "largest_class": largest_class(part)}
    else:
        row |= length_statistics("target", part.target, task.marks[1].count)
        row |= {"target_vocabulary": len(task.target_vocabulary)}
    row |= {"longest_allowed": task.preparation.max_length}
    row |= {"empty": part.lost.empty, "dropped": part.lost.dropped, "truncated": part.lost.truncated}
    return row | {"repeated": count_repeated(task, name), "left_out": task.corpus.left_out}


def length_statistics(side: str, ids: Sequence[np.ndarray], specials: int) -> dict[str, float | None]:
    words = lengths(ids) - specials
    return {
        f"{side}_mean": float(words.mean()),
        f"{side}_median": float(np.median(words)),
        f"{side}_longest": int(words.max()),
    }


def unknown_fraction(ids: Sequence[np.ndarray]) -> float:
    """Return the fraction of tokens that are unknown, special tokens aside."""
    words = np.concatenate(ids)
    words = words[words >= len(SPECIALS)]
    return float((words == UNKNOWN).mean())


def largest_class(part: Part) -> float:
    return float(np.bincount(np.concatenate(part.target)).max() / len(part))


def count_repeated(task: TextTask, name: str) -> int:
    if name == "training":
        return 0
    training = {row.tobytes() for row in task.part("training").source}
    return sum(row.tobytes() in training for row in task.part(name).source)


# Published word vectors ----------------------------------------------------------------------------------------------


EXPECTED = "word vectors as .txt or .vec, plain or packed with gzip, or as .npz with a vocab.txt beside it"


@dataclass(frozen=True)
class Vectors(PublishedFile):
    """A file of published word vectors."""

    expected: ClassVar[str] = EXPECTED


@dataclass(frozen=True)
class InitialEmbedding:
    """Initial embeddings of a vocabulary, and which of its words have a published vector."""

    matrix: Float[Tensor, "words units"]
    pretrained: Bool[Tensor, " words"]

    @property
    def coverage(self) -> float:
        """The fraction of the vocabulary, special tokens aside, that has a published vector."""
        return self.pretrained[len(SPECIALS) :].float().mean().item()

    def running_coverage(self, task: TextTask) -> float:
        """Return the fraction of training tokens of the source with a published vector; an unknown word has none."""
        words = torch.from_numpy(np.concatenate(task.part("training").source)).long()
        return self.pretrained[words[words >= len(SPECIALS)]].float().mean().item()


@lru_cache(maxsize=4)
def initial_embedding(vocabulary: Vocabulary, file: str, seed: int = 0) -> InitialEmbedding:
    """Return published vectors; random ones of the same standard deviation for other words; zero for the padding.

    Args:
        vocabulary: The words. One that the file does not have as written is looked up in lower case.
        file: The file of word vectors, an absolute path or one relative to ATTNSCOPE_DATA.
        seed: Random seed of the vectors of words that the file does not have.
    """
    words = {form for word in vocabulary.tokens[len(SPECIALS) :] for form in (word, word.lower())}
    path = find_corpus(file, EXPECTED)
    published = from_npz(path, words) if path.suffix == ".npz" else from_text(path, words)
    rows = [published.get(word, published.get(word.lower())) for word in vocabulary.tokens]
    pretrained = np.array([row is not None and i >= len(SPECIALS) for i, row in enumerate(rows)])
    if not pretrained.any():
        raise BadSetting(f"{file} has no vector for any of the {len(vocabulary)} words of the vocabulary")
    vectors = np.stack([row for row, there in zip(rows, pretrained, strict=True) if there and row is not None])
    matrix = np.random.default_rng(seed).normal(0, vectors.std(), (len(rows), vectors.shape[1])).astype(np.float32)
    matrix[pretrained], matrix[PAD] = vectors, 0
    return InitialEmbedding(torch.from_numpy(matrix), torch.from_numpy(pretrained))


def from_npz(path: Path, words: Collection[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors = np.asarray(file["vectors"], dtype=np.float32)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise Malformed(f"{path} is no .npz file with an array 'vectors': {error}") from error
    vocabulary = [line for _, line in read_lines(find_corpus(str(path.with_name("vocab.txt")), EXPECTED))]
    if vectors.shape[:1] != (len(vocabulary),) or vectors.ndim != 2:
        shape = " x ".join(map(str, vectors.shape))
        raise Malformed(f"{path} holds {shape} numbers, but vocab.txt beside it has {len(vocabulary)} words")
    return {word: vectors[i] for i, word in enumerate(vocabulary) if word in words}


def from_text(path: Path, words: Collection[str]) -> dict[str, np.ndarray]:
    vectors: dict[str, np.ndarray] = {}
    units = 0
    for number, line in read_lines(path):
        if number == 1 and is_size(line):
            continue
        units = units or len(line.split(" ")) - 1
        word, *numbers = line.rstrip(" ").rsplit(" ", units)  # from the right: a word may hold spaces
        if len(numbers) != units or units == 0:
            raise Malformed(f"{path}, line {number}: expected a word and {units or 'some'} numbers, not {line[:40]!r}")
        if word in words:
            vectors[word] = parse_vector(numbers, path, number)
    return vectors


def is_size(line: str) -> bool:
    """Is this the first line of a .vec file: how many words, how many numbers each?"""
    cells = line.split()
    return len(cells) == 2 and all(cell.isdigit() for cell in cells)


def parse_vector(numbers: list[str], path: Path, line: int) -> np.ndarray:
    try:
        return np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise Malformed(f"{path}, line {line}: a vector must be numbers ({error})") from error
