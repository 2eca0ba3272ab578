"""Lookup tables: compositions of tables that map one string of bits to another (baan2019 appendix A).

`000 t1 t2 .` asks for t2(t1(000)), and the answer spells out every step: 000, t1(000), t2(t1(000)). The k-th token of
the answer depends on the k-th token of the query alone, so gold attention is diagonal. The full stop is our end token.
Tables are sampled, or those that Hupkes et al. 2018 published in several samples, of which baan2019 uses the first.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import factorial
from typing import TypeVar

import numpy as np

from attnscope.errors import choose, require
from attnscope.files import Malformed
from attnscope.tasks.batch import END, Vocabulary
from attnscope.tasks.task import FiniteTask, Sentence, Sentences, check_test_size, subsample
from attnscope.tasks.text.rows import SPLIT, Row, corpus_fingerprint, read_corpus

Composition = tuple[str, ...]  # names of tables, in the order in which they are applied
Query = tuple[str, Composition]  # an input and the tables that are applied to it
Item = TypeVar("Item")

# Of one or two tables:
PAIRS = ("train", "validation", "heldout_inputs", "heldout_compositions", "heldout_tables", "new_compositions")
LONGER = ("longer_seen", "longer_incremental", "longer_new")  # of three tables
BY_TABLES = ("heldout_compositions", "heldout_tables", "new_compositions")  # with none, some, or all of the last ones
LENGTHS = range(4, 11)
MUCH_LONGER = tuple(f"{kind}{length}" for kind in BY_TABLES for length in LENGTHS)  # of four to ten tables
SPLITS = (*PAIRS, *LONGER, *MUCH_LONGER, "all")
ALIASES = {"training": "train", "test": "heldout_compositions"}  # names that every task has
MAX_COMPOSITIONS = 500  # compositions in a set of four tables and more, as in the published files
# The share of all compositions of three tables that the published sets have: 136 of 216, 271 of 288, and 8 of 8. (150
# of those 271 have no held-out table at all, although the set is called incremental; ours have one or two.)
SHARES = {"longer_seen": 136 / 216, "longer_incremental": 271 / 288, "longer_new": 1.0}


@dataclass(frozen=True)
class Tables:
    """The output of each table for each input; the last `alone` tables are never composed in training."""

    bits: int
    outputs: tuple[tuple[int, ...], ...]  # per table, the index of the output string of each input
    alone: int

    @cached_property
    def strings(self) -> list[str]:
        return bit_strings(self.bits)

    @cached_property
    def names(self) -> list[str]:
        return [f"t{i + 1}" for i in range(len(self.outputs))]

    @property
    def composed(self) -> list[str]:
        return self.names[: len(self.names) - self.alone]

    @property
    def held_out(self) -> list[str]:
        return self.names[len(self.names) - self.alone :]

    @cached_property
    def mapping(self) -> Mapping[str, Mapping[str, str]]:
        """Table to input to output."""
        return {
            name: {self.strings[i]: self.strings[o] for i, o in enumerate(outputs)}
            for name, outputs in zip(self.names, self.outputs, strict=True)
        }

    def answer(self, query: Query) -> list[str]:
        """Return the input and the result of each table."""
        results = [query[0]]
        for table in query[1]:
            results.append(self.mapping[table][results[-1]])
        return results

    def every(self, compositions: Sequence[Composition]) -> list[Query]:
        """Return each of these compositions with all inputs."""
        return [(string, composition) for composition in compositions for string in self.strings]

    def half(self, compositions: Sequence[Composition], random: np.random.Generator) -> list[Query]:
        """Return each of these compositions with half of the inputs: four of the eight strings of three bits."""
        count = max(1, len(self.strings) // 2)
        return [(string, each) for each in compositions for string in sample(self.strings, count, random)]


@dataclass(frozen=True)
class TableTask(FiniteTask):
    """Queries to lookup tables, sampled or published."""

    @property
    @abstractmethod
    def end(self) -> bool:
        """Does the target have an end token?"""

    @property
    @abstractmethod
    def test_size(self) -> int | None:
        """The maximum number of sentences of an evaluation split; None: all of them."""

    @property
    @abstractmethod
    def table_set(self) -> Tables:
        """The tables themselves."""

    @abstractmethod
    def queries(self, split: str) -> list[Query]: ...

    @property
    def source_vocabulary(self) -> Vocabulary:
        return query_vocabulary(self.table_set.bits, len(self.table_set.names))

    @property
    def target_vocabulary(self) -> Vocabulary:
        return answer_vocabulary(self.table_set.bits)

    def part(self, split: str) -> Sentences:
        return encode_split(self._resolved, choose("split", ALIASES.get(split, split), SPLITS))


@dataclass(frozen=True)
class LookupTables(TableTask):
    """Strings of bits, tables that are bijections between them, and the splits of Hupkes et al. 2018.

    train has every table alone, and most pairs of the tables that are not held out, with most inputs. Evaluation splits
    are the other inputs of those pairs (heldout_inputs, after `validation`), the other pairs (heldout_compositions),
    pairs with one held-out table (heldout_tables) or two (new_compositions); three tables (longer_seen: none held out,
    longer_incremental: some, longer_new: all), and four to ten, in the same three kinds (heldout_compositions4, …); or
    `all` single tables and pairs. `test` means heldout_compositions.
    """

    bits: int = 3
    tables: int = 8
    heldout_tables: int = 2  # the last ones: in training they are never composed
    heldout_compositions: int = 8  # pairs of the other tables that are left out of training
    heldout_inputs: int = 2  # strings that are left out of each pair in training
    validation: int = 16  # of these held-out pairs and inputs
    end: bool = True  # does the target have an end token? baan2019 has none (end=False)
    seed: int = 0
    test_size: int | None = None  # maximum sentences of an evaluation split; None: all of them

    def __post_init__(self) -> None:
        for name in ("bits", "tables", "heldout_tables", "heldout_compositions", "heldout_inputs", "validation"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        require(self.bits <= 10, f"bits must be at most 10 (1,024 strings), not {self.bits}")
        strings = 2**self.bits
        require(
            self.tables <= factorial(strings),
            f"{self.bits} bits have {factorial(min(strings, 8))} different tables only, not {self.tables}",
        )
        require(self.seed >= 0, f"the seed of the tables must not be negative, but is {self.seed}")
        check_test_size(self.test_size)
        self._check_sizes()

    def _check_sizes(self) -> None:
        strings, pairs = 2**self.bits, (self.tables - self.heldout_tables) ** 2
        left_out = (pairs - self.heldout_compositions) * self.heldout_inputs
        for name, count, what in (
            ("heldout_tables", self.tables, "tables to compose in training"),
            ("heldout_inputs", strings, "inputs of a pair for training"),
            ("heldout_compositions", pairs, "pairs for training"),
            ("validation", left_out, "inputs left out of training for heldout_inputs"),
        ):
            size = getattr(self, name)
            require(size < count, f"{name}={size} leaves none of the {count} {what}")

    @property
    def table_set(self) -> Tables:
        return sample_tables(self.bits, self.tables, self.heldout_tables, self.seed)

    def queries(self, split: str) -> list[Query]:
        if split in PAIRS:
            return self._pairs[split]
        return longer_queries(self.table_set, split, self.seed)

    @cached_property
    def _pairs(self) -> dict[str, list[Query]]:
        """The single tables and pairs of each split."""
        random, tables = np.random.default_rng((self.seed, 1)), self.table_set
        shuffled = sample(list(product(tables.composed, repeat=2)), None, random)
        training, heldout = shuffled[: -self.heldout_compositions], shuffled[-self.heldout_compositions :]
        inputs = [(pair, sample(tables.strings, None, random)) for pair in training]
        training_queries = [(string, pair) for pair, order in inputs for string in order[self.heldout_inputs :]]
        heldout_inputs = [(string, pair) for pair, order in inputs for string in order[: self.heldout_inputs]]
        heldout_inputs = sample(heldout_inputs, None, random)
        new = list(product(tables.held_out, repeat=2))
        mixed = [pair for pair in product(tables.names, repeat=2) if kind_of(pair, tables) == "heldout_tables"]
        return {
            "train": tables.every([(name,) for name in tables.names]) + training_queries,
            "validation": heldout_inputs[: self.validation],
            "heldout_inputs": heldout_inputs[self.validation :],
            "heldout_compositions": tables.every(heldout),
            "heldout_tables": tables.every(mixed),
            "new_compositions": tables.every(new),
        }


@lru_cache(maxsize=256)
def encode_split(task: TableTask, split: str) -> Sentences:
    """Return a split as token ids; equal settings share it."""
    sentences = [encode_query(query, task.table_set, task.end) for query in task.queries(split)]
    return Sentences.of(sentences if split == "train" else subsample(sentences, task.test_size))


def encode_query(query: Query, tables: Tables, end: bool) -> Sentence:
    """Return a query and its answer as token ids: `000 t1 t2 .` and `000 010 111`, each followed by END.

    >>> tables = Tables(1, ((1, 0), (0, 1)), alone=1)
    >>> encode_query(("0", ("t1", "t2")), tables, end=True)
    Sentence(source=(3, 5, 6, 1), target=(3, 4, 4, 1), gold_attention=(0, 1, 2, 3))
    """
    string, composition = query
    source = query_vocabulary(tables.bits, len(tables.names)).encode([string, *composition])
    target = answer_vocabulary(tables.bits).encode(tables.answer(query))
    sentence = Sentence((*source, END), (*target, END), tuple(range(len(target) + 1)))
    return sentence if end else sentence.without_end()


def longer_queries(tables: Tables, split: str, seed: int) -> list[Query]:
    """Return the queries of a split of longer compositions, or of `all`: single tables and pairs."""
    if split == "all":
        return tables.every([(name,) for name in tables.names] + list(product(tables.names, repeat=2)))
    random = np.random.default_rng((seed, 2, SPLITS.index(split)))
    if split in LONGER:
        kind, length = BY_TABLES[LONGER.index(split)], 3
        limit = max(1, round(SHARES[split] * count_of(kind, length, tables)))
    else:
        kind = split.rstrip("0123456789")
        length, limit = int(split.removeprefix(kind)), MAX_COMPOSITIONS
    return tables.half(compositions(kind, length, limit, tables, random), random)


def compositions(kind: str, length: int, limit: int, tables: Tables, random: np.random.Generator) -> list[Composition]:
    """Return at most `limit` distinct compositions of a kind."""
    names = {"heldout_compositions": tables.composed, "new_compositions": tables.held_out}.get(kind, tables.names)
    if len(names) ** length <= 64 * limit:
        candidates: Iterator[Composition] = iter(sample(list(product(names, repeat=length)), None, random))
    else:
        places = random.integers(0, len(names), (64 * limit, length))
        candidates = (tuple(names[i] for i in row) for row in places.tolist())
    result: dict[Composition, None] = {}
    for candidate in candidates:
        if len(result) == limit:
            break
        if kind_of(candidate, tables) == kind:
            result[candidate] = None
    return list(result)


def kind_of(composition: Composition, tables: Tables) -> str:
    """Return the kind of a composition: no held-out table, some, or only held-out tables."""
    held_out = set(composition).intersection(tables.held_out)
    if not held_out:
        return "heldout_compositions"
    return "new_compositions" if held_out.issuperset(composition) else "heldout_tables"


def count_of(kind: str, length: int, tables: Tables) -> int:
    """Return the number of compositions of a kind."""
    none, only, all_ = (int(len(names) ** length) for names in (tables.composed, tables.held_out, tables.names))
    return {"heldout_compositions": none, "heldout_tables": all_ - none - only, "new_compositions": only}[kind]


@lru_cache(maxsize=64)
def sample_tables(bits: int, tables: int, alone: int, seed: int) -> Tables:
    """Return distinct random bijections."""
    random = np.random.default_rng((seed, 0))
    outputs: dict[tuple[int, ...], None] = {}
    while len(outputs) < tables:
        outputs.setdefault(tuple(random.permutation(2**bits).tolist()))
    return Tables(bits, tuple(outputs), alone)


def sample(items: Sequence[Item], count: int | None, random: np.random.Generator) -> list[Item]:
    """Return `count` items sampled without replacement, or all of them, in random order."""
    return [items[i] for i in random.permutation(len(items))[:count]]


def bit_strings(bits: int) -> list[str]:
    """Return all strings of a number of bits.

    >>> bit_strings(2)
    ['00', '01', '10', '11']
    """
    return [f"{i:0{bits}b}" for i in range(2**bits)]


@lru_cache(maxsize=64)
def query_vocabulary(bits: int, tables: int) -> Vocabulary:
    return Vocabulary.of([*bit_strings(bits), *(f"t{i + 1}" for i in range(tables))])


@lru_cache(maxsize=64)
def answer_vocabulary(bits: int) -> Vocabulary:
    return Vocabulary.of(bit_strings(bits))


FULL_STOP = "."
EXPECTED = "JSON lines packed with gzip, with the fields 'sample', 'split', 'source', 'target' and 'alignment'"


@dataclass(frozen=True)
class PublishedLookupTables(TableTask):
    """The published sentences, in the splits of `LookupTables`.

    The tables are the same in every sample; the held-out ones differ. In the published heldout_tables4 to
    heldout_tables10 many compositions have none of the last two tables (184 of the 460 of four tables). The files
    have no sets of three tables: longer_seen, longer_incremental and longer_new are sampled here, from the published
    tables.
    """

    sample: str = "sample1"
    end: bool = True  # does the target have an end token? baan2019 has none (end=False)
    test_size: int | None = None  # maximum sentences of an evaluation split; None: all of them
    folder: str = "lookup_tables"  # an absolute path, or one relative to ATTNSCOPE_DATA
    fingerprint: str | None = None  # a checksum of the files; if given, others are refused

    def __post_init__(self) -> None:
        check_test_size(self.test_size)

    def resolved(self) -> "PublishedLookupTables":
        return replace(self, fingerprint=corpus_fingerprint(self.folder, f"a folder of {EXPECTED}", self.fingerprint))

    @cached_property
    def table_set(self) -> Tables:
        """The tables, read from the training sentences with one table."""
        training = self.rows("train")
        results = {(row.composition[0], row.query[0]): row.answer[1] for row in training if len(row.composition) == 1}
        strings = sorted({string for _, string in results})
        tables = sorted({table for table, _ in results}, key=lambda name: int(name.removeprefix("t")))
        composed = {table for row in training if len(row.composition) > 1 for table in row.composition}
        try:
            outputs = tuple(tuple(strings.index(results[table, string]) for string in strings) for table in tables)
        except (KeyError, ValueError) as error:
            raise Malformed(f"the training sentences of {self.sample} do not give every table ({error})") from error
        return Tables(len(strings[0]), outputs, alone=len(tables) - len(composed))

    def queries(self, split: str) -> list[Query]:
        if split in LONGER or split == "all":
            return longer_queries(self.table_set, split, seed=0)
        return [row.checked(self.table_set) for row in self.rows(split)]

    def rows(self, split: str) -> "list[PublishedRow]":
        file = "lookup_tables.jsonl.gz" if split in PAIRS else "longer_compositions.jsonl.gz"
        samples = read_published(f"{self.folder}/{file}", self._resolved.fingerprint)
        splits = samples[choose("sample", self.sample, samples)]
        return splits[choose("split", split, splits)]


@dataclass(frozen=True)
class PublishedRow:
    """A line of a published file."""

    row: Row
    query: Query
    answer: tuple[str, ...]

    @property
    def composition(self) -> Composition:
        return self.query[1]

    @classmethod
    def of(cls, row: Row) -> "PublishedRow":
        source, target = str(row.field("source")).split(), tuple(str(row.field("target")).split())
        if len(source) < 3 or source[-1] != FULL_STOP or len(target) != len(source) - 1:
            raise row.wrong(
                "expected a source such as '000 t1 t2 .' and a target of its input and the result of each table, "
                f"not {' '.join(source)!r} and {' '.join(target)!r}"
            )
        if str(row.field("alignment")).split() != [str(i) for i in range(len(source))]:
            raise row.wrong(f"the alignment must be diagonal, from 0 to {len(source) - 1}")
        return cls(row, (source[0], tuple(source[1:-1])), target)

    def checked(self, tables: Tables) -> Query:
        """Return the query, after checking that its answer follows from the tables."""
        if not set(self.composition) <= set(tables.names) or tuple(tables.answer(self.query)) != self.answer:
            raise self.row.wrong(f"{' '.join(self.answer)!r} does not follow from the tables of the training sentences")
        return self.query


@lru_cache(maxsize=4)
def read_published(file: str, fingerprint: str | None) -> dict[str, dict[str, list[PublishedRow]]]:
    """Return rows by sample and split; the fingerprint is in the cache key, so that a changed file is read again."""
    samples: dict[str, dict[str, list[PublishedRow]]] = {}
    for row in read_corpus(file, (), EXPECTED):
        samples.setdefault(str(row.field("sample")), {}).setdefault(row.split(SPLIT), []).append(PublishedRow.of(row))
    return samples
