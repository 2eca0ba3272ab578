"""Which parts of a network does its solution need? Transplant or prune them, and retrain (baan2019 §5)

`transplant_component` (§5.1, table 4) puts one network's part into another; `prune_to_strongest` (§5.2) keeps 5 % of
its neurons. Both return a new model and which of its weights are frozen; `retrain` continues its training. Two models
are needed, so these are not among attnscope.probes.PROBES.

In the paper, the transplanted part is frozen and the rest trained as the receiver was, for at most 100 epochs, with
learning rate 0.001. The eight parts are encoder and decoder as a whole, and of each its embedding, Wih and Whh. As in
the authors' library, attention, the layer that joins context and embedding, and the output layer belong to the decoder.
Whether their Wih included the biases is unknown, for that code is not public; here it is the matrices alone.

A neuron is pruned with all weights that lead to it (rows of every gate's Wih and Whh, biases, its first state) and from
it (columns of Whh, of the output layer, and of the attention's query). A pruned encoder neuron is then zero at every
step, so that what reads the encoder's states needs no change. (The released code set single weights below 0.15 to zero
instead, and let them come back in training.)
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from attnscope.errors import BadSetting, choose, require
from attnscope.models import EncoderDecoder
from attnscope.models.cells import GRU, LSTM, weights_of
from attnscope.models.recurrent import Recurrent
from attnscope.probes.weights import STRONGEST, recurrent_of, strongest_units, unit_strengths
from attnscope.tasks import Task
from attnscope.training import Objective, Progress, TrainingSettings, fit

SIDES = ("encoder", "decoder")
ENCODER = ("source_inputs.", "encoder.")  # parameters of the encoder; all others are the decoder's

FrozenMask = dict[str, Bool[Tensor, "..."]]  # name of a parameter to where it is frozen; others are free
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class ModifiedModel:
    """A model with a transplanted part or pruned neurons, and which of its weights stay frozen in retraining."""

    model: nn.Module
    frozen: FrozenMask


# Retraining


@contextmanager
def freezing(model: nn.Module, frozen: Mapping[str, Bool[Tensor, "..."]]) -> Iterator[None]:
    """Set the gradients of frozen weights to zero within the block.

    Every `fit` has a new Adam, so a weight with zero gradients does not change at all; gradients are clipped by the
    norm of the trained weights.
    """
    own = dict(model.named_parameters())
    for name, where in frozen.items():
        require(name in own, f"there is no parameter {name!r} to freeze; there are {', '.join(own)}")
        shape, expected = tuple(where.shape), tuple(own[name].shape)
        require(shape == expected, f"the mask of {name} has shape {shape}, not {expected}")
    hooks = [own[name].register_hook(zero_at(where.to(own[name].device))) for name, where in frozen.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def zero_at(where: Bool[Tensor, "..."]) -> Callable[[Tensor], Tensor]:
    return lambda gradient: gradient.masked_fill(where, 0.0)


def retrain(
    modified: ModifiedModel,
    task: Task,
    objective: Objective | None = None,
    settings: TrainingSettings | None = None,
    seed: int = 0,
    free: bool = False,
    folder: Path | None = None,
) -> tuple[nn.Module, Progress]:
    """Return a copy of the model after further training, and its progress.

    Args:
        modified: The model, and its frozen weights.
        task: The training data.
        objective: See `fit`.
        settings: See `fit`.
        seed: Random seed.
        free: Freeze nothing (what the released code did after pruning).
        folder: The folder for checkpoints.
    """
    model = copy_model(modified.model)
    with freezing(model, {} if free else modified.frozen):
        progress = fit(model, task, objective, settings, seed, folder)
    return model, progress


def copy_model(model: M) -> M:
    """Return a copy without gradients."""
    copied = copy.deepcopy(model)
    copied.zero_grad(set_to_none=True)
    return copied


# Transplanting


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
    """Return the parameters of one of the eight parts, by name."""
    belongs = COMPONENTS[choose("component", component, COMPONENTS)]
    require(
        not model.settings.shared_inputs,
        "with shared_inputs the embedding belongs to both encoder and decoder, so no part can be transplanted alone",
    )
    parameters = {name: parameter for name, parameter in model.named_parameters() if belongs(name)}
    require(
        bool(parameters),
        f"this model has no {component}: one-hot tokens have no embedding, and only gru and lstm have Wih and Whh",
    )
    return parameters


@torch.no_grad()
def transplant_component(receiver: EncoderDecoder, donor: EncoderDecoder, component: str) -> ModifiedModel:
    """Return a new model: the receiver with the donor's part, which is frozen. Neither is changed."""
    one, other = (
        {name: tuple(parameter.shape) for name, parameter in model.named_parameters()} for model in (receiver, donor)
    )
    differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    require(not differing, f"receiver and donor differ in architecture: {', '.join(differing[:3])}")
    model = copy_model(receiver)
    source, parameters = parameters_of(donor, component), parameters_of(model, component)
    for name, parameter in parameters.items():
        parameter.copy_(source[name])
    return ModifiedModel(
        model, {name: torch.ones_like(parameter, dtype=torch.bool) for name, parameter in parameters.items()}
    )


# Pruning


def prune_to_strongest(model: EncoderDecoder, share: float = STRONGEST) -> ModifiedModel:
    """Return a new model with this share of each side's neurons, the strongest-connected ones; all else frozen at 0."""
    return keep_neurons(model, {side: strongest_units(unit_strengths(model, side), share) for side in SIDES})


@torch.no_grad()
def keep_neurons(model: EncoderDecoder, neurons: dict[str, tuple[int, ...]]) -> ModifiedModel:
    """Return a new model with these neurons of encoder and decoder only."""
    require(set(neurons) == set(SIDES), f"name the neurons of encoder and decoder to keep, not of {', '.join(neurons)}")
    settings = model.settings
    require(
        settings.attention != "dot" and settings.readout != "sum",
        "dot attention and readout='sum' read the decoder's neurons without weights, so that none can be pruned",
    )
    pruned = copy_model(model)
    removed = {side: ~unit_mask(neurons[side], settings.units) for side in SIDES}
    frozen: FrozenMask = {}
    for side in SIDES:
        frozen |= weights_of_neurons(pruned, side, recurrent_of(pruned, side), removed[side])
    frozen |= readers_of_decoder(pruned, removed["decoder"])
    own = dict(pruned.named_parameters())
    for name, where in frozen.items():
        own[name].masked_fill_(where.to(own[name].device), 0.0)
    return ModifiedModel(pruned, frozen)


def unit_mask(units: Iterable[int], total: int) -> Bool[Tensor, " units"]:
    chosen = list(units)
    beyond = [unit for unit in chosen if not 0 <= unit < total]
    require(not beyond, f"there are no neurons {beyond}; they are numbered from 0 to {total - 1}")
    mask = torch.zeros(total, dtype=torch.bool)
    mask[chosen] = True
    return mask


def weights_of_neurons(
    model: EncoderDecoder, side: str, recurrent: Recurrent, removed: Bool[Tensor, " units"]
) -> FrozenMask:
    """Return the mask of weights that lead to neurons of one side, and from them to the next step."""
    cell, path = next(iter(recurrent.ahead)), f"{side}.ahead.0"
    if model.settings.layers > 1 or model.settings.bidirectional or not isinstance(cell, GRU | LSTM):
        raise BadSetting("neurons are removed from one layer of gru or lstm cells in one direction; this model differs")
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = dict(zip(names, weights_of(cell.rnn), strict=True))
    rows = removed.repeat(len(weights["weight_ih_l0"]) // len(removed))  # of every gate
    frozen = {f"{path}.rnn.{name}": row_mask(rows, weight) for name, weight in weights.items()}
    frozen[f"{path}.rnn.weight_hh_l0"] |= column_mask(removed, weights["weight_hh_l0"])
    return frozen | {f"{path}.first.{part}": row_mask(removed, first) for part, first in enumerate(cell.first)}


def readers_of_decoder(model: EncoderDecoder, removed: Bool[Tensor, " units"]) -> FrozenMask:
    """Return the mask of weights that read the decoder's neurons, whose first state is the encoder's last, not zero."""
    reads_state = model.settings.readout in ("state", "both")
    first_layer = "output.weight" if model.settings.hidden is None else "hidden.0.weight"
    own, frozen = dict(model.named_parameters()), FrozenMask()
    for name, reads in {first_layer: reads_state, "attend.query.weight": True}.items():
        if reads and name in own:  # the state comes first where a layer reads more than it
            columns = torch.zeros(own[name].shape[1], dtype=torch.bool)
            columns[: len(removed)] = removed
            frozen[name] = column_mask(columns, own[name])
    return frozen


def row_mask(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (weight.dim() - 1)).expand(weight.shape).clone()


def column_mask(columns: Tensor, weight: Tensor) -> Tensor:
    return columns.expand(weight.shape).clone()
