"""Are the words with the most attention those that decide? (Serrano & Smith 2019; DeYoung et al. 2020)

Decision flips: how many tokens have to be removed, the highest score first, until the prediction changes.
Comprehensiveness and sufficiency: the probability that is lost without the top tokens, and with these alone.
Both compare attention with any other score and with random scores.
"""

from attnscope.probes.erasure.measures import (
    SHARES,
    Comprehensiveness,
    ComprehensivenessAccumulator,
    Erasure,
    FlipAccumulator,
    Flips,
    ProbabilityDrops,
    RemovalGrid,
    erase_until_flip,
    probability_drops,
)
from attnscope.probes.erasure.removal import (
    REMOVALS,
    Score,
    erasable_words,
    mask_attention,
    random_score,
    rank_by_score,
    remove_tokens,
    score_values,
)

__all__ = [
    "REMOVALS",
    "SHARES",
    "Comprehensiveness",
    "ComprehensivenessAccumulator",
    "Erasure",
    "FlipAccumulator",
    "Flips",
    "ProbabilityDrops",
    "RemovalGrid",
    "Score",
    "erasable_words",
    "erase_until_flip",
    "mask_attention",
    "probability_drops",
    "random_score",
    "rank_by_score",
    "remove_tokens",
    "score_values",
]  # fmt: skip
