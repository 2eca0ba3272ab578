"""Transformers (Vaswani et al. 2017): encoder-decoder, decoder-only language model, and encoder classifier.

A trace follows the convention of the Hugging Face adapters. The state s is the residual stream as it enters the last
attention that the trace shows, and the context c the mixed values of that attention's heads, side by side. What follows
(projection, residual stream, feed-forward network, logits) works on one position at a time, so a readout from another
context is exact. A trace shows

- of an encoder-decoder, the cross-attention of every layer;
- of a language model, the self-attention of every layer at the positions that predict the target;
- of a classifier, the self-attention of every layer at the first token ([CLS], the start token of our tasks), or with
  readout="pooling" the one layer of attention that pools the encoder's states.

`scaled_dot_product_attention` returns no weights, which a trace needs, so attention is a product and a softmax here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from attnscope.errors import BadSetting, check_kinds, choose, require
from attnscope.models.adapters.causal import predicting_positions
from attnscope.models.attention import Change, changes_by_layer, masked_softmax, split_heads
from attnscope.models.capabilities import (
    EmbedsSource,
    Generates,
    GivesTrace,
    HasLayers,
    MasksInPlace,
    PredictsNextToken,
    ReadsOut,
    SelfAttends,
)
from attnscope.models.classifier import ScaledDot, WordTable, class_logits
from attnscope.models.encoder_decoder import PREDICTED, decoder_inputs, embed_tokens, generate_greedily
from attnscope.models.inference import evaluating
from attnscope.models.recurrent import Dropout
from attnscope.models.trace import Attention, AttentionRows, Interventions, Trace
from attnscope.tasks import SPECIALS, START, Batch

ROTARY_BASE = 10_000.0  # Su et al. 2021
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
Changes = Mapping[int, Sequence[Change]]  # by layer


@dataclass(frozen=True)
class TransformerSettings:
    """Everything that defines an encoder-decoder Transformer except the vocabularies."""

    units: int = 128
    layers: int = 2  # of the encoder, and of the decoder
    heads: int = 4
    hidden: int = 512  # of the feed-forward networks
    positions: str = "learned"  # added to the embeddings; or "rotary", in every attention, cross-attention included
    max_length: int = 256  # of learned positions
    norm_first: bool = True  # layer norms before each part, and one at the end; otherwise after each addition
    dropout: float = 0.0  # of what each part adds to the residual stream
    activation: str = "relu"  # of the feed-forward networks; or "gelu"
    norm_embeddings: bool = False  # a layer norm before the first layer, as in BERT
    norm_epsilon: float = 1e-5  # of layer norms; BERT has 1e-12

    def __post_init__(self) -> None:
        check_kinds(self)
        for name in ("units", "layers", "heads", "hidden", "max_length"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        choose("kind of positions", self.positions, ("learned", "rotary"))
        choose("activation of a Transformer", self.activation, ACTIVATIONS)
        require(self.norm_epsilon > 0, f"norm_epsilon must be positive, not {self.norm_epsilon}")
        require(0 <= self.dropout < 1, f"dropout must be from 0 to below 1, not {self.dropout}")
        require(self.units % self.heads == 0, f"heads={self.heads} does not divide units={self.units}")
        size = self.units // self.heads
        require(self.positions == "learned" or size % 2 == 0, f"rotary positions need heads of even size, not {size}")


@dataclass(frozen=True)
class TransformerDecoderSettings(TransformerSettings):
    """Everything that defines a decoder-only Transformer except the vocabulary."""


@dataclass(frozen=True)
class TransformerClassifierSettings(TransformerSettings):
    """Everything that defines a Transformer classifier except the vocabularies."""

    readout: str = "cls"  # the state of the first token; or "pooling", by one more layer of attention

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("readout of a Transformer classifier", self.readout, ("cls", "pooling"))


@dataclass(frozen=True)
class Rows:
    """The positions whose attention a trace shows; those of padding are not used."""

    index: Int[Tensor, "batch target"]
    real: Bool[Tensor, "batch target"]

    def take(self, values: Tensor) -> Tensor:
        """Return the rows of batch x positions x size, or of batch x heads x positions x size."""
        index = self.index[:, :, None] if values.dim() == 3 else self.index[:, None, :, None]
        return values.take_along_dim(index, -2)

    def put(self, values: Tensor, new_rows: Tensor) -> Float[Tensor, "batch heads positions size"]:
        """Return the values with `new_rows` at these positions; those of padding go to a row that is dropped."""
        index = self.index.masked_fill(~self.real, values.shape[2])[:, None, :, None].expand_as(new_rows)
        return torch.cat([values, torch.zeros_like(values[:, :, :1])], 2).scatter(2, index, new_rows)[:, :, :-1]


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention with biases; recorded queries are scaled, so that scores = q · k."""

    def __init__(self, settings: TransformerSettings):
        super().__init__()
        self.heads, self.is_rotary = settings.heads, settings.positions == "rotary"
        self.query, self.key, self.value, self.output = (nn.Linear(settings.units, settings.units) for _ in range(4))

    def forward(
        self,
        states: Float[Tensor, "batch target units"],
        memory: Float[Tensor, "batch source units"],
        mask: Bool[Tensor, "batch *target source"],
        changes: Sequence[Change] = (),
        rows: Rows | None = None,
    ) -> tuple[Attention, Float[Tensor, "batch target units"]]:
        """Return the record of some rows, or of all, and the mixed values of all positions, heads side by side."""
        queries, keys, values = (
            split_heads(layer(inputs), self.heads)
            for layer, inputs in ((self.query, states), (self.key, memory), (self.value, memory))
        )
        if self.is_rotary:
            queries, keys = rotate(queries), rotate(keys)
        queries = queries / math.sqrt(queries.shape[-1])
        scores = queries @ keys.mT
        weights = masked_softmax(scores, mask)
        recorded, recorded_mask = weights, mask
        if rows is not None:
            queries, scores, recorded = rows.take(queries), rows.take(scores), rows.take(weights)
            recorded_mask = rows.take(mask) if mask.dim() == 3 else mask
        for change in changes:
            recorded = change(recorded, recorded_mask)
        if changes:
            weights = recorded if rows is None else rows.put(weights, recorded)
        record = Attention(queries=queries, keys=keys, values=values, scores=scores, weights=recorded)
        return record, (weights @ values).transpose(1, 2).flatten(2)


def rotate(vectors: Float[Tensor, "batch heads steps size"]) -> Tensor:
    """Return the vectors, each pair of dimensions i and i + size / 2 turned by an angle in proportion to the step."""
    half = vectors.shape[-1] // 2
    rates = ROTARY_BASE ** (-torch.arange(half, device=vectors.device, dtype=vectors.dtype) / half)
    angles = torch.outer(torch.arange(vectors.shape[-2], device=vectors.device, dtype=vectors.dtype), rates)
    one, other = vectors.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)


@dataclass(frozen=True)
class LayerPass:
    """One layer's part of a pass, or all layers': then the records of each, and the last one's state and context."""

    records: tuple[Attention, ...]
    state: Float[Tensor, "batch steps units"]  # the residual stream as it enters the recorded attention
    context: Float[Tensor, "batch steps units"]
    output: Float[Tensor, "batch steps units"]


def layer_norm(settings: TransformerSettings) -> nn.LayerNorm:
    return nn.LayerNorm(settings.units, settings.norm_epsilon)


class TransformerLayer(nn.Module):
    """Self-attention, cross-attention in a decoder with a memory, and a feed-forward network."""

    def __init__(self, settings: TransformerSettings, cross: bool):
        super().__init__()
        self.norm_first = settings.norm_first
        self.attend = MultiHeadAttention(settings)
        self.cross = MultiHeadAttention(settings) if cross else None
        self.feed_forward = nn.Sequential(
            nn.Linear(settings.units, settings.hidden),
            ACTIVATIONS[settings.activation](),
            nn.Linear(settings.hidden, settings.units),
        )
        self.norms = nn.ModuleList(layer_norm(settings) for _ in range(3 if cross else 2))
        self.dropout = Dropout(settings.dropout)

    def before(self, part: int, state: Tensor) -> Tensor:
        """Return the input of a part."""
        return self.norms[part](state) if self.norm_first else state

    def after(self, part: int, state: Tensor, added: Tensor) -> Tensor:
        """Return the residual stream behind a part."""
        state = state + self.dropout(added)
        return state if self.norm_first else self.norms[part](state)

    def forward(
        self, state: Tensor, mask: Tensor, memory: "Memory | None", changes: Sequence[Change], rows: Rows | None
    ) -> LayerPass:
        inputs = self.before(0, state)
        own_changes = changes if self.cross is None else ()
        record, context = self.attend(inputs, inputs, mask, own_changes, rows)
        if self.cross is not None and memory is not None:
            state = self.after(0, state, self.attend.output(context))
            record, context = self.cross(self.before(1, state), memory.states, memory.mask, changes)
        return LayerPass((record,), state, context, self.finish(state, context))

    def finish(self, state: Tensor, context: Tensor) -> Tensor:
        """Return the output of the layer from the context of its last attention, and the state that it is added to."""
        last = self.attend if self.cross is None else self.cross
        state = self.after(-2, state, last.output(context))
        return self.after(-1, state, self.feed_forward(self.before(-1, state)))


@dataclass(frozen=True)
class Memory:
    """The encoder's states."""

    states: Float[Tensor, "batch source units"]
    mask: Bool[Tensor, "batch source"]


class TransformerStack(nn.Module):
    """Learned positions and a norm of embeddings, if any, the layers, and a norm at the end if norms come first."""

    def __init__(self, settings: TransformerSettings, cross: bool = False):
        super().__init__()
        learned = settings.positions == "learned"
        self.positions = nn.Parameter(torch.randn(settings.max_length, settings.units)) if learned else None
        self.layers = nn.ModuleList(TransformerLayer(settings, cross) for _ in range(settings.layers))
        self.embedding_norm = layer_norm(settings) if settings.norm_embeddings else nn.Identity()
        self.norm = layer_norm(settings) if settings.norm_first else nn.Identity()

    def forward(
        self,
        state: Float[Tensor, "batch steps units"],
        mask: Bool[Tensor, "batch *steps steps"],
        memory: Memory | None = None,
        changes: Changes | None = None,
        rows: Rows | None = None,
    ) -> LayerPass:
        steps, records = state.shape[1], list[Attention]()
        if self.positions is not None:
            limit = len(self.positions)
            require(steps <= limit, f"a text has {steps} tokens, but there are {limit} positions; set max_length")
            state = state + self.positions[:steps]
        state = self.embedding_norm(state)
        for number, layer in enumerate(self.layers):
            result: LayerPass = layer(state, mask, memory, (changes or {}).get(number, ()), rows)
            state = result.output
            records.extend(result.records)
        return LayerPass(tuple(records), result.state, result.context, self.norm(state))

    def finish(self, state: Tensor, context: Tensor) -> Tensor:
        """Return the states behind the last layer from its context and state."""
        return self.norm(self.layers[-1].finish(state, context))  # type: ignore[no-any-return, operator]


def causal_mask(tokens: Int[Tensor, "batch steps"]) -> Bool[Tensor, "batch steps steps"]:
    """Return a mask by which each position attends to itself and to those before it."""
    steps = tokens.shape[1]
    return torch.ones(steps, steps, dtype=torch.bool, device=tokens.device).tril().expand(len(tokens), -1, -1)


class TokenTable(WordTable):
    """A trained embedding, by a product where an ensemble of seeds has a small vocabulary."""

    def forward(self, words: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps size"]:
        return embed_tokens(words, self.table)


class _Transformer(GivesTrace, ReadsOut, EmbedsSource, HasLayers, nn.Module):
    """The settings, the source embedding and the readout."""

    readout_is_exact = True
    stack: TransformerStack  # whose attention a trace shows

    def __init__(self, settings: TransformerSettings, source_words: int, outputs: int):
        super().__init__()
        self.settings, self.depth = settings, settings.layers
        self.source_inputs = TokenTable(source_words, settings.units)
        self.output = nn.Linear(settings.units, outputs)

    def changes(self, attention: Interventions | None) -> Changes:
        return changes_by_layer(attention, self.depth, self.settings.heads)

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        return values.transpose(1, 2).flatten(2)

    def readout(self, context: Tensor, decoder: Tensor | None = None) -> Tensor:
        """Return the logits with this context, the residual stream before the last attention held."""
        if decoder is None:
            raise BadSetting("the readout of a Transformer needs the state that the context is added to")
        return self.output(self.stack.finish(decoder, context))  # type: ignore[no-any-return]


class Transformer(MasksInPlace, SelfAttends, Generates, _Transformer):
    """An encoder-decoder."""

    def __init__(self, settings: TransformerSettings, source_words: int, target_words: int):
        super().__init__(settings, source_words, target_words)
        self.target_inputs = TokenTable(target_words, settings.units)
        self.encoder = TransformerStack(settings)
        self.stack = TransformerStack(settings, cross=True)

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass. There are no gates, so that `gates` changes nothing."""
        changes = self.changes(attention)
        embedded = self.source_inputs(batch.source)
        memory = Memory(self.encoder(embedded, batch.source_mask).output, batch.source_mask)
        gold_probability = self.gold_probability(teacher_forcing)
        inputs = decoder_inputs(batch, gold_probability)
        if gold_probability < 1:
            inputs = self.predicted_inputs(inputs, memory, changes)
        decoded = self.decode(inputs, memory, changes)
        return Trace.of(
            batch, embedded=embedded, encoder=memory.states, decoder_input=inputs, decoder=decoded.state,
            layers=decoded.records, context=decoded.context, logits=self.output(decoded.output),
        )  # fmt: skip

    def decode(self, inputs: Int[Tensor, "batch target"], memory: Memory, changes: Changes) -> LayerPass:
        return self.stack(self.target_inputs(inputs), causal_mask(inputs), memory, changes)  # type: ignore[no-any-return]

    @torch.no_grad()
    def predicted_inputs(self, inputs: Int[Tensor, "batch target"], memory: Memory, changes: Changes) -> Tensor:
        """Return the inputs with the tokens of greedy decoding in the place of PREDICTED.

        All positions are decoded at once, again and again: after n passes the first n predictions are those of greedy
        decoding, often many more.
        """
        is_predicted = inputs == PREDICTED
        inputs = inputs.masked_fill(is_predicted, START)
        for _ in range(inputs.shape[1] - 1):
            ahead = self.output(self.decode(inputs, memory, changes).output).argmax(-1).roll(1, 1)
            former, inputs = inputs, torch.where(is_predicted, ahead, inputs)
            if not is_batchedtensor(inputs) and torch.equal(former, inputs):
                break
        return inputs

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        encoded = self.encoder(self.source_inputs(batch.source), batch.source_mask)
        return tuple(record.weights for record in encoded.records)

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


class TransformerDecoder(PredictsNextToken, _Transformer):
    """A decoder-only language model. Source and target have one vocabulary."""

    def __init__(self, settings: TransformerDecoderSettings, source_words: int, target_words: int):
        require(source_words == target_words, "a language model needs one vocabulary for source and target")
        super().__init__(settings, source_words, target_words)
        self.stack = TransformerStack(settings)
        self.attending_blocks, self.num_blocks = tuple(range(settings.layers)), settings.layers

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass. There is no decoder input and there are no gates: the last two change nothing."""
        rows = Rows(predicting_positions(batch), batch.target_mask)
        embedded = self.source_inputs(batch.source)
        result = self.stack(embedded, self.mask(batch), changes=self.changes(attention), rows=rows)
        return Trace.of(
            batch, embedded=embedded, encoder=result.output, decoder=rows.take(result.state), layers=result.records,
            context=rows.take(result.context), logits=self.output(rows.take(result.output)), rows=rows.index,
        )  # fmt: skip

    def mask(self, batch: Batch) -> Bool[Tensor, "batch source source"]:
        return causal_mask(batch.source) & batch.source_mask[:, None]

    def observe(self, batch: Batch, observer: Callable[[AttentionRows], None], block: int = 256) -> None:
        with evaluating(self):
            result = self.stack(self.source_inputs(batch.source), self.mask(batch))
        for layer, record in enumerate(result.records):
            for start in range(0, batch.source.shape[1], block):
                some = ..., slice(start, start + block), slice(start + block)
                observer(AttentionRows(layer, start, record.scores[some], record.weights[some], None))

    def logits_with(self, batch: Batch, attention: Interventions) -> Float[Tensor, "batch target words"]:
        result = self.stack(self.source_inputs(batch.source), self.mask(batch), changes=self.changes(attention))
        return self.output(Rows(predicting_positions(batch), batch.target_mask).take(result.output))  # type: ignore[no-any-return]


class TransformerClassifier(SelfAttends, _Transformer):
    """An encoder whose first token is classified, or whose states are pooled by attention."""

    def __init__(self, settings: TransformerClassifierSettings, source_words: int, target_words: int):
        classes = target_words - len(SPECIALS)
        require(classes >= 2, f"a classifier needs at least two classes, not {classes}")
        super().__init__(settings, source_words, 1 if classes == 2 else classes)
        self.stack = TransformerStack(settings)
        self.pool = ScaledDot(settings.units) if settings.readout == "pooling" else None
        self.depth = 1 if self.pool else settings.layers

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass. There is no decoder and there are no gates, so the last two change nothing."""
        embedded = self.source_inputs(batch.source)
        if self.pool is not None:
            return self.pool_states(self.pool, batch, embedded, attention)
        rows = Rows(torch.zeros_like(batch.target), batch.target_mask)
        result = self.stack(embedded, batch.source_mask, changes=self.changes(attention), rows=rows)
        state, context = rows.take(result.state), rows.take(result.context)
        return Trace.of(
            batch, embedded=embedded, encoder=result.output, decoder=state, layers=result.records, context=context,
            logits=self.readout(context, state),
        )  # fmt: skip

    def pool_states(self, pool: ScaledDot, batch: Batch, embedded: Tensor, attention: Interventions | None) -> Trace:
        states, mask = self.states(embedded, batch.source_mask), batch.source_mask
        scores = pool(states, mask)[:, None, None]  # batch x heads x target x source
        weights = masked_softmax(scores, mask)
        for change in changes_by_layer(attention, 1, 1).get(0, []):
            weights = change(weights, mask)
        layer = Attention(
            queries=pool.queries(states, mask)[:, None, None], keys=states[:, None], values=states[:, None],
            scores=scores, weights=weights,
        )  # fmt: skip
        context = self.context_of(weights @ layer.values)
        return Trace.of(
            batch, embedded=embedded, encoder=states, layers=(layer,), context=context, logits=self.readout(context)
        )

    def states(self, embedded: Float[Tensor, "batch source units"], mask: Bool[Tensor, "batch source"]) -> Tensor:
        """Return the encoder's states."""
        return self.stack(embedded, mask).output  # type: ignore[no-any-return]

    def readout(self, context: Tensor, decoder: Tensor | None = None) -> Tensor:
        """Return the logits with this context; of [CLS] attention, the residual stream before the last layer held."""
        if self.pool is None:
            return class_logits(super().readout(context, decoder))
        return class_logits(self.output(context))

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        return tuple(
            record.weights for record in self.stack(self.source_inputs(batch.source), batch.source_mask).records
        )
