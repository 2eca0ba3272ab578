"""How does a run's configuration become JSON, and how does it come back?

Settings are frozen dataclasses. In JSON each is an object with its kind and its fields. Settings that have a field of
that name, as those of subwords do, are known by its value.
"""

from dataclasses import fields, is_dataclass
from typing import Any

from attnscope.errors import choose
from attnscope.files import Malformed
from attnscope.models import BagOfWordsSettings, ClassifierSettings, EncoderDecoderSettings, Positions, Start
from attnscope.tasks import TASKS, PublishedLookupTables, Scan
from attnscope.tasks.text import SETTINGS
from attnscope.training import OBJECTIVES, Sum, TrainingSettings

# Settings that stand in no other dictionary of names.
KINDS: dict[str, type] = {
    "published_lookup_tables": PublishedLookupTables,
    "scan": Scan,
    "sum": Sum,
    "encoder_decoder": EncoderDecoderSettings,
    "classifier": ClassifierSettings,
    "bag_of_words": BagOfWordsSettings,
    "positions": Positions,
    "start": Start,
    "training": TrainingSettings,
}


def kinds() -> dict[str, type]:
    """Every kind of settings by its name, also one that was put into its dictionary a moment ago."""
    return {**TASKS, **SETTINGS, **OBJECTIVES, **KINDS}


def describe(value: Any) -> Any:
    """Settings as JSON.

    >>> describe(Positions(base=100.0))
    {'kind': 'positions', 'base': 100.0, 'rotated': True}
    """
    if is_dataclass(value):
        kind = next((name for name, known in kinds().items() if type(value) is known), type(value).__name__)
        return {"kind": kind} | {field.name: describe(getattr(value, field.name)) for field in fields(value)}
    return [describe(item) for item in value] if isinstance(value, tuple) else value


def rebuild(value: Any) -> Any:
    """The settings that `describe` described.

    >>> rebuild({'kind': 'positions', 'base': 100.0, 'rotated': True})
    Positions(base=100.0, rotated=True)
    """
    if isinstance(value, list):
        return tuple(rebuild(item) for item in value)
    if not isinstance(value, dict):
        return value
    kind = class_of(str(value.get("kind")))
    try:
        own = {field.name for field in fields(kind)}
        return kind(**{name: rebuild(item) for name, item in value.items() if name != "kind" or name in own})
    except TypeError as error:
        raise Malformed(f"these are not the settings of a {value['kind']}: {error}") from error


def class_of(kind: str) -> type:
    known = kinds()
    return known[choose("kind of settings", kind, known, "TASKS, OBJECTIVES or KINDS")]
