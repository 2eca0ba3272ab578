"""May this attention be read as an explanation? The rule that makes a verdict of the tests.

Three tests are needed: the output must depend on attention, which must point at what decides, and rank words as their
removal does. If one of them fails, the answer is no. If the first two pass and no test at all fails, it is yes.
Everything else is partly: to be shown with care. (The third was added to the needed ones after a network taught to hide
what it uses had come through the second, with 13 % where 10 % would fail. No bound was changed.)
"""

from collections.abc import Sequence

from attnscope.faithfulness.criteria import DEPENDS, NEEDED, POINTS
from attnscope.faithfulness.records import Test, Verdict
from attnscope.faithfulness.subject import TRANSLATOR, Subject

HEADLINES = {
    "yes": "It may be shown as a reason for {what}: the output depends on it, it points at what decides, and no test "
    "speaks against it.",
    "partly": "It has to do with {what}, but not all that people would read into it is there.",
    "no": "What it points at is not a reason for {what}.",
    "unclear": "These texts are too few to tell.",
}
SAID = {"yes": "passes", "partly": "half passes", "no": "fails", "unclear": "leaves open"}


def verdict(subject: Subject, tests: Sequence[Test]) -> Verdict:
    needed = [test for test in tests if test.name in NEEDED]
    answer = answered(needed, tests)
    what = "the choice of words" if subject.kind == TRANSLATOR else "single decisions"
    paragraphs = (shown(subject), *because(needed, tests), how_sure(tests))
    return Verdict(answer, HEADLINES[answer].format(what=what), paragraphs, tuple(tests))


def answered(needed: Sequence[Test], tests: Sequence[Test]) -> str:
    """
    >>> answered([], [])
    'unclear'
    """
    if any(test.answer == "no" for test in needed):
        return "no"
    if len(needed) < len(NEEDED) or any(test.answer == "unclear" for test in needed):
        return "unclear"
    failed = any(test.answer == "no" for test in tests)
    passed = {test.name for test in needed if test.answer == "yes"}
    return "yes" if passed >= {DEPENDS.name, POINTS.name} and not failed else "partly"


def shown(subject: Subject) -> str:
    """Which attention is spoken of."""
    which = (
        "the attention of the last layer, averaged over its heads"
        if subject.depth > 1
        else "the attention of the model"
    )
    return (
        f"What is judged is {which}, as it would be shown to people beside each output, on up to {subject.count} texts."
    )


def because(needed: Sequence[Test], tests: Sequence[Test]) -> list[str]:
    """The tests that are needed in full, the others by name."""
    others = {answer: [test.name for test in tests if test not in needed and test.answer == answer] for answer in SAID}
    named = [f"{SAID[answer]} {quoted(names)}" for answer, names in others.items() if names]
    return [
        " ".join(test.sentence for test in needed),
        *([f"Of the other tests, it {'; it '.join(named)}."] if named else []),
    ]


def quoted(names: Sequence[str]) -> str:
    """
    >>> quoted(["a", "b"])
    '“a” and “b”'
    """
    return " and ".join(f"“{name}”" for name in names)


def how_sure(tests: Sequence[Test]) -> str:
    wavering = [test.name for test in tests if near(test)]
    if not wavering:
        return (
            "How sure: no interval of these tests reaches across a bound, so more texts would hardly change an answer."
        )
    return f"How sure: more texts could change the answer to {quoted(wavering)}, where an interval crosses a bound."


def near(test: Test) -> bool:
    return any(test.low < bound < test.high for bound in test.bounds)
