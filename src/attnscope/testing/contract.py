"""Holding a model to the contract of an adapter: all of it, or what every audit relies on."""

from collections.abc import Callable, Iterable, Iterator

from torch import nn

from attnscope.errors import AttnscopeError, require
from attnscope.models.inference import Model, device_of, evaluating, module_of
from attnscope.models.trace import Trace
from attnscope.tasks.batch import Batch
from attnscope.testing.clauses import (
    TOLERANCE,
    Case,
    a_batch_is_its_sentences,
    attention_is_a_distribution_over_the_source,
    attention_is_the_softmax_of_the_scores,
    decoder_is_given_only_earlier_tokens,
    every_layer_and_head_can_be_changed,
    interventions_are_given_weights_and_mask,
    interventions_take_effect,
    own_weights_change_nothing,
    padding_changes_nothing,
    readout_gives_the_logits,
    shapes_are_right,
    source_embeddings_can_be_reached,
    state_changes,
    state_of,
    the_model_is_left_as_it_was,
    trace_holds_the_batch,
    uniform_is_uniform,
)

Clause = Callable[[Case], Iterator[str]]
QUICK: tuple[Clause, ...] = (
    trace_holds_the_batch, shapes_are_right, attention_is_a_distribution_over_the_source,
    interventions_are_given_weights_and_mask, interventions_take_effect,
)  # fmt: skip
CLAUSES: dict[str, Clause] = {
    clause.__name__.replace("_", " "): clause
    for clause in (
        *QUICK, attention_is_the_softmax_of_the_scores, own_weights_change_nothing, uniform_is_uniform,
        every_layer_and_head_can_be_changed, readout_gives_the_logits, decoder_is_given_only_earlier_tokens,
        a_batch_is_its_sentences, padding_changes_nothing, source_embeddings_can_be_reached,
        the_model_is_left_as_it_was,
    )
}  # fmt: skip
QUICK_SENTENCES = 4


class BrokenContract(AttnscopeError):
    """A model does not do what an adapter must."""


def quick_check(model: Model, batch: Batch) -> None:
    """Raise BrokenContract, with one sentence, unless shapes are right and `attention=` takes effect.

    It takes four passes over the first few sentences, so it can run before every audit.
    """
    module = module_of(model)
    few = batch.rows(slice(QUICK_SENTENCES)).to(device_of(module))
    for sentence in violations(module, few, TOLERANCE, QUICK):
        raise BrokenContract(
            f"{type(module).__name__} does not keep the contract of an adapter: {sentence} "
            "(attnscope.testing.check_adapter lists all that is wrong)"
        )


def check_adapter(model: Callable[..., Trace], batches: Iterable[Batch], tolerance: float = TOLERANCE) -> None:
    """Raise an AssertionError with one sentence for everything that does not hold, on any of these batches.

    Args:
        model: The model; what it does not declare (see `capabilities`) is not checked.
        batches: A few sentences of different lengths.
        tolerance: Of the largest number compared, or of one if that is larger.
    """
    given = list(batches)
    require(
        any(not bool(batch.source_mask.all()) for batch in given),
        "check_adapter needs a batch of texts of different lengths, or padding would not be tested",
    )
    before = state_of(model) if isinstance(model, nn.Module) else {}
    wrong = [sentence for batch in given for sentence in violations(model, batch, tolerance, CLAUSES.values())]
    wrong += state_changes(before, state_of(model), "being checked") if isinstance(model, nn.Module) else []
    if wrong:
        raise AssertionError("\n".join([f"{type(model).__name__} does not keep the contract of an adapter:", *wrong]))


def violations(model: Callable[..., Trace], batch: Batch, tolerance: float, clauses: Iterable[Clause]) -> Iterator[str]:
    """Yield one sentence for everything that does not hold on this batch."""
    with evaluating(model):
        trace = model(batch)
    if not isinstance(trace, Trace):
        yield f"a pass gives a {type(trace).__name__}, not a Trace"
        return
    case = Case(model, batch, trace, tolerance)
    for clause in clauses:
        name = clause.__name__.replace("_", " ")
        try:
            yield from (f"{name}: {sentence}" for sentence in clause(case))
        except Exception as error:  # whatever a foreign model raises is a finding about it
            yield f"{name}: {type(error).__name__}: {error}"
