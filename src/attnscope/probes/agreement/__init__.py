"""Do two scores point at the same word? (snell2021 §3.1)

`Agree` gathers, over a stream of sentences, the top-5 % agreement of eq. 10 with its chance level, and Kendall's τ.
`LearningCurve` puts such a number in context (ξ, eq. 11), and `OverTraining` tells its best checkpoint from its last.
"""

from attnscope.probes.agreement.contextualised import (
    Contextualised,
    LearningCurve,
    OverTraining,
    classification_checkpoints,
    translation_checkpoints,
)
from attnscope.probes.agreement.rank_correlation import kendall
from attnscope.probes.agreement.scores import Scores, attention_scores
from attnscope.probes.agreement.stream import Agree, Agreement
from attnscope.probes.agreement.top import agreement, chance, in_top

__all__ = [
    "Agree", "Agreement", "Contextualised", "LearningCurve", "OverTraining", "Scores", "agreement",
    "attention_scores", "chance", "classification_checkpoints", "in_top", "kendall", "translation_checkpoints",
]  # fmt: skip
