"""What do the heads of a language model do? Statistics of attention over whole texts, and kinds of heads.

Per head, means over the tokens of texts: the entropy of attention relative to uniform attention, the distance attended
to, and the weight on

- the first token, where idle heads put their weight (an attention sink, Xiao 2023);
- the previous token;
- the token after an earlier occurrence of the present one (induction, Olsson 2022);
- an earlier occurrence of the present token (duplicate token, Wang 2022).

Each is reported with and without the sink: without it, the first token is left out and the other weights are scaled to
sum to one. Attention is processed in blocks of rows, so that memory grows with the length of a text, not its square.

A head that looks like a kind need not act like one. So `head_kinds` ablates it and measures the loss on the tokens that
the kind concerns, and on the others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models.adapters.causal import LanguageReader
from attnscope.models.adapters.readers import warn_of_truncation
from attnscope.models.attention import ablated
from attnscope.models.capabilities import GivesTrace, HasLayers, PredictsNextToken, needs
from attnscope.models.inference import Model, device_of, evaluating, module_of
from attnscope.models.inputs import Data, Inputs, TextInputs, reader_of
from attnscope.models.trace import AttentionRows
from attnscope.probes.positions import MIN_WORDS, position_shares
from attnscope.tasks.batch import Batch

WITHOUT_SINK = " without sink"


@dataclass
class HeadSums:
    """Sums over tokens, by measure: one number per layer and head, and the number of tokens."""

    sums: dict[tuple[str, int], Float[Tensor, " heads"]] = field(default_factory=dict)
    counts: dict[tuple[str, int], float] = field(default_factory=dict)

    def add(
        self, name: str, layer: int, values: Float[Tensor, "batch heads rows"], rows: Bool[Tensor, "batch rows"]
    ) -> None:
        """Add the values of these rows; entries of `values` that do not count may be anything."""
        total = values.double().masked_fill(~rows[:, None], 0).sum((0, 2)).cpu()
        where = (name, layer)
        self.sums[where] = self.sums.get(where, 0) + total
        self.counts[where] = self.counts.get(where, 0) + int(rows.sum())

    def mean(self, name: str) -> Float[np.ndarray, "layers heads"]:
        layers = sorted(layer for measure, layer in self.sums if measure == name)
        return np.stack([(self.sums[name, i] / (self.counts[name, i] or float("nan"))).numpy() for i in layers])


@dataclass(frozen=True)
class HeadStatistics(Displayed):
    """Means over tokens, one number per measure, layer and head.

    Attributes:
        values: By measure, layers x heads; NaN where no token has the pattern.
        tokens: How many tokens were read.
        layers: The indices of the blocks with attention; not all of them in a hybrid model.
        blocks: How many blocks there are.
    """

    values: dict[str, Float[np.ndarray, "layers heads"]]
    tokens: int
    layers: tuple[int, ...]
    blocks: int

    def table(self) -> pd.DataFrame:
        """Return one row per layer and head, one column per measure."""
        shape = next(iter(self.values.values())).shape
        index = pd.MultiIndex.from_product([self.layers, range(shape[1])], names=["layer", "head"])
        return pd.DataFrame({name: values.ravel() for name, values in self.values.items()}, index)

    def plot(self, ax: Axes | None = None, measure: str = "induction" + WITHOUT_SINK) -> Axes:
        """Draw one measure, layers by heads."""
        from attnscope import plots

        values = self.values[choose("measure", measure, self.values)]
        return plots.heatmap(
            values, self.layers, range(values.shape[1]), ax=ax, title=measure, xlabel="head", ylabel="layer"
        )


def head_statistics(model: Model, data: Data = None, block: int = 256, seed: int = 0) -> HeadStatistics:
    """Return statistics of every head over whole texts.

    Args:
        model: A language model.
        data: Texts, a path, a table or Batches of whole texts; None: sequences of random tokens, each repeated once.
        block: Rows of attention at a time.
        seed: Random seed of those sequences.
    """
    needs(model, PredictsNextToken, by="head_statistics")
    require(block >= 1, f"block is a number of rows, at least 1, not {block}")
    module = cast(PredictsNextToken, module_of(model))
    sums, tokens = HeadSums(), 0
    for batch in whole_texts(model, data, seed):
        module.observe(batch, partial(add_rows, sums, batch.source), block)
        tokens += batch.source.numel()
    names = dict.fromkeys(name for name, _ in sums.sums)
    return HeadStatistics({name: sums.mean(name) for name in names}, tokens, module.attending_blocks, module.num_blocks)


def add_rows(sums: HeadSums, ids: Int[Tensor, "batch source"], rows: AttentionRows) -> None:
    """Add the statistics of a block of rows; those without the sink follow from the sums and the first weight."""
    weights, width = rows.weights, rows.weights.shape[-1]
    place = torch.arange(rows.start, rows.start + weights.shape[2], device=ids.device)  # rows
    keys = torch.arange(width, device=ids.device)
    duplicate = (ids[:, place, None] == ids[:, None, :width]) & (keys < place[:, None])  # batch x rows x keys
    induction = pad(duplicate[:, :, :-1], (1, 0))
    first, others = weights[..., 0], weights[..., 1:]
    rest = others.sum(-1).clamp_min(torch.finfo(weights.dtype).tiny)  # batch x heads x rows; not as 1 - first: digits
    two_keys, three_keys = ((place >= i).expand(len(ids), -1) for i in (1, 2))  # rows with at least so many keys

    entropy = torch.special.entr(others).sum(-1)  # of the other tokens
    sums.add("entropy", rows.layer, (entropy + torch.special.entr(first)) / (place + 1).clamp_min(2).log(), two_keys)
    sums.add("entropy" + WITHOUT_SINK, rows.layer, (entropy / rest + rest.log()) / place.clamp_min(2).log(), three_keys)
    distance = place * rest - others @ keys[1:].to(weights)
    sums.add("distance", rows.layer, distance + place * first, two_keys)
    sums.add("distance" + WITHOUT_SINK, rows.layer, distance / rest, three_keys)
    sums.add("first", rows.layer, first, two_keys)
    chance = (1 / (place + 1)).expand_as(first)
    sums.add("first if uniform", rows.layer, chance, two_keys)
    before = (place - 1).clamp_min(0)[None, None, :, None]
    previous = weights.take_along_dim(before, -1)[..., 0]
    sums.add("previous", rows.layer, previous, two_keys)
    sums.add("previous if uniform", rows.layer, chance, two_keys)
    sums.add("previous" + WITHOUT_SINK, rows.layer, previous / rest, three_keys)
    for name, pattern in {"induction": induction, "duplicate": duplicate}.items():
        among = torch.einsum("bhrk,brk->bhr", others, pattern[:, :, 1:].to(weights))
        count = pattern.sum(-1)
        sums.add(name, rows.layer, among + first * pattern[:, None, :, 0], count > 0)
        sums.add(f"{name} if uniform", rows.layer, (count / (place + 1))[:, None].expand_as(among), count > 0)
        later = count > pattern[:, :, 0]  # some other than the first token
        sums.add(name + WITHOUT_SINK, rows.layer, among / rest, later & three_keys)
    if rows.sink is not None:
        sums.add("sink", rows.layer, rows.sink, (place >= 0).expand(len(ids), -1))


# Texts ---------------------------------------------------------------------------------------------------------------


def whole_texts(model: Model, data: Data, seed: int = 0) -> Iterator[Batch]:
    """Yield whole texts as Batches without padding, on the model's device."""
    device = device_of(model)
    if data is None:
        yield repeated_tokens(model, seed=seed).to(device)
        return
    batches: Iterable[Batch]
    if isinstance(data, Batch):
        batches = [data]
    elif isinstance(data, list) and data and all(isinstance(batch, Batch) for batch in data):
        batches = data
    else:
        inputs, reader = Inputs.of(model, data), cast(LanguageReader, reader_of(model))
        require(isinstance(inputs, TextInputs), "a language model needs texts")
        batches = read_whole(reader, cast(TextInputs, inputs))
    for batch in batches:
        yield from unpadded(batch.to(device))


def read_whole(reader: LanguageReader, inputs: TextInputs) -> Iterator[Batch]:
    """Yield each text as a whole; at the end, warn of those that were truncated."""
    cut = 0
    for example in inputs.examples:
        texts = reader.read_whole([example.source])
        cut += texts.cut
        yield texts.batch
    warn_of_truncation(cut, len(inputs), reader, inputs.origin.name)


def unpadded(batch: Batch) -> Iterator[Batch]:
    """Yield a batch without padding as it is, others text by text."""
    if bool(batch.source_mask.all()) and bool(batch.target_mask.all()):
        yield batch
    else:
        for i in range(len(batch)):
            yield batch.rows(slice(i, i + 1))


def repeated_tokens(model: Model, length: int = 32, count: int = 16, seed: int = 0) -> Batch:
    """Return sequences of random tokens, each followed by itself: only induction can predict the second half.

    Args:
        model: A LoadedModel of a language model.
        length: Tokens before they are repeated.
        count: How many sequences.
        seed: Random seed.
    """
    reader = cast(LanguageReader, reader_of(model))
    special = set(reader.special_ids)
    usual = np.array([i for i in range(min(reader.vocab_size, len(reader.tokenizer))) if i not in special])
    random = np.random.default_rng(seed)
    first = reader.first_ids
    half = random.choice(usual, (count, min(length, (reader.max_length - len(first)) // 2)))
    source = torch.from_numpy(np.concatenate([np.tile(first, (count, 1)).astype(np.int64), half, half], 1))
    target = torch.cat(
        [reader.target.from_tokenizer(source[:, 1:]).cpu(), torch.full((count, 1), reader.unknown_target)], 1
    )
    mask = torch.ones_like(source, dtype=torch.bool)
    return Batch(source, mask, target, mask.clone(), source_special=~mask)


# Kinds of heads ------------------------------------------------------------------------------------------------------

# Kinds by the measure that they are scored by; "positional" is scored by the share of position (`positions`).
KINDS = {"previous token": "previous", "induction": "induction", "duplicate token": "duplicate", "sink": "first"}
POSITIONAL = "positional"


@dataclass(frozen=True)
class HeadKinds(Displayed):
    """How much each head resembles a kind, and the change of the loss without it.

    Attributes:
        heads: One row per kind, layer and head: its score; the score of uniform attention; the mean change of the loss
            (nats) without the head on the tokens concerned and on the others, with its standard error over texts; and
            whether the head is confirmed.
        loss: The model's own mean loss on the tokens concerned, by kind; NaN where there are none.
    """

    heads: pd.DataFrame
    loss: dict[str, float]

    def table(self) -> pd.DataFrame:
        """Return one row per kind, layer and head, the highest score of each kind first."""
        return self.heads

    def plot(self, ax: Axes | None = None, kind: str = "induction") -> Axes:
        """Draw the score of each head against the change of the loss without it."""
        from attnscope import plots

        rows = self.heads[self.heads["kind"] == choose("kind", kind, (*KINDS, POSITIONAL))]
        return plots.scatter(
            rows["score"].to_numpy(), rows["loss change"].to_numpy(), ax=ax, xlabel=f"{kind} score",
            ylabel="loss change if ablated",
        )  # fmt: skip


@dataclass(frozen=True)
class KindScores:
    """One kind: the score of each head, that of uniform attention, and whether the head looks like it."""

    scores: Float[np.ndarray, "layers heads"]
    chance: Float[np.ndarray, "layers heads"]
    looks: Bool[np.ndarray, "layers heads"]


def head_kinds(model: Model, data: Data = None, top: int = 3, seed: int = 0, block: int = 256) -> HeadKinds:
    """Return the kinds of heads, each head with its score and the loss on the tokens concerned without it.

    A head looks like a kind if its score without the sink is at least twice that of uniform attention; a sink, if half
    of its weight is on the first token; a positional head, if `position_shares` says so. It is confirmed if the loss on
    the tokens concerned also rises without it, by more than two standard errors over texts.

    Args:
        model: A language model.
        data: Texts, a path, a table or Batches of whole texts; None: sequences of random tokens, each repeated once.
        top: How many heads per kind are ablated, those of the highest scores first; 0: all.
        seed: Random seed of those sequences and of permutations.
        block: Rows of attention at a time.
    """
    needs(model, PredictsNextToken, HasLayers, by="head_kinds")
    require(top >= 0, f"top is a number of heads, or 0 for all of them, not {top}")
    module = cast(PredictsNextToken, module_of(model))
    batches = list(whole_texts(model, data, seed))
    statistics = head_statistics(model, batches, block)
    kinds = {kind: scores_of(kind, measure, statistics) for kind, measure in KINDS.items()}
    if (positional := positional_scores(model, batches, seed)) is not None:
        kinds[POSITIONAL] = positional
    best = {kind: ranked(scores.scores)[: top or None] for kind, scores in kinds.items()}
    own = losses(module, batches, None)
    without = {head: losses(module, batches, head) for heads in best.values() for head in heads}
    concerned = {kind: [concerned_of(kind, batch.source).cpu() for batch in batches] for kind in kinds}
    rows = [
        {"kind": kind, "layer": statistics.layers[head[0]], "head": head[1]}
        | head_row(kinds[kind], head, own, without[head], concerned[kind])
        for kind, heads in best.items()
        for head in heads
    ]
    loss = {kind: float(text_means(own, masks).mean()) for kind, masks in concerned.items()}
    return HeadKinds(pd.DataFrame(rows), loss)


def scores_of(kind: str, measure: str, statistics: HeadStatistics) -> KindScores:
    chance = statistics.values[f"{measure} if uniform"]
    if kind == "sink":
        scores = statistics.values[measure]
        return KindScores(scores, chance, scores >= 0.5)
    scores = statistics.values[measure + WITHOUT_SINK]
    return KindScores(scores, chance, scores >= 2 * chance)


def positional_scores(model: Model, batches: list[Batch], seed: int) -> KindScores | None:
    """Return the shares of position; None where the model gives no trace or texts are too short."""
    decisions = [
        replace(batch, target=batch.target[:, -1:], target_mask=batch.target_mask[:, -1:])
        for batch in batches if batch.source.shape[1] >= MIN_WORDS + 2
    ]  # fmt: skip
    if not decisions or not isinstance(module_of(model), GivesTrace):
        return None
    table = position_shares(model, decisions, permutations=8, seed=seed).table()
    shape = (-1, table.index.get_level_values("head").nunique())
    scores = table["position"].to_numpy().reshape(shape)
    return KindScores(scores, np.zeros_like(scores), (table["kind"] == "positional").to_numpy().reshape(shape))


def ranked(values: Float[np.ndarray, "layers heads"]) -> list[tuple[int, int]]:
    order = np.argsort(-np.nan_to_num(values, nan=-1.0), axis=None, kind="stable")
    return [(int(i) // values.shape[1], int(i) % values.shape[1]) for i in order]


@torch.no_grad()
def losses(
    module: PredictsNextToken, batches: list[Batch], head: tuple[int, int] | None
) -> list[Float[Tensor, "texts tokens"]]:
    """Return the loss of every token but the last of each batch, without a head of attention."""
    by_batch = []
    with evaluating(module):
        for batch in batches:
            logits = module.logits_with(batch, {} if head is None else {head: ablated})
            log_probability = logits[:, :-1].log_softmax(-1).gather(-1, batch.target[:, :-1, None])[..., 0]
            by_batch.append(-log_probability.cpu())
    return by_batch


def concerned_of(kind: str, ids: Int[Tensor, "texts source"]) -> Bool[Tensor, "texts tokens"]:
    """Return the tokens, by the position that predicts them, that a kind of head concerns: for most kinds, all."""
    length = ids.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril(-1)  # rows x keys
    duplicate = (ids[:, :, None] == ids[:, None]) & before
    if kind == "duplicate token":
        return duplicate.any(-1)[:, :-1]
    if kind == "induction":  # the token after an earlier occurrence is the one that comes
        follows = ids[:, 1:, None] == ids[:, None, 1:]  # (row's next) x (key's next)
        return (duplicate[:, :-1, :-1] & follows).any(-1)
    return torch.ones_like(ids[:, :-1], dtype=torch.bool)


def head_row(
    kind: KindScores, head: tuple[int, int], own: list[Tensor], without: list[Tensor], concerned: list[Tensor]
) -> dict[str, object]:
    """Return the numbers of one row of the table."""
    change = [after - before for after, before in zip(without, own, strict=True)]
    on, off = (text_means(change, masks) for masks in (concerned, [~mask for mask in concerned]))
    rise, error = float(on.mean()), float(on.std() / len(on) ** 0.5) if len(on) > 1 else float("nan")
    return {
        "score": float(kind.scores[head]), "if uniform": float(kind.chance[head]), "loss change": rise,
        "standard error": error, "loss change elsewhere": float(off.mean()),
        "confirmed": bool(kind.looks[head] and rise > 2 * error),
    }  # fmt: skip


def text_means(values: list[Tensor], masks: list[Tensor]) -> Float[Tensor, " texts"]:
    """Return the mean of each text that has any of these tokens."""
    means = [
        row[there].mean() for value, mask in zip(values, masks, strict=True)
        for row, there in zip(value, mask, strict=True) if bool(there.any())
    ]  # fmt: skip
    return torch.stack(means) if means else torch.tensor([torch.nan])
