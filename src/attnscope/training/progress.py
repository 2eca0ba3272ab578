"""The progress of a training run, saved so that a killed run resumes with the same bits.

Data and randomness follow from the seed and the step alone, so weights, Adam's moments and the log are all there is.
They go into one file, which is written atomically.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from attnscope.errors import AttnscopeError
from attnscope.files import write_atomically

Weights = dict[str, Tensor]


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    log: list[dict[str, float]] = field(default_factory=list)
    lowest: float | None = None  # the best evaluation: its loss, or less its accuracy
    waited: int = 0  # evaluations since the best one
    stopped: bool = False
    seconds: float = 0.0  # of training, earlier attempts included
    best: Weights = field(default_factory=dict)


def save_progress(path: Path, progress: Progress, model: nn.Module, adam: torch.optim.Optimizer) -> None:
    tensors = (
        with_prefix("model", weights(model)) | with_prefix("best", progress.best) | with_prefix("adam", moments(adam))
    )
    facts = {name: value for name, value in vars(progress).items() if name != "best"}
    write_atomically(path, save(tensors, {"progress": json.dumps(facts)}))


def load_progress(path: Path, model: nn.Module, adam: torch.optim.Optimizer) -> Progress:
    """Put model and optimiser back to where the file left them; without a file, nothing has happened yet."""
    if not path.exists():
        return Progress()
    tensors, facts = read_tensors(path)
    load_weights(model, without_prefix("model", tensors))
    restore_moments(adam, without_prefix("adam", tensors))
    return Progress(**json.loads(facts["progress"]), best=without_prefix("best", tensors))


def weights(model: nn.Module, only: Iterable[nn.Parameter] | None = None) -> Weights:
    """What was trained, by name, each once however many parts of the model share it; or some of it only."""
    chosen = {id(parameter) for parameter in (model.parameters() if only is None else only)}
    return {
        name: parameter.detach().cpu().clone().contiguous()
        for name, parameter in model.named_parameters()
        if id(parameter) in chosen
    }


@torch.no_grad()
def load_weights(model: nn.Module, tensors: Weights) -> None:
    """Put weights back; what is not among them stays as it is."""
    own = dict(model.named_parameters())
    unknown = [name for name, value in tensors.items() if name not in own or own[name].shape != value.shape]
    if unknown:
        raise AttnscopeError(
            f"these weights belong to another model: it has no {', '.join(unknown[:3])} of such a size"
        )
    for name, value in tensors.items():
        own[name].copy_(value)


def save_weights(path: Path, tensors: Weights) -> None:
    write_atomically(path, save(tensors))


def read_tensors(path: Path) -> tuple[Weights, dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise AttnscopeError(f"{path} is no readable safetensors file ({error})") from error


def moments(adam: torch.optim.Optimizer) -> Weights:
    states = adam.state_dict()["state"]
    return {f"{i}.{name}": value.cpu().contiguous() for i, state in states.items() for name, value in state.items()}


def restore_moments(adam: torch.optim.Optimizer, saved: Weights) -> None:
    states: dict[int, Weights] = {}
    for key, value in saved.items():
        i, name = key.split(".")
        states.setdefault(int(i), {})[name] = value
    adam.load_state_dict({"state": states, "param_groups": adam.state_dict()["param_groups"]})


def with_prefix(prefix: str, tensors: Weights) -> Weights:
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def without_prefix(prefix: str, tensors: Weights) -> Weights:
    return {name.removeprefix(f"{prefix}/"): v for name, v in tensors.items() if name.startswith(f"{prefix}/")}
