"""Errors that are sentences for the person who can mend them."""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType


class AttnscopeError(Exception):
    """What went wrong, and what would be right; the command line prints it in one line and exits with 2."""


class BadSetting(AttnscopeError, ValueError):
    """A setting that cannot work, refused before anything is trained."""


def choose(what: str, given: str, valid: Iterable[str], registry: str = "") -> str:
    """Give back `given` if it is one of `valid`; otherwise say which names are, and where one's own are put.

    >>> choose("cell", "gru", ["gru", "lstm"])
    'gru'
    >>> choose("cell", "grru", ["gru", "lstm"])
    Traceback (most recent call last):
    ...
    attnscope.errors.BadSetting: there is no cell 'grru'; choose one of gru, lstm
    """
    names = list(valid)
    if given not in names:
        own = f". One of your own is known once the module is imported that puts it into {registry}"
        raise BadSetting(f"there is no {what} {given!r}; choose one of {', '.join(names)}{own if registry else ''}")
    return given


def require(condition: bool, sentence: str) -> None:
    """Refuse a setting with a sentence unless the condition holds."""
    if not condition:
        raise BadSetting(sentence)


def import_optional(name: str, purpose: str) -> ModuleType:
    """Return an optional library, or refuse with a sentence that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise AttnscopeError(f"{purpose} needs the library {name}: pip install 'attnscope[text]'") from error
