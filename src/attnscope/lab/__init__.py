"""Where runs live and where they run."""

from attnscope.lab.engines import ENGINES, Done, Engine, LocalEngine, Outcome, RayEngine, engine
from attnscope.lab.store import DamagedRun, Store, Work, key

__all__ = [
    "ENGINES", "DamagedRun", "Done", "Engine", "LocalEngine", "Outcome", "RayEngine", "Store", "Work", "engine", "key",
]  # fmt: skip
