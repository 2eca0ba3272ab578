"""What learns: every forward pass returns a Trace."""

from attnscope.models.attention import ATTENTIONS, uniform
from attnscope.models.cells import CELLS
from attnscope.models.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from attnscope.models.positions import Positions
from attnscope.models.presets import PRESETS
from attnscope.models.trace import Attention, Intervention, Trace

__all__ = [
    "ATTENTIONS", "CELLS", "PRESETS", "Attention", "EncoderDecoder", "EncoderDecoderSettings", "Intervention",
    "Positions", "Trace", "uniform",
]  # fmt: skip
