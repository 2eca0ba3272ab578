"""Small corpora, made up here, in the formats that are read."""

import gzip
import json

import numpy as np

LETTERS = list("abcdefghij")


def write_jsonl(path, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def reviews(count=60, seed=0):
    """Random letters; the class says whether there is a 'z' among them."""
    random = np.random.default_rng(seed)
    for i in range(count):
        words = random.choice(LETTERS, random.integers(1, 12)).tolist() + ["z"] * (i % 2)
        yield {"text": " ".join(words), "label": i % 2}


def pairs(count=80, seed=0):
    """A sentence of letters and the same in capitals; every third source has a second translation."""
    random = np.random.default_rng(seed)
    for i in range(count):
        words = [*random.choice(LETTERS, random.integers(2, 9)).tolist(), f"n{i}"]
        yield {"source": " ".join(words), "target": " ".join(words).upper()}
        if i % 3 == 0:
            yield {"source": " ".join(words), "target": " ".join(reversed(words)).upper()}
