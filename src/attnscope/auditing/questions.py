"""Which tests must attention pass to be read as an explanation, and where is the line drawn?

The bounds are conventions, the same for every model, and were set before any was audited.
"""

from dataclasses import dataclass

from attnscope.auditing.record import Bounds, Interval, Test


@dataclass(frozen=True)
class Question:
    """A test: its name, what it asks, and from where on the answer is no and yes."""

    name: str
    asks: str
    bounds: Bounds

    def answered(self, sentence: str, found: Interval, chance: float | None = None, best: float | None = None) -> Test:
        bounds = (self.bounds.no, self.bounds.yes)
        answer = self.bounds.answer(found)
        return Test(self.name, self.asks, answer, sentence, found.value, found.low, found.high, bounds, chance, best)


DEPENDS = Question(
    "the output depends on it", "Does the output change when its weights are shuffled among the words?",
    Bounds(no=0.05, yes=0.2),
)  # fmt: skip
NO_OTHER = Question(
    "no other attention would do", "How far away is an attention that leads to the same output?",
    Bounds(no=0.5, yes=0.1),
)  # fmt: skip
POINTS = Question(
    "it points at what decides", "Are the words it points at those that decide?", Bounds(no=0.1, yes=0.5)
)  # fmt: skip
RANKS = Question(
    "it ranks words as their removal does", "Does it rank words as leaving them out does?", Bounds(no=0.1, yes=0.5)
)  # fmt: skip
NOT_ALONE = Question(
    "words alone do not decide", "How many words would lead to the same output alone?", Bounds(no=0.5, yes=0.2)
)  # fmt: skip
SPEAKS = Question(
    "states speak of their words", "Does the state at a word still tell the word?", Bounds(no=0.25, yes=0.5)
)  # fmt: skip
NEEDED = (DEPENDS.name, POINTS.name, RANKS.name)  # none of which may fail
