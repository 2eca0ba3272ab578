"""How far can attention move while predictions stay? Text by text, and by training. (tutek2020 §3.3)"""

from attnscope.probes.adversary.divergences import DIVERGENCES, jsd, kl, tvd
from attnscope.probes.adversary.search import Adversaries, Found, Search, search, search_batch
from attnscope.probes.adversary.trained import Imitate, Imitation, imitation, train_adversary
from attnscope.probes.adversary.vertices import farthest, farthest_batch

__all__ = [
    "DIVERGENCES", "Adversaries", "Found", "Imitate", "Imitation", "Search", "farthest", "farthest_batch", "imitation",
    "jsd", "kl", "search", "search_batch", "train_adversary", "tvd",
]  # fmt: skip
