"""The contract of an adapter, clause by clause, and how a model is held to it."""

from collections.abc import Callable, Iterable, Iterator

from torch import nn

from attnscope.errors import require
from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.tasks.batch import Batch
from attnscope.testing.clauses import (
    TOLERANCE,
    Asked,
    a_batch_is_its_sentences,
    attends_to_words_only,
    attention_is_the_softmax_of_the_scores,
    changed,
    embeddings_can_be_reached,
    every_layer_and_head_can_be_changed,
    gives_the_batch_back,
    has_the_right_shapes,
    hears_only_earlier_words,
    interventions_take_effect,
    its_own_weights_change_nothing,
    leaves_the_model_as_it_was,
    masks_what_is_no_word,
    padding_changes_nothing,
    reads_out_what_it_says,
    state_of,
    uniform_is_uniform,
)

Clause = Callable[[Asked], Iterator[str]]
CLAUSES: dict[str, Clause] = {
    clause.__name__.replace("_", " "): clause
    for clause in (
        gives_the_batch_back, has_the_right_shapes, attends_to_words_only, attention_is_the_softmax_of_the_scores,
        masks_what_is_no_word, its_own_weights_change_nothing, interventions_take_effect, uniform_is_uniform,
        every_layer_and_head_can_be_changed, reads_out_what_it_says, hears_only_earlier_words,
        a_batch_is_its_sentences, padding_changes_nothing, embeddings_can_be_reached, leaves_the_model_as_it_was,
    )
}  # fmt: skip


def check_adapter(model: Callable[..., Trace], batches: Iterable[Batch], tolerance: float = TOLERANCE) -> None:
    """Raise an AssertionError with a sentence for everything that does not hold, on any of these batches."""
    given = list(batches)
    require(
        any(not bool(batch.source_mask.all()) for batch in given),
        "check_adapter needs a batch of texts of different lengths, or padding would not be tested",
    )
    whole = state_of(model) if isinstance(model, nn.Module) else {}
    wrong = [sentence for batch in given for sentence in violations(model, batch, tolerance)]
    wrong += changed(whole, state_of(model), "being checked") if isinstance(model, nn.Module) else []
    if wrong:
        raise AssertionError("\n".join([f"{type(model).__name__} does not keep the contract of an adapter:", *wrong]))


def violations(model: Callable[..., Trace], batch: Batch, tolerance: float) -> Iterator[str]:
    with evaluating(model):
        trace = model(batch)
    if not isinstance(trace, Trace):
        yield f"a pass gives a {type(trace).__name__}, not a Trace"
        return
    asked = Asked(model, batch, trace, tolerance)
    for name, clause in CLAUSES.items():
        try:
            yield from (f"{name}: {sentence}" for sentence in clause(asked))
        except Exception as error:  # whatever a foreign model raises is a finding about it
            yield f"{name}: {type(error).__name__}: {error}"
