"""Where in the sentence? Sines and cosines added to the inputs (aitken2021 §2)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn.functional import embedding

from attnscope.errors import BadSetting, choose, require
from attnscope.kinds import check_kinds
from attnscope.models.attention import ATTENTIONS, COMBINATIONS, AttentionLayer, Memory, QueryKeyValue, at_step
from attnscope.models.capabilities import EmbedsSource, Generates, GivesTrace, ReadsOut
from attnscope.models.cells import CELLS, State
from attnscope.models.initialise import INITIALISATIONS
from attnscope.models.recurrent import Read, Recurrent, uniform_like
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import END, START, Batch


@dataclass(frozen=True)
class Positions:
    """Settings of the code: the longest wave grows with `base`; `rotated` mixes all dimensions by a random rotation.

    One-hot words need the rotation: without it a word and a position would share single dimensions.
    """

    base: float = 20.0  # aitken2021, author's code: 20 for one-to-one, 100 for eSCAN
    rotated: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.base > 1, f"the base of a positional code must be more than 1, not {self.base}")


class PositionalCode(nn.Module):
    """sin and cos interleaved: p(t) at 2i and 2i + 1 is sin and cos of t / base^(2i / size)."""

    rotation: Tensor

    def __init__(self, settings: Positions, size: int):
        super().__init__()
        self.settings, self.size = settings, size
        self.register_buffer("rotation", random_rotation(size) if settings.rotated else torch.eye(size))

    def forward(self, steps: int) -> Float[Tensor, "steps size"]:
        return sines(steps, self.settings.base, self.rotation) @ self.rotation


def sines(steps: int, base: float, rotation: Tensor) -> Tensor:
    size, device, dtype = len(rotation), rotation.device, rotation.dtype
    times = torch.arange(steps, device=device, dtype=dtype)
    rates = base ** (-torch.arange(0, size, 2, device=device, dtype=dtype) / size)
    angles = torch.outer(times, rates)  # steps x half the size, rounded up
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


def random_rotation(size: int) -> Tensor:
    """Uniform over rotations: the Q of a normal matrix, signs fixed by R's diagonal."""
    q, r = torch.linalg.qr(torch.randn(size, size))
    rotation: Tensor = q * torch.sign(torch.diagonal(r))
    return rotation


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


States = tuple[State, ...]  # a layer
FEW_WORDS = 1024  # up to so many, replicas look words up by a product, whose gradient is another; else it is a scatter
PREDICTED = -1  # in place of a gold word: the decoder hears the word that it said itself


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
        picked = {"none": 0, "query_key_value": settings.units}.get(settings.attention, self.encoder.state_size)
        self.context_layer = nn.Linear(picked, settings.units) if settings.context_layer else None
        self.context_size = settings.units if self.context_layer else picked
        heard = self.target_inputs.size + (self.context_size if settings.context == "input" else 0)
        self.focus = nn.Linear(heard, self.context_size) if settings.focus else None
        heard = self.context_size if settings.focus else heard
        # A decoder starts where the encoder ended: it has no first state of its own.
        self.decoder = Recurrent(cell, heard, settings.units, settings.layers, False, settings.dropout, False)
        sizes = {"state": settings.units, "context": self.context_size, "both": settings.units + self.context_size}
        size = sizes.get(settings.readout, settings.units)
        self.hidden = hidden_layer(settings, size)
        self.output = nn.Linear(settings.hidden or size, target_words, bias=settings.readout_bias)
        # Last, so that all else starts alike however many heads there are.
        self.attend = attention_layer(settings, self.encoder.state_size)
        INITIALISATIONS[settings.initialisation](self)

    def forward(
        self,
        batch: Batch,
        attention: Intervention | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Read the source, say the target. `teacher_forcing` is the chance that the decoder hears the gold word."""
        if attention is not None and self.attend is None:
            raise BadSetting("this model has no attention (attention='none'), so attention= cannot be given")
        embedded = self.source_inputs(batch.source)
        read = self.encoder.read(embedded, batch.source_mask)
        memory = self.attend.memorise(read.states, batch.source_mask) if self.attend else None
        teacher_forcing = self.gold_probability(teacher_forcing)
        gold = decoder_inputs(batch, teacher_forcing)
        if self.settings.context == "input":
            said = self._step_by_step(gold, read.final, memory, attention)
        else:
            said = self._at_once(gold, read.final, memory, attention, own_words=teacher_forcing < 1)
        trace = Trace.of(
            batch,
            decoder_input=said.decoder_input,
            embedded=embedded,
            encoder=read.states,
            decoder=said.states,
            layers=() if said.attention is None else (said.attention,),
            context=said.context,
            logits=said.logits,
        )
        return replace(trace, gates=self._gates(trace, read)) if gates else trace

    def readout(self, context: Tensor | None, decoder: Tensor | None = None) -> Tensor:
        """What would be said with this context, the decoder state held: the second door for probes."""
        choices = {"state": (decoder,), "context": (context,)}
        parts = [part for part in choices.get(self.settings.readout, (decoder, context)) if part is not None]
        read = torch.stack(parts).sum(0) if self.settings.readout == "sum" else torch.cat(parts, -1)
        return self.output(self.hidden(read))  # type: ignore[no-any-return]

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        """The context that follows from what each head picked."""
        if self.attend is None:
            raise BadSetting("this model has no attention (attention='none'), so nothing makes a context")
        return self._mapped(self.attend.merge(values))

    def _mapped(self, context: Tensor) -> Tensor:
        return self.context_layer(context) if self.context_layer else context

    def _heard(self, words: Tensor, context: Tensor) -> Tensor:
        """What the decoder hears of a word and a context: both, or with focus the context, weighed unit by unit."""
        if self.focus is None:
            return torch.cat([words, context], -1)
        return context * torch.relu(self.focus(torch.cat([context, words], -1)))

    @property
    def context_readout(self) -> Float[Tensor, "words context"]:
        """The readout vectors' half that meets the context; without attention, the one that meets the state."""
        if self.settings.hidden:
            raise BadSetting("with a hidden layer before the words (hidden=...), no readout vector meets the context")
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
        """Greedy translation: END and what follows it are END."""
        blank = torch.full((len(source), max_length), END, device=source.device)
        batch = Batch(source, source_mask, blank, torch.ones_like(blank, dtype=torch.bool))
        said: Tensor = self(batch, teacher_forcing=0.0).predictions
        ended = ((said == END).long().cumsum(1) - (said == END).long()) > 0
        return said.masked_fill(ended, END)

    def _at_once(
        self, gold: Tensor, start: States, memory: Memory | None, attention: Intervention | None, own_words: bool
    ) -> "Said":
        """All steps through the fused kernels.

        Words of the model's own are found first, without gradients: none flows through an argmax, so hearing them
        again gives the same states and the same gradients as going step by step, at a fraction of the cost. (With
        dropout they are found under a mask of their own.) Where no gradients are wanted, there is nothing to repeat.
        """
        fed = gold
        if own_words:
            with torch.no_grad():
                own = self._step_by_step(gold, start, memory, attention)
            if not torch.is_grad_enabled():
                return own
            fed = own.decoder_input
            if callable(attention) and own.attention is not None:
                attention = own.attention.weights  # a function may be random: what it gave then holds
        states = self.decoder(self.target_inputs(fed), start)
        if self.attend is None or memory is None:
            return Said(fed, states, None, None, self.readout(None, states))
        attended, picked = self.attend(states, memory, attention)
        context = self._mapped(picked)
        return Said(fed, states, attended, context, self.readout(context, states))

    def _step_by_step(
        self, gold: Tensor, state: States, memory: Memory | None, attention: Intervention | None
    ) -> "Said":
        """One word after the other; a gold word PREDICTED means: the word that the model just said."""
        codes, own = self.target_inputs.codes(gold.shape[1]), gold == PREDICTED
        word, steps = gold[:, 0], []
        for step in range(gold.shape[1]):
            inputs = self.target_inputs.words(word) if codes is None else self.target_inputs.words(word) + codes[step]
            said, state = self._step(word, inputs, state, memory, at_step(attention, step))
            steps.append(said)
            if step + 1 < gold.shape[1]:
                word = torch.where(own[:, step + 1], said.logits.argmax(-1), gold[:, step + 1])
        return joined(steps)

    def _step(
        self, word: Tensor, inputs: Tensor, state: States, memory: Memory | None, attention: Intervention | None
    ) -> "tuple[Said, States]":
        attended = context = None
        if self.settings.context == "input" and self.attend and memory:
            attended, picked = self.attend(state[-1][0][:, None], memory, attention)
            context = self._mapped(picked)
            inputs = self._heard(inputs, context[:, 0])
        shown, state = self.decoder.step(inputs, state)
        if self.settings.context == "readout" and self.attend and memory:
            attended, picked = self.attend(shown[:, None], memory, attention)
            context = self._mapped(picked)
        logits = self.readout(None if context is None else context[:, 0], shown)
        return Said(word, shown, attended, context, logits), state

    def _gates(self, trace: Trace, read: Read) -> dict[str, Tensor]:
        """Gates of both sides, from the recorded states."""
        assert trace.decoder_input is not None
        inputs = self.target_inputs(trace.decoder_input)
        if self.settings.context == "input" and trace.context is not None:
            inputs = self._heard(inputs, trace.context)
        said = [passage.gates() for passage in self.decoder.passages(inputs, read.final)]
        sides = {"encoder": read.gates(), "decoder": {name: gate for gates in said for name, gate in gates.items()}}
        return {f"{side}.{name}": gate for side, gates in sides.items() for name, gate in gates.items()}


class Inputs(nn.Module):
    """Words as vectors, one-hot or learned, with positions added where there are any."""

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

    def words(self, words: Tensor) -> Tensor:
        if is_batchedtensor(self.table) and len(self.table) <= FEW_WORDS:
            chosen = words[..., None] == torch.arange(len(self.table), device=words.device)
            return chosen.to(self.table.dtype) @ self.table
        return embedding(words, self.table)

    def codes(self, steps: int) -> Tensor | None:
        return None if self.code is None else self.code(steps)

    def forward(self, words: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps size"]:
        codes = self.codes(words.shape[1])
        return self.words(words) if codes is None else self.words(words) + codes


@dataclass(frozen=True)
class Said:
    """The decoder's side of a pass: all steps, or a single one (then without the axis of steps but in attention)."""

    decoder_input: Tensor
    states: Tensor
    attention: Attention | None
    context: Tensor | None
    logits: Tensor


def joined(steps: list[Said]) -> Said:
    """Single steps as one."""
    context = [step.context for step in steps if step.context is not None]
    return Said(
        decoder_input=torch.stack([step.decoder_input for step in steps], 1),
        states=torch.stack([step.states for step in steps], 1),
        attention=joined_attention([step.attention for step in steps if step.attention is not None]),
        context=torch.cat(context, 1) if context else None,
        logits=torch.stack([step.logits for step in steps], 1),
    )


def joined_attention(steps: list[Attention]) -> Attention | None:
    if not steps:
        return None
    queries = [step.queries for step in steps if step.queries is not None]
    return replace(
        steps[0],
        queries=torch.cat(queries, 2) if queries else None,
        scores=torch.cat([step.scores for step in steps], 2),
        weights=torch.cat([step.weights for step in steps], 2),
    )


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


def decoder_inputs(batch: Batch, teacher_forcing: float) -> Int[Tensor, "batch target"]:
    """What the decoder hears at each step: the start token, then gold words, or PREDICTED where no teacher speaks."""
    require(0 <= teacher_forcing <= 1, f"teacher_forcing is a chance between 0 and 1, not {teacher_forcing}")
    heard = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
    if teacher_forcing == 1:
        return heard
    own = uniform_like(heard) >= teacher_forcing
    return torch.cat([heard[:, :1], heard.masked_fill(own, PREDICTED)[:, 1:]], 1)
