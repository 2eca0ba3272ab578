"""How is a text put to a model of one's own? Words are what whitespace separates, each with a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from attnscope.errors import BadSetting, require
from attnscope.models.adapters.reader import Text, Texts, check_pairs, class_number, plain
from attnscope.models.adapters.words import NO_WORD, Pieced, Words
from attnscope.tasks.batch import END, PAD, SPECIALS, Batch, pad

Numbered = tuple[list[int], tuple[str, ...]]  # the numbers of words, and the words


@dataclass(frozen=True)
class WordReader:
    """Word i of `words` has the number i + 3, as the contract of adapters has it; words not among them are `unknown`.

    With `classes`, targets are classes; with `targets`, they are texts of those words.

    >>> reader = WordReader(("a", "dog", "<unk>"), classes=("no", "yes"))
    >>> reader.read(["a cat"], ["yes"]).batch.source
    tensor([[3, 5]])
    """

    words: tuple[str, ...]
    classes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    unknown: str = "<unk>"
    end: bool = False  # whether the end token follows a source text; it follows every target text

    def __post_init__(self) -> None:
        require(bool(self.classes) != bool(self.targets), "a reader of words needs either classes or target words")

    def read(self, sources: Sequence[Text], targets: Sequence[Any] | None = None) -> Texts:
        """Targets are classes, by name or number, or texts; without them, the first class or empty texts."""
        check_pairs(sources, targets)
        source, mask, names = together([self.numbered(text, self.known, self.end) for text in sources])
        given = targets or [0 if self.classes else ""] * len(sources)
        target, target_mask, target_names = together([self.said(one) for one in given])
        return Texts(Batch(source, mask, target, target_mask), names, target_names, cut=0)

    def said(self, target: Any) -> Numbered:
        if not self.classes:
            return self.numbered(target, self.known_targets, True)
        number = class_number(target, self.classes)
        return [number + len(SPECIALS)], (self.classes[number],)

    def numbered(self, text: Text, known: dict[str, int], end: bool) -> Numbered:
        words = plain(text)[1]
        lost = [word for word in words if word not in known]
        if lost and self.unknown not in known:
            raise BadSetting(f"the model has no word {lost[0]!r}, and no {self.unknown!r} that could stand for it")
        numbers = [known.get(word, known.get(self.unknown, PAD)) for word in words]
        return ([*numbers, END], (*words, SPECIALS[END])) if end else (numbers, words)

    @cached_property
    def known(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, len(SPECIALS))}

    @cached_property
    def known_targets(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.targets, len(SPECIALS))}


def together(rows: Sequence[Numbered]) -> tuple[Tensor, Tensor, Words]:
    """Padded numbers, their mask, and their words."""
    require(all(numbers for numbers, _ in rows), "a text without any word cannot be read; leave empty texts out")
    padded, mask = pad([np.array(numbers) for numbers, _ in rows])
    places = [tuple(NO_WORD if i < len(SPECIALS) else p for p, i in enumerate(numbers)) for numbers, _ in rows]
    words = Words.of([Pieced(names, names, place) for (_, names), place in zip(rows, places, strict=True)])
    return padded, mask, words
