"""The Trace: the intermediate values of one forward pass of a model with attention, which all probes read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, DataFrame, Displayed, Figure, fields_table
from attnscope.errors import AttnscopeError, require
from attnscope.tasks.batch import Batch, Vocabulary

# What may be given for `attention=`: weights to use in place of the model's own, or a function of (weights, mask).
Intervention = Tensor | Callable[[Tensor, Tensor], Tensor]
Where = int | tuple[int, int]  # a layer, or a layer and one of its heads
Interventions = Intervention | Mapping[Where, Intervention]
Tokens = tuple[tuple[str, ...], ...]  # the tokens of each sentence, without padding


def shapes(holder: object) -> str:
    """Return the name of a class, and the axes and shapes of its tensors."""
    return f"{type(holder).__name__}\n{fields_table(holder).to_string()}"


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One layer of attention: scores = queries · keys, and weights = softmax of scores over the source.

    Queries and keys are None where the score is no inner product (additive attention, capped scores). With a sink, as
    in gpt-oss, weights sum to less than one; the rest is the weight of the sink.

    Attributes:
        queries: batch x heads x target x key.
        keys: batch x heads x source x key.
        values: batch x heads x source x value.
        scores: Before the softmax, batch x heads x target x source.
        weights: α, batch x heads x target x source.
        sink: The weight of the sink, batch x heads x target; None where there is none.
    """

    queries: Float[Tensor, "batch heads target key"] | None = None
    keys: Float[Tensor, "batch heads source key"] | None = None
    values: Float[Tensor, "batch heads source value"]
    scores: Float[Tensor, "batch heads target source"]
    weights: Float[Tensor, "batch heads target source"]
    sink: Float[Tensor, "batch heads target"] | None = None

    __repr__ = shapes


@dataclass(frozen=True)
class AttentionRows:
    """Some rows of one layer of a language model: those of the queries from `start` on, over the keys up to the last.

    Weights are zero, and scores mean nothing, where a query does not attend.
    """

    layer: int
    start: int
    scores: Float[Tensor, "batch heads rows keys"]
    weights: Float[Tensor, "batch heads rows keys"]
    sink: Float[Tensor, "batch heads rows"] | None  # as in Attention


@dataclass(frozen=True, kw_only=True)
class Trace(Displayed):
    """The intermediate values of a forward pass, with the symbols of the papers.

    Attributes:
        source: x, token ids, batch x source.
        source_mask: False on padding.
        target: y, gold token ids, batch x target; of a classifier one, the class k as k + 3.
        target_mask: False on padding.
        embedded: e, embeddings of the source, batch x source x input.
        encoder: h, hidden states of the encoder, batch x source x state.
        logits: batch x target x words.
        layers: One `Attention` per layer; empty where a model has no attention.
        context: c, batch x target x context.
        decoder: s, hidden states of the decoder, batch x target x units; None for a classifier.
        decoder_input: The tokens given to the decoder, the start token first.
        gates: With gates=True, the gates of recurrent cells by name, such as "encoder.keep".
        rows: Of a language model, the source position that each target token is predicted from.
        source_special: True at special tokens, as in the Batch.
        source_tokens: The source as strings, where the model has a reader.
        target_tokens: The target as strings.
    """

    source: Int[Tensor, "batch source"]  # x
    source_mask: Bool[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]  # y, gold
    target_mask: Bool[Tensor, "batch target"]
    embedded: Float[Tensor, "batch source input"]  # e
    encoder: Float[Tensor, "batch source state"]  # h
    logits: Float[Tensor, "batch target words"]
    layers: tuple[Attention, ...] = ()  # empty where a model has no attention
    context: Float[Tensor, "batch target context"] | None = None  # c
    decoder: Float[Tensor, "batch target units"] | None = None  # s; None for a classifier
    decoder_input: Int[Tensor, "batch target"] | None = None  # the tokens given to the decoder, the start token first
    gates: dict[str, Tensor] = field(default_factory=dict)  # "encoder.keep" etc., with gates=True
    # The source position that each target token is predicted from, in a language model: it attends up to there.
    rows: Int[Tensor, "batch target"] | None = None
    source_special: Bool[Tensor, "batch source"] | None = None  # as in the Batch
    source_tokens: Tokens | None = None
    target_tokens: Tokens | None = None

    __repr__ = shapes

    @classmethod
    def of(
        cls,
        batch: Batch,
        *,
        embedded: Tensor,
        encoder: Tensor,
        logits: Tensor,
        layers: tuple[Attention, ...] = (),
        context: Tensor | None = None,
        decoder: Tensor | None = None,
        decoder_input: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> "Trace":
        """Return the trace of a pass over this batch; the other arguments are the attributes of that name."""
        return cls(
            source=batch.source, source_mask=batch.source_mask, target=batch.target, target_mask=batch.target_mask,
            embedded=embedded, encoder=encoder, logits=logits, layers=layers, context=context, decoder=decoder,
            decoder_input=decoder_input, rows=rows, source_special=batch.source_special,
        )  # fmt: skip

    @property
    def batch(self) -> Batch:
        """The batch that was read."""
        return Batch(self.source, self.source_mask, self.target, self.target_mask, source_special=self.source_special)

    @property
    def word_mask(self) -> Bool[Tensor, "batch source"]:
        """Source positions that hold words: no padding, no special tokens."""
        return self.batch.word_mask

    @property
    def pairs(self) -> Bool[Tensor, "batch target source"]:
        """Target and source positions that are no padding, the target position attending to the source position."""
        pairs = self.target_mask[:, :, None] & self.source_mask[:, None]
        if self.rows is None:
            return pairs
        return pairs & (torch.arange(pairs.shape[2], device=pairs.device) <= self.rows[:, :, None])

    def without_sink(self) -> "Trace":
        """Return the trace with the first position, the attention sink of language models, counted as padding."""
        first = torch.arange(self.source.shape[1], device=self.source.device) == 0
        return replace(self, source_mask=self.source_mask & ~first)

    @property
    def last(self) -> Attention:
        """The last layer of attention."""
        return self.layer(-1)

    @property
    def attention(self) -> Tensor:  # α
        return self.last.weights

    @property
    def scores(self) -> Tensor:  # a, before the softmax
        return self.last.scores

    @property
    def predictions(self) -> Int[Tensor, "batch target"]:
        return self.logits.argmax(-1)

    def layer(self, number: int) -> Attention:
        """Return one layer of attention.

        Args:
            number: Which layer, from 0; -1 is the last.
        """
        if not self.layers:
            raise AttnscopeError("this model has no attention (attention='none'), so its trace has none")
        count = len(self.layers)
        require(-count <= number < count, f"there is no layer {number}; layers are numbered from 0 to {count - 1}")
        return self.layers[number]

    def with_tokens(self, source: Tokens | Vocabulary | None, target: Tokens | Vocabulary | None) -> "Trace":
        """Return the same trace with its tokens as strings.

        Args:
            source: The source tokens of each sentence, or a vocabulary to look them up in.
            target: The same of the target.
        """
        return replace(
            self,
            source_tokens=decode_tokens(self.source, self.source_mask, source),
            target_tokens=decode_tokens(self.target, self.target_mask, target),
        )

    def table(self, example: int | None = None) -> DataFrame:
        """Return the attention weights: one row per example, layer, head, target position and source position.

        Args:
            example: Only this sentence of the batch; None: all.
        """
        import pandas as pd

        mask = self.pairs
        if example is not None:
            mask = mask & (torch.arange(len(mask), device=mask.device) == example)[:, None, None]
        weights = torch.stack([layer.weights.detach() for layer in self.layers or (self.last,)], 1)
        places = mask[:, None, None].expand_as(weights).nonzero(as_tuple=True)
        columns = dict(zip(("example", "layer", "head", "target", "source"), places, strict=True))
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        for side, tokens in (("target", self.target_tokens), ("source", self.source_tokens)):
            if tokens is not None:
                table[f"{side}_token"] = [tokens[b][i] for b, i in zip(table["example"], table[side], strict=True)]
        return table.assign(weight=as_array(weights[places]))

    def plot(self, ax: Axes | None = None, example: int = 0, layer: int = -1, head: int | None = None) -> Axes:
        """Draw the attention of one sentence as a heat map, target tokens by source tokens.

        Args:
            ax: Axes to draw on; new ones by default.
            example: Which sentence of the batch.
            layer: Which layer, from 0; -1 is the last.
            head: Which head, from 0; None: the mean over heads.
        """
        from attnscope.plots import heatmap

        require(0 <= example < len(self.source), f"there is no example {example} in a batch of {len(self.source)}")
        weights = self.layer(layer).weights[example].detach()  # heads x target x source
        heads = len(weights)
        require(head is None or 0 <= head < heads, f"there is no head {head}; heads are numbered from 0 to {heads - 1}")
        matrix = weights.mean(0) if head is None else weights[head]
        matrix = matrix[self.target_mask[example]][:, self.source_mask[example]]
        sides = (self.target_tokens, self.source_tokens)
        rows, columns = (None if tokens is None else tokens[example] for tokens in sides)
        title = f"layer {layer % len(self.layers)}, {'mean over heads' if head is None else f'head {head}'}"
        return heatmap(as_array(matrix), rows, columns, ax=ax, title=title, xlabel="source", ylabel="target")

    def display_tables(self) -> Sequence[DataFrame]:
        return [fields_table(self)]

    def display_figure(self) -> Figure | None:
        return super().display_figure() if self.layers else None


def as_array(values: Float[Tensor, "*any"]) -> Float[np.ndarray, "*any"]:
    """Return values as an array, bfloat16, which NumPy does not have, in single precision."""
    values = values.detach().cpu()
    return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())


def decode_tokens(
    token_ids: Int[Tensor, "batch steps"], mask: Bool[Tensor, "batch steps"], tokens: Tokens | Vocabulary | None
) -> Tokens | None:
    """Return the tokens of each sentence, without padding."""
    if not isinstance(tokens, Vocabulary):
        return tokens
    rows = zip(token_ids.cpu(), mask.cpu(), strict=True)
    return tuple(tuple(tokens.decode(row[keep].tolist())) for row, keep in rows)
