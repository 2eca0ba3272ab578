"""On which sentences were the numbers of baan2019 measured? The published lookup tables.

They were published by Hupkes et al. 2018 in several samples, of which baan2019 uses the first.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from attnscope.errors import choose
from attnscope.files import Malformed
from attnscope.tasks.finite import check_test_size
from attnscope.tasks.lookup_tables import (
    LONGER,
    PAIRS,
    Composition,
    Question,
    Tables,
    TableTask,
    longer_questions,
)
from attnscope.tasks.text import origins
from attnscope.tasks.text.rows import SPLIT, Row

STOP = "."
EXPECTED = "JSON lines packed with gzip, with the fields 'sample', 'split', 'source', 'target' and 'alignment'"


@dataclass(frozen=True)
class PublishedLookupTables(TableTask):
    """The published sentences, in the splits of `LookupTables`.

    The tables are the same in every sample; what differs is what is held out. In the published heldout_tables4 to
    heldout_tables10 many compositions have none of the last two tables (184 of the 460 of four tables). The files
    have no sets of three tables: longer_seen, longer_incremental and longer_new are drawn here, from the published
    tables.
    """

    sample: str = "sample1"
    end: bool = True  # does the target have an end token? baan2019 has none (end=False)
    test_size: int | None = None  # the most sentences of a split that are measured on; None: all of them
    folder: str = "lookup_tables"  # a complete path, or one below the folder that ATTNSCOPE_DATA names
    fingerprint: str | None = None  # a checksum of the files; if given, others are refused

    def __post_init__(self) -> None:
        check_test_size(self.test_size)

    def resolved(self) -> "PublishedLookupTables":
        found = origins.fingerprint(self.folder, f"a folder of {EXPECTED}", self.fingerprint)
        return replace(self, fingerprint=found)

    @cached_property
    def drawn(self) -> Tables:
        """The tables themselves, as far as the training sentences with one table tell."""
        training = self.rows("train")
        seen = {(row.composition[0], row.question[0]): row.answer[1] for row in training if len(row.composition) == 1}
        strings = sorted({string for _, string in seen})
        tables = sorted({table for table, _ in seen}, key=lambda name: int(name.removeprefix("t")))
        composed = {table for row in training if len(row.composition) > 1 for table in row.composition}
        try:
            outputs = tuple(tuple(strings.index(seen[table, string]) for string in strings) for table in tables)
        except (KeyError, ValueError) as error:
            raise Malformed(f"the training sentences of {self.sample} do not give every table ({error})") from error
        return Tables(len(strings[0]), outputs, alone=len(tables) - len(composed))

    def questions(self, split: str) -> list[Question]:
        if split in LONGER or split == "all":
            return longer_questions(self.drawn, split, seed=0)
        return [row.checked(self.drawn) for row in self.rows(split)]

    def rows(self, split: str) -> "list[Asked]":
        file = "lookup_tables.jsonl.gz" if split in PAIRS else "longer_compositions.jsonl.gz"
        samples = read(f"{self.folder}/{file}", self._resolved.fingerprint)
        splits = samples[choose("sample", self.sample, samples)]
        return splits[choose("split", split, splits)]


def published(sample: str = "sample1", end: bool = True) -> PublishedLookupTables:
    """The task of the published files; baan2019 has sample1 and end=False."""
    return PublishedLookupTables(sample, end)


@dataclass(frozen=True)
class Asked:
    """A line of a published file."""

    row: Row
    question: Question
    answer: tuple[str, ...]

    @property
    def composition(self) -> Composition:
        return self.question[1]

    @classmethod
    def of(cls, row: Row) -> "Asked":
        source, target = str(row.field("source")).split(), tuple(str(row.field("target")).split())
        if len(source) < 3 or source[-1] != STOP or len(target) != len(source) - 1:
            raise row.wrong(
                "expected a source such as '000 t1 t2 .' and a target of its input and the result of each table, "
                f"not {' '.join(source)!r} and {' '.join(target)!r}"
            )
        if str(row.field("alignment")).split() != [str(i) for i in range(len(source))]:
            raise row.wrong(f"the alignment must be diagonal, from 0 to {len(source) - 1}")
        return cls(row, (source[0], tuple(source[1:-1])), target)

    def checked(self, tables: Tables) -> Question:
        """The question, whose answer must follow from the tables."""
        if not set(self.composition) <= set(tables.names) or tuple(tables.answer(self.question)) != self.answer:
            raise self.row.wrong(f"{' '.join(self.answer)!r} does not follow from the tables of the training sentences")
        return self.question


@lru_cache(maxsize=4)
def read(file: str, fingerprint: str | None) -> dict[str, dict[str, list[Asked]]]:
    """Sample to split to lines; the checksum is given so that a changed file is read again."""
    found: dict[str, dict[str, list[Asked]]] = {}
    for row in origins.read(file, (), EXPECTED):
        found.setdefault(str(row.field("sample")), {}).setdefault(row.split(SPLIT), []).append(Asked.of(row))
    return found
