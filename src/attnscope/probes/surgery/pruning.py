"""Do the strongest neurons suffice? Keep 5 % of encoder and decoder each, and train on (baan2019 §5.2)

A neuron is removed with all weights that lead to it (rows of every gate's Wih and Whh, biases, its first state) and
from it (columns of Whh, of the output layer, and of the attention's view of the decoder's state). A removed encoder
neuron is then zero at every step, so that what reads the encoder's states needs no change. (The released code put
single weights below 0.15 to zero instead, and let them come back in training.)
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from attnscope.errors import BadSetting, require
from attnscope.models import EncoderDecoder
from attnscope.models.cells import GRU, LSTM, weights_of
from attnscope.probes.surgery.retraining import Held, Operated, copied
from attnscope.probes.weights.strength import STRONGEST, strongest, unit_strengths

SIDES = ("encoder", "decoder")


def pruned(model: EncoderDecoder, share: float = STRONGEST) -> Operated:
    """A new model with this share of each side's neurons, the strongest-connected ones; all else is held at zero."""
    return with_neurons(model, {side: strongest(unit_strengths(model, side), share) for side in SIDES})


@torch.no_grad()
def with_neurons(model: EncoderDecoder, kept: dict[str, tuple[int, ...]]) -> Operated:
    """A new model with these neurons of encoder and decoder only."""
    require(set(kept) == set(SIDES), f"say which neurons of encoder and decoder are kept, not of {', '.join(kept)}")
    settings = model.settings
    require(
        settings.attention != "dot" and settings.readout != "sum",
        "dot attention and readout='sum' see the decoder's neurons without weights, so that none can be cut off",
    )
    made = copied(model)
    held: Held = {}
    for side in SIDES:
        removed = ~chosen(kept[side], made.settings.units)
        mark(held, made, side, removed)
    mark_readers(held, made, ~chosen(kept["decoder"], made.settings.units))
    own = dict(made.named_parameters())
    for name, where in held.items():
        own[name].masked_fill_(where.to(own[name].device), 0.0)
    return Operated(made, held)


def chosen(units: Iterable[int], total: int) -> Tensor:
    numbers = list(units)
    beyond = [unit for unit in numbers if not 0 <= unit < total]
    require(not beyond, f"there are no neurons {beyond}; they are numbered from 0 to {total - 1}")
    made = torch.zeros(total, dtype=torch.bool)
    made[numbers] = True
    return made


def mark(held: Held, model: EncoderDecoder, side: str, removed: Tensor) -> None:
    """What leads to the removed neurons of one side, and from them to the next step."""
    cells = list(getattr(model, side).ahead)
    cell, path = cells[0], f"{side}.ahead.0"
    if model.settings.layers > 1 or model.settings.bidirectional or not isinstance(cell, GRU | LSTM):
        raise BadSetting("neurons are removed from one layer of gru or lstm cells in one direction; this model differs")
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = dict(zip(names, weights_of(cell.rnn), strict=True))
    rows = removed.repeat(len(weights["weight_ih_l0"]) // len(removed))  # of every gate
    held |= {f"{path}.rnn.{name}": over_rows(rows, weight) for name, weight in weights.items()}
    held[f"{path}.rnn.weight_hh_l0"] |= over_columns(removed, weights["weight_hh_l0"])
    for part, first in enumerate(cell.first):
        held[f"{path}.first.{part}"] = over_rows(removed, first)


def mark_readers(held: Held, model: EncoderDecoder, removed: Tensor) -> None:
    """What reads the decoder's removed neurons: they start where the encoder ended, so they need not be zero."""
    reads_state = model.settings.readout in ("state", "both")
    first_layer = "output.weight" if model.settings.hidden is None else "hidden.0.weight"
    readers = {first_layer: reads_state, "attend.query.weight": True}
    own = dict(model.named_parameters())
    for name, reads in readers.items():
        if reads and name in own:  # the state comes first where a layer reads more than it
            columns = torch.zeros(own[name].shape[1], dtype=torch.bool)
            columns[: len(removed)] = removed
            held[name] = over_columns(columns, own[name])


def over_rows(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (weight.dim() - 1)).expand(weight.shape).clone()


def over_columns(columns: Tensor, weight: Tensor) -> Tensor:
    return columns.expand(weight.shape).clone()
