"""Which class is this text of? A translation into one word (snell2021 §2.4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnscope.errors import choose, require
from attnscope.files import Malformed
from attnscope.tasks.batch import END, SPECIALS, START, Vocabulary
from attnscope.tasks.text.coder import Coder, Sentences
from attnscope.tasks.text.corpus import Marks, Pair, Prepared
from attnscope.tasks.text.rows import Row
from attnscope.tasks.text.task import TextTask
from attnscope.tasks.text.words import Words

MARKS = {"none": Marks(), "end": Marks(after=(END,)), "both": Marks(before=(START,), after=(END,))}


@dataclass(frozen=True)
class Classification(TextTask):
    """Texts of two or more classes.

    The target has length 1: the class, as a word of the target vocabulary. No end token follows it.
    """

    text: tuple[str, ...] = ("text",)  # fields that make up the source, one after the other; a list of words is kept
    label: str = "label"
    labels: tuple[str, ...] = ()  # the classes, in this order; if none are named, all those of the training split
    exclude_labels: tuple[str, ...] = ()  # classes whose rows are passed over; 'null' for rows without a class
    special: str = "end"  # the special words of the source: none, end, or both start and end
    rationale: str | None = None  # a field with what people marked in the text: a number a word, or a list a person

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("set of special words", self.special, MARKS)
        require(bool(self.text), "a classification needs at least one field of text")
        require(len(set(self.labels)) == len(self.labels), f"a class is named twice in {', '.join(self.labels)}")
        require(len(self.labels) != 1, f"a classification needs at least two classes, not only {self.labels}")
        both = set(self.labels) & set(self.exclude_labels)
        require(not both, f"{', '.join(sorted(both))} cannot be a class and left out as well")
        if self.rationale is not None:
            self._check_alignment()

    def _check_alignment(self) -> None:
        """A rationale marks the words as published, so each of them must stay one word."""
        require(len(self.text) == 1, f"a rationale marks one field of text, not {', '.join(self.text)} together")
        require(
            isinstance(self.vocabulary, Words),
            f"rationale={self.rationale!r} marks whole words; with Subwords its marks would lose their places",
        )
        require(
            self.preparation.keeps_published_words,
            f"rationale={self.rationale!r} marks the words as published, which the preparation would change: use the "
            "tokeniser whitespace, spaces or trimmed, and strip or split nothing",
        )

    def fields(self) -> tuple[str, ...]:
        return (*self.text, self.label, *((self.rationale,) if self.rationale is not None else ()))

    @property
    def marks(self) -> tuple[Marks, Marks]:
        return MARKS[self.special], Marks()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; the target word of the first one is len(SPECIALS)."""
        return self.target_vocabulary.tokens[len(SPECIALS) :]

    def pair(self, row: Row) -> Pair | None:
        label = row.label(self.label)
        if label in self.exclude_labels:
            return None
        if self.labels and label not in self.labels:
            raise row.wrong(f"there is no class {label!r}; the classes are {', '.join(self.labels)}")
        rationale = None if self.rationale is None else row.rationale(self.rationale)
        return Pair(joined([row.text(name) for name in self.text], row), [label], row, rationale)

    def cut(self, pair: Pair) -> tuple[list[str], list[str]]:
        words = self.preparation.words(pair.source)
        if pair.rationale is not None and len(pair.rationale) != len(words):
            marks = len(pair.rationale)
            raise pair.row.wrong(f"{self.rationale!r} has marks for {marks} words, but the text has {len(words)}")
        return words, list(pair.target)

    def coders(self, training: Prepared) -> tuple[Coder, Coder]:
        found = {label for (label,) in training.targets}
        missing = [label for label in self.labels if label not in found]
        if missing:
            raise Malformed(f"no training sentence of {self.file} is of the class {', '.join(missing)}")
        if len(found) < 2:
            raise Malformed(f"all training sentences of {self.file} are of one class, {', '.join(found)}")
        names = self.labels or tuple(sorted(found, key=lambda label: (len(label) if label.isdigit() else 0, label)))
        return self.vocabulary.coder(training.sources), LabelCoder(Vocabulary.of(names), self.file)


@dataclass(frozen=True)
class LabelCoder(Coder):
    """One number a class."""

    file: str

    def encode(self, sentences: Sentences) -> list[np.ndarray]:
        number = self.vocabulary.ids
        unseen = {label for (label,) in sentences} - set(number)
        if unseen:
            known = ", ".join(self.vocabulary.tokens[len(SPECIALS) :])
            raise Malformed(f"{self.file} is measured on classes never trained on: {', '.join(unseen)}, beside {known}")
        return [np.array([number[label]], dtype=np.int32) for (label,) in sentences]

    def text(self, numbers: Sequence[int]) -> str:
        return " ".join(self.vocabulary.decode(numbers))


def joined(texts: Sequence[str | list[str]], row: Row) -> str | list[str]:
    """Several fields as one text."""
    raw = [text for text in texts if isinstance(text, str)]
    if not raw:
        return [word for text in texts for word in text]
    if len(raw) < len(texts):
        raise row.wrong("the fields of text must be all strings, or all lists of words")
    return " ".join(raw)
