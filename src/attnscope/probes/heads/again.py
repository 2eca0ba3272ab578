"""How is a pass made again with one head changed, at the least cost?

What comes before the changed head stays as it was in the plain pass. A Hugging Face model is not asked for it again:
the encoder of an encoder-decoder reads once, and the layers before the changed one give what they gave before. Any
other model makes a whole pass.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from attnscope.models.adapters import HFEncoderDecoder, Interventions
from attnscope.models.adapters.hugging_face import HuggingFace
from attnscope.models.adapters.interventions import Change, at_head
from attnscope.models.encoder_decoder import heard_words
from attnscope.models.trace import Trace
from attnscope.probes.stream import Model
from attnscope.tasks.batch import Batch

Ask = Callable[[Interventions | None], Trace]


class Again:
    """A batch that a model is asked about over and over. Of passes with a change, read nothing but what is said."""

    def __init__(self, model: Model, batch: Batch, forward: dict[str, Any]):
        self.ask = asking(model, batch, forward)
        self.layers = layers_of(model) if isinstance(model, HuggingFace) else []
        self.gave: list[Any] = []
        with noting(self.layers, self.gave):
            self.trace = self.ask(None)  # the plain pass

    def changed(self, layer: int, head: int, change: Change) -> Trace:
        """With one head changed. A model of one layer need not know what a layer is."""
        single = len(self.trace.layers) == 1
        with resumed(self.layers[:layer], self.gave[:layer]):
            return self.ask(at_head(head, change) if single else {(layer, head): change})


def asking(model: Model, batch: Batch, forward: dict[str, Any]) -> Ask:
    if not isinstance(model, HFEncoderDecoder) or forward:
        return lambda attention: model(batch, attention=attention, **forward)
    embedded, fed = model.source_inputs(batch.source), heard_words(batch, 1.0)
    read = model.encode(embedded, batch)
    return lambda attention: model.said(batch, embedded, read, fed, attention)


def layers_of(model: HuggingFace) -> list[nn.Module]:
    """The layers that the attention of a trace belongs to, each one entry of the library's own list of layers."""
    names = {module: name for name, module in model.model.named_modules()}
    found = (re.match(r".*?\.\d+(?=\.)", names[attention]) for attention in model.family.attentions(model.model))
    return [model.model.get_submodule(match[0]) for match in found if match is not None]


@contextmanager
def noting(layers: Sequence[nn.Module], gave: list[Any]) -> Iterator[None]:
    """While this lasts, what layers give is noted."""
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_hook(lambda _, __, output: gave.append(output)).remove)
        yield


@contextmanager
def resumed(layers: Sequence[nn.Module], gave: Sequence[Any]) -> Iterator[None]:
    """While this lasts, these layers give what they gave before; afterwards they work as they did."""
    with ExitStack() as stack:
        for layer, output in zip(layers, gave, strict=True):
            stack.callback(put_back, layer, vars(layer).get("forward"))
            vars(layer)["forward"] = lambda *_, output=output, **__: output
        yield


def put_back(layer: nn.Module, forward: Any) -> None:
    """Most modules have no `forward` but that of their class."""
    if forward is None:
        vars(layer).pop("forward", None)
    else:
        vars(layer)["forward"] = forward
