"""aitken2021 at a tiny size: a small corpus of English and French, made up here, where the study looks for the real."""

import numpy as np

from attnscope.studies.aitken2021.experiments import Sizes
from tasks.small_corpora import write_jsonl

TINY = Sizes(
    "tiny", 2, units=12, batch_size=8, steps=6, long_steps=6, test_size=30, all_cells=False, text_words=30, text_steps=6
)
PHRASES = {
    "the cat": "le chat", "the sea": "la mer", "the dogs": "les chiens", "a house": "une maison",
    "a man": "un homme", "i": "je", "you": "vous", "in": "dans",
}  # fmt: skip


def sentences(count, seed=0):
    """One to seven phrases, so that a word comes at any time."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        words = random.choice(list(PHRASES), random.integers(1, 8)).tolist()
        yield {"source": " ".join(words), "target": " ".join(PHRASES[word] for word in words), "split": "all"}


def write_corpus(folder, count=3000):
    """`folder` may then be named by ATTNSCOPE_DATA."""
    (folder / "tatoeba").mkdir()
    write_jsonl(folder / "tatoeba" / "en-fr.jsonl.gz", sentences(count))
    return folder
