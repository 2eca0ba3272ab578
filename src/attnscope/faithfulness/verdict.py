"""May this attention be read as an explanation? The rule that derives the answer from route and agreement.

If one of the two fails, the answer is no. If both pass, and agreement reaches a minimum in every class that is judged,
it is yes. If one cannot be measured, or its interval reaches from no to yes, or if half of the classes or more have
fewer than MIN_TEXTS texts, it is undecided. It is undecided as well, unless it is no, if the harmonic mean of the
numbers of texts per class is below MIN_MEAN_TEXTS. Everything else is "with care". All other tests are information.

Route is a lower bound where deleting a word moves those behind it (`interventions`, *deleted*): its interval reaches up
to 1, so that it is never a no, but undecided.
"""

from collections.abc import Sequence

from attnscope.faithfulness.criteria import AGREEMENT, CLASS_AGREEMENT, MIN_MEAN_TEXTS, MIN_TEXTS, VERDICT
from attnscope.faithfulness.records import Answer, Test, Verdict

HEADLINES: dict[Answer, str] = {
    "yes": "Attention may be shown as a reason for {what}: the effect of words on the output passes through attention, "
    "and the words attended to most have the largest effect.",
    "with care": "Attention is related to {what}, but supports only part of what readers would infer from it.",
    "no": "Attention is not a reason for {what}.",
    "undecided": "These texts do not decide whether attention is a reason for {what}.",
}


def verdict(tests: Sequence[Test], what: str, warnings: Sequence[str] = (), depth: int = 1) -> Verdict:
    """Return the verdict on a model.

    Args:
        tests: All tests.
        what: What attention would explain.
        warnings: Sentences that come first.
        depth: The number of layers of attention.
    """
    names = {criterion.name for criterion in VERDICT}
    answer, required = decide(tests), [test for test in tests if test.name in names]
    judged = "of the last layer, averaged over its heads" if depth > 1 else "of the model"
    reasons = [f"{test.name.capitalize()}, on {test.texts or 0:,} texts: {test.sentence}" for test in required]
    classes = {name: value.reason for test in required for name, value in test.classes.items() if value.reason}
    not_judged = [
        f"{', '.join(name for name in classes if classes[name] == reason)} ({reason})"
        for reason in dict.fromkeys(classes.values())
    ]
    paragraphs = [
        *warnings, f"The attention judged here is that {judged}, as it would be shown to users beside each output.",
        " ".join(reasons) or "Route and agreement, on which the answer rests, were not measured.",
        *[f"Classes that are not judged: {'; '.join(not_judged)}."] * bool(not_judged), stability(required),
    ]  # fmt: skip
    headline = HEADLINES[answer].format(what=what)
    if required and answer == "undecided":
        headline = f"{headline} {shortage(required)}".rstrip()
    return Verdict(answer, headline, tuple(filter(None, paragraphs)), tuple(tests))


def stability(required: Sequence[Test]) -> str:
    """Return the sentence that says which answers more texts could change."""
    by_texts = [test for test in required if test.measured and not test.lower_bound]
    crossing = [test.name for test in by_texts if any(test.low < bound < test.high for bound in test.bounds or ())]
    return f"More texts could change the answer of {', '.join(crossing)}: an interval crosses a bound." * bool(crossing)


def decide(tests: Sequence[Test]) -> Answer:
    """Return the answer that follows from these tests.

    >>> decide([])
    'undecided'
    """
    by_name = {test.name: test for test in tests}
    required = [by_name[criterion.name] for criterion in VERDICT if criterion.name in by_name]
    answers = {test.answer for test in required}
    if "no" in answers and not too_few_texts(required):
        return "no"
    few = too_few_texts(required) or min(map(mean_texts, required)) < MIN_MEAN_TEXTS
    if len(required) < len(VERDICT) or answers & {"undecided", "not measurable"} or few:
        return "undecided"
    judged = [value.value for value in by_name[AGREEMENT.name].classes.values() if not value.reason]
    return "yes" if answers == {"yes"} and min(judged, default=1.0) >= CLASS_AGREEMENT else "with care"


def shortage(required: Sequence[Test]) -> str:
    """Return the sentence that says how many texts an answer needs, if there are too few."""
    more = "Audit more texts; a quick audit takes only a sample."
    if too_few_texts(required):
        classes = any(test.classes for test in required)
        needed = "more than half of the classes must each be predicted for" if classes else "it takes"
        return f"Too few texts for any answer: {needed} at least {MIN_TEXTS} texts. {more}"
    if min(map(mean_texts, required)) < MIN_MEAN_TEXTS:
        return f"Too few texts for an answer other than no: it takes {MIN_MEAN_TEXTS} per class (harmonic mean). {more}"
    return ""


def too_few_texts(required: Sequence[Test]) -> bool:
    """Return whether half of the model's classes, or more, are predicted for fewer than MIN_TEXTS texts."""
    return not required or any(
        2 * sum(value.texts < MIN_TEXTS for value in test.classes.values()) >= len(test.classes)
        if test.classes
        else (test.texts or 0) < MIN_TEXTS
        for test in required
    )


def mean_texts(test: Test) -> float:
    """Return the harmonic mean of the numbers of texts of the classes that are judged."""
    counts = [value.texts for value in test.classes.values() if not value.reason] if test.classes else [test.texts or 0]
    return len(counts) / sum(1 / max(count, 1) for count in counts) if counts else 0.0
