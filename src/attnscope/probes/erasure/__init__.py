"""Are the words with the most attention those that decide? (Serrano & Smith 2019; DeYoung et al. 2020)

`Erase` drops words, those with the highest score first, until the decision flips: fewer are needed where the score is
right about what decides. `Comprehend` removes the top few per cent of the words, or keeps only those, and sees what is
left of the probability of the decision. Both compare attention with any other score, and with chance.
"""

from attnscope.probes.erasure.measures import (
    SHARES,
    Comprehend,
    Comprehensiveness,
    Drops,
    Erase,
    Erasure,
    Flips,
    Grid,
    drops,
    until_flip,
)
from attnscope.probes.erasure.removal import (
    WAYS,
    Score,
    by_score,
    erasable,
    random_score,
    values_of,
    without_attention,
    without_words,
)

__all__ = [
    "SHARES", "WAYS", "Comprehend", "Comprehensiveness", "Drops", "Erase", "Erasure", "Flips", "Grid", "Score",
    "by_score", "drops", "erasable", "random_score", "until_flip", "values_of", "without_attention", "without_words",
]  # fmt: skip
