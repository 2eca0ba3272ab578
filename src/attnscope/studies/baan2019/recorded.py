"""What do the units do while a network answers, and what is there to be read off them? (baan2019 §4.1)

Networks are asked as they were trained, on their own words. `h_enc` are the encoder's states; `z_dec` and `r_dec` are
the decoder's update gate, as torch computes it (it keeps the old state where it is open), and its reset gate.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnscope.errors import choose
from attnscope.lab.experiment import Run
from attnscope.models import EncoderDecoder, Trace
from attnscope.models.inference import traces
from attnscope.probes.diagnostic import Samples, last_tokens
from attnscope.tasks import END, NOWHERE, Batch, LookupTables, PublishedLookupTables

ALL = ("all",)  # every table and every pair, with every input: what the paper's classifiers are fitted and tested on
SIGNALS: dict[str, Callable[[Trace], Tensor]] = {
    "h_enc": lambda trace: trace.encoder,
    "z_dec": lambda trace: trace.gates["decoder.keep"],
    "r_dec": lambda trace: trace.gates["decoder.reset"],
}
FEATURES = ("current table", "time step")


def network_of(run: Run) -> EncoderDecoder:
    model = run.model()
    assert isinstance(model, EncoderDecoder)
    return model


def answers(
    run: Run, splits: Sequence[str] = ALL, model: EncoderDecoder | None = None
) -> Iterator[tuple[Batch, Trace]]:
    """What the run's network, or another one in its place, does on each batch of these splits."""
    asked = network_of(run) if model is None else model
    for split in splits:
        yield from traces(asked, run.task.batches(split), teacher_forcing=0.0, gates=True)


def samples(
    run: Run,
    signal: str,
    feature: str = "current table",
    splits: Sequence[str] = ALL,
    model: EncoderDecoder | None = None,
) -> Samples:
    """The signal with its feature at every step that has one; kinds, for control tasks, are the last two words."""
    read = SIGNALS[choose("signal", signal, SIGNALS)]
    choose("feature", feature, FEATURES)
    task = tables_of(run)
    parts = []
    for batch, trace in answers(run, splits, model):
        kinds = last_tokens(batch.source, batch.source_mask, len(task.source_vocabulary))
        words = batch.source
        if signal != "h_enc":
            words, kinds = (looked_up(column, batch) for column in (words, kinds))
        labels, has_one = labelled(words, feature, task)
        parts.append(Samples.of(read(trace), labels, has_one, kinds))
    return Samples.joined(parts)


def tables_of(run: Run) -> PublishedLookupTables | LookupTables:
    assert isinstance(run.task, PublishedLookupTables | LookupTables)
    return run.task


def looked_up(column: Int[Tensor, "batch source"], batch: Batch) -> Int[Tensor, "batch target"]:
    """What stands, at each step of the answer, where the guide says that the answer comes from; or NOWHERE."""
    assert batch.gold_attention is not None
    found = column.gather(1, batch.gold_attention.clamp(min=0))
    return found.masked_fill(batch.gold_attention == NOWHERE, NOWHERE)


def labelled(
    words: Int[Tensor, "batch steps"], feature: str, task: PublishedLookupTables | LookupTables
) -> tuple[Int[Tensor, "batch steps"], Bool[Tensor, "batch steps"]]:
    """The feature at each step, and where it has a value: the table that is read, or, the full stop aside, how many
    words came before (footnote 7). Padding, the full stop and NOWHERE have the lowest numbers."""
    if feature == "current table":
        tables = torch.tensor(task.source_vocabulary.encode(task.drawn.names), device=words.device)
        return words, torch.isin(words, tables)
    return torch.arange(words.shape[1], device=words.device).expand_as(words), words > END
