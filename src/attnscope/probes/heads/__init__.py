"""How does each layer and head attend, and which heads are faithful? For models with one or many of them.

head_formation(model, data).table()                  shares of time, word and rest; entropy, offset, special tokens
head_ranking(model, data, max_sentences=100).table() alignment error, ablation, uniform attention, saliency, ranks
head_ranking(model, data).agreement_between()        the rank correlation of the rankings
head_mixture(model, data).table()                    does any mixture of heads predict which tokens decide?
"""

from attnscope.probes.heads.formation import AttentionProfile, HeadFormation, ScoreShares, head_formation
from attnscope.probes.heads.mixture import HeadMixture, head_mixture
from attnscope.probes.heads.ranking import (
    HeadEffect,
    HeadRanking,
    HeadRankingAccumulator,
    SaliencyAgreement,
    head_ranking,
)
from attnscope.probes.heads.sentences import Sentences

__all__ = [
    "AttentionProfile", "HeadEffect", "HeadFormation", "HeadMixture", "HeadRanking", "HeadRankingAccumulator",
    "SaliencyAgreement", "ScoreShares", "Sentences", "head_formation", "head_mixture", "head_ranking",
]  # fmt: skip
