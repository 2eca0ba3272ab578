"""How does each layer and head attend, and which heads are to be believed? For models with one or many of them.

    head_formation(model, batches).table()              shares of time, word and rest; entropy, offsets, special tokens
    head_ranking(model, batches, most=100).table()    alignment error, ablation, uniform attention, saliency, and ranks
    head_ranking(model, batches).agreement_between()  do the rankings agree?

`batches` are Batches, or the Texts of a Hugging Face model's reader, which know words from pieces of words.
"""

from attnscope.probes.heads.formation import AttentionProfile, HeadFormation, Parts, head_formation
from attnscope.probes.heads.ranking import Effect, HeadRanking, HeadRankingAccumulator, SaliencyAgreement, head_ranking
from attnscope.probes.heads.stream import Sentences

__all__ = [
    "AttentionProfile",
    "Effect",
    "HeadFormation",
    "HeadRanking",
    "HeadRankingAccumulator",
    "Parts",
    "SaliencyAgreement",
    "Sentences",
    "head_formation",
    "head_ranking",
]
