"""Is the optional library there that this step needs?"""

from importlib import import_module
from types import ModuleType

from attnscope.errors import AttnscopeError


def optional(name: str, purpose: str) -> ModuleType:
    """The library, or a sentence that says how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise AttnscopeError(f"{purpose} needs the library {name}: pip install 'attnscope[text]'") from error
