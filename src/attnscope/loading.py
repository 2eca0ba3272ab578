"""Loading models of all kinds as models that give Traces: `attnscope.load`.

    load("my-model")                     a folder that save_pretrained wrote, with its tokenizer
    load("hf:owner/name")                a model on the Hugging Face hub, where there is a network
    load("3f2a"), load("runs/runs/3f2a…")  a run of the store, by (the beginning of) its key or by its folder
    load("mine.py:model")                a function of a file, or package.module:function, that returns an adapter
    load(adapter), load(hf_model, tokenizer=tokenizer)   a model in memory

Nothing is unpickled, and no code of a model folder is run.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from attnscope.errors import BadSetting, describe_error, first_line, require
from attnscope.lab.experiment import Run, find_run
from attnscope.lab.store import Store, in_store
from attnscope.models.adapters.folder import HUB, adapt
from attnscope.models.adapters.folder import load as load_folder
from attnscope.models.adapters.readers import Reader
from attnscope.models.capabilities import GivesTrace, ReadsTexts
from attnscope.models.inference import check_device
from attnscope.models.loaded import LoadedModel, TaskReader

ACCEPTED_MODELS = (
    f"a folder of save_pretrained, {HUB}owner/name, the key or folder of a run, module:function or file.py:function"
)


def load(
    model: str | Path | nn.Module | Run | LoadedModel,
    *,
    tokenizer: object | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    store: str | Path = "runs",
    checkpoint: int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    label: str | None = None,
) -> LoadedModel:
    """Return a model with its reader, ready for `.trace(texts)` and for every probe.

    Args:
        model: A folder that save_pretrained wrote, "hf:owner/name", the key of a run (or its beginning), the folder of
            a run, "module:function" or "file.py:function" (a function that returns an adapter), an adapter, or a
            Hugging Face model in memory.
        tokenizer: The tokenizer of a Hugging Face model in memory, or the reader of an adapter that has none.
        device: Such as "cpu", "cuda:1" or "mps"; None: where the model is, or the CPU.
        dtype: Such as "float32"; None: as it is (models from a folder are loaded in single precision).
        store: The folder of runs in which a key is looked up.
        checkpoint: Of a run, the weights after this many training steps; None: the final ones.
        source_language: The language code of the source, for tokenizers of several languages.
        target_language: The language code of the target.
        label: Of a multi-label classifier, the label whose prediction is read.
    """
    if device is not None:
        check_device(str(device))
    require(checkpoint is None or type(checkpoint) is int, f"a checkpoint is a number of steps, not {checkpoint!r}")
    if isinstance(model, nn.Module):
        loaded = from_module(model, tokenizer, label)
    elif isinstance(model, LoadedModel):
        loaded = model
    elif isinstance(model, Run):
        loaded = from_run(model, checkpoint)
    else:
        require(isinstance(model, str | os.PathLike), f"there is no model {model!r:.60}: give {ACCEPTED_MODELS}")
        loaded = from_name(os.fspath(model), str(store), checkpoint, (source_language, target_language, label))
    require(checkpoint is None or loaded.task is not None, f"checkpoint= is for runs of a store; {loaded.name} is none")
    if device is not None or dtype is not None:
        loaded.module.to(device=device, dtype=as_dtype(dtype))
    return loaded


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    result = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(result, torch.dtype) and result.is_floating_point):
        raise BadSetting(f"there is no dtype {dtype!r}; choose one such as float32, float64, bfloat16")
    return result


def from_name(
    model: str, store: str, checkpoint: int | None, options: tuple[str | None, str | None, str | None]
) -> LoadedModel:
    """Return the model of this name; options are those of `load_folder`."""
    path = Path(model)
    place, colon, function = model.rpartition(":")
    if is_run(path):
        return from_run(Run.at(path), checkpoint)
    if model.startswith(HUB) or os.path.isdir(model):  # unlike Path.is_dir, false for invalid names
        adapter = load_folder(model, *options)
        return LoadedModel(adapter, adapter.reader, model.removeprefix(HUB) if model.startswith(HUB) else path.name)
    if colon and place and function.isidentifier():
        return from_function(place, function)
    if path.name == model and set(model) <= set("0123456789abcdef") and model:
        return from_run(find_run(model, Store(store)), checkpoint)
    raise BadSetting(f"there is no model {model!r:.100}: give {ACCEPTED_MODELS}")


def from_module(model: nn.Module, tokenizer: object | None, label: str | None = None) -> LoadedModel:
    """Return an adapter, or a Hugging Face model with its tokenizer, as a LoadedModel."""
    name = type(model).__name__
    library = sys.modules.get("transformers")
    if library is not None and isinstance(model, library.PreTrainedModel):
        require(
            isinstance(tokenizer, library.PreTrainedTokenizerBase),
            f"a {name} needs its tokenizer: load(model, tokenizer=tokenizer), not {tokenizer!r:.60}",
        )
        adapter = adapt(model, tokenizer, label)
        return LoadedModel(adapter, adapter.reader, name)
    if not isinstance(model, GivesTrace):
        raise BadSetting(
            f"{name} gives no Traces: wrap it in a class that inherits attnscope.models.adapters.Adapter and returns "
            "one (docs/own-model.md has a short example), or give a Hugging Face model"
        )
    reader = model.reader if tokenizer is None and isinstance(model, ReadsTexts) else tokenizer
    if not isinstance(reader, Reader):
        raise BadSetting(
            f"{name} has no reader, so it takes no texts: give it one, such as attnscope.WordReader, or load it with "
            "tokenizer=WordReader(…); probes take the model as it is with Batches"
        )
    return LoadedModel(model, reader, name)


# Runs ----------------------------------------------------------------------------------------------------------------


def is_run(folder: Path) -> bool:
    run_files = all(os.path.isfile(folder / name) for name in ("summary.json", "weights.safetensors"))
    return os.path.isdir(folder) and (run_files or in_store(folder))


def from_run(run: Run, checkpoint: int | None = None) -> LoadedModel:
    name = run.folder.name if checkpoint is None else f"{run.folder.name} at step {checkpoint}"
    return LoadedModel(run.model(checkpoint), TaskReader(run.task), name, run.task, bool(run.forward))


# Functions -----------------------------------------------------------------------------------------------------------


def from_function(place: str, function: str) -> LoadedModel:
    """Return the adapter that a user's function returns."""
    build: Callable[[], object] | None = getattr(import_place(place), function, None)
    if not callable(build):
        raise BadSetting(f"there is no function {function} in {place}")
    with own_code(f"{place}:{function} returns no model"):
        result = build()
    if isinstance(result, LoadedModel):
        return result
    model, tokenizer = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, nn.Module):
        raise BadSetting(f"{place}:{function} returns a {type(model).__name__}; it should return an adapter")
    loaded = from_module(model, tokenizer)
    return LoadedModel(loaded.module, loaded.reader, f"{Path(place).name}:{function}")


def import_place(place: str) -> ModuleType:
    """Return a module by its name, or from a file; the folder of the file and the current folder are importable."""
    path = Path(place)
    add_to_path(Path.cwd())
    if place.endswith(".py"):
        require(path.is_file(), f"there is no file {place}")
        add_to_path(path.resolve().parent)
    with own_code(f"{place} cannot be imported"):
        return import_file(path) if place.endswith(".py") else importlib.import_module(place)


@contextmanager
def own_code(failure: str) -> Iterator[None]:
    """Raise any exception of the user's code, also SystemExit, as BadSetting."""
    try:
        yield
    except ImportError as error:
        raise BadSetting(f"{failure}: {first_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise BadSetting(f"{failure}: {describe_error(error)}") from error


def add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def import_file(path: Path) -> ModuleType:
    """Return the module of a file, under its own name unless another module has it."""
    loaded = sys.modules.get(path.stem)
    name_is_used = loaded is not None and getattr(loaded, "__file__", None) != str(path.resolve())
    name = f"{path.stem}_of_{path.resolve().parent.name}" if name_is_used else path.stem
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise BadSetting(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
