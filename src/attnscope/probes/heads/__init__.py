"""How does each layer and head attend, and which heads are to be believed? For models with one or many of them.

    formed(model, batches).table()                     shares of time, word and rest; entropy, offsets, special tokens
    ranked(model, batches, most=100).table()           alignment error, ablation, uniform attention, saliency, and ranks
    ranked(model, batches).agreement_between()         do the rankings agree?

`batches` are Batches, or the Texts of a Hugging Face model's reader, which know words from pieces of words.
"""

from attnscope.probes.heads.formation import Formed, Looking, Parts, formed
from attnscope.probes.heads.ranking import Effect, Pointing, Rank, Ranked, ranked
from attnscope.probes.heads.stream import Sentences

__all__ = ["Effect", "Formed", "Looking", "Parts", "Pointing", "Rank", "Ranked", "Sentences", "formed", "ranked"]
