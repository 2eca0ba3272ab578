"""The configuration of a run as JSON, and back, under a schema of stored names.

Settings are frozen dataclasses. In JSON each is an object with its `kind` and its fields. The kind of settings that
have a field `kind`, as those of subwords, is the value of that field.

The key of a run is the hash of this JSON, so the JSON must not depend on the names in the code. Fields and kinds are
stored under the names of the schema, those of version 0.1: `STORED_NAMES` and `STORED_KINDS` list those that have
another name in the code, and `ADDED_FIELDS` newer ones, which are stored only where they differ from their defaults.

`override` changes settings by name: `model.units=64`, `task.max_length=30`, `model.positions.base=100`.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from attnscope.errors import TYPE_NAMES, BadSetting, choose, fits, require
from attnscope.files import Malformed
from attnscope.models import (
    BagOfWordsSettings,
    ClassifierSettings,
    EncoderDecoderSettings,
    Positions,
    Pretrained,
    Start,
    TransformerClassifierSettings,
    TransformerDecoderSettings,
    TransformerSettings,
)
from attnscope.tasks import TASKS, NextTokens, PublishedLookupTables, RepeatedSequences, Scan
from attnscope.tasks.text import SETTINGS
from attnscope.training import OBJECTIVES, Sum, TrainingSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:
    DataclassInstance = object  # known to type checkers only

S = TypeVar("S", bound="DataclassInstance")
SCHEMA = 1  # a configuration of a later schema has an entry "schema"

# Settings that are in no other registry.
KINDS: dict[str, type] = {
    "published_lookup_tables": PublishedLookupTables,
    "scan": Scan,
    "repeated_sequences": RepeatedSequences,
    "next_tokens": NextTokens,
    "sum": Sum,
    "encoder_decoder": EncoderDecoderSettings,
    "classifier": ClassifierSettings,
    "bag_of_words": BagOfWordsSettings,
    "transformer": TransformerSettings,
    "transformer_decoder": TransformerDecoderSettings,
    "transformer_classifier": TransformerClassifierSettings,
    "positions": Positions,
    "start": Start,
    "pretrained": Pretrained,
    "training": TrainingSettings,
}


# By class: name of a field in the code -> name in JSON. A class inherits the entries of its bases.
STORED_NAMES: dict[str, dict[str, str]] = {
    "OneToOne": {"num_words": "words", "min_length": "shortest", "max_length": "longest"},
    "ExtendedSCAN": {"min_length": "shortest", "max_length": "longest", "max_source_length": "longest_source"},
    "Copying": {"num_words": "words", "evaluation_distribution": "evaluation", "permutation_seed": "reordering"},
    "Keyword": {"num_words": "words"},
    "Scan": {"gold_attention": "guides"},
    "Classification": {"exclude_labels": "left_out"},
    "Preparation": {"min_length": "shortest", "max_length": "longest"},
    "Splits": {"max_validation": "most_validation", "max_test": "most_test"},
    "Words": {"min_count": "least", "max_size": "most"},
    "Tying": {"per_dimension": "per_number"},
    "Hiding": {"token_ids": "words"},
    "TrainingSettings": {
        "max_grad_norm": "clip",
        "stop_at_accuracy": "enough",
        "keep_weights": "keep",
        "best_metric": "best_by",
    },
}
STORED_KINDS: dict[str, str] = {}  # name of a class that is in no registry -> kind in JSON
# By class: fields that 0.1 did not have; each has a default.
ADDED_FIELDS: dict[str, tuple[str, ...]] = {
    "TrainingSettings": ("decoding",),
    "Positions": ("frequency",),
    "Start": ("copying", "pretrained"),
    "TransformerSettings": ("activation", "norm_embeddings", "norm_epsilon"),
    "Guidance": ("head", "shift"),
}


def kinds() -> dict[str, type]:
    """Return every kind of settings by its name, as registered now."""
    return {**TASKS, **SETTINGS, **OBJECTIVES, **KINDS}


def describe(value: object) -> Any:
    """Return settings as JSON, under their stored names.

    >>> describe(Positions(base=100.0))
    {'kind': 'positions', 'base': 100.0, 'rotated': True}
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = stored_names(type(value))
        stored = {names.get(name, name): describe(getattr(value, name)) for name in stored_fields(value)}
        return {"kind": kind_of(type(value))} | stored
    return [describe(item) for item in value] if isinstance(value, tuple) else value


def rebuild(value: object) -> Any:
    """Return the settings of a description by `describe`, under stored names or those in the code.

    >>> rebuild({'kind': 'positions', 'base': 100.0, 'rotated': True})
    Positions(base=100.0, rotated=True, frequency=None)
    """
    if isinstance(value, list):
        return tuple(rebuild(item) for item in value)
    if not isinstance(value, dict):
        return value
    registry = kinds()
    kind = registry[choose("kind of settings", str(value.get("kind")), registry, "TASKS, OBJECTIVES or KINDS")]
    names = {stored: name for name, stored in stored_names(kind).items()}
    own = {field.name for field in fields(kind)}
    try:
        items = {str(name): rebuild(item) for name, item in value.items() if name != "kind" or name in own}
        return kind(**{names.get(name, name): item for name, item in items.items()})
    except TypeError as error:
        raise Malformed(f"these are not the settings of a {value['kind']}: {error}") from error


def kind_of(settings: type) -> str:
    """Return the name of a class of settings in JSON."""
    names = (name for name, kind in kinds().items() if settings is kind)
    return next(names, STORED_KINDS.get(settings.__name__, settings.__name__))


def stored_names(settings: type) -> dict[str, str]:
    """Return name of a field in the code -> name in JSON, of this class and its bases."""
    bases = reversed(settings.__mro__)
    return {name: stored for base in bases for name, stored in STORED_NAMES.get(base.__name__, {}).items()}


def stored_fields(value: "DataclassInstance") -> Iterator[str]:
    """Yield the fields that are stored: all that 0.1 had, and newer ones that differ from their default."""
    added = {name for base in type(value).__mro__ for name in ADDED_FIELDS.get(base.__name__, ())}
    for field in fields(value):
        if field.name not in added or getattr(value, field.name) != field.default:
            yield field.name


def override(settings: S, changes: list[str]) -> S:
    """Return settings with some of them changed; an unknown name raises an error that lists the valid ones.

    Args:
        settings: A dataclass of settings.
        changes: Such as ["model.units=64"]; values are JSON or words.

    >>> override(Positions(), ["base=100"])
    Positions(base=100.0, rotated=True, frequency=None)
    """
    for change in changes:
        name, equals, value = change.partition("=")
        require(bool(equals), f"{change!r} is not a setting: write name=value, such as model.units=64")
        settings = change_one(settings, name.split("."), parse_value(value), name)
    return settings


def change_one(settings: S, path: list[str], value: object, name: str) -> S:
    names = [field.name for field in fields(settings)]
    choose("setting", path[0], names)
    current = getattr(settings, path[0])
    if len(path) == 1:
        several = is_dataclass(current) and value is not None
        require(not several, f"{name} holds several settings; name one of them, such as {name}.…")
        return change_checked(settings, path[0], value, name)
    inner = Positions() if path[0] == "positions" and current is None else current
    require(is_dataclass(inner), f"{path[0]} has no settings below it, so there is no {name}")
    return replace(settings, **{path[0]: change_one(inner, path[1:], value, name)})


def change_checked(settings: S, field: str, value: object, name: str) -> S:
    """Return settings with one changed; a value must be of the type of the present one, if there is one.

    For a list of words, a single word is accepted.
    """
    current = getattr(settings, field)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool) and fits(value, int):
        value = float(value)
    if isinstance(current, tuple) and isinstance(value, str):
        words = get_type_hints(type(settings))[field] == tuple[str, ...]
        value = (value,) if words else value
    same = current is None or value is None or type(value) is type(current)
    if not same:
        kind = TYPE_NAMES.get(type(current), type(current).__name__)
        raise BadSetting(f"{name} is {kind}, such as {value_text(current)}; {value_text(value):.100} is not")
    return replace(settings, **{field: value})


def value_text(value: object) -> str:
    """Return a value as it is written after name=.

    >>> value_text("gru"), value_text(("dev",)), value_text(True)
    ('gru', '["dev"]', 'true')
    """
    return value if isinstance(value, str) else json.dumps(value)


def parse_value(text: str) -> object:
    """Return a JSON value (lists as tuples), or else the text itself.

    >>> parse_value("64"), parse_value("[1, 2]"), parse_value("gru"), parse_value("null")
    (64, (1, 2), 'gru', None)
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise BadSetting(f"{text[:40]}… has too many nested brackets") from error
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value
