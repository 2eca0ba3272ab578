"""How does a model attend, how did it learn to, and may its attention be read as an explanation?

What a notebook needs first; all else is in the folders `tasks`, `models`, `training`, `probes` and `studies`.

    TASKS, MODELS, build                             what is to be learned, what can learn it, and a fresh one
    TrainingSettings, fit, evaluate                  how it learns, and how well it does
    uniform                                          attention=uniform: what if it attended to all words alike?
    attention_scores, lexical, decompose, fragility  what we ask; every answer has .table() and .plot()
    load, audit                                      a model of your own, and whether its attention may be shown
    study, reproduce                                 the papers, and whether their findings hold

>>> import attnscope, torch
>>> task = attnscope.TASKS["one_to_one"](num_words=3, min_length=4, max_length=6, test_size=100)
>>> model = attnscope.build(attnscope.MODELS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))
>>> _ = attnscope.fit(model, task, settings=attnscope.TrainingSettings(steps=2, batch_size=16))
>>> trace = model(next(task.batches("test")), attention=attnscope.uniform)
>>> trace.attention.shape  # batch, heads, target, source
torch.Size([100, 1, 7, 7])
>>> sorted(attnscope.evaluate(model, task.batches("test")))
['final_accuracy', 'loss', 'sentence_accuracy', 'word_accuracy']
>>> attnscope.lexical(model, trace).values.shape == attnscope.attention_scores(trace).values.shape
True
>>> attnscope.decompose(model, lambda: task.batches("test")).table().index.tolist()
[('in-sample', 'head 0')]
>>> attnscope.study("aitken2021").finding("fig3").section
'§4, figure 3'
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnscope.auditing import audit
    from attnscope.models import MODELS, build, uniform
    from attnscope.models.adapters import load
    from attnscope.probes.decomposition import decompose
    from attnscope.probes.fragility import fragility
    from attnscope.probes.lexical import lexical
    from attnscope.probes.scores import attention_scores
    from attnscope.studies import study
    from attnscope.studies.reproduce import Progress
    from attnscope.studies.result import Result
    from attnscope.tasks import TASKS
    from attnscope.training import TrainingSettings, evaluate
    from attnscope.training.fit import fit

__version__ = "0.1.0"
__all__ = [
    "MODELS", "TASKS", "TrainingSettings", "attention_scores", "audit", "build", "decompose", "evaluate", "fit",
    "fragility", "lexical", "load", "reproduce", "study", "uniform",
]  # fmt: skip

# Imported when they are asked for: `attnscope --help` should not wait for torch.
PLACES = {
    "auditing": ["audit"],
    "models": ["MODELS", "build", "uniform"],
    "models.adapters": ["load"],
    "probes.agreement": ["attention_scores"],
    "probes.decomposition": ["decompose"],
    "probes.fragility": ["fragility"],
    "probes.lexical": ["lexical"],
    "studies": ["study"],
    "tasks": ["TASKS"],
    "training": ["TrainingSettings", "evaluate", "fit"],
}


def __getattr__(name: str) -> Any:
    for place, names in PLACES.items():
        if name in names:
            return getattr(import_module(f"attnscope.{place}"), name)
    raise AttributeError(f"module 'attnscope' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def reproduce(
    study: str,
    *findings: str,
    profile: str = "quick",
    seeds: int | None = None,
    store: str | Path = "runs",
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    device: str = "cpu",
    progress: "Progress | None" = None,
) -> "list[Result]":
    """Do the findings of a paper hold? Train, measure and judge those that are named, or all; as the command does.

    What is finished is kept in the folder `store`; a second call finds it there. `workers` processes share the work, by
    default one a core; with 0 it is done in this one. With engine="ray" a cluster does it, at this address. `progress`
    is told of each piece of work that is done.

    >>> reproduce("aitken2021", "fig9")
    Traceback (most recent call last):
    ...
    attnscope.errors.BadSetting: there is no finding of aitken2021 'fig9'; choose one of fig2-aed, fig2-ao, ...
    """
    from attnscope.errors import choose
    from attnscope.lab.engines import engine as engine_named
    from attnscope.lab.experiment import check_device
    from attnscope.studies import study as study_named
    from attnscope.studies.reproduce import reproduce as carry_out

    chosen = study_named(study)
    known = [finding.name for finding in chosen.findings]
    asked = [chosen.finding(choose(f"finding of {study}", name, known)) for name in findings or known]
    choose("profile", profile, chosen.profiles)
    check_device(device)
    runner = engine_named(engine, workers, address)
    return carry_out(chosen, asked, profile, seeds, Path(store), runner, device, progress)
