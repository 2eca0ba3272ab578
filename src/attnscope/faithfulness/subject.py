"""The model under audit, its texts, and its forward pass over each batch of them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnscope.faithfulness.criteria import Interval
from attnscope.models.adapters import Texts, rollout
from attnscope.models.capabilities import EmbedsSource, GivesTrace, HasLayers, SelfAttends
from attnscope.models.inference import evaluating
from attnscope.models.inputs import Inputs
from attnscope.models.loaded import CLASSIFIER, LoadedModel
from attnscope.models.trace import Trace
from attnscope.probes.agreement import kendall
from attnscope.probes.counterfactual import CounterfactualAttention, random_keys, trace_and_mask
from attnscope.probes.fragility import permute_weights
from attnscope.probes.heads.sentences import SpecialTokens
from attnscope.probes.removal import random_score
from attnscope.probes.saliency import influence, leave_one_out
from attnscope.probes.word_alignment import GoldAlignment
from attnscope.tasks.batch import Batch

PerWord = Float[Tensor, "batch target"]  # one number per output word
PairScores = Float[Tensor, "batch target source"]  # one number per output word and source token


@dataclass(frozen=True)
class Subject:
    """A model and the texts that it is audited on."""

    loaded: LoadedModel
    inputs: Inputs

    @property
    def model(self) -> nn.Module:
        return self.loaded.module

    @property
    def is_classifier(self) -> bool:
        return self.loaded.kind == CLASSIFIER

    @property
    def depth(self) -> int:
        """The number of layers whose attention can be changed one by one."""
        return self.model.depth if isinstance(self.model, HasLayers) else 1

    @cached_property
    def num_heads(self) -> int:
        """The total number of heads, over all layers."""
        layers = Reading.of(self, self.inputs.read(slice(1))).trace.layers
        return sum(layer.weights.shape[1] for layer in layers)

    @cached_property
    def alignments(self) -> tuple[GoldAlignment, ...] | None:
        """Gold word alignments, where every text has one."""
        points = self.inputs.alignments
        return None if points is None else tuple(GoldAlignment.of(*pair) for pair in points)


class Sample(Inputs):
    """The first texts of a subject, on which one part is measured.

    Args:
        subject: A model and its texts.
        num_texts: How many texts.
        batch_size: Texts per batch; changes the speed, never a result.
        seed: Random seed.
        quick: Whether fewer random samples and search steps are used.
        whole_words: Whether all tokens of a word are deleted together.
        progress: Called with the number of texts of each batch that is done.
    """

    def __init__(
        self, subject: Subject, num_texts: int, batch_size: int = 32, seed: int = 0, quick: bool = False,
        whole_words: bool = True, progress: Callable[[int], None] = lambda texts: None,
    ):  # fmt: skip
        self.subject, self.batch_size, self.seed, self.quick, self.progress = subject, batch_size, seed, quick, progress
        self.whole_words = whole_words
        self.num_texts = min(num_texts, len(subject.inputs))
        self.origin = subject.inputs.origin

    def __len__(self) -> int:
        return self.num_texts

    def read(self, rows: slice) -> Texts:
        return self.subject.inputs.read(rows)

    def texts(self, size: int | None = None, max_texts: int | None = None) -> Iterator[Texts]:
        """Yield the texts in batches of `size`, by default `batch_size`."""
        for texts in super().texts(size or self.batch_size, max_texts):
            yield texts
            self.progress(len(texts.batch))

    def batches(self, size: int | None = None, max_texts: int | None = None) -> Iterator[Batch]:
        return (texts.batch for texts in self.texts(size, max_texts))

    def readings(self, size: int | None = None) -> "Iterator[Reading]":
        """Yield the model's forward pass over each batch."""
        return (Reading.of(self.subject, texts) for texts in self.texts(size))


@dataclass(frozen=True)
class Reading:
    """A batch of texts as the model reads it, with its own attention.

    A classifier has one output word, the predicted class, right or wrong. A translator has several: with
    teacher forcing, every output word has one attention and one distribution.
    """

    subject: Subject
    texts: Texts
    batch: Batch  # on the model's device; the target of a classifier is its prediction
    trace: Trace
    attended: Bool[Tensor, "batch source"]  # positions that may be attended to
    words: Bool[Tensor, "batch source"]  # of them, tokens that are not special
    outputs: Bool[Tensor, "batch target"]  # output words that are not special

    @classmethod
    def of(cls, subject: Subject, texts: Texts) -> "Reading":
        """Run the model on these texts."""
        trace, attended = trace_and_mask(subject.model, texts.batch)
        batch = texts.batch.to(trace.source.device)
        trace = replace(trace, source_special=batch.source_special)  # an adapter may not pass it on
        if subject.is_classifier:
            predicted = replace(batch, target=trace.predictions)
            return cls(subject, texts, predicted, trace, attended, batch.word_mask, batch.target_mask)
        special = SpecialTokens.of(subject.model, batch)
        words, outputs = attended & ~special.source, batch.target_mask & ~special.target
        return cls(subject, texts, batch, trace, attended, words, outputs)

    @property
    def model(self) -> nn.Module:
        return self.subject.model

    @cached_property
    def counterfactual(self) -> CounterfactualAttention:
        """The model's outputs with other attention."""
        return CounterfactualAttention(self.model, self.batch, self.trace, self.attended)

    @cached_property
    def attention(self) -> PairScores:
        """The attention that users would be shown: the last layer's, the mean over its heads."""
        return self.trace.attention.detach().mean(1)

    @property
    def comparable(self) -> Bool[Tensor, "batch target source"]:
        """Source words that can be ranked, per output word: all, unless there are fewer than two."""
        several = self.words.sum(1, keepdim=True) > 1
        return self.outputs[:, :, None] & (self.words & several)[:, None]

    @cached_property
    def leave_one_out(self) -> PairScores:
        """How much the log-probability of each output word falls without each source token; 0 for a single token."""
        return leave_one_out(cast(GivesTrace, self.model), self.batch).values.detach().nan_to_num(nan=0.0)

    @cached_property
    def gradient(self) -> PairScores | None:
        """Gradient × input, where the model declares its source embedding."""
        model = self.model
        if not isinstance(model, EmbedsSource):
            return None
        return influence(model, self.batch).values.detach().nan_to_num(nan=0.0)

    @property
    def rollout(self) -> PairScores | None:
        """Attention rollout, where the model gives whole matrices of self-attention."""
        model = self.model
        if not isinstance(model, SelfAttends):
            return None
        with evaluating(model):
            return rollout(model.self_attention(self.batch))[:, :1]

    def random(self, seed: int) -> PairScores:
        """A random score, which depends on the text and the seed, not on the batch."""
        if self.subject.is_classifier:
            return random_score(self.batch, seed)[:, None]
        return random_keys(self.trace, range(1), seed)[0][:, 0].double()

    def shuffled(self, seed: int) -> PairScores:
        """The attention shown, its weights shuffled among the positions that may be attended to."""
        keys = random_keys(self.trace, range(1), seed)[:, :, 0]  # 1 x batch x target x source
        return permute_weights(self.attention, self.attended, keys)[0]

    def rank_correlation(self, score: PairScores, other: PairScores) -> Float[np.ndarray, " texts"]:
        """Kendall's τ of two scores of the source words, per text."""
        return self.by_text(kendall(score, other.to(score), self.comparable))

    def by_text(self, values: PerWord) -> Float[np.ndarray, " texts"]:
        """The mean over the output words of each text; NaN is left out, and the mean of nothing is NaN."""
        measured = self.outputs & ~values.isnan()
        mean = values.double().masked_fill(~measured, 0).sum(1) / measured.sum(1)
        return np.asarray(mean.cpu().numpy())

    def by_row(self, values: Float[Tensor, " rows"]) -> Float[np.ndarray, " texts"]:
        """The same, from one number per output word in a row."""
        blank = values.new_zeros(self.outputs.shape, dtype=torch.float64)
        return self.by_text(blank.masked_scatter(self.outputs, values.double()))


class PerText:
    """Numbers per text, collected by name over batches."""

    def __init__(self) -> None:
        self.parts: dict[str, list[np.ndarray]] = defaultdict(list)

    def add(self, name: str, values: Float[np.ndarray, " texts"]) -> None:
        self.parts[name].append(values)

    def __getitem__(self, name: str) -> Float[np.ndarray, " texts"]:
        return np.concatenate(self.parts[name])

    def means(self) -> dict[str, Interval]:
        """Return the mean of each name with its interval."""
        return {name: Interval.of(self[name]) for name in self.parts}
