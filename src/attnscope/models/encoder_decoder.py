"""Recurrent encoder-decoders with attention, as aitken2021 §2, snell2021 §2.1 and baan2019 use them.

Cell, attention, positions and where the context enters are combined freely; EncoderDecoderSettings says what goes
together.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn.functional import embedding

from attnscope.errors import BadSetting, check_kinds, choose, require
from attnscope.models.attention import ATTENTIONS, COMBINATIONS, AttentionLayer, Memory, QueryKeyValue, at_step
from attnscope.models.capabilities import EmbedsSource, Generates, GivesTrace, ReadsOut
from attnscope.models.cells import CELLS, State
from attnscope.models.inference import after_end
from attnscope.models.initialise import INITIALISATIONS
from attnscope.models.recurrent import EncodedSequence, Recurrent, uniform_like
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import END, START, Batch


@dataclass(frozen=True)
class Positions:
    """Settings of the positional encoding (aitken2021 §2): sines and cosines that are added to the inputs.

    One-hot inputs need the random rotation: without it a token and a position would share single dimensions.
    """

    base: float = 20.0  # aitken2021, author's code: 20 for one-to-one, 100 for eSCAN
    rotated: bool = True
    frequency: float | None = None  # radians per step, the same for all dimensions; None: the spectrum of the base

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.base > 1, f"the base of a positional encoding must be more than 1, not {self.base}")
        valid = self.frequency is None or self.frequency > 0
        require(valid, f"the frequency of a positional encoding must be positive or None, not {self.frequency}")


class PositionalCode(nn.Module):
    """Sines and cosines, interleaved: p(t) at 2i and 2i + 1 is sin and cos of t / base^(2i / size)."""

    rotation: Tensor

    def __init__(self, settings: Positions, size: int):
        super().__init__()
        self.settings, self.size = settings, size
        self.register_buffer("rotation", random_rotation(size) if settings.rotated else torch.eye(size))

    def forward(self, steps: int) -> Float[Tensor, "steps size"]:
        return sines(steps, self.settings, self.rotation) @ self.rotation


def sines(steps: int, settings: Positions, rotation: Tensor) -> Tensor:
    size, device, dtype = len(rotation), rotation.device, rotation.dtype
    times = torch.arange(steps, device=device, dtype=dtype)
    rates = settings.base ** (-torch.arange(0, size, 2, device=device, dtype=dtype) / size)
    if settings.frequency is not None:
        rates = torch.full_like(rates, settings.frequency)
    angles = torch.outer(times, rates)  # steps x half the size, rounded up
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


def random_rotation(size: int) -> Tensor:
    """Return a rotation, uniform over all: the Q of a normal matrix, signs fixed by R's diagonal."""
    q, r = torch.linalg.qr(torch.randn(size, size))
    rotation: Tensor = q * torch.sign(torch.diagonal(r))
    return rotation


CONTEXTS = ("readout", "input")
READOUTS = ("state", "context", "both", "sum")
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


@dataclass(frozen=True)
class EncoderDecoderSettings:
    """Everything that defines an encoder-decoder except the vocabularies."""

    cell: str = "gru"
    units: int = 128  # of each direction
    layers: int = 1
    bidirectional: bool = False  # the encoder; the decoder starts from the mean of its two directions
    dropout: float = 0.0  # between layers
    first_state: str = "trained"  # or "zero"
    attention: str = "dot"
    heads: int = 1
    combine: str = "concatenate"  # the heads' outputs; if "sum", "mean", "projected", each head attends to whole states
    key_size: int = 32  # of each head of query_key_value
    inputs: str = "one_hot"
    input_size: int | None = None  # one-hot: zeros beyond the vocabulary leave room for positions; None: the vocabulary
    target_input_size: int | None = None  # of target tokens, where it differs from that of source tokens
    shared_inputs: bool = False  # source and target share one embedding
    positions: Positions | None = None
    context: str = "readout"
    focus: bool = False  # "full focus": the decoder's input is the context, gated by the token (baan2019)
    context_layer: bool = False  # a linear layer on the context, to the decoder's size
    readout: str = "both"  # from the state, the context, both concatenated, or their sum
    hidden: int | None = None  # units of a layer before the logits (N of snell2021 eq. 2)
    activation: str = "tanh"  # of that layer
    readout_bias: bool = False
    initialisation: str = "fan_in"

    def __post_init__(self) -> None:
        check_kinds(self)
        choose("cell", self.cell, CELLS, "CELLS")
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
            require(recurrent, f"context='input' attends from the previous state; cell={self.cell!r} has none")
        require(
            self.readout != "sum" or not self.bidirectional or self.context_layer,
            "readout='sum' adds a context to a state of another size: set context_layer",
        )
        require(self.inputs == "one_hot" or self.input_size is not None, "learned inputs need a size: set input_size")
        require(
            not self.shared_inputs or self.target_input_size in (None, self.input_size),
            "shared_inputs are one embedding: target_input_size cannot be another than input_size",
        )
        require(
            not self.focus or self.context == "input",
            f"focus gates the context before it enters the decoder: set context='input', not {self.context!r}",
        )


States = tuple[State, ...]  # one per layer
# Up to this vocabulary size, an ensemble of seeds embeds tokens by a product, whose gradient is a product, too; above
# it, by a lookup, whose gradient is a scatter.
MAX_PRODUCT_VOCABULARY = 1024
PREDICTED = -1  # in decoder inputs: the token that the decoder predicted at the step before


class EncoderDecoder(GivesTrace, ReadsOut, EmbedsSource, Generates, nn.Module):
    """A sequence-to-sequence network whose forward pass returns a Trace."""

    def __init__(self, settings: EncoderDecoderSettings, source_words: int, target_words: int):
        super().__init__()
        self.settings = settings
        self.source_inputs = Inputs(settings, source_words, settings.input_size)
        self.target_inputs = Inputs(settings, target_words, settings.target_input_size or settings.input_size)
        if settings.shared_inputs:
            require(source_words == target_words, "shared_inputs need one vocabulary for source and target")
            self.target_inputs.table = self.source_inputs.table
        cell, trained_first = CELLS[settings.cell], settings.first_state == "trained"
        self.encoder = Recurrent(
            cell, self.source_inputs.size, settings.units, settings.layers, settings.bidirectional, settings.dropout,
            trained_first,
        )  # fmt: skip
        mixed = {"none": 0, "query_key_value": settings.units}.get(settings.attention, self.encoder.state_size)
        self.context_layer = nn.Linear(mixed, settings.units) if settings.context_layer else None
        self.context_size = settings.units if self.context_layer else mixed
        inputs = self.target_inputs.size + (self.context_size if settings.context == "input" else 0)
        self.focus = nn.Linear(inputs, self.context_size) if settings.focus else None
        inputs = self.context_size if settings.focus else inputs
        # A decoder starts from the final state of the encoder: it has no first state of its own.
        self.decoder = Recurrent(cell, inputs, settings.units, settings.layers, False, settings.dropout, False)
        sizes = {"state": settings.units, "context": self.context_size, "both": settings.units + self.context_size}
        size = sizes.get(settings.readout, settings.units)
        self.hidden = hidden_layer(settings, size)
        self.output = nn.Linear(settings.hidden or size, target_words, bias=settings.readout_bias)
        # Last, so that the initial values of all other weights do not depend on the number of heads.
        self.attend = attention_layer(settings, self.encoder.state_size)
        INITIALISATIONS[settings.initialisation](self)

    def forward(
        self,
        batch: Batch,
        attention: Intervention | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        if attention is not None and self.attend is None:
            raise BadSetting("this model has no attention (attention='none'), so attention= cannot be given")
        embedded = self.source_inputs(batch.source)
        encoded = self.encoder.read(embedded, batch.source_mask)
        memory = self.attend.memorise(encoded.states, batch.source_mask) if self.attend else None
        teacher_forcing = self.gold_probability(teacher_forcing)
        inputs = decoder_inputs(batch, teacher_forcing)
        if self.settings.context == "input":
            decoded = self._step_by_step(inputs, encoded.final, memory, attention)
        else:
            decoded = self._at_once(inputs, encoded.final, memory, attention, free_running=teacher_forcing < 1)
        trace = Trace.of(
            batch,
            decoder_input=decoded.inputs,
            embedded=embedded,
            encoder=encoded.states,
            decoder=decoded.states,
            layers=() if decoded.attention is None else (decoded.attention,),
            context=decoded.context,
            logits=decoded.logits,
        )
        return replace(trace, gates=self._gates(trace, encoded)) if gates else trace

    def readout(self, context: Tensor | None, decoder: Tensor | None = None) -> Tensor:
        """Return the logits with this context, the decoder state held."""
        choices = {"state": (decoder,), "context": (context,)}
        parts = [part for part in choices.get(self.settings.readout, (decoder, context)) if part is not None]
        whole = torch.stack(parts).sum(0) if self.settings.readout == "sum" else torch.cat(parts, -1)
        return self.output(self.hidden(whole))  # type: ignore[no-any-return]

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        if self.attend is None:
            raise BadSetting("this model has no attention (attention='none'), so it has no context")
        return self._project(self.attend.merge(values))

    def _project(self, context: Tensor) -> Tensor:
        return self.context_layer(context) if self.context_layer else context

    def _with_context(self, embedded: Tensor, context: Tensor) -> Tensor:
        """Return the decoder's input from a token and a context: both, or with focus the gated context."""
        if self.focus is None:
            return torch.cat([embedded, context], -1)
        return context * torch.relu(self.focus(torch.cat([context, embedded], -1)))

    @property
    def context_readout(self) -> Float[Tensor, "words context"]:
        """The half of the readout vectors that the context is multiplied with; without attention, the state's."""
        if self.settings.hidden:
            raise BadSetting("with a hidden layer before the logits (hidden=...), no readout vector meets the context")
        whole = self.output.weight
        return whole[:, -self.context_size :] if self.attend and self.settings.readout == "both" else whole

    @torch.no_grad()
    def generate(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        max_length: int,
        **options: object,
    ) -> Int[Tensor, "batch generated"]:
        """Return the greedy translation; END and what follows it are END."""
        return generate_greedily(self, source, source_mask, max_length)

    def _at_once(
        self, inputs: Tensor, start: States, memory: Memory | None, attention: Intervention | None, free_running: bool
    ) -> "Decoded":
        """Decode all steps through the fused kernels.

        Predicted tokens are decoded first, without gradients: none flows through an argmax, so a second pass over them
        gives the same states and gradients as going step by step, at a fraction of the cost. (With dropout, the two
        passes have different masks.) Without gradients, there is no second pass.
        """
        if free_running:
            with torch.no_grad():
                greedy = self._step_by_step(inputs, start, memory, attention)
            if not torch.is_grad_enabled():
                return greedy
            inputs = greedy.inputs
            if callable(attention) and greedy.attention is not None:
                attention = greedy.attention.weights  # a function may be random: use the weights that it returned
        states = self.decoder(self.target_inputs(inputs), start)
        if self.attend is None or memory is None:
            return Decoded(inputs, states, None, None, self.readout(None, states))
        attended, mixed = self.attend(states, memory, attention)
        context = self._project(mixed)
        return Decoded(inputs, states, attended, context, self.readout(context, states))

    def _step_by_step(
        self, inputs: Tensor, state: States, memory: Memory | None, attention: Intervention | None
    ) -> "Decoded":
        """Decode one token after the other; an input PREDICTED is the token that was just predicted."""
        codes, predicted = self.target_inputs.codes(inputs.shape[1]), inputs == PREDICTED
        token, steps = inputs[:, 0], []
        for step in range(inputs.shape[1]):
            embedded = self.target_inputs.embed(token)
            embedded = embedded if codes is None else embedded + codes[step]
            decoded, state = self._step(token, embedded, state, memory, at_step(attention, step))
            steps.append(decoded)
            if step + 1 < inputs.shape[1]:
                token = torch.where(predicted[:, step + 1], decoded.logits.argmax(-1), inputs[:, step + 1])
        return join_steps(steps)

    def _step(
        self, token: Tensor, embedded: Tensor, state: States, memory: Memory | None, attention: Intervention | None
    ) -> "tuple[Decoded, States]":
        attended = context = None
        if self.settings.context == "input" and self.attend and memory:
            attended, mixed = self.attend(state[-1][0][:, None], memory, attention)
            context = self._project(mixed)
            embedded = self._with_context(embedded, context[:, 0])
        output, state = self.decoder.step(embedded, state)
        if self.settings.context == "readout" and self.attend and memory:
            attended, mixed = self.attend(output[:, None], memory, attention)
            context = self._project(mixed)
        logits = self.readout(None if context is None else context[:, 0], output)
        return Decoded(token, output, attended, context, logits), state

    def _gates(self, trace: Trace, encoded: EncodedSequence) -> dict[str, Tensor]:
        """Return the gates of both sides, from the recorded states."""
        assert trace.decoder_input is not None
        inputs = self.target_inputs(trace.decoder_input)
        if self.settings.context == "input" and trace.context is not None:
            inputs = self._with_context(inputs, trace.context)
        decoder = [passage.gates() for passage in self.decoder.passages(inputs, encoded.final)]
        sides = {
            "encoder": encoded.gates(),
            "decoder": {name: gate for gates in decoder for name, gate in gates.items()},
        }
        return {f"{side}.{name}": gate for side, gates in sides.items() for name, gate in gates.items()}


class Inputs(nn.Module):
    """Tokens as vectors, one-hot or learned, with positions added where there are any."""

    table: Tensor

    def __init__(self, settings: EncoderDecoderSettings, words: int, size: int | None):
        super().__init__()
        self.size = size or words
        require(
            settings.inputs == "learned" or self.size >= words,
            f"one-hot inputs of size {self.size} have no room for {words} words; set input_size to at least {words}",
        )
        if settings.inputs == "learned":
            self.table = nn.Parameter(torch.randn(words, self.size))
        else:
            self.register_buffer("table", torch.eye(words, self.size), persistent=False)
        self.code = PositionalCode(settings.positions, self.size) if settings.positions else None

    def embed(self, tokens: Tensor) -> Tensor:
        return embed_tokens(tokens, self.table)

    def codes(self, steps: int) -> Tensor | None:
        """Return the positional encoding of the first steps."""
        return None if self.code is None else self.code(steps)

    def forward(self, tokens: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps size"]:
        codes = self.codes(tokens.shape[1])
        return self.embed(tokens) if codes is None else self.embed(tokens) + codes


@dataclass(frozen=True)
class Decoded:
    """The decoder's side of a pass: all steps, or a single one (then without the axis of steps but in attention)."""

    inputs: Tensor
    states: Tensor
    attention: Attention | None
    context: Tensor | None
    logits: Tensor


def join_steps(steps: list[Decoded]) -> Decoded:
    """Return single steps as one, along the axis of steps."""
    contexts = [step.context for step in steps if step.context is not None]
    layers = [step.attention for step in steps if step.attention is not None]
    inputs, states, logits = (
        torch.stack(part, 1) for part in zip(*((s.inputs, s.states, s.logits) for s in steps), strict=True)
    )
    attention = None
    if layers:
        queries = [layer.queries for layer in layers if layer.queries is not None]
        scores, weights = (torch.cat(part, 2) for part in zip(*((a.scores, a.weights) for a in layers), strict=True))
        joined = torch.cat(queries, 2) if queries else None
        attention = replace(layers[0], queries=joined, scores=scores, weights=weights)
    return Decoded(inputs, states, attention, torch.cat(contexts, 1) if contexts else None, logits)


def attention_layer(settings: EncoderDecoderSettings, states: int) -> AttentionLayer | None:
    if settings.attention == "none":
        return None
    if settings.attention == "query_key_value":
        return QueryKeyValue(settings.units, states, settings.heads, settings.key_size)
    return ATTENTIONS[settings.attention](settings.units, states, settings.heads, settings.combine)


def hidden_layer(settings: EncoderDecoderSettings, size: int) -> nn.Module:
    if settings.hidden is None:
        return nn.Identity()
    return nn.Sequential(nn.Linear(size, settings.hidden), ACTIVATIONS[settings.activation]())


def embed_tokens(tokens: Int[Tensor, "*any"], table: Float[Tensor, "words size"]) -> Float[Tensor, "*any size"]:
    """Return the rows of these tokens; in an ensemble of seeds with a small vocabulary, by a product."""
    if is_batchedtensor(table) and len(table) <= MAX_PRODUCT_VOCABULARY:
        one_hot = tokens[..., None] == torch.arange(len(table), device=tokens.device)
        return one_hot.to(table.dtype) @ table
    return embedding(tokens, table)


def generate_greedily(
    model: Callable[..., Trace],
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    max_length: int,
) -> Int[Tensor, "batch generated"]:
    """Return the predictions of a free-running pass over these texts; END and what follows it are END."""
    blank = torch.full((len(source), max_length), END, device=source.device)
    batch = Batch(source, source_mask, blank, torch.ones_like(blank, dtype=torch.bool))
    generated = model(batch, teacher_forcing=0.0).predictions
    return generated.masked_fill(after_end(generated), END)


def decoder_inputs(batch: Batch, teacher_forcing: float) -> Int[Tensor, "batch target"]:
    """Return what the decoder is given at each step: the start token, then gold tokens, or PREDICTED.

    Args:
        batch: The gold target.
        teacher_forcing: The probability of the gold token at each step.
    """
    require(0 <= teacher_forcing <= 1, f"teacher_forcing is a probability from 0 to 1, not {teacher_forcing}")
    gold = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
    if teacher_forcing == 1:
        return gold
    predicted = uniform_like(gold) >= teacher_forcing
    return torch.cat([gold[:, :1], gold.masked_fill(predicted, PREDICTED)[:, 1:]], 1)
