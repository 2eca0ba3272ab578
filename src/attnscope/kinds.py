"""Checks that settings have the types of their annotations, and refuses others with a sentence."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Union, get_args, get_origin, get_type_hints

from attnscope.errors import BadSetting

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", tuple: "a list"}
ABSTRACT = ("typing", "collections.abc")
# NumPy's numbers are taken as well, and a list for a tuple.
TAKEN_FOR: dict[type, type | tuple[type, ...]] = {int: Integral, float: Real, tuple: (tuple, list)}


def check_kinds(settings: "DataclassInstance") -> None:
    """Refuse settings (a dataclass) that are of other kinds than their annotations say."""
    for name, kinds in kinds_of(settings.__class__).items():
        given = getattr(settings, name)
        if not any(fits(given, kind) for kind in kinds):
            classes = [kind for kind in kinds if inspect.isclass(kind)]
            *others, last = dict.fromkeys(word for kind in classes for word in in_words(kind))
            possible = f"{', '.join(others)} or {last}" if others else last
            raise BadSetting(f"{name} of {type(settings).__name__} is {possible}, not {given!r}")


@cache
def kinds_of(settings: "type[DataclassInstance]") -> dict[str, tuple[object, ...]]:
    """By field, what it may be; none where an annotation cannot be resolved."""
    try:
        hints = get_type_hints(settings)
    except Exception:  # such as of one that is imported for type checkers only
        return {}
    return {field.name: alternatives(hints[field.name]) for field in fields(settings)}


def alternatives(hint: object) -> tuple[object, ...]:
    """
    >>> alternatives(tuple[int, ...] | None)
    (<class 'tuple'>, <class 'NoneType'>)
    """
    several = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(get_origin(one) or one for one in several)


def fits(given: object, kind: object) -> bool:
    """Is it of this kind? What is no plain class, such as Any, a Callable or a Protocol, takes everything."""
    if not inspect.isclass(kind) or kind.__module__ in ABSTRACT or getattr(kind, "_is_protocol", False):
        return True
    if isinstance(given, bool) and kind in (int, float):
        return False
    try:
        return isinstance(given, TAKEN_FOR.get(kind, kind))
    except TypeError:  # such as a TypedDict, which isinstance does not take
        return True


def in_words(kind: type) -> Iterator[str]:
    """
    >>> list(in_words(float)), list(in_words(type(None)))
    (['a number'], ['None'])
    """
    if kind is NoneType:
        yield "None"
    elif kind in IN_WORDS:
        yield IN_WORDS[kind]
    elif inspect.isabstract(kind):
        subclasses: list[type] = kind.__subclasses__()
        for one in subclasses:
            yield from in_words(one)
    else:
        yield f"{kind.__name__}(…)"
