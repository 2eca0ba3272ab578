"""How does a person change one setting by name? `model.units=64`, `task.longest=30`, `model.positions.base=100`."""

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any

from attnscope.errors import BadSetting, choose, require
from attnscope.models import Positions


def overridden(settings: Any, changes: list[str]) -> Any:
    """Settings with some of them changed; a name that is not there lists those that are.

    >>> overridden(Positions(), ["base=100"])
    Positions(base=100.0, rotated=True)
    """
    for change in changes:
        name, equals, value = change.partition("=")
        require(bool(equals), f"{change!r} is no setting: write name=value, such as model.units=64")
        settings = changed(settings, name.split("."), parsed(value), name)
    return settings


def changed(settings: Any, path: list[str], value: Any, name: str) -> Any:
    names = [field.name for field in fields(settings)]
    choose("setting", path[0], names)
    current = getattr(settings, path[0])
    if len(path) == 1:
        several = is_dataclass(current) and value is not None
        require(not several, f"{name} holds several settings; name one of them, such as {name}.…")
        return checked(settings, path[0], value, name)
    inner = Positions() if path[0] == "positions" and current is None else current
    require(is_dataclass(inner), f"{path[0]} has no settings of its own, so {name} means nothing")
    return replace(settings, **{path[0]: changed(inner, path[1:], value, name)})


def checked(settings: Any, field: str, value: Any, name: str) -> Any:
    """A value of another kind than the present one is refused, where there is one."""
    current = getattr(settings, field)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    same = current is None or value is None or type(value) is type(current)
    if not same:
        raise BadSetting(f"{name} is a {type(current).__name__}, such as {current!r}; {value!r} is not")
    return replace(settings, **{field: value})


def parsed(text: str) -> Any:
    """A JSON value (lists as tuples), or else the text itself.

    >>> parsed("64"), parsed("[1, 2]"), parsed("gru"), parsed("null")
    (64, (1, 2), 'gru', None)
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value
