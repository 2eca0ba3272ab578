"""May this attention be read as an explanation? The rule that derives the verdict from the tests.

Three tests are required: dependence, comprehensiveness and rank correlation with leave-one-out. If one of them fails,
the answer is no. If the first two pass and no test at all fails, it is yes. Everything else is "with care" (stored as
"partly"). (Rank correlation was added to the required tests after a network trained to hide what it uses had come
through comprehensiveness, with 13 % where 10 % would fail. No bound was changed.)
"""

from collections.abc import Sequence

from attnscope.faithfulness.criteria import COMPREHENSIVENESS, DEPENDENCE, REQUIRED
from attnscope.faithfulness.records import Answer, Test, Verdict
from attnscope.faithfulness.subject import Subject

HEADLINES: dict[Answer, str] = {
    "yes": "Attention may be shown as a reason for {what}: the output depends on it, removing attended tokens changes "
    "the output, and no test fails.",
    "partly": "Attention is related to {what}, but supports only part of what readers would infer from it.",
    "no": "Attention is not a reason for {what}.",
    "unclear": "There are too few texts to decide.",
}
RESULTS: dict[Answer, str] = {
    "yes": "passed: {}", "partly": "passed with care: {}", "no": "failed: {}", "unclear": "undecided: {}"
}  # fmt: skip


def verdict(subject: Subject, tests: Sequence[Test]) -> Verdict:
    """Return the verdict on a model, with the paragraphs that explain it."""
    required = [test for test in tests if test.name in REQUIRED]
    answer = decide(required, tests)
    what = "single decisions" if subject.is_classifier else "the choice of words"
    reasons = " ".join(test.sentence for test in required)
    paragraphs = (judged_attention(subject), reasons, *other_results(required, tests), stability(tests))
    return Verdict(answer, HEADLINES[answer].format(what=what), paragraphs, tuple(tests))


def decide(required: Sequence[Test], tests: Sequence[Test]) -> Answer:
    """Return the answer that follows from the required tests and from all tests.

    >>> decide([], [])
    'unclear'
    """
    if any(test.answer == "no" for test in required):
        return "no"
    if len(required) < len(REQUIRED) or any(test.answer == "unclear" for test in required):
        return "unclear"
    failed = any(test.answer == "no" for test in tests)
    passed = {test.name for test in required if test.answer == "yes"}
    return "yes" if passed >= {DEPENDENCE.name, COMPREHENSIVENESS.name} and not failed else "partly"


def judged_attention(subject: Subject) -> str:
    """Return the sentence that says which attention is judged."""
    deep = "of the last layer, averaged over its heads"
    return (
        f"The attention judged here is that {deep if subject.depth > 1 else 'of the model'}, as it would be shown to "
        f"users beside each output, on up to {len(subject.inputs)} texts."
    )


def other_results(required: Sequence[Test], tests: Sequence[Test]) -> list[str]:
    """Return one sentence with the results of the tests that are not required, or none."""
    others = {answer: [test.name for test in tests if test not in required and test.answer == answer]
              for answer in RESULTS}  # fmt: skip
    results = [RESULTS[answer].format(", ".join(names)) for answer, names in others.items() if names]
    return [f"Other tests {'; '.join(results)}."] if results else []


def stability(tests: Sequence[Test]) -> str:
    """Return the sentence that says which answers more texts could change."""
    open_tests = [test.name for test in tests if crosses_bound(test)]
    if not open_tests:
        return "No interval crosses a bound: more texts would hardly change an answer."
    return f"More texts could change the answer of {', '.join(open_tests)}: an interval crosses a bound."


def crosses_bound(test: Test) -> bool:
    return any(test.low < bound < test.high for bound in test.bounds or ())
