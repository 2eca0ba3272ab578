"""Which source tokens influence the output? Leave-one-out and gradients (snell2021 §5.1, Δ; tutek2020)

Every method scores each source token for each output token, positive where it raises the output: the log-probability of
the target token y_t, or another function of the trace, `of`. `.lowering` has the other sign. The model
runs in evaluation mode and is left unchanged: modes, gradients, hooks. Changed texts of a batch are put together by
length, so `of` must treat each text on its own; an output of type OfLogits spares the model from recording attention.

Gradients need a model that declares EmbedsSource: `source_inputs` is the module that embeds the source, called on
`batch.source` itself, once in a forward pass. (It may embed the target as well: other token ids pass untouched.) Where
positions are added inside that module, they are part of the embedding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.capabilities import TEACHER_FORCING, Decoding, EmbedsSource, GivesTrace, needs
from attnscope.models.inference import Model, by_length, evaluating, logits_of, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Interventions, Trace
from attnscope.probes.scores import TokenScores, TokenScoreTable, over_words
from attnscope.tasks.batch import Batch

Output = Callable[[Trace], Float[Tensor, "batch target"]]
Change = Callable[[Float[Tensor, "batch source input"]], Float[Tensor, "batch source input"]]

DELETIONS = {"drop": "word dropped", "zero": "embedding zeroed"}
POINTS = 32  # of the Gauss-Legendre rule
TOKENS_WITH_GRADIENTS = 1 << 13  # in one pass whose activations are stored for the backward pass


@dataclass(frozen=True)
class Saliency(TokenScores):
    """How much each source token raises the output, by one method (`name`)."""

    @property
    def lowering(self) -> "Saliency":
        """The other sign: positive where the token lowers the output, which is where it raises the loss."""
        return replace(self, values=-self.values, name=f"{self.name}, sign reversed")


def saliency(
    model: Model,
    data: Data = None,
    method: str = "leave_one_out",
    of: Output | None = None,
    decoding: Decoding | None = None,
) -> TokenScoreTable:
    """Return the saliency of every source token.

    Args:
        model: A model that gives Traces; all methods but leave_one_out need EmbedsSource.
        data: See `as_batches`. Without labels or translations, the target is the model's prediction.
        method: A name in METHODS.
        of: The output whose change is measured; by default the log-probability of the target token.
        decoding: See `traces`.
    """
    compute = METHODS[choose("saliency method", method, METHODS)]
    needs(model, GivesTrace, *(() if method == "leave_one_out" else (EmbedsSource,)), by=f"saliency by {method}")
    module, output = module_of(model), of or gold_log_probability
    passes = traces(model, data, decoding=decoding)
    scores = ((compute(module, batch, output, decoding=decoding), trace) for batch, trace in passes)
    return TokenScoreTable.of(scores, method.replace("_", " "))


@dataclass(frozen=True)
class OfLogits:
    """An output that follows from logits and target tokens alone, so that passes need not record anything else."""

    compute: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, trace: Trace) -> Float[Tensor, "batch target"]:
        return self.compute(trace.logits, trace.target)


# log p(y_t): minus the loss of each target token.
gold_log_probability = OfLogits(lambda logits, y: logits.log_softmax(-1).gather(-1, y[..., None]).squeeze(-1))


# Leave-one-out


def leave_one_out(
    model: GivesTrace,
    batch: Batch,
    of: Output = gold_log_probability,
    how: str = "drop",
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return the output less the output without each token.

    Args:
        model: A model that gives Traces.
        batch: Sentences.
        of: The output.
        how: "drop": the sentence closes over the gap; a token that is its whole sentence cannot be dropped: NaN.
            "zero": a zero embedding stands in the token's place.
        attention: Attention of the forward passes.
        decoding: Decoding of the forward passes; None: the model's default.
    """
    choose("way to leave a word out", how, DELETIONS)
    without = output_without if how == "drop" else output_with_zero
    with evaluating(model):
        whole = output(model, batch, of, attention, decoding)
        rest = torch.full((*whole.shape, batch.source.shape[1]), torch.nan, dtype=whole.dtype, device=whole.device)
        for rows, places, values in without(model, batch, of, attention, decoding):
            rest[rows, :, places] = values
    return masked_saliency(whole[..., None] - rest, batch, f"leave-one-out, {DELETIONS[how]}")


def output_without(
    model: GivesTrace, batch: Batch, of: Output, attention: Interventions | None, decoding: Decoding | None
) -> Iterator[tuple[Tensor, Tensor, Float[Tensor, "rows target"]]]:
    """Yield sentences, positions, and the output when the token at this position is dropped."""
    several = batch.source_mask & (batch.source_mask.sum(1, keepdim=True) > 1)  # a sentence keeps one token
    rows, places = several.nonzero(as_tuple=True)
    for block in by_length(model, batch.source_mask.sum(1)[rows] + batch.target.shape[1]):
        keep = batch.source_mask[rows[block]]
        keep[torch.arange(len(block), device=block.device), places[block]] = False
        yield rows[block], places[block], output(model, batch.keep(rows[block], keep), of, attention, decoding)


def output_with_zero(
    model: GivesTrace, batch: Batch, of: Output, attention: Interventions | None, decoding: Decoding | None
) -> Iterator[tuple[Tensor, Tensor, Float[Tensor, "rows target"]]]:
    """Yield sentences, positions, and the output when the token at this position has a zero embedding."""
    copies = batch.source_mask.T.flatten()  # one of each sentence for each of its tokens
    for texts, rows, places in repeated(model, batch, batch.source.shape[1], attention, copies):
        others = (torch.arange(texts.source.shape[1], device=rows.device) != places[:, None])[..., None]
        with with_embeddings(model, texts, partial(torch.mul, others)):
            values = output(model, texts, of, attention, decoding)
        yield rows, places, values


# Gradients


def influence(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return Δ: the derivative with respect to a factor, 1, of each token's embedding.

    By the chain rule it is gradient · embedding, the first-order effect of that token on the output.
    """

    def slopes(texts: Batch) -> list[Tensor]:
        scale = torch.ones_like(embeddings(model, texts)[..., :1]).requires_grad_()  # batch x source x 1
        return [
            slope[..., 0] for slope in derivatives(model, texts, lambda e: e * scale, scale, of, attention, decoding)
        ]

    return gradient_scores(model, batch, slopes, attention, "influence Δ")


def gradient_norm(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return the norm of the gradient with respect to each embedding: how much a token could matter, without a sign."""

    def norms(texts: Batch) -> list[Tensor]:
        shift = torch.zeros_like(embeddings(model, texts)).requires_grad_()
        slopes = derivatives(model, texts, lambda e: e + shift, shift, of, attention, decoding)
        return [slope.norm(dim=-1) for slope in slopes]

    return gradient_scores(model, batch, norms, attention, "gradient norm")


def gradient_times_input(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Saliency:
    """Return the gradient with respect to each embedding, times that embedding, summed: the same as `influence`."""

    def products(texts: Batch) -> list[Tensor]:
        embedded = embeddings(model, texts)
        shift = torch.zeros_like(embedded).requires_grad_()
        slopes = derivatives(model, texts, lambda e: e + shift, shift, of, attention, decoding)
        return [(slope * embedded).sum(-1) for slope in slopes]

    return gradient_scores(model, batch, products, attention, "gradient × input")


def gradient_scores(
    model: EmbedsSource,
    batch: Batch,
    scores: Callable[[Batch], list[Float[Tensor, "texts source"]]],
    attention: Interventions | None,
    name: str,
) -> Saliency:
    """Return the scores of all texts, from a function that returns, for some texts, those of each target token."""
    values = torch.zeros(())
    for texts, rows, _ in repeated(model, batch, 1, attention):
        block = torch.stack(scores(texts), 1)  # texts x target x source
        if not values.dim():
            values = block.new_zeros(*batch.target.shape, batch.source.shape[1])
        values[rows, :, : block.shape[-1]] = block
    return masked_saliency(values, batch, name)


def derivatives(
    model: EmbedsSource,
    batch: Batch,
    change: Change,
    parameter: Tensor,
    of: Output,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> list[Float[Tensor, "batch source part"]]:
    """Return, for each target position, the derivative of its output with respect to a parameter of `change`.

    Sentences of a batch are independent, so the sum over them is differentiated once for all.
    """
    with with_gradients(model):
        with with_embeddings(model, batch, change):
            outputs = output(model, batch, of, attention, decoding).sum(0)  # target
        last = len(outputs) - 1
        return [
            torch.autograd.grad(total, parameter, retain_graph=step < last, materialize_grads=True)[0]
            for step, total in enumerate(outputs)
        ]


# Integrated gradients (Sundararajan et al. 2017)


@dataclass(frozen=True)
class IntegratedGradients(Saliency):
    """Shares of the change of the output from a blank sentence to this one."""

    missed: Float[Tensor, "batch target"]  # the exact sum of the shares, less their actual sum; NaN on padding


def integrated_gradients(
    model: EmbedsSource,
    batch: Batch,
    of: Output = gold_log_probability,
    baseline: Float[Tensor, " input"] | None = None,
    points: int = POINTS,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> IntegratedGradients:
    """Return the mean gradient on the line from a baseline embedding to the token's own, times their difference.

    Over the tokens of a sentence it sums to the output less that of the blank sentence; `missed` is the error of the
    numerical integral.

    Args:
        model: A model that declares EmbedsSource.
        batch: Sentences.
        of: The output.
        baseline: The blank embedding; zero by default.
        points: Number of points of the Gauss-Legendre rule.
        attention: Attention of the forward passes.
        decoding: Decoding of the forward passes; None: the model's default.
    """
    require(points > 0, f"points={points}: the integral needs at least one point")
    embedded = embeddings(model, batch)
    blank = torch.zeros_like(embedded[0, 0]) if baseline is None else baseline.to(embedded)
    places, weights = embedded.new_tensor(gauss_legendre(points)).T
    values = embedded.new_zeros(*batch.target.shape, batch.source.shape[1])
    for texts, rows, point in repeated(model, batch, points, attention):
        scale = places[point, None, None].repeat(1, texts.source.shape[1], 1).requires_grad_()  # texts x source x 1
        slopes = derivatives(model, texts, line_to(blank, scale), scale, of, attention, decoding)
        parts = weights[point, None, None] * torch.stack([slope.squeeze(-1) for slope in slopes], 1)
        values[..., : parts.shape[-1]].index_add_(0, rows, parts)
    scores = masked_saliency(values, batch, "integrated gradients")
    ends = torch.zeros(2, *batch.target.shape, dtype=embedded.dtype, device=embedded.device)
    with evaluating(model):
        for texts, rows, end in repeated(model, batch, 2, attention):
            with with_embeddings(model, texts, line_to(blank, end[:, None, None].to(embedded))):
                ends[end, rows] = output(model, texts, of, attention, decoding).to(ends)
    missed = (ends[1] - ends[0] - scores.values.nansum(-1)).masked_fill(~batch.target_mask, torch.nan)
    return IntegratedGradients(scores.values, scores.source_mask, scores.target_mask, scores.name, missed)


def line_to(blank: Tensor, scale: Tensor) -> Change:
    return lambda e: blank + (e - blank) * scale


def gauss_legendre(points: int) -> list[tuple[float, float]]:
    """Return places and weights of the Gauss-Legendre rule between 0 and 1.

    >>> gauss_legendre(1)
    [(0.5, 1.0)]
    """
    places, weights = np.polynomial.legendre.leggauss(points)
    return [(float(place), float(weight)) for place, weight in zip((places + 1) / 2, weights / 2, strict=True)]


# Passes


def repeated(
    model: EmbedsSource | GivesTrace,
    batch: Batch,
    copies: int,
    attention: Interventions | None,
    select: Bool[Tensor, " rows"] | None = None,
) -> Iterator[tuple[Batch, Int[Tensor, " rows"], Int[Tensor, " rows"]]]:
    """Yield texts in batches of similar length, each text several times, with the text and the copy of each row.

    With `attention`, the batch is not split, since the weights may be those of its texts.

    Args:
        model: The model that reads them.
        batch: Texts.
        copies: Number of copies of each text.
        attention: Attention of the forward passes.
        select: Mask of the rows needed, the first copy of all texts first; None: all.
    """
    rows = torch.arange(len(batch), device=batch.source.device).repeat(copies)
    copy = torch.arange(copies, device=rows.device).repeat_interleave(len(batch))
    if attention is not None:
        yield from ((batch, rows[: len(batch)], index) for index in copy.split(len(batch)))
        return
    if select is not None:
        rows, copy = rows[select], copy[select]
    for block in by_length(model, batch.source_mask.sum(1)[rows] + batch.target.shape[1], TOKENS_WITH_GRADIENTS):
        yield batch.keep(rows[block], batch.source_mask[rows[block]]), rows[block], copy[block]


def output(
    model: EmbedsSource | GivesTrace,
    batch: Batch,
    of: Output,
    attention: Interventions | None,
    decoding: Decoding | None,
) -> Float[Tensor, "batch target"]:
    """Return the output of a pass, which records attention only if the output needs it."""
    if isinstance(of, OfLogits) and attention is None:
        return of.compute(logits_of(model, batch, decoding), batch.target)
    return of(forward(model, batch, attention, decoding))


def forward(
    model: EmbedsSource | GivesTrace, batch: Batch, attention: Interventions | None, decoding: Decoding | None
) -> Trace:
    """Return the trace of a pass, with the model's own attention and decoding by default."""
    if decoding is None:
        return model(batch) if attention is None else model(batch, attention=attention)
    return model(batch, attention=attention, teacher_forcing=TEACHER_FORCING[decoding])


def masked_saliency(values: Float[Tensor, "batch target source"], batch: Batch, name: str) -> Saliency:
    masked = over_words(values.detach(), batch.source_mask, batch.target_mask)
    return Saliency(masked, batch.source_mask, batch.target_mask, name)


@contextmanager
def with_embeddings(model: EmbedsSource | GivesTrace, batch: Batch, change: Change) -> Iterator[None]:
    """Within the block, the model gets change(e) for the embeddings e of this batch's source."""
    needs(model, EmbedsSource, by="saliency")
    assert isinstance(model, EmbedsSource)
    calls = 0

    def hook(_: nn.Module, args: tuple[object, ...], embedded: Tensor) -> Tensor | None:
        nonlocal calls
        if not args or args[0] is not batch.source:
            return None
        calls += 1
        return change(embedded)

    handle = model.source_inputs.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if not calls:
        raise AttnscopeError(
            f"{type(model).__name__} did not call source_inputs(batch.source), so its embeddings could not be reached"
        )


def embeddings(model: EmbedsSource, batch: Batch) -> Float[Tensor, "batch source input"]:
    """Return e, as the model computes it in evaluation mode."""
    needs(model, EmbedsSource, by="saliency")
    with evaluating(model):
        embedded: Tensor = model.source_inputs(batch.source)
        return embedded


@contextmanager
def with_gradients(model: EmbedsSource) -> Iterator[None]:
    """Evaluation mode with gradients, without cuDNN, which has no backward pass of recurrent layers in this mode."""
    with evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield


METHODS: dict[str, Callable[..., Saliency]] = {
    "influence": influence,
    "gradient_norm": gradient_norm,
    "gradient_times_input": gradient_times_input,
    "leave_one_out": leave_one_out,
    "integrated_gradients": integrated_gradients,
}
