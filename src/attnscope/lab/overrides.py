"""How does a person change one setting by name? `model.units=64`, `task.max_length=30`, `model.positions.base=100`."""

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from attnscope.errors import BadSetting, choose, require
from attnscope.kinds import IN_WORDS
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
    """A value of another kind than the present one is refused, where there is one; a word will do for a list of one."""
    current = getattr(settings, field)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(current, tuple) and isinstance(value, str):
        words = get_type_hints(type(settings))[field] == tuple[str, ...]
        value = (value,) if words else value
    same = current is None or value is None or type(value) is type(current)
    if not same:
        kind = IN_WORDS.get(type(current), type(current).__name__)
        raise BadSetting(f"{name} is {kind}, such as {written(current)}; {written(value)} is not")
    return replace(settings, **{field: value})


def written(value: Any) -> str:
    """As it stands after name=.

    >>> written("gru"), written(("dev",)), written(True)
    ('gru', '["dev"]', 'true')
    """
    return value if isinstance(value, str) else json.dumps(value)


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
