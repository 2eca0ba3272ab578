"""Engines that run work on the cores of this machine, or on a Ray cluster."""

from attnscope.errors import choose, require
from attnscope.lab.engines.local import Engine, LocalEngine, OnDone, Outcome
from attnscope.lab.engines.ray import RayEngine

ENGINES = ("local", "ray")


def engine(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """Return the engine of this name.

    Args:
        name: "local" or "ray".
        workers: Processes of the local engine; None: one per core.
        address: The address of a Ray cluster; None: Ray starts its own.

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
