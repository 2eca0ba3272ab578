"""Which parts of a network does its solution need? Swap them, or cut them out, and train on (baan2019 §5)

`transplant_component` and `prune_to_strongest` return a new model and which of its weights stay frozen; `retrain`
continues training.
"""

# TODO(docstring) join:
#   How is a network trained on while some of its weights stay as they are? (baan2019 §5)
#   Which part of a network makes its solution? Put one network's part into the other (baan2019 §5.1, table 4)
#   Do the strongest neurons suffice? Keep 5 % of encoder and decoder each, and train on (baan2019 §5.2)
#   What did an operation do to a network's accuracy? Before, after it, and after training on (baan2019 §5, table 4)
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.models import EncoderDecoder
from attnscope.models.cells import GRU, LSTM, weights_of
from attnscope.probes.weights import STRONGEST, strongest_units, unit_strengths
from attnscope.tasks import Task
from attnscope.training import Objective, Progress, TrainingSettings, fit

FrozenMask = dict[str, Bool[Tensor, "..."]]  # name of a parameter to where it is held; what is not named is free
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class ModifiedModel:
    """A model after surgery, and which of its weights are to stay as they are when it is trained on."""

    model: nn.Module
    held: FrozenMask


@contextmanager
def freezing(model: nn.Module, held: Mapping[str, Bool[Tensor, "..."]]) -> Iterator[None]:
    """As long as the block lasts, no gradient reaches what is held."""
    own = dict(model.named_parameters())
    for name, where in held.items():
        require(name in own, f"there is no parameter {name!r} to be held; there are {', '.join(own)}")
        given, expected = tuple(where.shape), tuple(own[name].shape)
        require(given == expected, f"what is held of {name} has shape {given}, but it is of shape {expected}")
    hooks = [own[name].register_hook(gradient_mask(where.to(own[name].device))) for name, where in held.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def gradient_mask(where: Bool[Tensor, "..."]) -> Any:
    return lambda gradient: gradient.masked_fill(where, 0.0)


def retrain(
    operated: ModifiedModel,
    task: Task,
    objective: Objective | None = None,
    settings: TrainingSettings | None = None,
    seed: int = 0,
    free: bool = False,
    **options: Any,
) -> tuple[nn.Module, Progress]:
    """A copy, trained on; with `free`, nothing is held (what the released code did after pruning).

    What else is given, such as folder=, goes to `fit`.
    """
    model = copy_model(operated.model)
    with freezing(model, {} if free else operated.held):
        progress = fit(model, task, objective, settings, seed, **options)
    return model, progress


def copy_model(model: M) -> M:
    """The same weights in a model of its own, without gradients."""
    made = copy.deepcopy(model)
    made.zero_grad(set_to_none=True)
    return made


ENCODER = ("source_inputs.", "encoder.")  # what belongs to the encoder; all else is the decoder's


def in_encoder(name: str) -> bool:
    return name.startswith(ENCODER)


# Which parameters, by name, a part consists of.
COMPONENTS: dict[str, Callable[[str], bool]] = {
    "encoder": in_encoder,
    "encoder_embedding": lambda name: name.startswith("source_inputs."),
    "encoder_wih": lambda name: in_encoder(name) and ".weight_ih" in name,
    "encoder_whh": lambda name: in_encoder(name) and ".weight_hh" in name,
    "decoder": lambda name: not in_encoder(name),
    "decoder_embedding": lambda name: name.startswith("target_inputs."),
    "decoder_wih": lambda name: name.startswith("decoder.") and ".weight_ih" in name,
    "decoder_whh": lambda name: name.startswith("decoder.") and ".weight_hh" in name,
}


def parameters_of(model: EncoderDecoder, component: str) -> dict[str, nn.Parameter]:
    """The parameters of one of the eight parts, by name."""
    belongs = COMPONENTS[choose("component", component, COMPONENTS)]
    require(
        not model.settings.shared_inputs,
        "with shared_inputs the embedding belongs to encoder and decoder at once, so no part can be taken out alone",
    )
    found = {name: parameter for name, parameter in model.named_parameters() if belongs(name)}
    require(
        bool(found),
        f"this model has no {component}: one-hot words have no embedding, and only gru and lstm have Wih and Whh",
    )
    return found


@torch.no_grad()
def transplant_component(receiver: EncoderDecoder, donor: EncoderDecoder, component: str) -> ModifiedModel:
    """A new model: the receiver with the donor's part, which is held when it is trained on. Neither is changed."""
    check_same_architecture(receiver, donor)
    made = copy_model(receiver)
    given, taken = parameters_of(donor, component), parameters_of(made, component)
    for name, parameter in taken.items():
        parameter.copy_(given[name])
    held: FrozenMask = {name: torch.ones_like(parameter, dtype=torch.bool) for name, parameter in taken.items()}
    return ModifiedModel(made, held)


def check_same_architecture(receiver: EncoderDecoder, donor: EncoderDecoder) -> None:
    one, other = (
        {name: tuple(parameter.shape) for name, parameter in model.named_parameters()} for model in (receiver, donor)
    )
    apart = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    require(not apart, f"receiver and donor are of different architectures: they differ in {', '.join(apart[:3])}")


SIDES = ("encoder", "decoder")


def prune_to_strongest(model: EncoderDecoder, share: float = STRONGEST) -> ModifiedModel:
    """A new model with this share of each side's neurons, the strongest-connected ones; all else is held at zero."""
    return keep_neurons(model, {side: strongest_units(unit_strengths(model, side), share) for side in SIDES})


@torch.no_grad()
def keep_neurons(model: EncoderDecoder, kept: dict[str, tuple[int, ...]]) -> ModifiedModel:
    """A new model with these neurons of encoder and decoder only."""
    require(set(kept) == set(SIDES), f"say which neurons of encoder and decoder are kept, not of {', '.join(kept)}")
    settings = model.settings
    require(
        settings.attention != "dot" and settings.readout != "sum",
        "dot attention and readout='sum' see the decoder's neurons without weights, so that none can be cut off",
    )
    made = copy_model(model)
    held: FrozenMask = {}
    for side in SIDES:
        removed = ~unit_mask(kept[side], made.settings.units)
        freeze_removed(held, made, side, removed)
    freeze_readers(held, made, ~unit_mask(kept["decoder"], made.settings.units))
    own = dict(made.named_parameters())
    for name, where in held.items():
        own[name].masked_fill_(where.to(own[name].device), 0.0)
    return ModifiedModel(made, held)


def unit_mask(units: Iterable[int], total: int) -> Tensor:
    numbers = list(units)
    beyond = [unit for unit in numbers if not 0 <= unit < total]
    require(not beyond, f"there are no neurons {beyond}; they are numbered from 0 to {total - 1}")
    made = torch.zeros(total, dtype=torch.bool)
    made[numbers] = True
    return made


def freeze_removed(held: FrozenMask, model: EncoderDecoder, side: str, removed: Tensor) -> None:
    """What leads to the removed neurons of one side, and from them to the next step."""
    cells = list(getattr(model, side).ahead)
    cell, path = cells[0], f"{side}.ahead.0"
    if model.settings.layers > 1 or model.settings.bidirectional or not isinstance(cell, GRU | LSTM):
        raise BadSetting("neurons are removed from one layer of gru or lstm cells in one direction; this model differs")
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = dict(zip(names, weights_of(cell.rnn), strict=True))
    rows = removed.repeat(len(weights["weight_ih_l0"]) // len(removed))  # of every gate
    held |= {f"{path}.rnn.{name}": row_mask(rows, weight) for name, weight in weights.items()}
    held[f"{path}.rnn.weight_hh_l0"] |= column_mask(removed, weights["weight_hh_l0"])
    for part, first in enumerate(cell.first):
        held[f"{path}.first.{part}"] = row_mask(removed, first)


def freeze_readers(held: FrozenMask, model: EncoderDecoder, removed: Tensor) -> None:
    """What reads the decoder's removed neurons: they start where the encoder ended, so they need not be zero."""
    reads_state = model.settings.readout in ("state", "both")
    first_layer = "output.weight" if model.settings.hidden is None else "hidden.0.weight"
    readers = {first_layer: reads_state, "attend.query.weight": True}
    own = dict(model.named_parameters())
    for name, reads in readers.items():
        if reads and name in own:  # the state comes first where a layer reads more than it
            columns = torch.zeros(own[name].shape[1], dtype=torch.bool)
            columns[: len(removed)] = removed
            held[name] = column_mask(columns, own[name])


def row_mask(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (weight.dim() - 1)).expand(weight.shape).clone()


def column_mask(columns: Tensor, weight: Tensor) -> Tensor:
    return columns.expand(weight.shape).clone()


Measure = Callable[[nn.Module], float]


@dataclass(frozen=True)
class TransplantOutcome:
    """One operation on one model, by whatever was measured: in the paper, sequence accuracy on new compositions."""

    operation: str
    before: float
    operated: float
    retrained: float
    free: bool = False  # nothing was held while it was trained on


@dataclass(frozen=True)
class TransplantOutcomes(Displayed):
    """Those of several operations, or of one on several models."""

    each: tuple[TransplantOutcome, ...]

    def table(self) -> pd.DataFrame:
        return pd.DataFrame([vars(outcome) for outcome in self.each])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Means over models, a group an operation, with standard deviations."""
        from attnscope import plots

        groups = self.table().groupby("operation", sort=False)[["before", "operated", "retrained"]]
        return plots.bars(groups.mean(), ax=ax, errors=groups.std(), ylabel="accuracy")


def measure_outcome(
    operation: str,
    model: nn.Module,
    operated: ModifiedModel,
    measure: Measure,
    task: Task,
    free: bool = False,
    **options: Any,
) -> tuple[TransplantOutcome, nn.Module]:
    """Measure before and after an operation and after training on; and the model that came of it.

    What else is given, such as objective= and settings=, goes to `retrain`.
    """
    made, _ = retrain(operated, task, free=free, **options)
    return TransplantOutcome(operation, measure(model), measure(operated.model), measure(made), free), made
