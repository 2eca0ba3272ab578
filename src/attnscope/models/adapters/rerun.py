"""Repeated passes over one batch with different attention, at the least cost.

What comes before the first changed layer stays as it was. A Hugging Face model does not compute it again: the encoder
of an encoder-decoder runs once, and the layers before the changed one return their former outputs. Any other model
makes a whole pass.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

from torch import nn

from attnscope.models.adapters.hugging_face import HFEncoderDecoder, HuggingFace
from attnscope.models.capabilities import TEACHER_FORCING, Decoding
from attnscope.models.encoder_decoder import decoder_inputs
from attnscope.models.inference import evaluating
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import Batch

Forward = Callable[[Interventions | None], Trace]


class Rerun:
    """A model and one batch; a call gives the trace of a pass with other attention, in evaluation mode.

    Of a trace with changed attention only the logits, and the layers from the changed one on, are to be read.
    """

    def __init__(self, model: Callable[..., Trace], batch: Batch, decoding: Decoding | None = None):
        self.model, self.batch, self.decoding = model, batch, decoding

    def __call__(self, attention: Interventions | None) -> Trace:
        first = first_layer(attention)
        with evaluating(self.model), returning(self.layers[:first], self.outputs[:first] if first else []):
            return self.forward(attention)

    @cached_property
    def forward(self) -> Forward:
        model, batch = self.model, self.batch
        if isinstance(model, HFEncoderDecoder) and (self.decoding or model.decoding) == "teacher_forced":
            embedded, inputs = model.source_inputs(batch.source), decoder_inputs(batch, 1.0)
            encoded = model.encode(embedded, batch)
            return lambda attention: model.decode(batch, embedded, encoded, inputs, attention)
        given = {} if self.decoding is None else {"teacher_forcing": TEACHER_FORCING[self.decoding]}
        return lambda attention: model(batch, attention=attention, **given)

    @cached_property
    def layers(self) -> list[nn.Module]:
        """The entries of the library's own list of layers that hold the attention of a trace."""
        if not isinstance(self.model, HuggingFace):
            return []
        inner = self.model.model
        names = {module: name for name, module in inner.named_modules()}
        found = (re.match(r".*?\.\d+(?=\.)", names[layer]) for layer in self.model.family.attentions(inner))
        return [inner.get_submodule(match[0]) for match in found if match is not None]

    @cached_property
    def outputs(self) -> list[object]:
        """What each layer returns in a pass without changes."""
        outputs: list[object] = []
        with ExitStack() as stack:
            for layer in self.layers:
                stack.callback(layer.register_forward_hook(lambda _, __, output: outputs.append(output)).remove)
            self.forward(None)
        return outputs


def first_layer(attention: Interventions | None) -> int:
    """Return the first layer that an intervention changes; 0 where layers are counted from the end.

    >>> first_layer({(2, 0): lambda weights, mask: weights, 3: lambda weights, mask: weights})
    2
    """
    if not isinstance(attention, Mapping):
        return 0
    return max(0, min((key if isinstance(key, int) else key[0] for key in attention), default=0))


@contextmanager
def returning(layers: Sequence[nn.Module], outputs: Sequence[object]) -> Iterator[None]:
    """Let these layers return these outputs, without computing anything; afterwards they work as before."""
    former = [vars(layer).get("forward") for layer in layers]
    try:
        for layer, output in zip(layers, outputs, strict=False):
            vars(layer)["forward"] = lambda *_, output=output, **__: output
        yield
    finally:
        for layer, forward in zip(layers, former, strict=True):
            if forward is None:  # most modules have no `forward` but that of their class
                vars(layer).pop("forward", None)
            else:
                vars(layer)["forward"] = forward
