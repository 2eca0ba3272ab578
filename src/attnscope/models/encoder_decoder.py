"""An encoder, a decoder, and what lies between them: cell, attention, and where the context enters, freely combined."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn.functional import embedding

from attnscope.errors import BadSetting, require
from attnscope.models.attention import ATTENTIONS, AttentionLayer, Memory, QueryKeyValue, at_step
from attnscope.models.capabilities import EmbedsSource, Generates, GivesTrace, ReadsOut
from attnscope.models.cells import CELLS, State
from attnscope.models.dropout import uniform_like
from attnscope.models.encoder_decoder_settings import ACTIVATIONS, EncoderDecoderSettings
from attnscope.models.initialise import INITIALISATIONS
from attnscope.models.positions import PositionalCode
from attnscope.models.recurrent import Read, Recurrent
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import END, START, Batch

States = tuple[State, ...]  # a layer
FEW_WORDS = 1024  # up to so many, replicas look words up by a product, whose gradient is another; else it is a scatter
OWN = -1  # in place of a gold word: the decoder hears the word that it said itself


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
        self, batch: Batch, attention: Intervention | None = None, teacher_forcing: float = 1.0, gates: bool = False
    ) -> Trace:
        """Read the source, say the target. `teacher_forcing` is the chance that the decoder hears the gold word."""
        if attention is not None and self.attend is None:
            raise BadSetting("this model has no attention (attention='none'), so attention= cannot be given")
        embedded = self.source_inputs(batch.source)
        read = self.encoder.read(embedded, batch.source_mask)
        memory = self.attend.memorise(read.states, batch.source_mask) if self.attend else None
        gold = heard_words(batch, teacher_forcing)
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
        self, source: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"], max_length: int
    ) -> Int[Tensor, "batch said"]:
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
        """One word after the other; a gold word OWN means: the word that the model just said."""
        codes, own = self.target_inputs.codes(gold.shape[1]), gold == OWN
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


def heard_words(batch: Batch, teacher_forcing: float) -> Int[Tensor, "batch target"]:
    """What the decoder hears at each step: the start token, then gold words, or OWN where no teacher speaks."""
    require(0 <= teacher_forcing <= 1, f"teacher_forcing is a chance between 0 and 1, not {teacher_forcing}")
    heard = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
    if teacher_forcing == 1:
        return heard
    own = uniform_like(heard) >= teacher_forcing
    return torch.cat([heard[:, :1], heard.masked_fill(own, OWN)[:, 1:]], 1)
