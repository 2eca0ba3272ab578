"""What would a model say with other attention weights? (tutek2020 §3.2)

Where a model has the second door and no decoder, other weights are asked for behind the encoder, which has run once;
any other model makes a forward pass for each. Where the readout of a classifier is linear, eq. 9 holds: its logits are
the weighted sum of what each position alone would say, and states need not be mixed at all.
"""

# TODO(docstring) join:
#   What would a model say at each word of its output, had it attended otherwise there? (tutek2020 §3.2, for many words)
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import BadSetting, require
from attnscope.models.attention import uniform
from attnscope.models.capabilities import ReadsOut
from attnscope.models.inference import device_of, evaluating
from attnscope.models.trace import Trace
from attnscope.probes.lexical import CELLS, rows_at_a_time, said_with
from attnscope.tasks.batch import SPECIALS, Batch
from attnscope.training.objectives.guidance import POSITIONS, scattered

STEPS = 1 << 40  # more than there are seeds
CLOSE = 1e-5  # of the largest logit: how far a sum of parts may be from the whole, in single precision


def reweighed(
    model: Callable[..., Any],
    trace: Trace,
    weights: Float[Tensor, "*draws batch heads target source"],
    cells: int = CELLS,
    **forward: Any,
) -> Float[Tensor, "*draws batch target words"]:
    """The logits of a pass that the model has already made, had its attention been this, in evaluation mode.

    They have gradients with respect to the weights. `cells` bounds the numbers that are held at a time. What else is
    given goes to the forward passes of a model that needs them.
    """
    check_weights(trace, weights)
    draws = weights.to(trace.attention).flatten(0, -5) if weights.dim() > 4 else weights.to(trace.attention)[None]
    gradients = weights.requires_grad and torch.is_grad_enabled()
    with evaluating(model), torch.set_grad_enabled(gradients):
        if has_second_door(model, trace):
            at_once = max(1, rows_at_a_time(trace, cells) // trace.target.numel())
            logits = torch.cat([behind(cast(ReadsOut, model), trace, some) for some in draws.split(at_once)])
        else:
            logits = torch.stack([anew(model, trace, one, forward) for one in draws])
    return logits.view(*weights.shape[:-4], *logits.shape[1:])


def has_second_door(model: object, trace: Trace) -> bool:
    """Whether what is said follows from the context and the decoder's state before it, and the model tells how."""
    layer = getattr(model, "attend", None)
    door = hasattr(model, "readout") and (hasattr(model, "context_of") or hasattr(layer, "merge"))
    return door and (trace.decoder is None or getattr(model, "readout_is_exact", False))


def behind(
    model: ReadsOut, trace: Trace, weights: Float[Tensor, "draws batch heads target source"]
) -> Float[Tensor, "draws batch target words"]:
    """Through the second door: to one head, draws are as so many target words."""
    draws, batch, _, target, _ = weights.shape
    mixed = weights.permute(1, 2, 0, 3, 4).flatten(2, 3) @ trace.last.values  # batch x heads x (draws target) x value
    b = torch.arange(batch, device=mixed.device).repeat_interleave(draws * target)
    t = torch.arange(target, device=mixed.device).repeat(batch * draws)
    logits = said_with(model, trace, mixed.transpose(1, 2).flatten(0, 1), b, t)
    return logits.view(batch, draws, target, -1).transpose(0, 1)


def anew(model: Callable[..., Any], trace: Trace, weights: Tensor, forward: dict[str, Any]) -> Tensor:
    """By a pass of its own."""
    batch = Batch(trace.source, trace.source_mask, trace.target, trace.target_mask)
    with torch.backends.cudnn.flags(enabled=False):  # cuDNN has no gradients in evaluation mode
        return model(batch, attention=weights, **forward).logits  # type: ignore[no-any-return]


def check_weights(trace: Trace, weights: Tensor) -> None:
    given, expected = tuple(weights.shape), tuple(trace.attention.shape)
    require(
        given[-4:] == expected,
        f"weights of shape {given} do not fit this pass, whose batch x heads x target x source is {expected}; only "
        "draws may come before",
    )


@dataclass(frozen=True)
class Reweighing:
    """A classifier that has read a batch of texts, to be asked for its classes with any attention."""

    model: nn.Module
    trace: Trace
    attended: Bool[Tensor, "batch source"]  # what may be attended to: no padding, no special token that is left out
    places: Float[Tensor, "batch source classes"] | None  # what each position alone would say, where eq. 9 holds

    @classmethod
    def of(cls, model: nn.Module, batch: Batch) -> "Reweighing":
        """The only pass through the encoder."""
        trace, attended = read_classifier(model, batch)
        return cls(model, trace, attended, by_place(model, trace, attended))

    @property
    def own(self) -> Float[Tensor, "batch heads source"]:
        return self.trace.attention[:, :, 0]

    @property
    def said(self) -> Float[Tensor, "batch classes"]:
        """With its own attention."""
        return class_probabilities(self.trace.logits)

    def probabilities(self, weights: Float[Tensor, "draws batch heads source"]) -> Float[Tensor, "draws batch classes"]:
        """Of the classes, with this attention; in double precision, as decisions are."""
        if self.places is None:
            return class_probabilities(reweighed(self.model, self.trace, weights[:, :, :, None]))
        logits = weights[:, :, 0].transpose(0, 1) @ self.places.to(weights)  # batch x draws x classes
        return logits.double().softmax(-1).transpose(0, 1)

    def measured(self, weights: Float[Tensor, "batch heads source"]) -> Float[Tensor, "batch classes"]:
        """The same through the whole readout, for one attention to each text."""
        return class_probabilities(reweighed(self.model, self.trace, weights[:, :, None]))

    def lots(self, draws: range, seed: int) -> Int[Tensor, "draws batch heads source"]:
        return lots(self.trace, draws, seed)


def read_classifier(model: nn.Module, batch: Batch) -> tuple[Trace, Bool[Tensor, "batch source"]]:
    """What a forward pass of a classifier shows, and the positions that it may attend to."""
    trace, attended = looked(model, batch)
    check_classifier(trace)
    return trace, attended


def looked(model: Callable[..., Any], batch: Batch, **forward: Any) -> tuple[Trace, Bool[Tensor, "batch source"]]:
    """What a forward pass shows, and the positions that it may attend to, which only the model knows."""
    masks: list[Tensor] = []

    def look(weights: Tensor, mask: Tensor) -> Tensor:
        masks.append(mask)
        return weights

    with evaluating(model):
        trace = model(batch.to(device_of(model)), **{"attention": look} | forward)
    return trace, masks[0] if masks else trace.source_mask


def check_classifier(trace: Trace) -> None:
    steps, words = trace.logits.shape[1:]
    if steps != 1 or words < len(SPECIALS) + 2:
        raise BadSetting(
            f"this asks for the decisions of a classifier, which says one word, a class; this model says {steps} words "
            f"from a vocabulary of {words}, the {len(SPECIALS)} special ones included"
        )


def class_probabilities(logits: Float[Tensor, "*any 1 words"]) -> Float[Tensor, "*any classes"]:
    """Special words are no classes."""
    return logits[..., 0, len(SPECIALS) :].double().softmax(-1)


def by_place(
    model: nn.Module, trace: Trace, attended: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch source classes"] | None:
    """The class logits of each position alone; None unless their weighted sum is what the model says (eq. 9).

    That is tested with its own and with uniform attention: where only one position counts, any readout would pass.
    """
    values = trace.last.values  # batch x heads x source x value
    if not has_second_door(model, trace) or values.shape[1] > 1:
        return None
    own = trace.attention
    tried = torch.stack([own, uniform(own, attended)])
    b = torch.arange(len(values), device=values.device).repeat_interleave(values.shape[2])
    with evaluating(model):
        alone = said_with(cast(ReadsOut, model), trace, values.transpose(1, 2).flatten(0, 1), b, torch.zeros_like(b))
        places = alone.view(len(values), values.shape[2], -1)[..., len(SPECIALS) :]
        said = reweighed(model, trace, tried)[..., 0, len(SPECIALS) :]
    apart = (tried[:, :, 0] @ places)[:, :, 0] - said  # 2 x batch x classes
    return places if bool((apart.abs() <= CLOSE * (1 + said.abs().max())).all()) else None


def lots(trace: Trace, draws: range, seed: int) -> Int[Tensor, "draws batch heads source"]:
    """Random numbers, all 64 bits of them, that follow from seed, draw, head, position and the words of the text.

    So a text has the same draws in every batch, whatever padding follows it and wherever it stands in a stream.
    """
    heads, source = trace.attention.shape[1], trace.source.shape[1]
    places = torch.arange(source, device=trace.source.device)
    words = scattered(trace.source * POSITIONS + places) * trace.source_mask
    streams = torch.arange(draws.start * heads, draws.stop * heads, device=places.device).view(-1, 1, heads, 1)
    cell = scattered(scattered(streams * POSITIONS + places) + seed)
    return scattered(scattered(words.sum(1) + seed)[:, None, None] + cell)


def lots_by_step(trace: Trace, draws: range, seed: int) -> Int[Tensor, "draws batch heads target source"]:
    """Random numbers for each output word on its own; the first has those of a classifier, which says one."""
    steps = range(trace.target.shape[1])
    return torch.stack([lots(trace, draws, seed + step * STEPS) for step in steps], 3)


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
        with evaluating(self.model), torch.set_grad_enabled(gradients):
            logits = said_with(cast(ReadsOut, self.model), self.trace, mixed.squeeze(3).flatten(0, 1), b, t)
            found: Tensor = logits.softmax(-1).unflatten(0, weights.shape[:2])
            return found

    def measured(self, weights: Float[Tensor, "rows heads source"]) -> Float[Tensor, "rows words"]:
        """The same by a forward pass, for one attention to each word."""
        with evaluating(self.model):
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
    with evaluating(model):
        apart = (anew(model, trace, tried, {}) - trace.logits)[:, ~changed]
    known = trace.logits.isfinite()  # some words are never said
    return bool(apart[known[:, ~changed]].abs().max() <= CLOSE * (1 + trace.logits[known].abs().max()))
