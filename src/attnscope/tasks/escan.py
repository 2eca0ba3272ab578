"""Where to look when it is not one word for one? Extended SCAN: commands strung together (aitken2021 §4).

The grammar is that of Lake and Baroni 2018: 'run left' means LTURN RUN, 'run twice' means RUN RUN, 'X and Y' means X,
then Y; a separator ends each command on both sides. So 'and' has no output, 'left' is heard after the verb and acted on
before it, and 'twice' says again what came before.
"""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from attnscope.errors import require
from attnscope.tasks.batch import END, Batch, Vocabulary
from attnscope.tasks.finite import Sentences
from attnscope.tasks.task import SyntheticTask, check_lengths

VERBS = ("run", "walk", "jump")
SEPARATOR = "."
TURN = "LTURN"


@dataclass(frozen=True)
class Command:
    """A command, what it asks for, and which word called for each action."""

    words: tuple[str, ...]
    actions: tuple[str, ...]
    called_by: tuple[int, ...]

    def __add__(self, other: "Command") -> "Command":
        shifted = tuple(i + len(self.words) for i in other.called_by)
        return Command(self.words + other.words, self.actions + other.actions, self.called_by + shifted)


def simple(verb: str) -> Command:
    return Command((verb,), (verb.upper(),), (0,))


def left(verb: str) -> Command:
    return Command((verb, "left"), (TURN, verb.upper()), (1, 0))


def twice(command: Command) -> Command:
    """The command, then all of it again because 'twice' says so."""
    last = len(command.words)
    again = tuple(last for _ in command.actions)
    return Command((*command.words, "twice"), command.actions * 2, command.called_by + again)


def both(first: Command, second: Command) -> Command:
    return first + Command(("and",), (), ()) + second


@cache
def commands(left_twice: bool = False) -> tuple[Command, ...]:
    """Every SCAN command over run, walk, jump, left, twice and 'and': 90 of them, 156 with 'V left twice'.

    >>> len(commands()), len(commands(left_twice=True))
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
    """Commands strung together until there are enough actions; a draw that would give too many is passed over."""

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
        # Only 'and' has no action of its own, so a sentence is as long as its translation if it has no 'and'.
        usable = [c for c in commands() if not (self.same_length and "and" in c.words)]
        return tuple(c + end if self.separator else c for c in usable)

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([*VERBS, "left", "and", "twice", SEPARATOR])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([*(verb.upper() for verb in VERBS), TURN, SEPARATOR])

    @cached_property
    def _pieces(self) -> list[tuple[np.ndarray, ...]]:
        """Each command's words, actions, and callers as numbers; last comes the end token, as a command of its own."""
        rows = [
            (self.source_vocabulary.encode(c.words), self.target_vocabulary.encode(c.actions), c.called_by)
            for c in self._commands
        ]
        return [tuple(np.array(part) for part in row) for row in [*rows, ([END], [END], (0,))]]

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([[len(words), len(actions)] for words, actions, _ in self._pieces])  # (words, actions) of each

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        kept: list[list[int]] = []
        while len(kept) < size:
            kept += [drawn for drawn in self._draw(random, size) if self._fits(drawn)]
        return self._assemble(kept[:size])

    def _draw(self, random: np.random.Generator, size: int) -> list[list[int]]:
        """Many sentences at once: each a list of commands with shortest <= actions <= longest in all."""
        chosen: list[list[int]] = [[] for _ in range(size)]
        actions = np.zeros(size, dtype=np.int64)
        while (open_ := np.flatnonzero(actions < self.min_length)).size:
            draws = random.integers(0, len(self._commands), open_.size)
            after = actions[open_] + self._lengths[draws, 1]
            fits = after <= self.max_length
            actions[open_[fits]] = after[fits]
            for sentence, command in zip(open_[fits].tolist(), draws[fits].tolist(), strict=True):
                chosen[sentence].append(command)
        return chosen

    def _fits(self, drawn: list[int]) -> bool:
        return bool(self._lengths[drawn, 0].sum() <= self.max_source_length)

    def _assemble(self, sentences: list[list[int]]) -> Batch:
        sources, targets, guides = zip(*map(self._spelled, sentences), strict=True)
        return Sentences(sources, targets, guides).batch(range(len(sentences)))

    def _spelled(self, commands: list[int]) -> list[np.ndarray]:
        """A sentence in numbers: words, actions, and for each action the position of the word that called for it."""
        drawn = [*commands, len(self._commands)]  # and the end
        starts = np.cumsum([0, *self._lengths[drawn[:-1], 0]])
        words, actions, callers = zip(*(self._pieces[i] for i in drawn), strict=True)
        guide = [caller + start for caller, start in zip(callers, starts, strict=True)]
        return [np.concatenate(words), np.concatenate(actions), np.concatenate(guide)]
