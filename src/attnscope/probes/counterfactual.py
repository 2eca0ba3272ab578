"""What would a model output with other attention weights? (tutek2020 §3.2)

`CounterfactualAttention` holds a model, a batch and the trace of one pass over it. Where the model declares ReadsOut
and its readout is exact, other weights are applied behind the encoder, which has run once; any other model makes a
forward pass. Where the readout of a classifier is linear, eq. 9 holds: its logits are the weighted sum of the logits of
each position alone, and the values need not be mixed at all.

An output token with its own row of attention is one *decision*: a classifier makes one per text, a translator one per
output token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import BadSetting, require
from attnscope.models.adapters.hugging_face import Rerun
from attnscope.models.attention import Change, at_head, uniform
from attnscope.models.capabilities import TEACHER_FORCING, Decoding, ReadsOut
from attnscope.models.inference import Model, device_of, evaluating, module_of
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import SPECIALS, Batch
from attnscope.training.objectives import POSITIONS, splitmix64

SEEDS = 1 << 40  # more than there are: the seeds of one step lie below those of the next
MAX_ELEMENTS = 1 << 24  # in memory at a time: values, contexts, states and logits; working copies take as many again
TOLERANCE = 1e-5  # of the largest logit: how far a sum of contributions may be from the whole, in single precision


@dataclass(frozen=True)
class CounterfactualAttention:
    """A model after a pass over a batch, and its outputs with any other attention.

    Attributes:
        model: The model that gave the trace.
        batch: The batch, on the device of the model.
        trace: The pass with the model's own attention.
        attended: The positions that may be attended to, without padding and special tokens that the model leaves out.
        tokens: The output tokens that are decisions; None: all, and of a classifier its classes.
        decoding: How the decoder is run; None: the model's default.
    """

    model: Callable[..., Trace]
    batch: Batch
    trace: Trace
    attended: Bool[Tensor, "batch source"]
    tokens: Bool[Tensor, "batch target"] | None = None
    decoding: Decoding | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        batch: Batch,
        decoding: Decoding | None = None,
        tokens: Bool[Tensor, "batch target"] | None = None,
    ) -> "CounterfactualAttention":
        """Run the model on the batch, in the only pass through its encoder."""
        module = module_of(model)
        batch = batch.to(device_of(module))
        tokens = None if tokens is None else tokens.to(batch.source.device)
        trace, attended = trace_and_mask(module, batch, decoding, tokens)
        return cls(module, batch, trace, attended, tokens, decoding)

    @classmethod
    def of_classifier(cls, model: Model, batch: Batch) -> "CounterfactualAttention":
        """Return the same for a classifier; raise an error for any other model."""
        counterfactual = cls.of(model, batch)
        check_classifier(counterfactual.trace)
        return counterfactual

    @property
    def exact(self) -> bool:
        """Whether a readout equals a forward pass, so that none is needed."""
        return isinstance(self.model, ReadsOut) and (self.trace.decoder is None or self.model.readout_is_exact)

    @property
    def classifies(self) -> bool:
        """Whether decisions are for classes, the vocabulary without special tokens."""
        return self.tokens is None and is_classifier(self.trace)

    # Whole passes: attention of batch x heads x target x source

    def logits(
        self, weights: Float[Tensor, "*samples batch heads target source"], max_elements: int = MAX_ELEMENTS
    ) -> Float[Tensor, "*samples batch target words"]:
        """Return the logits with these weights in the last layer, with gradients with respect to them.

        Args:
            weights: One attention per pass, or several along leading dimensions.
            max_elements: How many numbers a readout may hold at a time.
        """
        check_weights(self.trace, weights)
        own = self.trace.attention
        samples = weights.to(own).flatten(0, -5) if weights.dim() > 4 else weights.to(own)[None]
        gradients = weights.requires_grad and torch.is_grad_enabled()
        with evaluating(self.model), torch.set_grad_enabled(gradients):
            if self.exact:
                at_once = max(1, rows_at_a_time(self.trace, max_elements) // self.trace.target.numel())
                logits = torch.cat([self.read_out(block) for block in samples.split(at_once)])
            else:
                logits = torch.stack([self.run(sample) for sample in samples])
        return logits.view(*weights.shape[:-4], *logits.shape[1:])

    def read_out(
        self, weights: Float[Tensor, "samples batch heads target source"]
    ) -> Float[Tensor, "samples batch target words"]:
        """Return the logits from the readout alone; the samples of a head are stacked as further target tokens."""
        samples, batch, _, target, _ = weights.shape
        values = self.trace.last.values
        mixed = weights.permute(1, 2, 0, 3, 4).flatten(2, 3) @ values  # batch x heads x (samples target) x value
        b = torch.arange(batch, device=mixed.device).repeat_interleave(samples * target)
        t = torch.arange(target, device=mixed.device).repeat(batch * samples)
        logits = read_out_rows(cast(ReadsOut, self.model), self.trace, mixed.transpose(1, 2).flatten(0, 1), b, t)
        return logits.view(batch, samples, target, -1).transpose(0, 1)

    def run(self, weights: Float[Tensor, "batch heads target source"]) -> Float[Tensor, "batch target words"]:
        """Return the logits of a forward pass with this attention."""
        with torch.backends.cudnn.flags(enabled=False):  # cuDNN has no gradients in evaluation mode
            return self.model(self.batch, attention=weights, **forcing(self.decoding)).logits

    @cached_property
    def rerun(self) -> Rerun:
        return Rerun(self.model, self.batch, self.decoding)

    def intervene(self, attention: Interventions) -> Trace:
        """Return the trace of a pass with other attention in any layers and heads."""
        return self.rerun(attention)

    def change_head(self, layer: int, head: int, change: Change) -> Trace:
        """Return the trace of a pass with one head changed; a model of one layer need not declare HasLayers."""
        single = len(self.trace.layers) == 1
        return self.intervene(at_head(head, change) if single else {(layer, head): change})

    @property
    def layer_weights(self) -> Float[Tensor, "layers batch heads target source"]:
        """The attention of every layer and head."""
        return layer_weights(self.trace)

    # Decisions: attention of decisions x heads x source

    @cached_property
    def places(self) -> tuple[Int[Tensor, " decisions"], Int[Tensor, " decisions"]]:
        """The sentence and the target position of each decision."""
        mask = self.batch.target_mask if self.tokens is None else self.tokens
        sentence, step = mask.nonzero().unbind(1)
        return sentence, step

    @cached_property
    def own(self) -> Float[Tensor, "decisions heads source"]:
        """The model's own attention at each decision."""
        sentence, step = self.places
        return self.trace.attention[sentence, :, step]

    @cached_property
    def attended_at(self) -> Bool[Tensor, "decisions source"]:
        """The positions that may be attended to, for each decision."""
        return self.attended[self.places[0]]

    @cached_property
    def own_probabilities(self) -> Float[Tensor, "decisions outputs"]:
        """The probabilities with the model's own attention."""
        return self.normalise(self.trace.logits)

    def probabilities(
        self, weights: Float[Tensor, "samples decisions heads source"]
    ) -> Float[Tensor, "samples decisions outputs"]:
        """Return the probabilities of classes (in double precision), or of the vocabulary, with this attention."""
        if self.classifies and self.contributions is not None:
            logits = weights[:, :, 0].transpose(0, 1) @ self.contributions.to(weights)  # batch x samples x classes
            return logits.double().softmax(-1).transpose(0, 1)
        if self.classifies or not self.exact:
            return self.normalise(self.logits(self.in_passes(weights)))
        sentence, step = self.places
        mixed = weights[..., None, :] @ self.trace.last.values[sentence]  # samples x decisions x heads x 1 x value
        b, t = sentence.repeat(len(weights)), step.repeat(len(weights))
        gradients = weights.requires_grad and torch.is_grad_enabled()
        with evaluating(self.model), torch.set_grad_enabled(gradients):
            logits = read_out_rows(cast(ReadsOut, self.model), self.trace, mixed.squeeze(3).flatten(0, 1), b, t)
            outputs: Tensor = logits.softmax(-1).unflatten(0, weights.shape[:2])
            return outputs

    def verified_probabilities(
        self, weights: Float[Tensor, "decisions heads source"]
    ) -> Float[Tensor, "decisions outputs"]:
        """Return the same without a shortcut: of a classifier by its whole readout, of tokens by a forward pass."""
        whole = self.in_passes(weights[None])[0]
        if self.classifies:
            return self.normalise(self.logits(whole))
        with evaluating(self.model):
            return self.normalise(self.run(whole))

    def in_passes(
        self, weights: Float[Tensor, "samples decisions heads source"]
    ) -> Float[Tensor, "samples batch heads target source"]:
        """Return the attention of whole passes; tokens that are not decisions keep their own."""
        if self.classifies:
            return weights[:, :, :, None]
        sentence, step = self.places
        whole = self.trace.attention.expand(len(weights), -1, -1, -1, -1).clone()
        whole[:, sentence, :, step] = weights.transpose(0, 1)  # torch puts decisions first
        return whole

    def normalise(
        self, logits: Float[Tensor, "*samples batch target words"]
    ) -> Float[Tensor, "*samples decisions outputs"]:
        """Return the probabilities of each decision, from the logits of whole passes."""
        if self.classifies:
            return class_probabilities(logits)
        sentence, step = self.places
        return logits[..., sentence, step, :].softmax(-1)

    @cached_property
    def contributions(self) -> Float[Tensor, "batch source classes"] | None:
        """The class logits of each position alone; None unless their weighted sum gives the model's logits (eq. 9).

        Tested with the model's own and with uniform attention: if only one position had weight, any readout would pass.
        """
        values = self.trace.last.values  # batch x heads x source x value
        if not (self.exact and is_classifier(self.trace)) or values.shape[1] > 1:
            return None
        weights = torch.stack([self.trace.attention, uniform(self.trace.attention, self.attended)])
        b = torch.arange(len(values), device=values.device).repeat_interleave(values.shape[2])
        with evaluating(self.model):
            rows = values.transpose(1, 2).flatten(0, 1)
            alone = read_out_rows(cast(ReadsOut, self.model), self.trace, rows, b, torch.zeros_like(b))
            contributions = alone.view(len(values), values.shape[2], -1)[..., len(SPECIALS) :]
            logits = self.logits(weights)[..., 0, len(SPECIALS) :]
        error = (weights[:, :, 0] @ contributions)[:, :, 0] - logits  # 2 x batch x classes
        return contributions if bool((error.abs() <= TOLERANCE * (1 + logits.abs().max())).all()) else None

    @cached_property
    def coupled(self) -> Int[Tensor, " decisions"] | None:
        """The sentence of each decision where attention at one changes others; None where decisions are independent.

        Unless a readout is exact, this is tested by changing every other target position.
        """
        own = self.trace.attention
        if self.exact or own.shape[2] == 1:
            return None
        changed = torch.arange(own.shape[2], device=own.device) % 2 == 0
        weights = torch.where(changed[:, None], uniform(own, self.attended), own)
        with evaluating(self.model):
            difference = (self.run(weights) - self.trace.logits)[:, ~changed]
        finite = self.trace.logits.isfinite()  # some tokens have no probability at all
        bound = TOLERANCE * (1 + self.trace.logits[finite].abs().max())
        return None if bool(difference[finite[:, ~changed]].abs().max() <= bound) else self.places[0]

    def random_keys(self, samples: range, seed: int) -> Int[Tensor, "samples decisions heads source"]:
        """Return random integers for each decision, as `random_keys` does."""
        sentence, step = self.places
        return random_keys(self.trace, samples, seed)[:, sentence, :, step].transpose(0, 1)


def trace_and_mask(
    model: Model,
    batch: Batch,
    decoding: Decoding | None = None,
    tokens: Bool[Tensor, "batch target"] | None = None,
) -> tuple[Trace, Bool[Tensor, "batch source"]]:
    """Return the trace of a pass, and the positions that may be attended to, which only the model knows.

    Of a language model, they are those that all output tokens may attend to, or all of `tokens` where these are given.
    """
    masks: list[Tensor] = []

    def record(weights: Tensor, mask: Tensor) -> Tensor:
        masks.append(mask)
        return weights

    module = module_of(model)
    with evaluating(module):
        trace: Trace = module(batch.to(device_of(module)), attention=record, **forcing(decoding))
    mask = masks[0] if masks else trace.source_mask
    if mask.dim() == 3:
        mask = (mask | ~(trace.target_mask if tokens is None else tokens)[:, :, None]).all(1)
    return trace, mask


def forcing(decoding: Decoding | None) -> dict[str, float]:
    """Return the keyword argument of a forward pass for this decoding; none for the model's default."""
    return {} if decoding is None else {"teacher_forcing": TEACHER_FORCING[decoding]}


def layer_weights(trace: Trace) -> Float[Tensor, "layers batch heads target source"]:
    """Return the attention of every layer and head."""
    heads = {layer.weights.shape[1] for layer in (*trace.layers[:-1], trace.last)}
    require(len(heads) == 1, f"layers have different numbers of heads, {sorted(heads)}; heads are compared as a table")
    return torch.stack([layer.weights.detach() for layer in trace.layers])


def read_out_rows(
    model: ReadsOut, trace: Trace, values: Float[Tensor, "rows heads value"], b: Tensor, t: Tensor
) -> Float[Tensor, "rows words"]:
    """Return the logits of rows with these mixed values, each an output token of its own.

    Args:
        model: The model that gave the trace.
        trace: A pass, for its decoder states.
        values: The mixed value of each head.
        b: The sentence of each row.
        t: The target position of each row.
    """
    decoder = None if trace.decoder is None else trace.decoder[b, t][:, None]
    return model.readout(model.context_of(values[:, :, None]), decoder)[:, 0]


def rows_at_a_time(trace: Trace, max_elements: int) -> int:
    """Return how many rows fit, with their values, contexts, decoder states and logits."""
    states = 0 if trace.decoder is None else trace.decoder.shape[-1]
    context = 0 if trace.context is None else trace.context.shape[-1]
    values = trace.last.values.shape[1] * trace.last.values.shape[-1]
    return max(1, max_elements // (trace.logits.shape[-1] + states + context + values))


def check_weights(trace: Trace, weights: Tensor) -> None:
    shape, expected = tuple(weights.shape), tuple(trace.attention.shape)
    require(
        shape[-4:] == expected,
        f"weights of shape {shape} do not fit this pass, whose batch x heads x target x source is {expected}; only "
        "samples may come before",
    )


def is_classifier(trace: Trace) -> bool:
    """Return whether the output is one token, from at least two classes."""
    return trace.logits.shape[1] == 1 and trace.logits.shape[2] >= len(SPECIALS) + 2


def check_classifier(trace: Trace) -> None:
    if not is_classifier(trace):
        steps, outputs = trace.logits.shape[1:]
        raise BadSetting(
            "this probe needs the decisions of a classifier, which outputs one token, a class; this model outputs "
            f"{steps} tokens from a vocabulary of {outputs}, the {len(SPECIALS)} special ones included"
        )


def class_probabilities(logits: Float[Tensor, "*any 1 words"]) -> Float[Tensor, "*any classes"]:
    """Return the probabilities of the classes, in double precision; special tokens are not classes."""
    return logits[..., 0, len(SPECIALS) :].double().softmax(-1)


def random_keys(trace: Trace, samples: range, seed: int) -> Int[Tensor, "samples batch heads target source"]:
    """Return random 64-bit integers that follow from seed, sample, head, positions and the tokens of the source.

    So a text has the same keys in every batch, whatever its padding. Sorting by them is a random permutation.
    """
    heads, source = trace.attention.shape[1], trace.source.shape[1]
    positions = torch.arange(source, device=trace.source.device)
    steps = torch.arange(trace.target.shape[1], device=positions.device)
    tokens = splitmix64(trace.source * POSITIONS + positions) * trace.source_mask
    streams = torch.arange(samples.start * heads, samples.stop * heads, device=positions.device)
    seeds = (seed + steps * SEEDS)[:, None]  # target x 1
    cell = splitmix64(splitmix64(streams.view(-1, 1, heads, 1, 1) * POSITIONS + positions) + seeds)
    return splitmix64(splitmix64(tokens.sum(1)[:, None, None, None] + seeds) + cell)
