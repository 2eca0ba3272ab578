"""How does a model attend, how did it learn to, and may its attention be read as an explanation?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnscope.auditing import audit

__version__ = "0.1.0"
__all__ = ["audit"]


def __getattr__(name: str) -> Any:
    """What takes long to import is imported when it is asked for."""
    if name == "audit":
        from attnscope.auditing import audit

        return audit
    raise AttributeError(f"module 'attnscope' has no attribute {name!r}")
