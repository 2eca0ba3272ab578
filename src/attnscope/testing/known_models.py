"""Small models with known answers: what follows attention is linear, so the logits are sums over tokens.

With values u and bypassing values r of the tokens (in logits), attention α, a mixing M of states and a path β around
attention, z_t = b + Σ_s α_ts Σ_j M_sj u_j + Σ_j β_tj r_j. States of a ContextualClassifier depend on tokens in any way.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnscope.errors import require
from attnscope.models.adapters.readers import WordReader
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, GivesTrace, MasksInPlace, ReadsTexts
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks.batch import END, SPECIALS, START, Batch
from attnscope.testing.known_texts import TRANSLATED, WORDS

END_WORD = "</s>"
MAX_WORDS = 64  # positions of SelfAttention


@dataclass(frozen=True)
class Paths:
    """How tokens reach the logits; padding has zeros."""

    values: Float[Tensor, "batch source words"]  # u
    bypassing: Float[Tensor, "batch source words"]  # r
    scores: Float[Tensor, "batch target source"]
    bypass: Float[Tensor, "batch target source"]  # β


class KnownModel(GivesTrace, EmbedsSource, ReadsTexts, nn.Module):
    """A model that is linear after its attention; see the module's docstring for the formula."""

    bias: Tensor

    def __init__(self, table: Float[Tensor, "words columns"], bias: Float[Tensor, " outputs"], reader: WordReader):
        super().__init__()
        self.source_inputs = nn.Embedding.from_pretrained(table, freeze=False)
        self.register_buffer("bias", bias)
        self.reader = reader

    @abstractmethod
    def paths(self, embedded: Float[Tensor, "batch source columns"], batch: Batch) -> Paths:
        """Return how the tokens of a batch reach the logits."""

    @abstractmethod
    def mix(self, values: Float[Tensor, "batch source any"], batch: Batch) -> Float[Tensor, "batch source any"]:
        """Return the states: M times values."""

    @abstractmethod
    def vocabulary_logits(self, logits: Float[Tensor, "batch target outputs"]) -> Float[Tensor, "batch target words"]:
        """Return logits with an entry for every target id of a Batch."""

    def forward(
        self, batch: Batch, attention: Intervention | None = None, teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:  # fmt: skip
        """Run a forward pass with teacher forcing; there are no gates."""
        embedded = self.source_inputs(batch.source)
        paths = self.paths(embedded, batch)
        scores, states = paths.scores[:, None], self.mix(paths.values, batch)[:, None]
        weights = intervene(masked_softmax(scores, batch.source_mask), batch.source_mask, attention)
        logits = (weights @ states)[:, 0] + paths.bypass @ paths.bypassing + self.bias
        return Trace.of(
            batch, embedded=embedded, encoder=states[:, 0], logits=self.vocabulary_logits(logits),
            layers=(Attention(values=states, scores=scores, weights=weights),), context=(weights @ states)[:, 0],
        )  # fmt: skip


class PooledClassifier(KnownModel):
    """A bag of embeddings with attention pooling: columns of the table are score, value and bypassing value.

    Args:
        table: One row per word: its score, then its value and its bypassing value per class.
        bias: One number per class.
        elsewhere: Share of each state that comes from other tokens.
        decay: How fast the weight of other tokens falls with their distance; 1: not at all.
        shift: Attention and states are both displaced by this many tokens, so that the output stays the same.
    """

    def __init__(self, table: Tensor, bias: Tensor, elsewhere: float = 0.0, decay: float = 1.0, shift: int = 0):
        super().__init__(table, bias, WordReader(WORDS, classes=tuple(f"class {i}" for i in range(len(bias)))))
        self.elsewhere, self.decay, self.shift = elsewhere, decay, shift

    def paths(self, embedded: Tensor, batch: Batch) -> Paths:
        classes, mask = len(self.bias), batch.source_mask
        score, values, bypassing = embedded.split([1, classes, classes], -1)
        mean = (mask / mask.sum(1, keepdim=True))[:, None].to(embedded)
        return Paths(values, bypassing, displaced(score, mask, self.shift).mT, mean)

    def mix(self, values: Tensor, batch: Batch) -> Tensor:
        mask = batch.source_mask
        states = contextual(values, mask, self.elsewhere, self.decay) if self.elsewhere else values
        return displaced(states, mask, self.shift)

    def vocabulary_logits(self, logits: Tensor) -> Tensor:
        return pad(logits, (len(SPECIALS), 0), value=-torch.inf)


class CopyingTranslator(KnownModel):
    """Copies its source word by word: attention is on the first source word, or the last, that is not yet copied.

    Args:
        table: The value of each source word: the logits of target words, END first.
        sharpness: How much lower the score of words already copied is, and of each further word not yet copied.
        through: Share of the logits that passes through attention; the rest bypasses it.
        shift: Attention and states are both displaced by this many words, so that the output stays the same.
        backwards: Whether the last word comes first.
        by_position: Whether attention is on the source position of the same number instead, copied or not.
    """

    def __init__(
        self, table: Tensor, sharpness: tuple[float, float], through: float = 1.0, shift: int = 0,
        backwards: bool = False, by_position: bool = False,
    ):  # fmt: skip
        reader = WordReader((*TRANSLATED, END_WORD), targets=TRANSLATED, end=END_WORD)
        super().__init__(table, torch.zeros(table.shape[1]), reader)
        self.sharpness, self.through, self.shift = sharpness, through, shift
        self.backwards, self.by_position = backwards, by_position

    def paths(self, embedded: Tensor, batch: Batch) -> Paths:
        mask = batch.source_mask
        words = mask & (batch.source != len(TRANSLATED))
        scores = (self.position_scores(batch) if self.by_position else self.copying_scores(batch)).to(embedded)
        bypass = masked_softmax(scores[:, None], mask)[:, 0]
        through, around = self.through * embedded, (1 - self.through) * embedded
        return Paths(through, around, displaced(scores.mT, words, self.shift).mT, bypass)

    def position_scores(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return scores that fall with the distance of source and target position."""
        place = torch.arange(max(batch.source.shape[1], batch.target.shape[1]), device=batch.source.device)
        apart = (place[: batch.target.shape[1], None] - place[: batch.source.shape[1]]).abs()
        return (-self.sharpness[1] * apart).expand(len(batch), -1, -1)

    def copying_scores(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return scores that are highest for the next word that is not yet copied."""
        mask = batch.source_mask
        words = mask & (batch.source != len(TRANSLATED))
        before = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
        copied_now = before[:, :, None] == (batch.source + len(SPECIALS))[:, None]  # batch x target x source
        open_ = ~(copied_now.cumsum(1) > 0) & words[:, None]
        rank = (open_.flip(-1).cumsum(-1).flip(-1) if self.backwards else open_.cumsum(-1)) - 1.0
        rank = torch.where(open_, rank, open_.sum(-1, keepdim=True).to(rank))  # the end comes after the last word
        copied, further = self.sharpness
        return torch.where(open_ | (mask & ~words)[:, None], -further * rank, -copied)

    def mix(self, values: Tensor, batch: Batch) -> Tensor:
        return displaced(values, batch.source_mask & (batch.source != len(TRANSLATED)), self.shift)

    def vocabulary_logits(self, logits: Tensor) -> Tensor:
        end, words = logits.split([1, len(TRANSLATED)], -1)
        never = torch.full_like(end, -torch.inf)
        order = {END: end}
        return torch.cat([order.get(i, never) for i in range(len(SPECIALS))] + [words], -1)


class InPlaceTranslator(MasksInPlace, CopyingTranslator):
    """A CopyingTranslator that does not read masked source positions, wherever they are."""


class RecurrentTranslator(CopyingTranslator):
    """A CopyingTranslator with a linear recurrence as its encoder, which cannot mask source positions.

    A state is the number of words read, by which positions are compared, and the word: its value v and, to a given
    share m, that of the state before. h_1 = v_1; h_t = (1 - m) v_t + m h_(t-1).

    Args:
        memory: The share m.
        options: Arguments of a CopyingTranslator.
    """

    def __init__(self, *options: Any, memory: float = 0.0):
        super().__init__(*options)
        self.memory = memory

    def mix(self, values: Tensor, batch: Batch) -> Tensor:
        states = [values[:, 0]]
        for value in values.unbind(1)[1:]:
            states.append((1 - self.memory) * value + self.memory * states[-1])
        return super().mix(torch.stack(states, 1), batch)


def displaced(
    values: Float[Tensor, "batch source any"], words: Bool[Tensor, "batch source"], shift: int
) -> Float[Tensor, "batch source any"]:
    """Return at each word the value of the word `shift` positions later, cyclically."""
    if not shift:
        return values
    place, count = words.cumsum(1) - 1, words.sum(1, keepdim=True)
    order = (~words).long().argsort(dim=1, stable=True)  # the words, then the rest
    further = order.gather(1, (place + shift) % count.clamp(min=1))
    chosen = torch.where(words, further, torch.arange(words.shape[1], device=words.device))
    return values.gather(1, chosen[..., None].expand_as(values))


def contextual(
    values: Float[Tensor, "batch source any"], mask: Bool[Tensor, "batch source"], elsewhere: float, decay: float
) -> Float[Tensor, "batch source any"]:
    """Return states that are a token's own value and, to a given share, those of others, weighted by distance."""
    place = torch.arange(mask.shape[1], device=mask.device)
    apart = (place[:, None] - place).abs()
    kernel = torch.where(apart > 0, decay ** (apart - 1.0), 0.0).to(values)
    total = (mask.to(values) @ kernel)[..., None]
    others = kernel @ (values * mask[..., None]) / total.clamp(min=1e-12)
    share = torch.where(total > 0, elsewhere, 0.0)  # a single token has no others
    return (1 - share) * values + share * others


# Contextual encoders


class Encoder(nn.Module):
    """Computes the states of tokens from their embeddings.

    Args:
        size: Size of embeddings and states.
        others: Whether a state depends on the other tokens alone.
    """

    def __init__(self, size: int, others: bool):
        super().__init__()
        self.others = others

    @abstractmethod
    def forward(
        self, embedded: Float[Tensor, "batch source size"], mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source size"]:
        """Return the states."""


class Recurrent(Encoder):
    """A BiLSTM with a linear layer; `others`: the forward state before a token and the backward state after it."""

    def __init__(self, size: int, others: bool):
        super().__init__(size, others)
        self.lstm = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * size, size)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        packed = pack_padded_sequence(embedded, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=mask.shape[1])[0]
        if self.others:
            forwards, backwards = states.chunk(2, -1)
            states = torch.cat([pad(forwards, (0, 0, 1, 0))[:, :-1], pad(backwards, (0, 0, 0, 1))[:, 1:]], -1)
        return torch.as_tensor(self.output(states))


class SelfAttention(Encoder):
    """One layer of a Transformer; `others`: the query is the place alone, and no token attends to itself."""

    def __init__(self, size: int, others: bool):
        super().__init__(size, others)
        self.places = nn.Parameter(torch.randn(MAX_WORDS, size))
        self.attention = nn.MultiheadAttention(size, num_heads=2, batch_first=True)
        self.feed_forward = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        places = self.places[: mask.shape[1]]
        keys: Tensor = embedded + places
        query = places.expand_as(keys) if self.others else keys
        masked = (~mask[:, None]).expand(-1, mask.shape[1], -1)
        if self.others:
            masked = masked | torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        heads = self.attention.num_heads
        attended = self.attention(query, keys, keys, attn_mask=masked.repeat_interleave(heads, 0), need_weights=False)
        states: Tensor = attended[0].nan_to_num() if self.others else keys + attended[0]  # a single token has no others
        added: Tensor = self.feed_forward(layer_norm(states, states.shape[-1:]))
        return added + states


class ResidualStream(Encoder):
    """Four pre-norm layers of a Transformer on one residual stream, which always holds the token itself.

    Args:
        size: Size of embeddings and states.
        others: Must be false.
        mixes: Whether tokens attend to each other in these layers; else each attends to itself.
        placed: Whether learned positions are added to the embeddings.
    """

    def __init__(self, size: int, others: bool, mixes: bool = True, placed: bool = True):
        require(not others, "on a residual stream, the state of a token depends on the token itself")
        super().__init__(size, others)
        self.mixes = mixes
        self.places = nn.Parameter(torch.randn(MAX_WORDS, size)) if placed else None
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, 2, 2 * size, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(4)
        )

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        length, states = mask.shape[1], embedded
        if self.places is not None:
            states = states + self.places[:length]
        apart = ~torch.eye(length, dtype=torch.bool, device=mask.device)
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=~mask) if self.mixes else layer(states, src_mask=apart)
        return states


class ContextualClassifier(PooledClassifier):
    """Attention pooling of states that depend on all tokens.

    Args:
        table: One row per word: its score, its value per class, and what the encoder reads.
        bias: One number per class.
        encoder: Computes the contextual part of the states.
        head: Score and values of that part, which are added to the word's own.
    """

    def __init__(self, table: Tensor, bias: Tensor, encoder: Encoder, head: nn.Linear):
        super().__init__(table, bias)
        self.encoder, self.head = encoder, head

    def paths(self, embedded: Tensor, batch: Batch) -> Paths:
        own, read = embedded.tensor_split([1 + len(self.bias)], -1)
        both = (own + self.head(self.encoder(read, batch.source_mask))) * batch.source_mask[..., None]
        score, values = both.tensor_split([1], -1)
        return Paths(values, torch.zeros_like(values), score.mT, torch.zeros_like(score.mT))
