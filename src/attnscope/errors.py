"""Errors with messages for users, and checks of the types of settings."""

import inspect
import math
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class AttnscopeError(Exception):
    """An error that the user can fix; the command line prints its message in one line and exits with 2."""


class BadSetting(AttnscopeError, ValueError):
    """An invalid setting or input."""


def choose(what: str, name: str, valid: Iterable[str], registry: str = "") -> str:
    """Return `name` if it is one of `valid`; otherwise raise BadSetting with the valid names.

    Args:
        what: What is chosen, such as "cell".
        name: The chosen name.
        valid: The valid names.
        registry: The dictionary to which users add their own, if there is one.

    >>> choose("cell", "gru", ["gru", "lstm"])
    'gru'
    >>> choose("cell", "grru", ["gru", "lstm"])
    Traceback (most recent call last):
    ...
    attnscope.errors.BadSetting: there is no cell 'grru'; choose one of gru, lstm
    """
    names = list(valid)
    if name not in names:
        own = f". To use your own, import the module that adds it to {registry}"
        raise BadSetting(f"there is no {what} {name!r}; choose one of {', '.join(names)}{own if registry else ''}")
    return name


def require(condition: bool, sentence: str) -> None:
    """Raise BadSetting with this sentence unless the condition holds."""
    if not condition:
        raise BadSetting(sentence)


class InputWarning(UserWarning):
    """Input that is accepted but may be a mistake."""


NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "array is too big",
    "Storage size calculation overflowed",
)


def environment_error(error: Exception) -> str | None:
    """Return a message for an exception that the machine causes: too little memory, a file; None for others."""
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
        return f"there is not enough memory for this ({error}); choose smaller sizes, or fewer texts per batch"
    if isinstance(error, OSError):
        return f"cannot use {error.filename or 'a file'}: {error.strerror or error}"
    return None


LIBRARIES = (str(Path(__file__).parent), sysconfig.get_path("stdlib"), "site-packages", "dist-packages", "<")


def describe_error(error: BaseException) -> str:
    """Return the type, first line and origin of an exception that other code raised."""
    return f"{type(error).__name__}: {first_line(error)}{origin_of(error)}"


def origin_of(error: BaseException) -> str:
    """Return " (FILE, line N)": the innermost line of the user's code; without any, the line that raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(library in frame.filename for library in LIBRARIES)]
    return "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in (own or frames)[-1:])


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def import_optional(name: str, purpose: str) -> ModuleType:
    """Return an optional library, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise AttnscopeError(f"{purpose} needs the library {name}: pip install 'attnscope[text]'") from error


# Types of settings ---------------------------------------------------------------------------------------------------


TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", tuple: "a list"}
ABSTRACT = ("typing", "collections.abc")
# NumPy's numbers are accepted as well, and a list for a tuple.
ACCEPTED_TYPES: dict[type, type | tuple[type, ...]] = {int: Integral, float: Real, tuple: (tuple, list)}
LARGEST = 2**63 - 1  # whole numbers have 64 bits in torch and NumPy


def check_kinds(settings: "DataclassInstance") -> None:
    """Raise BadSetting unless the fields of a dataclass have the types of their annotations."""
    for name, kinds in kinds_of(settings.__class__).items():
        value = getattr(settings, name)
        if not any(fits(value, kind) for kind in kinds):
            *others, last = dict.fromkeys(word for kind in kinds for word in in_words(kind))
            possible = f"{', '.join(others)} or {last}" if others else last
            raise BadSetting(f"{name} of {type(settings).__name__} is {possible}, not {value!r:.200}")


def check_seed(name: str, seed: int) -> None:
    """Raise BadSetting for a random seed that is negative, no whole number, or longer than 63 bits."""
    if not fits(seed, int) or seed < 0:
        raise BadSetting(f"{name} is a whole number from 0 to 2^63 - 1, not {seed!r:.60}")


@cache
def kinds_of(settings: "type[DataclassInstance]") -> dict[str, tuple[object, ...]]:
    """Return the valid types of each field; none where an annotation cannot be resolved."""
    try:
        hints = get_type_hints(settings)
    except Exception:  # such as a name that is imported for type checkers only
        return {}
    return {field.name: alternatives(hints[field.name]) for field in fields(settings)}


def alternatives(hint: object) -> tuple[object, ...]:
    """Return the members of a union, or the hint itself.

    >>> alternatives(tuple[int, ...] | None)
    (tuple[int, ...], <class 'NoneType'>)
    """
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def fits(value: object, hint: object) -> bool:
    """Return whether a value has this type; a hint that is no plain class, such as Any or a Protocol, accepts all."""
    kind = get_origin(hint) or hint
    if kind is Literal:
        return value in get_args(hint)
    if not inspect.isclass(kind) or kind.__module__ in ABSTRACT or getattr(kind, "_is_protocol", False):
        return True
    if isinstance(value, bool) and kind in (int, float):
        return False
    try:
        if not isinstance(value, ACCEPTED_TYPES.get(kind, kind)):
            return False
    except TypeError:  # such as a TypedDict, which isinstance does not take
        return True
    if isinstance(value, Real) and kind in (int, float):
        return abs(int(value)) <= LARGEST if isinstance(value, Integral) else math.isfinite(value)
    return not isinstance(value, tuple | list) or items_fit(value, get_args(hint))


def items_fit(items: Sequence[object], hints: tuple[object, ...]) -> bool:
    """Return whether a list has the length and the types of items of tuple[...]."""
    if hints[-1:] == (Ellipsis,):
        hints = hints[:1] * len(items)
    return not hints or (len(items) == len(hints) and all(map(fits, items, hints)))


def in_words(hint: object) -> Iterator[str]:
    """Yield the names of a type in error messages.

    >>> list(in_words(float)), list(in_words(type(None))), list(in_words(tuple[float, float]))
    (['a number'], ['None'], ['a list [a number, a number]'])
    """
    kind, items = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        yield from map(repr, items)
    if not inspect.isclass(kind):
        return
    if kind is tuple and items and items[-1] is not Ellipsis:
        yield f"a list [{', '.join(word for item in items for word in in_words(item))}]"
    elif kind is tuple and items:
        yield f"a list of which each item is {' or '.join(in_words(items[0]))}"
    elif kind is NoneType:
        yield "None"
    elif kind in TYPE_NAMES:
        yield TYPE_NAMES[kind]
    elif inspect.isabstract(kind):
        subclasses: list[type] = kind.__subclasses__()
        for one in subclasses:
            yield from in_words(one)
    else:
        yield f"{kind.__name__}(…)"
