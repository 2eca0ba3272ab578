"""IBM Model 1: word translation by co-occurrence alone (Brown et al. 1993; snell2021 §4.2).

Model 1 ignores word order, so a corpus is two tables of counts, sentences by words. Every target word comes from one
position of the source sentence, all equally likely a priori. With a NULL word, it may also come from none of them: NULL
is then one more source word, the last, in every sentence.

    bags = Bags.of(task.batches("test"), len(task.source_vocabulary), len(task.target_vocabulary))
    IBMModel1.counted(bags)  # eq. 16 and 17
    IBMModel1.fitted(bags)   # EM to convergence
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.sparse import coo_array, csc_array, csr_array, diags_array, hstack
from torch import Tensor

from attnscope.errors import AttnscopeError, require
from attnscope.files import Malformed, write_atomically
from attnscope.tasks import NOWHERE, Batch, Vocabulary, pad

NULL = "<null>"
HEADER = "source\ttarget\tprobability"

Words = Sequence[int] | Int[np.ndarray, "_"]
Pair = tuple[Words, Words]


@dataclass(frozen=True)
class Bags:
    """A corpus without word order: the counts of each word in each sentence."""

    source: csr_array  # sentences x source words, and NULL where there is one
    target: csr_array  # sentences x target words
    null: bool = False

    @classmethod
    def of(cls, corpus: Iterable[Batch | Pair], source_words: int, target_words: int, null: bool = False) -> "Bags":
        """Return the counts of all unmasked tokens, end tokens included.

        Args:
            corpus: Batches, or pairs of source and target token ids.
            source_words: Size of the source vocabulary.
            target_words: Size of the target vocabulary.
            null: Whether a NULL word is added to every source sentence.
        """
        pairs = list(pairs_of(corpus))
        require(any(len(pair[1]) for pair in pairs), "IBM Model 1 cannot count: no sentence pair has target words")
        source = bag([pair[0] for pair in pairs], source_words, "source")
        if null:
            source = csr_array(hstack([source, csr_array(np.ones((len(pairs), 1)))]))
        words = np.diff(source.indptr)
        require(bool(words.all()), f"sentence pair {words.argmin()}, counted from 0, has no source word; set null=True")
        return cls(source, bag([pair[1] for pair in pairs], target_words, "target"), null)

    @property
    def lengths(self) -> Float[np.ndarray, " sentences"]:
        return np.asarray(self.source.sum(1))  # L; with NULL, L + 1

    def cooccurrences(self) -> csc_array:
        """Return C (eq. 16), source x target words: 1 / L for each pair of positions in each pair of sentences."""
        counts = csc_array(self.source.T @ (diags_array(1 / self.lengths) @ self.target))
        counts.sort_indices()
        return counts


class ExpectationMaximisation:
    """The iterations of EM, as two sparse products.

    A row of `counts` is a target word of a sentence, a column an entry of the table, and the value is how often the
    entry's source word is in that sentence. Both are sorted by target word, so that memory is read in order.
    """

    def __init__(self, bags: Bags, table: csc_array):
        target = csc_array(bags.target)
        self.source = table.indices  # the source word of each entry
        self.repeats = target.data  # how often the target word of each row is in its sentence
        self.log_lengths = np.log(bags.lengths)[target.indices]
        self.counts = count_matrix(bags.source, target, table)

    def update(self, probabilities: Float[np.ndarray, " entries"]) -> tuple[Float[np.ndarray, " entries"], float]:
        """Return better probabilities, and the log-likelihood of the corpus under the given ones."""
        explained = self.counts @ probabilities  # z: the probability of each target word, times the source length
        log_likelihood = float(self.repeats @ (np.log(explained) - self.log_lengths))
        expected = probabilities * (self.counts.T @ (self.repeats / explained))
        return by_source_word(expected, self.source), log_likelihood


@dataclass(frozen=True, eq=False)
class IBMModel1:
    """Trans(o | i) for every source word i and target word o that occur in one sentence pair (eq. 17).

    Attributes:
        table: Source words (then NULL, where there is one) x target words.
        null: Whether there is a NULL word, for target words without a source word.
        log_likelihoods: Of the corpus: by counts alone, then after each iteration of EM.
    """

    table: csc_array
    null: bool = False
    log_likelihoods: tuple[float, ...] = ()

    @classmethod
    def counted(cls, bags: Bags) -> "IBMModel1":
        """Return the table after one step (eq. 16 and 17): the first iteration of EM from a uniform table."""
        return cls(translation(bags.cooccurrences()), bags.null)

    @classmethod
    def fitted(cls, bags: Bags, rounds: int = 1000, tolerance: float = 1e-6) -> "IBMModel1":
        """Return the table after EM from the counts on.

        Args:
            bags: The corpus.
            rounds: Maximum number of iterations.
            tolerance: EM stops where the log-likelihood changes by no more than this fraction.
        """
        require(rounds >= 0, f"there cannot be {rounds} iterations of EM; 0 leaves the counts as they are")
        table, history = translation(bags.cooccurrences()), list[float]()
        em = ExpectationMaximisation(bags, table)
        while True:
            better, log_likelihood = em.update(table.data)
            history.append(log_likelihood)
            if len(history) > rounds or has_converged(history, tolerance):
                return cls(table, bags.null, tuple(history))
            table.data = better

    def translation_probabilities(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return β of IBM Model 1 (eq. 18): the probability that this source word is translated to that target word."""
        source, target = batch.source.cpu().numpy(), batch.target.cpu().numpy()
        check_ids(source, self.table.shape[0] - self.null, "source")
        check_ids(target, self.table.shape[1], "target")
        probabilities = self._look_up(source[:, None], target[:, :, None])  # batch x target x source
        return torch.from_numpy(probabilities).to(batch.source.device) * unpadded_pairs(batch)

    def posteriors(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return α of IBM Model 1 (eq. 19): the posterior of each source position for each target word.

        With a NULL word, the posteriors of a target word sum to one minus that of NULL. A target word that never
        occurred with any word of the sentence has a uniform posterior.
        """
        probabilities = self.translation_probabilities(batch)
        total = probabilities.sum(-1, keepdim=True) + self._null_probabilities(batch)
        positions = batch.source_mask.sum(1)[:, None, None] + int(self.null)
        uniform = unpadded_pairs(batch).to(probabilities) / positions
        return torch.where(total > 0, probabilities / total, uniform)

    def viterbi(self, batch: Batch) -> Int[Tensor, "batch target"]:
        """Return the likeliest source position of each target word; NOWHERE for NULL, padding and unknown words."""
        best, position = self.translation_probabilities(batch).max(-1)
        return position.where((best > 0) & (best >= self._null_probabilities(batch)[..., 0]), NOWHERE)

    def word_alignment(self, source: Words, target: Words) -> list[tuple[int, int]]:
        """Return the likeliest word alignment of one sentence pair: (source position, target position), from 0.

        Args:
            source: Token ids of the source.
            target: Token ids of the target.
        """
        origins: list[int] = self.viterbi(alone(source, target))[0].tolist()
        return [(origin, position) for position, origin in enumerate(origins) if origin != NOWHERE]

    def _null_probabilities(self, batch: Batch) -> Float[Tensor, "batch target 1"]:
        target = batch.target.cpu().numpy()[:, :, None]
        probabilities = self._look_up(np.full_like(target, self.table.shape[0] - 1), target) * self.null
        return torch.from_numpy(probabilities).to(batch.target.device)

    @cached_property
    def _keys(self) -> Int[np.ndarray, " entries"]:
        """Sorted keys of the entries: the table is sorted by target word, then by source word."""
        target = np.repeat(np.arange(self.table.shape[1]), np.diff(self.table.indptr))
        return target * self.table.shape[0] + self.table.indices

    def _look_up(self, source: Int[np.ndarray, "..."], target: Int[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return entries of the table; zero where the two never occurred together."""
        keys = target.astype(np.int64) * self.table.shape[0] + source
        index = np.searchsorted(self._keys, keys).clip(max=self.table.nnz - 1)
        return np.where(self._keys[index] == keys, self.table.data[index], 0.0)

    def save(self, path: Path) -> None:
        facts = {"shape": self.table.shape, "null": self.null, "log_likelihoods": self.log_likelihoods}
        arrays = {"probability": self.table.data, "source": self.table.indices, "start": self.table.indptr}
        write_atomically(path, save(arrays, {"IBM Model 1": json.dumps(facts)}))

    @classmethod
    def load(cls, path: Path) -> "IBMModel1":
        arrays, metadata = read(path)
        try:
            facts = json.loads(metadata["IBM Model 1"])
            table = csc_array((arrays["probability"], arrays["source"], arrays["start"]), shape=facts["shape"])
            table.check_format(full_check=True)
            valid = (table.data >= 0) & (table.data <= 1)
            require(table.has_canonical_format and bool(valid.all()), "its table holds more than probabilities")
            return cls(table, facts["null"], tuple(facts["log_likelihoods"]))
        except (KeyError, ValueError, TypeError) as error:
            raise Malformed(f"{path} does not hold a whole IBM Model 1: {error}") from error

    def export(self, path: Path, source_words: Vocabulary, target_words: Vocabulary) -> None:
        """Write every entry as a line of source word, target word, probability; the likeliest first.

        Args:
            path: The file, with tab-separated columns.
            source_words: The source vocabulary.
            target_words: The target vocabulary.
        """
        sources, targets = (*source_words.tokens, NULL), target_words.tokens
        sizes, needed = (len(sources) - 1, len(targets)), (self.table.shape[0] - self.null, self.table.shape[1])
        require(sizes == needed, f"the vocabularies have {sizes} words, source and target; the table has {needed}")
        broken = [word for word in (*sources, *targets) if set(word) & set("\t\r\n")]
        require(not broken, f"the words {broken} cannot be written: they contain a tab or a line break")
        entries = self.table.tocoo()
        order = np.lexsort((-entries.data, entries.row))
        columns = (column[order].tolist() for column in (entries.row, entries.col, entries.data))
        lines = [f"{sources[i]}\t{targets[o]}\t{value!r}\n" for i, o, value in zip(*columns, strict=True)]
        write_atomically(path, "".join([HEADER, "\n", *lines]).encode())

    @classmethod
    def imported(cls, path: Path, source_words: Vocabulary, target_words: Vocabulary) -> "IBMModel1":
        """Return the table of a file in the format of `export`, in which entries may be missing.

        Args:
            path: The file, of `export` or of another aligner.
            source_words: The source vocabulary.
            target_words: The target vocabulary.
        """
        require(NULL not in source_words.tokens, f"{NULL} stands for no word, so it cannot be one of the source words")
        rows = list(table_lines(path, (*source_words.tokens, NULL), target_words.tokens))
        source, target, probability = (np.array(column) for column in zip(*rows, strict=True))
        null = bool((source == len(source_words)).any())
        shape = (len(source_words) + null, len(target_words))
        table = csc_array(coo_array((probability, (source, target)), shape=shape))  # sums duplicates
        if table.nnz < len(rows):
            raise Malformed(f"{path} has more than one line for the same two words")
        return cls(table, null)


def pairs_of(corpus: Iterable[Batch | Pair]) -> Iterator[Pair]:
    for item in corpus:
        if isinstance(item, Batch):
            source = unpadded(item.source, item.source_mask)
            yield from zip(source, unpadded(item.target, item.target_mask), strict=True)
        else:
            yield item


def unpadded(words: Tensor, mask: Tensor) -> list[np.ndarray]:
    return [row[keep] for row, keep in zip(words.cpu().numpy(), mask.cpu().numpy(), strict=True)]


def alone(source: Words, target: Words) -> Batch:
    """Return a sentence pair as a batch of one."""
    return Batch(*pad([np.asarray(source)]), *pad([np.asarray(target)]))


def unpadded_pairs(batch: Batch) -> Bool[Tensor, "batch target source"]:
    """Return where neither side is padding."""
    return batch.target_mask[:, :, None] & batch.source_mask[:, None]


def bag(sentences: Sequence[Words], words: int, side: str) -> csr_array:
    """Return how often each word occurs in each sentence: sentences x words."""
    flat = np.concatenate([np.asarray(sentence, dtype=np.int64) for sentence in sentences])
    check_ids(flat, words, side)
    start = np.cumsum([0, *map(len, sentences)])
    counts = csr_array((np.ones(len(flat)), flat, start), shape=(len(sentences), words))
    counts.sum_duplicates()
    return counts


def check_ids(ids: Int[np.ndarray, "..."], words: int, side: str) -> None:
    invalid = ids[(ids < 0) | (ids >= words)].tolist()
    require(not invalid, f"{invalid[:3]} are not among the {words} {side} words, whose ids start at 0")


def translation(counts: csc_array) -> csc_array:
    """Return Trans (eq. 17): each source word's counts, normalised."""
    return csc_array((by_source_word(counts.data, counts.indices), counts.indices, counts.indptr), shape=counts.shape)


def by_source_word(counts: Float[np.ndarray, " n"], source: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return np.asarray(counts / np.bincount(source, counts)[source])


def count_matrix(source: csr_array, target: csc_array, table: csc_array) -> csr_array:
    """Return (target words of sentences) x (entries of the table), built in place from the sentences' source words."""
    counts = source[target.indices]  # (target words of sentences) x source words
    entry = np.empty(table.shape[0], dtype=counts.indices.dtype)  # of each source word, for the current target word
    for word in range(table.shape[1]):
        entries = slice(*table.indptr[word : word + 2])
        entry[table.indices[entries]] = np.arange(entries.start, entries.stop)
        here = slice(*counts.indptr[target.indptr[word : word + 2]])
        counts.indices[here] = entry[counts.indices[here]]
    return csr_array((counts.data, counts.indices, counts.indptr), shape=(counts.shape[0], table.nnz))


def has_converged(history: list[float], tolerance: float) -> bool:
    return len(history) > 1 and abs(history[-1] - history[-2]) <= tolerance * abs(history[-1])


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except OSError as error:
        raise AttnscopeError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise Malformed(f"{path} is not a readable safetensors file ({error})") from error


def table_lines(path: Path, sources: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """Yield the source word, target word and probability of each line; errors name the line."""
    source, target = ({word: i for i, word in enumerate(words)} for words in (sources, targets))
    try:
        header, *lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise AttnscopeError(f"cannot read {path}: {error}") from error
    if header != HEADER or not lines:
        raise Malformed(f"{path} is no table of translations: its first line must be {HEADER!r}, and lines must follow")
    for number, line in enumerate(lines, start=2):
        try:
            i, o, probability = line.split("\t")
            value = float(probability)
            require(0 <= value <= 1, f"{value} is no probability")
            yield source[i], target[o], value
        except KeyError as error:
            raise Malformed(f"{path}, line {number}: the word {error} is not in the vocabulary") from error
        except ValueError as error:
            raise Malformed(f"{path}, line {number}: expected word, word, probability ({error})") from error
