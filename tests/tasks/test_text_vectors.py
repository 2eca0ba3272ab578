import gzip

import numpy as np
import pytest
import torch
from small_corpora import write_jsonl

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.tasks import PAD, SPECIALS, Classification, MissingCorpus, Splits, Vocabulary, initial_embedding
from attnscope.tasks.text import UNKNOWN_WORD, ChangedCorpus, Vectors

PUBLISHED = {"the": [1.0, 2.0, 3.0], "cat": [-1.0, 0.5, 0.0], ". . .": [0.25, 0.25, 0.25], "unused": [9.0, 9.0, 9.0]}
VOCABULARY = Vocabulary.of([UNKNOWN_WORD, "the", "Cat", "dog", ". . ."])
TEXT = "".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in PUBLISHED.items())


def write_npz(folder, words=PUBLISHED, name="vectors"):
    np.savez(folder / "v.npz", **{name: np.array(list(PUBLISHED.values()), dtype=np.float16)})
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    return str(folder / "v.npz")


def written(folder, kind):
    if kind == "npz":
        return write_npz(folder)
    content = (f"{len(PUBLISHED)} 3\n" if ".vec" in kind else "") + TEXT
    path = folder / f"v.{kind}"
    path.write_bytes(gzip.compress(content.encode()) if kind.endswith("gz") else content.encode())
    return str(path)


@pytest.mark.parametrize("kind", ["txt", "vec", "txt.gz", "vec.gz", "npz"])
def test_published_vectors_are_taken_from_every_format(tmp_path, kind):
    start = initial_embedding(VOCABULARY, written(tmp_path, kind))
    assert start.matrix.shape == (len(VOCABULARY), 3)
    assert start.matrix[4].tolist() == PUBLISHED["the"]
    assert start.matrix[5].tolist() == PUBLISHED["cat"]  # 'Cat' is only there in lower case
    assert start.matrix[7].tolist() == PUBLISHED[". . ."]
    assert start.pretrained.tolist() == [False] * 4 + [True, True, False, True]


def test_missing_words_are_random_from_the_seed_and_the_padding_is_zero(tmp_path):
    file = written(tmp_path, "txt")
    first, again, other = (initial_embedding(VOCABULARY, file, seed).matrix for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first[6], other[6])
    assert (first[PAD] == 0).all()
    assert (first[1:4] != 0).all()


def test_missing_words_are_as_widely_spread_as_published_ones(tmp_path):
    vocabulary = Vocabulary.of([*PUBLISHED, *(f"missing{i}" for i in range(5000))])
    start = initial_embedding(vocabulary, written(tmp_path, "txt"))
    spread = np.array(list(PUBLISHED.values())).std()
    assert start.matrix[~start.pretrained][len(SPECIALS) :].std().item() == pytest.approx(spread, rel=0.03)


def test_coverage_is_reported_for_the_vocabulary_and_for_running_words(tmp_path):
    rows = [{"text": f"the the the dog n{i}", "label": i % 2, "split": "test" if i > 3 else "train"} for i in range(6)]
    file = write_jsonl(tmp_path / "a.jsonl", rows)
    task = Classification(file, splits=Splits(("train",), ("test",), ("test",)))
    start = initial_embedding(task.source_vocabulary, written(tmp_path, "txt"))
    assert start.coverage == pytest.approx(1 / 3)  # unknown, the, dog
    assert start.running_coverage(task) == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"the 1 2 3\ncat 1 2\n", "line 2: expected a word and 3 numbers, not 'cat 1 2'"),
        (b"the 1 2 x\n", "line 1: a vector must be numbers"),
        (b"the\n", "line 1: expected a word and some numbers"),
        (b"", "is empty"),
        (b"\xff 1 2\n", "is not UTF-8"),
    ],
)
def test_a_malformed_line_is_named_with_what_was_expected(tmp_path, content, message):
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(Malformed, match=message):
        initial_embedding(VOCABULARY, str(tmp_path / "v.txt"))


def test_vectors_and_vocabulary_must_be_of_one_size(tmp_path):
    with pytest.raises(Malformed, match=r"holds 4 x 3 numbers, but vocab.txt beside it has 2 words"):
        initial_embedding(VOCABULARY, write_npz(tmp_path, words=["a", "b"]))


def test_an_npz_file_without_vectors_is_refused(tmp_path):
    with pytest.raises(Malformed, match=r"no .npz file with an array 'vectors'"):
        initial_embedding(VOCABULARY, write_npz(tmp_path, name="embeddings"))
    (tmp_path / "v.npz").write_bytes(b"no zip file")
    with pytest.raises(Malformed, match=r"no .npz file with an array 'vectors'"):
        initial_embedding(VOCABULARY, str(tmp_path / "v.npz"))


def test_a_missing_file_says_which_formats_are_read(tmp_path):
    with pytest.raises(MissingCorpus, match=r"word vectors as .txt or .vec, .* or as .npz with a vocab.txt"):
        initial_embedding(VOCABULARY, str(tmp_path / "v.txt"))


def test_an_npz_file_without_its_words_says_what_is_missing(tmp_path):
    file = write_npz(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(MissingCorpus, match=r"looked for .*vocab.txt .* or as .npz with a vocab.txt beside it"):
        initial_embedding(VOCABULARY, file)


def test_other_vectors_than_those_of_the_settings_are_refused(tmp_path):
    vectors = Vectors(written(tmp_path, "txt")).resolved()
    assert vectors.resolved() == vectors
    (tmp_path / "v.txt").write_text(TEXT.replace("cat", "dog"))
    with pytest.raises(ChangedCorpus, match=r"v.txt has changed: its checksum is .*, the settings say"):
        vectors.resolved()


def test_vectors_of_another_language_are_refused(tmp_path):
    (tmp_path / "v.txt").write_text("der 1 2\nund 3 4\n")
    with pytest.raises(BadSetting, match="has no vector for any of the 8 words"):
        initial_embedding(VOCABULARY, str(tmp_path / "v.txt"))
