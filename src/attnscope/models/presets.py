"""The papers' own networks, as settings."""

from attnscope.models.encoder_decoder import EncoderDecoderSettings
from attnscope.models.positions import Positions

PRESETS: dict[str, EncoderDecoderSettings] = {
    # aitken2021 §2: no attention; attention and recurrence; attention only. Sizes and positions: author's code.
    "ved": EncoderDecoderSettings(attention="none", readout="state"),
    "aed": EncoderDecoderSettings(),
    "ao": EncoderDecoderSettings(cell="feedforward", readout="context", input_size=50, positions=Positions()),
}
