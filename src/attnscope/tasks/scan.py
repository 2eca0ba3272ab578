"""Is a rule applied to longer commands, and to a verb never seen in it? Commands to actions (Lake and Baroni 2018).

'jump opposite left after walk' asks to walk, to turn left twice and to jump. Published splits, and for three of them
published guides: which word of the command each action comes from (Hupkes et al. 2018); these are not diagonal.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from attnscope.errors import choose, require
from attnscope.tasks.batch import END, Vocabulary
from attnscope.tasks.finite import FiniteTask, Sentence, Sentences, check_test_size, some
from attnscope.tasks.text import origins
from attnscope.tasks.text.rows import SPLIT, Row

GUIDED = ("simple", "addprim_jump", "length")
COMMANDS = (
    *GUIDED, "addprim_turn_left", "template_around_right", "template_jump_around_right", "template_opposite_right",
    "template_right", "filler_num0", "filler_num1", "filler_num2", "filler_num3",
)  # fmt: skip
WORDS = (
    "walk", "look", "run", "jump", "turn", "left", "right", "opposite", "around", "twice", "thrice", "and", "after",
)  # fmt: skip
ACTIONS = ("I_WALK", "I_LOOK", "I_RUN", "I_JUMP", "I_TURN_LEFT", "I_TURN_RIGHT")
STOP = "."  # ends a command where guides are published; it is our end token, which ends all commands
PARTS = {"training": "train", "train": "train", "validation": "validation", "test": "test"}


@dataclass(frozen=True)
class Scan(FiniteTask):
    """One of the published splits of SCAN. Words, actions and their numbers are the same in all of them.

    Where no validation set is published (all but `length` with guides), it is a share of the training commands. One
    that stands there many times, such as the single 'jump' of addprim_jump, is never taken.
    """

    commands: str = "simple"
    gold_attention: bool = False  # with published guides, which there are for simple, addprim_jump and length
    end: bool = True  # does the target have an end token?
    validation_share: float = 0.1
    seed: int = 0  # of that share
    test_size: int | None = None  # the most sentences of a split that are measured on; None: all of them
    folder: str = "scan"  # a complete path, or one below the folder that ATTNSCOPE_DATA names
    fingerprint: str | None = None  # a checksum of the file; if given, another is refused

    def __post_init__(self) -> None:
        choose(
            "split of SCAN with gold attention" if self.gold_attention else "split of SCAN",
            self.commands,
            self._choices,
        )
        require(0 < self.validation_share < 1, f"validation_share is between 0 and 1, not {self.validation_share}")
        require(self.seed >= 0, f"the seed of the validation set must not be negative, but is {self.seed}")
        check_test_size(self.test_size)

    @property
    def _choices(self) -> tuple[str, ...]:
        return GUIDED if self.gold_attention else COMMANDS

    @property
    def file(self) -> str:
        return f"{self.folder}/{'hard_attention_' if self.gold_attention else ''}{self.commands}.jsonl.gz"

    @property
    def expected(self) -> str:
        fields = "'split', 'source', 'target'" + (" and 'alignment'" if self.gold_attention else "")
        return f"JSON lines packed with gzip, with the fields {fields}"

    def resolved(self) -> "Scan":
        return replace(self, fingerprint=origins.fingerprint(self.file, self.expected, self.fingerprint))

    @property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(WORDS)

    @property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(ACTIONS)

    def part(self, split: str) -> Sentences:
        return loaded(self._resolved)[PARTS[choose("split", split, PARTS)]]


@lru_cache(maxsize=8)
def loaded(task: Scan) -> dict[str, Sentences]:
    """The splits in numbers; equal settings share them."""
    sets: dict[str, list[Sentence]] = {}
    for row in origins.read(task.file, (), task.expected):
        sets.setdefault(row.split(SPLIT), []).append(sentence(row, task.gold_attention, task.end))
    for name in ("train", "test"):
        choose(f"split in {task.file}", name, sets)
    if "validation" not in sets:
        sets["train"], sets["validation"] = apart(sets["train"], task.validation_share, task.seed)
    return {name: Sentences.of(rows if name == "train" else some(rows, task.test_size)) for name, rows in sets.items()}


def apart(rows: Sequence[Sentence], share: float, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """What stays for training, and a share for validation, of those that stand there once."""
    times = Counter(row.source for row in rows)
    single = [i for i, row in enumerate(rows) if times[row.source] == 1]
    require(len(single) > 1, "there are too few training commands to draw a validation set from")
    count = max(1, round(share * len(single)))
    taken = set(np.random.default_rng((seed, 3)).permutation(single)[:count].tolist())
    return [row for i, row in enumerate(rows) if i not in taken], [rows[i] for i in sorted(taken)]


def sentence(row: Row, guides: bool, end: bool) -> Sentence:
    """A command and its actions in numbers; the end answers the end."""
    words = str(row.field("source")).removesuffix(STOP).split()
    actions = str(row.field("target")).split()
    source = (*numbers(row, "source", words, Vocabulary.of(WORDS)), END)
    target = (*numbers(row, "target", actions, Vocabulary.of(ACTIONS)), END)
    whole = Sentence(source, target, guide_of(row, len(target), len(source)) if guides else ())
    return whole if end else whole.without_end()


def numbers(row: Row, side: str, words: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    unknown = [word for word in words if word not in vocabulary.tokens]
    if unknown or not words:
        raise row.wrong(f"the {side} must consist of words of SCAN, but has {', '.join(unknown) or 'none'}")
    return vocabulary.encode(words)


def guide_of(row: Row, targets: int, sources: int) -> tuple[int, ...]:
    """The published alignment: for each action and for the end, a position of the command."""
    given = str(row.field("alignment")).split()
    if len(given) != targets or not all(place.isdecimal() and int(place) < sources for place in given):
        raise row.wrong(
            f"the alignment must have {targets} numbers, one an action and one for the end, each from 0 to "
            f"{sources - 1}, not {' '.join(given)!r}"
        )
    return tuple(map(int, given))
