"""SCAN commands to actions, published (Lake and Baroni 2018) and extended (aitken2021 §4).

'jump opposite left after walk' asks to walk, to turn left twice and to jump. `Scan` has the published splits, three of
them with gold attention: the word of the command that each action comes from (Hupkes et al. 2018); it is not diagonal.

`ExtendedSCAN` strings commands of a smaller grammar together: 'run left' means LTURN RUN, 'run twice' means RUN RUN,
'X and Y' means X, then Y; a separator ends each command on both sides. So 'and' has no output, 'left' is read after the
verb and acted on before it, and 'twice' repeats what came before.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

import numpy as np

from attnscope.errors import choose, require
from attnscope.tasks.batch import END, Batch, Vocabulary
from attnscope.tasks.task import (
    FiniteTask,
    Sentence,
    Sentences,
    SyntheticTask,
    check_lengths,
    check_test_size,
    subsample,
)
from attnscope.tasks.text.rows import SPLIT, Row, corpus_fingerprint, read_corpus

WITH_GOLD_ATTENTION = ("simple", "addprim_jump", "length")
COMMANDS = (
    *WITH_GOLD_ATTENTION, "addprim_turn_left", "template_around_right", "template_jump_around_right",
    "template_opposite_right", "template_right", "filler_num0", "filler_num1", "filler_num2", "filler_num3",
)  # fmt: skip
WORDS = (
    "walk", "look", "run", "jump", "turn", "left", "right", "opposite", "around", "twice", "thrice", "and", "after",
)  # fmt: skip
ACTIONS = ("I_WALK", "I_LOOK", "I_RUN", "I_JUMP", "I_TURN_LEFT", "I_TURN_RIGHT")
STOP = "."  # ends a command in files with gold attention; here, every command ends with END
PARTS = {"training": "train", "train": "train", "validation": "validation", "test": "test"}


@dataclass(frozen=True)
class Scan(FiniteTask):
    """One of the published splits of SCAN. Words, actions and their token ids are the same in all of them.

    Where no validation set is published (all but `length` with gold attention), it is a share of the training
    commands. Commands that occur several times, such as the single 'jump' of addprim_jump, always stay in training.
    """

    commands: str = "simple"
    gold_attention: bool = False  # published for simple, addprim_jump and length
    end: bool = True  # does the target have an end token?
    validation_share: float = 0.1
    seed: int = 0  # of the sampled validation set
    test_size: int | None = None  # maximum sentences of an evaluation split; None: all of them
    folder: str = "scan"  # an absolute path, or one relative to ATTNSCOPE_DATA
    fingerprint: str | None = None  # a checksum of the file; if given, another file is refused

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
        return WITH_GOLD_ATTENTION if self.gold_attention else COMMANDS

    @property
    def file(self) -> str:
        return f"{self.folder}/{'hard_attention_' if self.gold_attention else ''}{self.commands}.jsonl.gz"

    @property
    def expected(self) -> str:
        fields = "'split', 'source', 'target'" + (" and 'alignment'" if self.gold_attention else "")
        return f"JSON lines packed with gzip, with the fields {fields}"

    def resolved(self) -> "Scan":
        return replace(self, fingerprint=corpus_fingerprint(self.file, self.expected, self.fingerprint))

    @property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(WORDS)

    @property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(ACTIONS)

    def part(self, split: str) -> Sentences:
        return load_scan(self._resolved)[PARTS[choose("split", split, PARTS)]]


@lru_cache(maxsize=8)
def load_scan(task: Scan) -> dict[str, Sentences]:
    """Return the splits as token ids; equal settings share them."""
    sets: dict[str, list[Sentence]] = {}
    for row in read_corpus(task.file, (), task.expected):
        sets.setdefault(row.split(SPLIT), []).append(encode_command(row, task.gold_attention, task.end))
    for name in ("train", "test"):
        choose(f"split in {task.file}", name, sets)
    if "validation" not in sets:
        sets["train"], sets["validation"] = hold_out(sets["train"], task.validation_share, task.seed)
    return {
        name: Sentences.of(rows if name == "train" else subsample(rows, task.test_size)) for name, rows in sets.items()
    }


def hold_out(rows: Sequence[Sentence], share: float, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """Return the training rows, and a share of those that occur once for validation."""
    counts = Counter(row.source for row in rows)
    unique = [i for i, row in enumerate(rows) if counts[row.source] == 1]
    require(len(unique) > 1, "there are too few training commands to sample a validation set from")
    size = max(1, round(share * len(unique)))
    validation = set(np.random.default_rng((seed, 3)).permutation(unique)[:size].tolist())
    return [row for i, row in enumerate(rows) if i not in validation], [rows[i] for i in sorted(validation)]


def encode_command(row: Row, gold_attention: bool, end: bool) -> Sentence:
    """Return a command and its actions as token ids; END is aligned with END."""
    words = str(row.field("source")).removesuffix(STOP).split()
    actions = str(row.field("target")).split()
    source = (*encode_tokens(row, "source", words, Vocabulary.of(WORDS)), END)
    target = (*encode_tokens(row, "target", actions, Vocabulary.of(ACTIONS)), END)
    sentence = Sentence(source, target, gold_attention_of(row, len(target), len(source)) if gold_attention else ())
    return sentence if end else sentence.without_end()


def encode_tokens(row: Row, side: str, words: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    unknown = [word for word in words if word not in vocabulary.tokens]
    if unknown or not words:
        raise row.wrong(f"the {side} must consist of words of SCAN, but has {', '.join(unknown) or 'none'}")
    return vocabulary.encode(words)


def gold_attention_of(row: Row, targets: int, sources: int) -> tuple[int, ...]:
    """Return the published alignment: for each action and for END, a position of the command."""
    alignment = str(row.field("alignment")).split()
    if len(alignment) != targets or not all(place.isdecimal() and int(place) < sources for place in alignment):
        raise row.wrong(
            f"the alignment must have {targets} numbers, one per action and one for the end, each from 0 to "
            f"{sources - 1}, not {' '.join(alignment)!r}"
        )
    return tuple(map(int, alignment))


VERBS = ("run", "walk", "jump")
SEPARATOR = "."
TURN = "LTURN"


@dataclass(frozen=True)
class Command:
    """A command, its actions, and the position of the word that each action comes from."""

    words: tuple[str, ...]
    actions: tuple[str, ...]
    gold: tuple[int, ...]

    def __add__(self, other: "Command") -> "Command":
        shifted = tuple(i + len(self.words) for i in other.gold)
        return Command(self.words + other.words, self.actions + other.actions, self.gold + shifted)


def simple(verb: str) -> Command:
    return Command((verb,), (verb.upper(),), (0,))


def left(verb: str) -> Command:
    return Command((verb, "left"), (TURN, verb.upper()), (1, 0))


def twice(command: Command) -> Command:
    """Return the command followed by 'twice'; the repeated actions come from the word 'twice'."""
    position = len(command.words)
    return Command((*command.words, "twice"), command.actions * 2, command.gold + (position,) * len(command.actions))


def both(first: Command, second: Command) -> Command:
    return first + Command(("and",), (), ()) + second


@cache
def all_commands(left_twice: bool = False) -> tuple[Command, ...]:
    """Return every SCAN command over run, walk, jump, left, twice and 'and': 90, or 156 with 'V left twice'.

    >>> len(all_commands()), len(all_commands(left_twice=True))
    (90, 156)
    >>> " ".join(both(left("run"), twice(simple("jump"))).actions)
    'LTURN RUN JUMP JUMP'
    """
    parts = [simple(v) for v in VERBS] + [left(v) for v in VERBS] + [twice(simple(v)) for v in VERBS]
    if left_twice:
        parts += [twice(left(v)) for v in VERBS]
    return tuple(parts) + tuple(both(first, second) for first in parts for second in parts)


@dataclass(frozen=True)
class ExtendedSCAN(SyntheticTask):
    """Sampled commands, concatenated until there are enough actions; a sample that would give too many is rejected."""

    min_length: int = 15  # actions, separators included; aitken2021 says 15 to 20, the author's code 10 to 15
    max_length: int = 20
    max_source_length: int = 27  # author's code
    separator: bool = True
    same_length: bool = False  # only sentences as long as their translation (aitken2021 fig. 6b)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths(self.min_length, self.max_length)
        slack = self.max_length - self.min_length
        longest = max(len(c.actions) for c in self._commands)
        require(
            slack >= longest - 1,
            f"a command has up to {longest} actions, so max_length ({self.max_length}) must be at least "
            f"{longest - 1} more than min_length ({self.min_length}), or some sentences could never be finished",
        )

    @cached_property
    def _commands(self) -> tuple[Command, ...]:
        end = Command((SEPARATOR,), (SEPARATOR,), (0,))
        # Only 'and' has no action, so a sentence is as long as its translation if it has no 'and'.
        usable = [c for c in all_commands() if not (self.same_length and "and" in c.words)]
        return tuple(c + end if self.separator else c for c in usable)

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([*VERBS, "left", "and", "twice", SEPARATOR])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([*(verb.upper() for verb in VERBS), TURN, SEPARATOR])

    @cached_property
    def _pieces(self) -> list[tuple[np.ndarray, ...]]:
        """The token ids of each command's words and actions, and its gold attention; END is the last command."""
        rows = [
            (self.source_vocabulary.encode(c.words), self.target_vocabulary.encode(c.actions), c.gold)
            for c in self._commands
        ]
        return [tuple(np.array(part) for part in row) for row in [*rows, ([END], [END], (0,))]]

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([[len(words), len(actions)] for words, actions, _ in self._pieces])  # (words, actions) of each

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        sentences: list[list[int]] = []
        while len(sentences) < size:
            candidates = self._sample(random, size)
            sentences += [each for each in candidates if self._lengths[each, 0].sum() <= self.max_source_length]
        sources, targets, gold = zip(*map(self._encode, sentences[:size]), strict=True)
        return Sentences(sources, targets, gold).batch(range(size))

    def _sample(self, random: np.random.Generator, size: int) -> list[list[int]]:
        """Sample sentences, each a list of commands with min_length to max_length actions in all."""
        sentences: list[list[int]] = [[] for _ in range(size)]
        actions = np.zeros(size, dtype=np.int64)
        while (unfinished := np.flatnonzero(actions < self.min_length)).size:
            commands = random.integers(0, len(self._commands), unfinished.size)
            length = actions[unfinished] + self._lengths[commands, 1]
            fits = length <= self.max_length
            actions[unfinished[fits]] = length[fits]
            for sentence, command in zip(unfinished[fits].tolist(), commands[fits].tolist(), strict=True):
                sentences[sentence].append(command)
        return sentences

    def _encode(self, commands: list[int]) -> list[np.ndarray]:
        """Return token ids of words and actions, and for each action the position of the word that it comes from."""
        starts = np.cumsum([0, *self._lengths[commands, 0]])
        words, actions, gold = zip(*(self._pieces[i] for i in [*commands, len(self._commands)]), strict=True)
        shifted = [positions + start for positions, start in zip(gold, starts, strict=True)]
        return [np.concatenate(words), np.concatenate(actions), np.concatenate(shifted)]
