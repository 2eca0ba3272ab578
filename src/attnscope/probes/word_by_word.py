"""What would a model say at each word of its output, had it attended otherwise there? (tutek2020 §3.2, for many words)

The gold target is heard, so that an output word is like a text of a classifier: one attention, one thing to say.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.models.asking import as_it_was
from attnscope.models.attention import uniform
from attnscope.models.trace import Trace
from attnscope.probes.lexical import ReadsOut, said_with
from attnscope.probes.reweighing import CLOSE, anew, has_second_door, looked, lots_by_step, reweighed
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class WordByWord:
    """A model that has said a batch of sentences, to be asked for each of their words with any attention to the source.

    A row is an output word, with attention and probabilities of its own, over the whole vocabulary. Where what is said
    follows from a word's own attention alone, rows know nothing of each other; else `together` names their sentences.
    """

    model: nn.Module
    trace: Trace
    sentence: Int[Tensor, " rows"]
    step: Int[Tensor, " rows"]
    attended: Bool[Tensor, "rows source"]
    together: Int[Tensor, " rows"] | None

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, words: Bool[Tensor, "batch target"]) -> "WordByWord":
        """Of these words of the target."""
        trace, attended = looked(model, batch)
        sentence, step = words.to(trace.target.device).nonzero().unbind(1)
        together = None if each_for_itself(model, trace, attended) else sentence
        return cls(model, trace, sentence, step, attended[sentence], together)

    @cached_property
    def own(self) -> Float[Tensor, "rows heads source"]:
        return self.trace.attention[self.sentence, :, self.step]

    @cached_property
    def said(self) -> Float[Tensor, "rows words"]:
        return self.trace.logits[self.sentence, self.step].softmax(-1)

    @cached_property
    def values(self) -> Float[Tensor, "rows heads source value"]:
        return self.trace.last.values[self.sentence]

    def probabilities(self, weights: Float[Tensor, "draws rows heads source"]) -> Float[Tensor, "draws rows words"]:
        """Of all words of the vocabulary, with this attention."""
        if not has_second_door(self.model, self.trace):
            logits = reweighed(self.model, self.trace, self.placed(weights))
            return logits[:, self.sentence, self.step].softmax(-1)
        mixed = weights[..., None, :] @ self.values  # draws x rows x heads x 1 x value
        gradients = weights.requires_grad and torch.is_grad_enabled()
        b, t = (each.repeat(len(weights)) for each in (self.sentence, self.step))
        with as_it_was(self.model), torch.set_grad_enabled(gradients):
            logits = said_with(cast(ReadsOut, self.model), self.trace, mixed.squeeze(3).flatten(0, 1), b, t)
            found: Tensor = logits.softmax(-1).unflatten(0, weights.shape[:2])
            return found

    def measured(self, weights: Float[Tensor, "rows heads source"]) -> Float[Tensor, "rows words"]:
        """The same by a forward pass, for one attention to each word."""
        with as_it_was(self.model):
            logits = anew(self.model, self.trace, self.placed(weights[None])[0], {})
        return logits[self.sentence, self.step].softmax(-1)

    def placed(
        self, weights: Float[Tensor, "draws rows heads source"]
    ) -> Float[Tensor, "draws batch heads target source"]:
        """In the attention of whole sentences; other words keep their own."""
        whole = self.trace.attention.expand(len(weights), -1, -1, -1, -1).clone()
        whole[:, self.sentence, :, self.step] = weights.transpose(0, 1)  # torch puts rows first
        return whole

    def lots(self, draws: range, seed: int) -> Int[Tensor, "draws rows heads source"]:
        return lots_by_step(self.trace, draws, seed)[:, self.sentence, :, self.step].transpose(0, 1)


def each_for_itself(model: nn.Module, trace: Trace, attended: Bool[Tensor, "batch source"]) -> bool:
    """Whether attention at one output word leaves all others as they are; else tried, with every other one changed."""
    if has_second_door(model, trace) or trace.target.shape[1] == 1:
        return True
    own = trace.attention
    changed = torch.arange(own.shape[2], device=own.device) % 2 == 0
    tried = torch.where(changed[:, None], uniform(own, attended), own)
    with as_it_was(model):
        apart = (anew(model, trace, tried, {}) - trace.logits)[:, ~changed]
    known = trace.logits.isfinite()  # some words are never said
    return bool(apart[known[:, ~changed]].abs().max() <= CLOSE * (1 + trace.logits[known].abs().max()))
