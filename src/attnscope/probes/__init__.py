"""What we ask: functions and accumulators over Traces, each answer with .table() and .plot()."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from torch import nn

from attnscope.errors import choose, require
from attnscope.models.capabilities import ReadsOut
from attnscope.models.inference import traces
from attnscope.probes.adversary import Adversaries, exact_adversaries
from attnscope.probes.agreement import Agreement, AgreementAccumulator
from attnscope.probes.decomposition import Decomposition, decompose
from attnscope.probes.fragility import Fragility, fragility
from attnscope.probes.grounding import Grounding, GroundingAccumulator, token_probabilities
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.scores import attention_scores
from attnscope.tasks import Batch, Task, TextTask
from attnscope.tasks.task import trimmed


def decomposed(model: nn.Module, task: Task) -> Decomposition:
    """How is this model's attention formed? Components from the task's test set, held out on its validation set."""
    test, held_out = (partial(task.batches, split) for split in ("test", "validation"))
    return decompose(model, test, held_out)


def agreed(model: nn.Module, task: Task) -> Agreement:
    """Does this model attend to the words that it could translate? Attention against the lexical probe, A(α, β)."""
    agree = AgreementAccumulator()
    for _, trace in traces(model, some(task), teacher_forcing=1.0):
        agree.update(attention_scores(trace).values, lexical_scores(cast(ReadsOut, model), trace).values, trace)
    return agree.result()


def perturbed(model: nn.Module, task: Task) -> Fragility:
    """Do a classifier's decisions depend on its attention? Made uniform, and shuffled."""
    return fragility(model, some(task))


def grounded(model: nn.Module, task: Task) -> Grounding:
    """Would each token alone make a classifier's decision?"""
    ground = GroundingAccumulator()
    for _, trace in traces(model, some(task)):
        ground.update(token_probabilities(cast(ReadsOut, model), trace))
    return ground.result()


def farthest_of(model: nn.Module, task: Task) -> Adversaries:
    """How far from its own can a classifier's attention be, text by text, for nearly the same output?"""
    return exact_adversaries(model, some(task))


def some(task: Task, most: int = 1000, size: int = 50) -> Iterable[Batch]:
    """Test sentences: all made-up ones, or as many of a corpus, drawn at random."""
    if not isinstance(task, TextTask):
        return task.batches("test", size)
    drawn = task.draw("test", most)
    return (trimmed(drawn, slice(start, start + size)) for start in range(0, len(drawn), size))


PROBES: dict[str, Callable[[nn.Module, Task], Any]] = {
    "decomposition": decomposed,
    "agreement": agreed,
    "fragility": perturbed,
    "token_probabilities": grounded,
    "adversary": farthest_of,
}


def probe(name: str) -> Callable[[nn.Module, Task], Any]:
    """A probe by name, whose answer is one that can be shown."""
    return partial(answer, choose("probe", name, PROBES, "PROBES"))


def answer(name: str, model: nn.Module, task: Task) -> Any:
    found = PROBES[name](model, task)
    shown = all(callable(getattr(found, way, None)) for way in ("table", "plot"))
    require(shown, f"a probe gives an object with .table() and .plot(ax); {name!r} gave a {type(found).__name__}")
    return found
