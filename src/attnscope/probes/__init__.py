"""What we ask: functions and accumulators over Traces, each answer with .table() and .plot()."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from attnscope.models import EncoderDecoder
from attnscope.probes.decomposition import Decomposition, decompose
from attnscope.tasks import Task


def decomposed(model: nn.Module, task: Task) -> Decomposition:
    """How is this model's attention formed? Components from the task's test set, held out on its validation set."""
    inner = isinstance(model, EncoderDecoder) and model.settings.attention not in ("none", "additive")
    of = "attention" if inner else "states"  # only a score that is an inner product has nine terms
    test, held_out = (partial(task.batches, split) for split in ("test", "validation"))
    return decompose(model, test, held_out, of=of, teacher_forcing=0.0)


PROBES: dict[str, Callable[[nn.Module, Task], Any]] = {"decomposition": decomposed}
