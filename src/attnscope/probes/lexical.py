"""What would be said if only this word were attended to? The lexical probe. (snell2021 §2.2 eq. 4, §2.4 eq. 9)

β is the probability of the gold word y_t with the value of one source position in the place of the context, the decoder
state held: N([h_l, s_t]) at y_t. It is exact, for every t and l. γ = log β / (1 − β) is its log-odds (§6.1). The same
function gives β^uf of a model that was trained under uniform attention, and β^px of the bag-of-words proxy.

What it asks of a model: a Trace; `readout(context, decoder)`, where decoder is None if the trace has none; and
`context_of(values)`, which turns what the heads picked (batch x heads x target x value) into a context (batch x target
x context) just as a forward pass does.
Where a readout does not look at the context, β is the same at every position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from attnscope.errors import require
from attnscope.models.capabilities import ReadsOut, needs
from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.probes.counterfactual import MAX_ELEMENTS, read_out_rows, rows_at_a_time
from attnscope.probes.scores import TokenScores
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class Lexical(TokenScores):
    """γ of every output word and source position, and β, which follows from it.

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


def lexical_of(
    model: ReadsOut, batch: Batch, head: int | None = None, max_elements: int = MAX_ELEMENTS, **forward: Any
) -> Lexical:
    """The lexical probe of a batch. What else is given, such as attention=uniform, goes to the forward pass."""
    with evaluating(model):
        return lexical(model, model(batch, **forward), head, max_elements)


def lexical(model: ReadsOut, trace: Trace, head: int | None = None, max_elements: int = MAX_ELEMENTS) -> Lexical:
    """The lexical probe of a pass that the model has already made.

    All heads attend to the position at once; with `head`, that one alone, and the others stay where they are.
    """
    check_head(trace, head)
    require(max_elements > 0, f"max_elements={max_elements}: at least one number must be held at a time")
    needs(model, ReadsOut, by="the lexical probe")
    everywhere = trace.last.values
    values_at = (lambda b, _, source: everywhere[b, :, source]) if head is None else mixed_but_one(trace, head)
    values = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    with evaluating(model):
        for rows in words_by_words(trace).split(rows_at_a_time(trace, max_elements)):
            b, t, source = rows.unbind(1)
            logits = read_out_rows(model, trace, values_at(b, t, source), b, t)
            values[b, t, source] = log_odds(logits, trace.target[b, t])
    name = "lexical probe γ" if head is None else f"lexical probe γ of head {head}"
    return Lexical(values, trace.source_mask, trace.target_mask, name)


def log_odds(logits: Float[Tensor, "rows words"], gold: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """log p / (1 − p) of the gold word: its logit less the log-sum-exp of the others, which loses no digits.

    >>> log_odds(torch.tensor([[0.0, 40.0]]), torch.tensor([1]))
    tensor([40.])
    """
    index = gold[:, None]
    others = logits.scatter(1, index, -torch.inf).logsumexp(1)
    return logits.gather(1, index)[:, 0] - others


def mixed_but_one(trace: Trace, head: int) -> Callable[[Tensor, Tensor, Tensor], Float[Tensor, "rows heads value"]]:
    """One head's value of a source position; of the others, what they mixed for the output token."""
    layer = trace.last
    mixed = layer.weights @ layer.values  # batch x heads x target x value

    def values_at(b: Tensor, t: Tensor, source: Tensor) -> Tensor:
        values = mixed[b, :, t]
        values[:, head] = layer.values[b, head, source]
        return values

    return values_at


def words_by_words(trace: Trace) -> Int[Tensor, "rows 3"]:
    """(sentence, target position, source position) of every pair of words that are no padding."""
    return (trace.target_mask[:, :, None] & trace.source_mask[:, None]).nonzero()


def check_head(trace: Trace, head: int | None) -> None:
    heads = trace.last.values.shape[1]
    require(head is None or 0 <= head < heads, f"there is no head {head}; heads are numbered from 0 to {heads - 1}")
