"""What did the user bring? A folder of save_pretrained, a run of a store, or a function that makes a model.

    audit FOLDER DATA                       a Hugging Face model with its tokenizer (hf:owner/name asks the hub)
    audit runs/runs/KEY                     a run that attnscope trained, on the test set of its own task
    audit package.module:function DATA      a function, or file.py:function, that gives an adapter with a `reader`

DATA is JSON lines, CSV or TSV, plain or packed with gzip: a text in `text`, `tokens`, `sentence` or `source`; what
should be said in `label`, `binary_label` or `target`; if there are, `rationale` (a number a word), `alignment` (links).
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from attnscope.errors import AttnscopeError, BadSetting, require
from attnscope.faithfulness.subject import (
    CLASSIFIER,
    TRANSLATOR,
    DataSource,
    Example,
    Subject,
    from_examples,
    from_task,
)
from attnscope.files import Malformed
from attnscope.lab.experiment import Run
from attnscope.models.adapters import load
from attnscope.models.adapters.folder import HUB
from attnscope.probes.word_alignment import GoldAlignment, gold_from_pharaoh
from attnscope.tasks.batch import SPECIALS
from attnscope.tasks.text.rows import UNSPLIT, Row
from attnscope.tasks.text.sources import read_corpus

TEXTS = ("text", "tokens", "sentence", "source", "review")
LABELS = ("binary_label", "label", "class")
TARGETS = ("target", "translation")
MARKS, LINKS, POSSIBLE = ("rationale", "rationales"), "alignment", "possible"
ASKED = ("test", "val", "dev", UNSPLIT, "train")  # how the name of the split that is audited begins, if none is given
EXPECTED = (
    "JSON lines, CSV or TSV with a text ('text', 'tokens', 'sentence' or 'source') and what should be said of it "
    "('label' or 'target')"
)


def opened(
    model: str | Path | nn.Module, data: str | Path | Sequence[Example] | None, split: str | None, most: int, seed: int
) -> Subject:
    """The model and at most so many of the texts, drawn at random by the seed."""
    if isinstance(model, str | Path) and is_run(Path(model)):
        return of_run(Path(model), data, split or "test", most, seed)
    if data is None:
        raise BadSetting(f"{model} needs texts to be asked about: give a file as well ({EXPECTED})")
    made = model if isinstance(model, nn.Module) else made_by(str(model))
    name = type(made).__name__ if isinstance(model, nn.Module) else named(str(model))
    return of_examples(made, name, data, split, most, seed)


def named(model: str) -> str:
    return model.removeprefix(HUB) if model.startswith(HUB) else Path(model).name or model


def is_run(folder: Path) -> bool:
    return (folder / "summary.json").is_file() and (folder / "weights.safetensors").is_file()


def of_run(folder: Path, data: Any, split: str, most: int, seed: int) -> Subject:
    """Data are those of the run's own task: it knows no other words."""
    require(data is None, f"{folder} is a run, which is audited on the {split} set of its own task; give no data")
    run = Run.at(folder)
    require(not run.forward, f"{folder} was trained with its attention held fast, so there is none of its own to audit")
    task, model = run.task, run.model()
    drawn = task.draw(split, most, seed) if hasattr(task, "draw") else first(task, split, most)
    kind = CLASSIFIER if drawn.target.shape[1] == 1 else TRANSLATOR
    classes = tuple(task.target_vocabulary.tokens[len(SPECIALS) :]) if kind == CLASSIFIER else ()
    source = DataSource(str(getattr(task, "file", type(task).__name__)), split)
    return Subject(
        model, folder.name, kind, type(model).__name__, classes, len(drawn), from_task(task, drawn), source=source
    )


def first(task: Any, split: str, most: int) -> Any:
    """Of made-up sentences, the first: they come in no order."""
    return next(iter(task.batches(split, most)))


def made_by(model: str) -> nn.Module:
    """From a folder, the hub, or a function named after a colon."""
    place, colon, function = model.rpartition(":")
    if not colon or model.startswith(HUB):
        return load(model)
    made: nn.Module = called(place, function)
    if not hasattr(getattr(made, "reader", None), "read"):
        raise BadSetting(
            f"what {model} gives has no reader, so texts cannot be put to it: give it one, such as "
            "attnscope.models.adapters.WordReader"
        )
    return made


def called(place: str, function: str) -> Any:
    module = imported(place)
    maker: Callable[[], Any] | None = getattr(module, function, None)
    if not callable(maker):
        raise BadSetting(f"there is no function {function} in {place}")
    return maker()


def imported(place: str) -> Any:
    """A module by its name, or a file."""
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ImportError as error:
            raise BadSetting(f"the module {place} cannot be imported: {error}") from error
    path = Path(place)
    require(path.is_file(), f"there is no file {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadSetting(f"{place} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def of_examples(model: Any, name: str, data: Any, split: str | None, most: int, seed: int) -> Subject:
    classifier = bool(getattr(model.reader, "classes", ()))
    if isinstance(data, str | Path):
        rows, source = rows_of(str(data), split)
        examples = [example(row, classifier) for row in rows if not is_unlabelled(row, classifier)]
    else:
        examples, source = list(data), DataSource()
    require(bool(examples), f"there is no text in {source.name} that {name} could be audited on")
    order = np.random.default_rng(seed).permutation(len(examples))  # files are often sorted, by class for one
    drawn = [examples[i] for i in order[:most]]
    known = tuple(each.alignment for each in drawn if each.alignment is not None)
    kind, classes = (CLASSIFIER, model.reader.classes) if classifier else (TRANSLATOR, ())
    what = type(getattr(model, "model", model)).__name__
    return Subject(
        model, name, kind, what, tuple(classes), len(drawn), from_examples(model, drawn),
        known if len(known) == len(drawn) else None, replace(source, available=len(examples)),
    )  # fmt: skip


def rows_of(file: str, split: str | None) -> tuple[list[Row], DataSource]:
    """Of the split that is named or, of all that there are, the one to be audited."""
    rows = read_corpus(file, (), EXPECTED)
    splits = {row.split("split") for row in rows}
    chosen = split or min(splits, key=preference)
    require(chosen in splits, f"{file} has no split {chosen!r}; its splits are {', '.join(sorted(splits))}")
    kept = [row for row in rows if row.split("split") == chosen]
    return kept, DataSource(Path(file).name, None if chosen == UNSPLIT else chosen)


def preference(split: str) -> tuple[int, str]:
    """
    >>> min(["train", "val", "test2017", "test2016"], key=preference)
    'test2016'
    """
    return next((place for place, name in enumerate(ASKED) if split.startswith(name)), len(ASKED)), split


def is_unlabelled(row: Row, classifier: bool) -> bool:
    return classifier and row.fields.get(field_of(row, LABELS, "a class")) is None


def example(row: Row, classifier: bool) -> Example:
    text = words(row.text(field_of(row, TEXTS, "a text")))
    if classifier:
        target: Any = row.label(field_of(row, LABELS, "a class"))
    else:
        target = words(row.text(field_of(row, TARGETS, "a translation")))
    marks = next((name for name in MARKS if row.fields.get(name) is not None), None)
    rationale = row.rationale(marks) if marks is not None and classifier else None
    if rationale is not None:
        count = len(text if isinstance(text, tuple) else text.split())
        if len(rationale) != count:
            raise row.wrong(f"{marks!r} marks {len(rationale)} words, but the text has {count}")
    return Example(text, target, rationale, None if classifier else links(row))


def field_of(row: Row, names: Sequence[str], what: str) -> str:
    found = next((name for name in names if name in row.fields), None)
    if found is None:
        raise row.wrong(f"there is no field with {what} ({', '.join(names)}); this line has {', '.join(row.fields)}")
    return found


def words(text: str | list[str]) -> str | tuple[str, ...]:
    return text if isinstance(text, str) else tuple(text)


def links(row: Row) -> GoldAlignment | None:
    """Pharaoh's "0-0 1-2", or pairs, counted from 0."""
    given = row.fields.get(LINKS)
    if given is None:
        return None
    try:
        if isinstance(given, str):
            return gold_from_pharaoh(given, base=0)
        return GoldAlignment.of(given, row.fields.get(POSSIBLE) or ())
    except (AttnscopeError, TypeError, ValueError) as error:
        raise Malformed(f"{row.file}, line {row.line}: {LINKS!r} holds no links ({error})") from error
