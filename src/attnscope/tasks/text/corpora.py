"""Named corpora and how they are prepared (snell2021 A.5, A.8), and statistics of any corpus (snell2021 table 9).

The files are those below the folder that ATTNSCOPE_DATA names. Where the paper has a training and a test set only, it
validates on at most 4,000 sentences of the test set, and so do we: nothing chosen by that validation set may then be
reported on the test set. All text is in lower case where words are the tokens, which is our choice.

Published word vectors, from which embeddings may start, are text with a word and its numbers on each line, as GloVe
(.txt) and fastText (.vec, whose first line gives the sizes) are published, plain or packed with gzip; or an .npz file
with the array `vectors`, beside a `vocab.txt` with a word a line.
"""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.tasks.batch import PAD, SPECIALS, Vocabulary, lengths
from attnscope.tasks.text.preparation import PARTS, Part, Preparation, Splits
from attnscope.tasks.text.rows import corpus_fingerprint, find_corpus, read_lines
from attnscope.tasks.text.tasks import Classification, TextTask, Translation
from attnscope.tasks.text.vocabularies import UNKNOWN, Subwords

AS_IN_THE_PAPER = Splits(("train",), ("test",), ("test",), max_validation=4000)  # snell2021 A.8
MULTI30K = Splits(("train",), ("val",), ("test2016",))
DRAWN_PAIRS = Splits(("all",), validation_share=0.02, test_share=0.02)
YELP = ("50words", "100words", "200words", "part7")  # by their length, not for training and testing
WHOLE_SENTENCES = Preparation("spaces", lower=False)  # subwords need no tokeniser

CLASSIFICATIONS: dict[str, Classification] = {
    "imdb": Classification(
        "imdb/imdb.jsonl.gz", splits=AS_IN_THE_PAPER, labels=("0", "1"), preparation=Preparation(strip_tags=True)
    ),
    "ag_news": Classification(
        "ag_news/ag_news.jsonl.gz",
        text=("title", "text"),
        labels=("World", "Business"),
        exclude_labels=("Sports", "Sci/Tech"),
        splits=AS_IN_THE_PAPER,
        preparation=Preparation(unknown_integers=True),
    ),
    "20newsgroups": Classification(
        "20newsgroups_sports/20newsgroups_sports.jsonl.gz",
        splits=AS_IN_THE_PAPER,
        # Our choice: no headers, for they give the class away, and no more than 1,000 words of a message.
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
        rationale="rationales",  # of each annotator: half of them or more is what is published as `rationale`
    ),
    # Whole reviews, of up to 2,809 words: people marked all of them. `longest` with too_long="truncate" cuts marks too.
    # In the test split, as it came to us, most marked passages (six in ten) stop one word early.
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
    """8,000 subwords, shared between the two languages (snell2021 A.8)."""
    return Translation(file, splits=splits, preparation=WHOLE_SENTENCES, vocabulary=Subwords())


TRANSLATIONS: dict[str, Translation] = {
    "multi30k_en_de": subwords("multi30k/en-de.jsonl.gz", MULTI30K),
    # snell2021 says English to German; its author's code reads the same files the other way round.
    "multi30k_de_en": replace(subwords("multi30k/en-de.jsonl.gz", MULTI30K), source="target", target="source"),
    "multi30k_en_fr": subwords("multi30k/en-fr.jsonl.gz", MULTI30K),
    "tatoeba_en_de": subwords("tatoeba/en-de.jsonl.gz", DRAWN_PAIRS),
    "tatoeba_en_fr": subwords("tatoeba/en-fr.jsonl.gz", DRAWN_PAIRS),
    "iwslt14_de_en": subwords("iwslt14/de-en.jsonl.gz", Splits(("train_sample",), ("valid",), ("test",))),
}

CORPORA: dict[str, Classification | Translation] = {**CLASSIFICATIONS, **TRANSLATIONS}


def statistics(task: TextTask) -> pd.DataFrame:
    """One row a split: sentences, their lengths without special words, vocabularies, and what was left out or cut.

    `repeated` counts sentences whose source, as token ids, is in the training split too; `left_out` counts the rows of
    the file that the settings do not ask for, by their class or their split.
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


def length_statistics(side: str, numbers: Sequence[np.ndarray], specials: int) -> dict[str, float | None]:
    words = lengths(numbers) - specials
    return {
        f"{side}_mean": float(words.mean()),
        f"{side}_median": float(np.median(words)),
        f"{side}_longest": int(words.max()),
    }


def unknown_fraction(numbers: Sequence[np.ndarray]) -> float:
    """The share of running words that are unknown."""
    words = np.concatenate(numbers)
    words = words[words >= len(SPECIALS)]
    return float((words == UNKNOWN).mean())


def largest_class(part: Part) -> float:
    return float(np.bincount(np.concatenate(part.target)).max() / len(part))


def count_repeated(task: TextTask, name: str) -> int:
    if name == "training":
        return 0
    trained_on = {row.tobytes() for row in task.part("training").source}
    return sum(row.tobytes() in trained_on for row in task.part(name).source)


# Published word vectors ----------------------------------------------------------------------------------------------


EXPECTED = "word vectors as .txt or .vec, plain or packed with gzip, or as .npz with a vocab.txt beside it"


@dataclass(frozen=True)
class Vectors:
    """A file of published word vectors."""

    file: str
    fingerprint: str | None = None  # a checksum; if given, another file is refused

    def resolved(self) -> "Vectors":
        return replace(self, fingerprint=corpus_fingerprint(self.file, EXPECTED, self.fingerprint))


@dataclass(frozen=True)
class InitialEmbedding:
    """A first embedding for every word of a vocabulary, and which of them are published."""

    matrix: Float[Tensor, "words units"]
    found: Bool[Tensor, " words"]

    @property
    def coverage(self) -> float:
        """The share of the words of the vocabulary, special ones aside, that have a published vector."""
        return self.found[len(SPECIALS) :].float().mean().item()

    def running_coverage(self, task: TextTask, split: str = "training") -> float:
        """The share of running source words that have one; an unknown word has none."""
        words = torch.from_numpy(np.concatenate(task.part(split).source)).long()
        return self.found[words[words >= len(SPECIALS)]].float().mean().item()


@lru_cache(maxsize=4)
def initial_embedding(vocabulary: Vocabulary, file: str, seed: int = 0) -> InitialEmbedding:
    """Published vectors; for words without one, random ones as widely spread as those; zero for the padding.

    A word that is not found as it is written is looked for in lower case.
    """
    wanted = {form for word in vocabulary.tokens[len(SPECIALS) :] for form in (word, word.lower())}
    published = read_vectors(find_corpus(file, EXPECTED), wanted)
    rows = [published.get(word, published.get(word.lower())) for word in vocabulary.tokens]
    found = np.array([row is not None and i >= len(SPECIALS) for i, row in enumerate(rows)])
    if not found.any():
        raise BadSetting(f"{file} has no vector for any of the {len(vocabulary)} words of the vocabulary")
    known = np.stack([row for row, there in zip(rows, found, strict=True) if there and row is not None])
    matrix = np.random.default_rng(seed).normal(0, known.std(), (len(rows), known.shape[1])).astype(np.float32)
    matrix[found], matrix[PAD] = known, 0
    return InitialEmbedding(torch.from_numpy(matrix), torch.from_numpy(found))


def read_vectors(path: Path, wanted: Collection[str]) -> Mapping[str, np.ndarray]:
    """The vectors of the words that are wanted and there."""
    return from_npz(path, wanted) if path.suffix == ".npz" else from_text(path, wanted)


def from_npz(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors = np.asarray(file["vectors"], dtype=np.float32)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise Malformed(f"{path} is no .npz file with an array 'vectors': {error}") from error
    words = [line for _, line in read_lines(find_corpus(str(path.with_name("vocab.txt")), EXPECTED))]
    if vectors.shape[:1] != (len(words),) or vectors.ndim != 2:
        shape = " x ".join(map(str, vectors.shape))
        raise Malformed(f"{path} holds {shape} numbers, but vocab.txt beside it has {len(words)} words")
    return {word: vectors[i] for i, word in enumerate(words) if word in wanted}


def from_text(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    vectors: dict[str, np.ndarray] = {}
    units = 0
    for number, line in read_lines(path):
        if number == 1 and is_size(line):
            continue
        units = units or len(line.split(" ")) - 1
        word, *numbers = line.rstrip(" ").rsplit(" ", units)  # from the right: a word may hold spaces
        if len(numbers) != units or units == 0:
            raise Malformed(f"{path}, line {number}: expected a word and {units or 'some'} numbers, not {line[:40]!r}")
        if word in wanted:
            vectors[word] = parsed(numbers, path, number)
    return vectors


def is_size(line: str) -> bool:
    """Is this the first line of a .vec file: how many words, how many numbers each?"""
    cells = line.split()
    return len(cells) == 2 and all(cell.isdigit() for cell in cells)


def parsed(numbers: list[str], path: Path, line: int) -> np.ndarray:
    try:
        return np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise Malformed(f"{path}, line {line}: a vector must be numbers ({error})") from error
