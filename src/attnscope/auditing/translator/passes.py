"""What does one pass over some sentences show, and which of its positions are words?"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.auditing.record import Interval
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.models.adapters import Texts
from attnscope.models.trace import Trace
from attnscope.probes.heads.stream import is_special
from attnscope.probes.reweighing import looked
from attnscope.tasks.batch import Batch

Scores = Float[Tensor, "batch target source"]
BySentence = Float[np.ndarray, " sentences"]


@dataclass(frozen=True)
class Pass:
    """Sentences as the model says them, with its own attention."""

    model: Any
    texts: Texts
    batch: Batch  # where the model is
    trace: Trace
    attended: Bool[Tensor, "batch source"]  # what may be attended to
    source: Bool[Tensor, "batch source"]  # of that, what is a word or a piece of one
    target: Bool[Tensor, "batch target"]  # output words

    @classmethod
    def of(cls, subject: Subject, texts: Texts) -> "Pass":
        trace, attended = looked(subject.model, texts.batch)
        batch = texts.batch.to(trace.source.device)
        source, target = (~is_special(subject.model, batch, side) for side in ("source", "target"))
        return cls(subject.model, texts, batch, trace, attended, attended & source, batch.target_mask & target)

    @property
    def shown(self) -> Scores:
        """The attention that people would be shown."""
        return self.trace.attention.mean(1)

    @property
    def between_words(self) -> Bool[Tensor, "batch target source"]:
        """Source words that can be compared, for each output word: all, unless there are fewer than two."""
        enough = self.source.sum(1, keepdim=True) > 1
        return self.target[:, :, None] & (self.source & enough)[:, None]

    @cached_property
    def said(self) -> Float[Tensor, "rows words"]:
        """Log-probabilities of the vocabulary, a row an output word."""
        return log_probabilities(self.trace.logits, self.target)

    def gold(self, said: Float[Tensor, "rows words"]) -> Float[Tensor, " rows"]:
        """The log-probability of each gold word."""
        return said.gather(1, self.trace.target[self.target][:, None])[:, 0]

    def by_row(self, values: Float[Tensor, " rows"]) -> BySentence:
        """The mean over the output words of each sentence, from a number for each row."""
        blank = values.new_zeros(self.target.shape, dtype=torch.float64)
        return self.by_sentence(blank.masked_scatter(self.target, values.double()))

    def by_sentence(self, values: Float[Tensor, "batch target"]) -> BySentence:
        """The same, from a number for each target position; NaN is left out, and nothing is NaN."""
        known = self.target & ~values.isnan()
        total = values.double().masked_fill(~known, 0).sum(1) / known.sum(1)
        return np.asarray(total.cpu().numpy())


def passes(subject: Subject, sample: Sample) -> Iterator[Pass]:
    return (Pass.of(subject, texts) for texts in sample())


def log_probabilities(
    logits: Float[Tensor, "batch target words"], rows: Bool[Tensor, "batch target"]
) -> Float[Tensor, "rows words"]:
    return logits.detach()[rows].log_softmax(-1)


def limits(found: Interval) -> dict[str, float]:
    return {"from": found.low, "to": found.high}
