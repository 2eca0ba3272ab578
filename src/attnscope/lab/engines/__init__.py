"""Where does work run? On the cores of this machine, or on a Ray cluster."""

from attnscope.errors import choose, require
from attnscope.lab.engines.local import Engine, LocalEngine, OnDone, Outcome
from attnscope.lab.engines.ray import RayEngine

ENGINES = ("local", "ray")


def engine(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of this name; `workers` is a setting of the local one, `address` of Ray.

    >>> engine("local", workers=2)
    LocalEngine(workers=2)
    """
    if choose("engine", name, ENGINES) == "local":
        require(
            address is None, f"the engine 'local' has no address, but {address!r} was given; choose the engine 'ray'"
        )
        return LocalEngine(workers)
    require(workers is None, f"the engine 'ray' has as many workers as its cluster has cores, but {workers} were given")
    return RayEngine(address)


__all__ = ["ENGINES", "Engine", "LocalEngine", "OnDone", "Outcome", "RayEngine", "engine"]
