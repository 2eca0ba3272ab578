"""What is asked, in which order, and about how many texts?"""

from collections.abc import Callable
from dataclasses import dataclass

from attnscope.auditing import classifier, everything, texts, translator
from attnscope.auditing.record import Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import CLASSIFIER, TRANSLATOR, Subject

Ask = Callable[[Subject, Sample], Part | None]


@dataclass(frozen=True)
class Asked:
    """One part of the evidence: its question, and the number of texts, quick and in full."""

    title: str
    asks: str
    quick: int
    full: int

    def texts(self, subject: Subject, quick: bool) -> int:
        """Half as many sentences of a translator, where every word of the output is asked about."""
        most = self.quick if quick else self.full
        return min(subject.count, most if subject.kind == CLASSIFIER else most // 2)


PARTS = {
    "quality": Asked("How good is it?", "What does the model get right?", 500, 5000),
    "formed": Asked("How attention is formed", "Is it about where words stand, which they are, or both?", 300, 2000),
    "heads": Asked("Which heads to believe", "Which align, are missed, and agree with saliency?", 24, 400),
    "dependence": Asked("Fragility", "What happens to the output with other attention?", 300, 2000),
    "adversary": Asked("Adversarial search", "Could quite another attention lead to the same output?", 32, 640),
    "erasure": Asked("Erasure", "What happens when the words that it points at are gone?", 60, 800),
    "correlation": Asked("Saliency", "Does it agree with gradients and with leaving words out?", 60, 800),
    "tokens": Asked("Words alone", "What would each word say alone?", 300, 2000),
    "information": Asked("Mutual information", "How much of a word is in the state attended to?", 500, 5000),
    "between": Asked("Another seed", "Would the same model from another seed attend alike?", 100, 1000),
    "plausibility": Asked("Plausibility", "Is it where people look?", 200, 1000),
    "examples": Asked("Examples", "What does it look like?", 60, 200),
}
ALWAYS: dict[str, Ask] = {
    "formed": everything.how_formed, "heads": everything.which_heads, "information": everything.information
}  # fmt: skip
ASKS: dict[str, dict[str, Ask]] = {
    CLASSIFIER: {
        "quality": classifier.quality, "dependence": classifier.dependence, "adversary": classifier.adversary,
        "erasure": classifier.erasure, "correlation": classifier.correlation, "tokens": classifier.tokens,
        "plausibility": classifier.plausibility, "examples": texts.examples,
    },
    TRANSLATOR: {
        "quality": translator.quality, "dependence": translator.dependence, "adversary": translator.adversary,
        "erasure": translator.erasure, "correlation": translator.correlation, "tokens": translator.tokens,
        "plausibility": translator.plausibility, "examples": translator.examples,
    },
}  # fmt: skip
BETWEEN = {CLASSIFIER: classifier.between, TRANSLATOR: translator.between}


def asks(subject: Subject, other: Subject | None) -> dict[str, Ask]:
    """Every question about this subject, in order; with another seed, how it compares."""
    found = ALWAYS | ASKS[subject.kind]
    if other is not None:
        found["between"] = lambda one, sample: BETWEEN[subject.kind](one, other, sample)
    return {name: found[name] for name in PARTS if name in found}
