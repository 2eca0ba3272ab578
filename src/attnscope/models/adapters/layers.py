"""How is a probe that reads the last layer asked about another one?"""

from dataclasses import replace

from attnscope.errors import require
from attnscope.models.trace import Trace


def up_to(trace: Trace, layer: int) -> Trace:
    """The same pass with this layer as the last: its attention, queries and keys are those that probes then read.

    Context, decoder state and logits stay those of the whole pass, so this is no trace to read out.
    """
    count = len(trace.layers)
    require(-count <= layer < count, f"there is no layer {layer}; layers are numbered from 0 to {count - 1}")
    return replace(trace, layers=trace.layers[: layer % count + 1])
