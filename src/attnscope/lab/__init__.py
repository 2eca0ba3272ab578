"""The store of runs, and the engines that run them."""

from attnscope.lab.engines import ENGINES, Engine, LocalEngine, OnDone, Outcome, RayEngine, engine
from attnscope.lab.store import DamagedRun, Store, Work, key

__all__ = [
    "ENGINES",
    "DamagedRun",
    "Engine",
    "LocalEngine",
    "OnDone",
    "Outcome",
    "RayEngine",
    "Store",
    "Work",
    "engine",
    "key",
]  # fmt: skip
