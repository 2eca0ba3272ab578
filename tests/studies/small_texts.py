"""Made-up texts of two classes for tutek2020, in the places and formats of the real ones."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from attnscope.studies.tutek2020.experiments import TEXTS, Sizes
from tasks.small_corpora import write_jsonl

TINY = Sizes(
    "tiny", seeds=2, corpora=("sst", "20newsgroups"), input_size=4, epochs={"sst": 1, "20newsgroups": 1},
    num_permutations=3, num_words=10, num_clusters=5, max_vectors=100, max_texts=10, layers=(1, 2),
)  # fmt: skip
WORDS = ["good", "bad", "!", *(f"word{i}" for i in range(9))]


def texts(random, count, longest):
    """A text is as good as its one word 'good' or 'bad'."""
    for number in range(count):
        words = random.choice(WORDS[2:], random.integers(3, longest)).tolist()
        words[random.integers(len(words))] = WORDS[1 - number % 2]
        yield words, number % 2


def sentences(random):
    for split, count in (("train", 60), ("dev", 20), ("test", 30)):
        for words, label in texts(random, count, 8):
            yield {"split": split, "tokens": words, "binary_label": label}
    yield {"split": "train", "tokens": ["neither"], "binary_label": None}


def messages(random):
    for number, (words, label) in enumerate(texts(random, 100, 25)):
        body, sport = f"From: somebody\n\n{' '.join(words)}", ("baseball", "hockey")[label]
        yield {"split": ("train", "test")[number % 2], "text": body, "label": f"rec.sport.{sport}"}


def summaries(random):
    for row in sentences(random):
        if row["binary_label"] is not None:
            yield {"split": row["split"], "text": " ".join(row["tokens"]), "label": row["binary_label"]}


def write_vectors(folder, numbers=3):
    """The last two words have none."""
    words = np.random.default_rng(1).normal(size=(len(WORDS) - 2, numbers)).astype(np.float16)
    np.savez(folder / "glove.6B.100d.float16.npz", vectors=words)
    (folder / "vocab.txt").write_text("\n".join(WORDS[:-2]) + "\n", encoding="utf-8")


@contextmanager
def corpora(folder):
    """While this lasts, ATTNSCOPE_DATA names this folder, where SST, 20 Newsgroups and GloVe are."""
    random = np.random.default_rng(0)
    for name in ("sst", "20newsgroups_sports", "glove", "mimic"):
        (folder / name).mkdir()
    write_jsonl(folder / "sst" / "sst.jsonl.gz", sentences(random))
    write_jsonl(folder / "20newsgroups_sports" / "20newsgroups_sports.jsonl.gz", messages(random))
    write_vectors(folder / "glove")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNSCOPE_DATA", str(folder))
        for name, task in TEXTS.items():
            patch.setitem(TEXTS, name, replace(task))  # one that has read no other data yet
        yield folder
