"""How likely is the gold token if only one source token is attended to? The lexical probe. (snell2021 §2.2 eq. 4)

β is the probability of the gold token y_t with the value of one source position in the place of the context, the
decoder state held: N([h_l, s_t]) at y_t. It is exact, for every t and l. γ = log β / (1 − β) is its log-odds (§6.1).
The same function gives β^uf of a model that was trained under uniform attention, and β^px of the bag-of-words proxy
(§2.4 eq. 9). Where a readout does not use the context, β is the same at every position.

With `layer=`, of a model with several layers: the token alone is attended to in that layer, at the step that predicts
y_t, and later layers run unchanged. That takes one forward pass per output token and source token.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from attnscope.errors import require
from attnscope.models.capabilities import TEACHER_FORCING, Decoding, GivesTrace, HasLayers, ReadsOut, needs
from attnscope.models.inference import Model, evaluating, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Interventions, Trace
from attnscope.probes.counterfactual import MAX_ELEMENTS, read_out_rows, rows_at_a_time
from attnscope.probes.scores import TokenScores, TokenScoreTable
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class Lexical(TokenScores):
    """γ of every output token and source position, and β, which follows from it.

    Compare positions by γ: in single precision, β is 1 wherever γ is above 17, and everything ties.
    """

    @property
    def log_odds(self) -> Float[Tensor, "batch target source"]:  # γ
        return self.values

    @property
    def probability(self) -> Float[Tensor, "batch target source"]:  # β
        return self.values.sigmoid()

    @property
    def log_probability(self) -> Float[Tensor, "batch target source"]:
        return logsigmoid(self.values)


def lexical(
    model: Model,
    data: Data,
    head: int | None = None,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
    layer: int | None = None,
) -> TokenScoreTable:
    """Return γ, the log-odds of every output token given each source token alone.

    Args:
        model: A model that ReadsOut.
        data: Texts, a path, a table, a Task or Batches. Without labels or translations, the target is the prediction.
        head: The head that attends to the position, the others unchanged; None: all.
        attention: Weights in place of the model's own, which the decoder state and the other heads depend on.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
        layer: The layer in which the token alone is attended to, from 0 or -1; None: the last, by a readout.
    """
    needs(model, ReadsOut, by="the lexical probe")
    module = cast(ReadsOut, module_of(model))
    require(layer is None or attention is None, "give attention= for the last layer's probe, or layer=, not both")
    passes = traces(model, data, attention=attention, decoding=decoding)
    scores = (
        (
            lexical_scores(module, trace, head)
            if layer is None
            else lexical_scores_at(cast(GivesTrace, module), trace, layer, head, decoding),
            trace,
        )
        for _, trace in passes
    )
    return TokenScoreTable.of(scores, lexical_name(head, layer))


def batch_lexical_scores(
    model: ReadsOut,
    batch: Batch,
    head: int | None = None,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
) -> Lexical:
    """Return the lexical probe of one batch; the arguments are those of `lexical`."""
    ((_, trace),) = traces(model, batch, attention=attention, decoding=decoding)
    return lexical_scores(model, trace, head)


def lexical_scores(model: ReadsOut, trace: Trace, head: int | None = None, max_elements: int = MAX_ELEMENTS) -> Lexical:
    """Return the lexical probe of a forward pass.

    Args:
        model: The model that gave the trace.
        trace: The pass.
        head: The head that attends to the position, the others unchanged; None: all.
        max_elements: The largest number of elements in memory at a time.
    """
    needs(model, ReadsOut, by="the lexical probe")
    heads = trace.last.values.shape[1]
    require(head is None or 0 <= head < heads, f"there is no head {head}; heads are numbered from 0 to {heads - 1}")
    require(max_elements > 0, f"max_elements={max_elements}: at least one number must be held at a time")
    pairs = trace.pairs.nonzero()
    values = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    mixed = trace.last.weights @ trace.last.values  # batch x heads x target x value
    with evaluating(model):
        for rows in pairs.split(rows_at_a_time(trace, max_elements)):
            b, t, source = rows.unbind(1)
            chosen = trace.last.values[b, :, source]  # rows x heads x value
            if head is not None:
                chosen = mixed[b, :, t].index_copy(1, torch.tensor([head], device=b.device), chosen[:, [head]])
            values[b, t, source] = log_odds(read_out_rows(model, trace, chosen, b, t), trace.target[b, t])
    return Lexical(values, trace.source_mask, trace.target_mask, lexical_name(head))


def lexical_scores_at(
    model: GivesTrace,
    trace: Trace,
    layer: int,
    head: int | None = None,
    decoding: Decoding | None = None,
    max_elements: int = MAX_ELEMENTS,
) -> Lexical:
    """Return the lexical probe of one layer, by one pass for each output token and source token.

    Args:
        model: The model that gave the trace.
        trace: The pass.
        layer: The layer in which the token alone is attended to, from 0 or -1.
        head: The head that attends to the position, the others unchanged; None: all.
        decoding: How the decoder is run; None: the model's default.
        max_elements: The approximate number of elements in memory at a time.
    """
    needs(model, HasLayers, by="the lexical probe of a layer")
    weights = trace.layer(layer).weights
    require(head is None or 0 <= head < weights.shape[1], f"there is no head {head} among {weights.shape[1]}")
    heads = slice(None) if head is None else slice(head, head + 1)
    forcing = None if decoding is None else TEACHER_FORCING[decoding]
    values = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    size = trace.logits[0].numel() + 4 * len(trace.layers) * weights[0].numel()
    for rows in trace.pairs.nonzero().split(max(1, max_elements // size)):
        b, t, source = rows.unbind(1)
        batch, step = single_decisions(trace, b, t)
        row = torch.arange(len(b), device=b.device)

        def alone(own: Tensor, mask: Tensor, at: tuple[Tensor, ...] = (row, step, source)) -> Tensor:
            changed = own.clone()
            changed[at[0], heads, at[1]] = one_hot(at[2], own.shape[-1]).to(own)[:, None]
            return changed

        with evaluating(model):
            logits = model(batch, attention={layer % len(trace.layers): alone}, teacher_forcing=forcing).logits[
                row, step
            ]
        values[b, t, source] = log_odds(logits, trace.target[b, t])
    return Lexical(values, trace.source_mask, trace.target_mask, lexical_name(head, layer))


def single_decisions(trace: Trace, b: Int[Tensor, " rows"], t: Int[Tensor, " rows"]) -> tuple[Batch, Tensor]:
    """Return one text per row, and its target position; for a language model, the text up to its query."""
    if trace.rows is None:
        return trace.batch.keep(b, trace.source_mask[b]), t
    visible = torch.arange(trace.source.shape[1], device=b.device) <= trace.rows[b, t][:, None]
    batch = trace.batch.keep(b, trace.source_mask[b] & visible)
    target, mask = trace.target[b, t][:, None], trace.target_mask[b, t][:, None]
    return replace(batch, target=target, target_mask=mask), torch.zeros_like(t)


def lexical_name(head: int | None, layer: int | None = None) -> str:
    of = [f"{name} {number}" for name, number in (("layer", layer), ("head", head)) if number is not None]
    return "lexical probe γ" + (f" of {', '.join(of)}" if of else "")


def log_odds(logits: Float[Tensor, "rows words"], gold: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """Return log p / (1 − p) of the gold token: its logit less the log-sum-exp of the others, without loss of digits.

    >>> log_odds(torch.tensor([[0.0, 40.0]]), torch.tensor([1]))
    tensor([40.])
    """
    index = gold[:, None]
    others = logits.scatter(1, index, -torch.inf).logsumexp(1)
    return logits.gather(1, index)[:, 0] - others
