"""What defines an encoder-decoder, and which parts go together?"""

from dataclasses import dataclass

from torch import nn

from attnscope.errors import choose, require
from attnscope.kinds import check_kinds
from attnscope.models.attention import ATTENTIONS, COMBINATIONS
from attnscope.models.cells import CELLS
from attnscope.models.initialise import INITIALISATIONS
from attnscope.models.positions import Positions

CONTEXTS = ("readout", "input")
READOUTS = ("state", "context", "both", "sum")
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


@dataclass(frozen=True)
class EncoderDecoderSettings:
    """Everything that defines an encoder-decoder but the task's vocabularies."""

    cell: str = "gru"
    units: int = 128  # of each direction
    layers: int = 1
    bidirectional: bool = False  # the encoder; the decoder starts from the mean of its two directions
    dropout: float = 0.0  # between layers
    first_state: str = "trained"  # or "zero"
    attention: str = "dot"
    heads: int = 1
    combine: str = "concatenate"  # what heads picked; or "sum", "mean": then each sees whole states
    key_size: int = 32  # of each head of query_key_value
    inputs: str = "one_hot"
    input_size: int | None = None  # one-hot: zeros beyond the vocabulary leave room for positions; None: the vocabulary
    target_input_size: int | None = None  # of target words, where it is not that of source words
    shared_inputs: bool = False  # source and target words have one table of vectors
    positions: Positions | None = None
    context: str = "readout"
    focus: bool = False  # "full focus": of what the decoder hears, the word only weighs the context (baan2019)
    context_layer: bool = False  # a linear layer that the context passes first, to the decoder's size
    readout: str = "both"  # what is read: the state, the context, both side by side, or their sum
    hidden: int | None = None  # units of a layer between these and the words (N of snell2021 eq. 2)
    activation: str = "tanh"  # of that layer
    readout_bias: bool = False
    initialisation: str = "fan_in"

    def __post_init__(self) -> None:
        check_kinds(self)
        choose("cell", self.cell, CELLS)
        choose("attention", self.attention, ["none", *ATTENTIONS], "ATTENTIONS")
        choose("kind of inputs", self.inputs, ("one_hot", "learned"))
        choose("combination of heads", self.combine, COMBINATIONS)
        choose("first state", self.first_state, ("trained", "zero"))
        choose("activation", self.activation, ACTIVATIONS)
        choose("place for the context", self.context, CONTEXTS)
        choose("readout", self.readout, READOUTS)
        choose("initialisation", self.initialisation, INITIALISATIONS)
        for name in ("units", "layers", "heads", "key_size"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        for name in ("input_size", "target_input_size", "hidden"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} must be positive, not {value}")
        require(0 <= self.dropout < 1, f"dropout must be from 0 to below 1, not {self.dropout}")
        self._check_combination()

    def _check_combination(self) -> None:
        recurrent = CELLS[self.cell].recurrent
        require(
            recurrent or self.positions is not None,
            f"cell={self.cell!r} has no recurrence, so without positions it cannot tell one step from another; "
            "set positions",
        )
        require(
            recurrent or self.attention != "none",
            f"cell={self.cell!r} without attention passes nothing from encoder to decoder; choose an attention",
        )
        splits = self.attention != "query_key_value" and self.combine == "concatenate"
        require(not splits or self.units % self.heads == 0, f"heads={self.heads} does not divide units={self.units}")
        require(
            self.attention != "query_key_value" or self.combine == "concatenate",
            "heads of query_key_value have values of their own: combine must be 'concatenate'",
        )
        require(
            self.attention != "dot" or not self.bidirectional,
            "dot attention compares states of one size, but those of two directions are larger; use bilinear",
        )
        if self.attention == "none":
            require(self.readout == "state", "without attention there is no context: set readout='state'")
            require(self.context == "readout", "without attention there is no context to give to the decoder's input")
            require(not self.context_layer, "without attention there is no context for a context_layer")
            require(self.heads == 1, f"without attention there are no heads, so heads={self.heads} means nothing")
        if self.context == "input":
            require(recurrent, f"context='input' asks the previous state where to look; cell={self.cell!r} has none")
        require(
            self.readout != "sum" or not self.bidirectional or self.context_layer,
            "readout='sum' adds a context to a state of another size: set context_layer",
        )
        require(self.inputs == "one_hot" or self.input_size is not None, "learned inputs need a size: set input_size")
        require(
            not self.shared_inputs or self.target_input_size in (None, self.input_size),
            "shared_inputs are one table of vectors: target_input_size cannot be another than input_size",
        )
        require(
            not self.focus or self.context == "input",
            f"focus weighs the context before the decoder hears it: set context='input', not {self.context!r}",
        )
