"""Which part of a network makes its solution? Put one network's part into the other (baan2019 §5.1, table 4)

The paper then freezes the part and trains the rest as the receiver was trained, for at most 100 epochs, with learning
rate 0.001. The eight parts are encoder and decoder as a whole, and of each its embedding, Wih and Whh. As in the
authors' library, attention, the layer that joins context and embedding, and the output layer belong to the decoder.
Whether their Wih took the biases along is not known, for that code was not found; here it is the matrices alone.
"""

from collections.abc import Callable

import torch
from torch import nn

from attnscope.errors import choose, require
from attnscope.models import EncoderDecoder
from attnscope.probes.surgery.retraining import Held, Operated, copied

ENCODER = ("source_inputs.", "encoder.")  # what belongs to the encoder; all else is the decoder's


def of_encoder(name: str) -> bool:
    return name.startswith(ENCODER)


# Which parameters, by name, a part consists of.
COMPONENTS: dict[str, Callable[[str], bool]] = {
    "encoder": of_encoder,
    "encoder_embedding": lambda name: name.startswith("source_inputs."),
    "encoder_wih": lambda name: of_encoder(name) and ".weight_ih" in name,
    "encoder_whh": lambda name: of_encoder(name) and ".weight_hh" in name,
    "decoder": lambda name: not of_encoder(name),
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
def substituted(receiver: EncoderDecoder, donor: EncoderDecoder, component: str) -> Operated:
    """A new model: the receiver with the donor's part, which is held when it is trained on. Neither is changed."""
    check_alike(receiver, donor)
    made = copied(receiver)
    given, taken = parameters_of(donor, component), parameters_of(made, component)
    for name, parameter in taken.items():
        parameter.copy_(given[name])
    held: Held = {name: torch.ones_like(parameter, dtype=torch.bool) for name, parameter in taken.items()}
    return Operated(made, held)


def check_alike(receiver: EncoderDecoder, donor: EncoderDecoder) -> None:
    one, other = (
        {name: tuple(parameter.shape) for name, parameter in model.named_parameters()} for model in (receiver, donor)
    )
    apart = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    require(not apart, f"receiver and donor are of different architectures: they differ in {', '.join(apart[:3])}")
