"""How does a model attend, how did it learn to, and may its attention be read as an explanation?

    model = attnscope.load("my-model")                 a folder, hf:owner/name, a run, an adapter or a model in memory
    trace = model.trace(["a fine film"])               texts in, Trace out
    attnscope.fragility(model, texts).table()          every probe is probe(model, data), with .table() and .plot()
    report = attnscope.audit(model, "texts.jsonl")     may its attention be read as an explanation?
    attnscope.explore(model, "texts.jsonl")            edit its attention, watch its output
    with attnscope.watch(module) as recording: module(x)    the attention of any PyTorch module

    TASKS, MODELS, build, fit, evaluate                train a model of your own
    study, reproduce                                   the papers, and whether their findings hold

>>> import attnscope, torch
>>> task = attnscope.TASKS["one_to_one"](num_words=3, min_length=4, max_length=6, test_size=100)
>>> model = attnscope.build(attnscope.MODELS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))
>>> _ = attnscope.fit(model, task, settings=attnscope.TrainingSettings(steps=2, batch_size=16))
>>> trace = model(next(task.batches("test")), attention=attnscope.uniform)
>>> trace.attention.shape  # batch, heads, target, source
torch.Size([100, 1, 7, 7])
>>> sorted(attnscope.evaluate(model, task.batches("test")))
['final_accuracy', 'loss', 'sentence_accuracy', 'word_accuracy']
>>> attnscope.decompose(model, lambda: task.batches("test")).table().index.tolist()
[('in-sample', 'head 0')]
>>> attnscope.study("aitken2021").finding("fig3").section
'§4, figure 3'
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnscope.auditing import audit
    from attnscope.explanation import Explanation, explain
    from attnscope.explorer import Explorer, explore
    from attnscope.loading import load
    from attnscope.models import MODELS, Attention, Trace, build, uniform
    from attnscope.models.adapters import Adapter, WordReader, ablated
    from attnscope.models.ibm import IBMModel1
    from attnscope.models.loaded import LoadedModel
    from attnscope.monitoring import AttentionMonitor
    from attnscope.probes import PROBES, run_probe
    from attnscope.probes.adversary import adversary
    from attnscope.probes.agreement import agreement
    from attnscope.probes.decomposition import decompose
    from attnscope.probes.diagnostic import diagnostic
    from attnscope.probes.distances import distance_shares
    from attnscope.probes.divergences import entropy
    from attnscope.probes.erasure import erasure
    from attnscope.probes.fragility import fragility
    from attnscope.probes.gates import gates
    from attnscope.probes.grounding import grounding
    from attnscope.probes.heads.mixture import head_mixture
    from attnscope.probes.heads.ranking import head_ranking
    from attnscope.probes.information import information
    from attnscope.probes.language import head_kinds, head_statistics
    from attnscope.probes.lexical import lexical
    from attnscope.probes.optimal import optimal_attention
    from attnscope.probes.plausibility import plausibility
    from attnscope.probes.positions import position_shares
    from attnscope.probes.saliency import saliency
    from attnscope.probes.scores import attention_scores
    from attnscope.probes.weights import weights
    from attnscope.probes.word_alignment import word_alignment
    from attnscope.studies import study
    from attnscope.studies.reproduce import Progress
    from attnscope.studies.result import Result
    from attnscope.tasks import CORPORA, TASKS, Batch
    from attnscope.testing import check_adapter
    from attnscope.training import TrainingSettings, evaluate
    from attnscope.training.evaluation import bleu
    from attnscope.training.fit import fit
    from attnscope.watching import AttentionRecording, watch

__version__ = "0.2.0"
__all__ = [
    "CORPORA", "MODELS", "PROBES", "TASKS", "Adapter", "Attention", "AttentionMonitor", "AttentionRecording", "Batch",
    "Explanation", "Explorer", "IBMModel1", "LoadedModel", "Trace", "TrainingSettings", "WordReader", "ablated",
    "adversary", "agreement", "attention_scores", "audit", "bleu", "build", "check_adapter", "decompose",
    "diagnostic", "distance_shares", "entropy", "erasure", "evaluate", "explain", "explore", "fit", "fragility",
    "gates", "grounding", "head_kinds", "head_mixture", "head_ranking", "head_statistics", "information", "lexical",
    "load", "optimal_attention", "plausibility", "position_shares", "reproduce", "run_probe", "saliency", "study",
    "uniform", "watch", "weights", "word_alignment",
]  # fmt: skip

# Modules are imported at first use, so that `import attnscope` and `attnscope --help` do not wait for torch.
FOLDERS = (
    "auditing", "explorer", "faithfulness", "lab", "models", "plots", "probes", "report", "studies", "tasks", "testing",
    "training",
)  # fmt: skip
MODULES = {
    "auditing": ("audit",),
    "explanation": ("Explanation", "explain"),
    "explorer": ("Explorer", "explore"),
    "loading": ("load",),
    "models": ("MODELS", "Attention", "Trace", "build", "uniform"),
    "models.adapters": ("Adapter", "WordReader", "ablated"),
    "models.ibm": ("IBMModel1",),
    "models.loaded": ("LoadedModel",),
    "monitoring": ("AttentionMonitor",),
    "probes": ("PROBES", "run_probe"),
    "probes.adversary": ("adversary",),
    "probes.agreement": ("agreement",),
    "probes.decomposition": ("decompose",),
    "probes.diagnostic": ("diagnostic",),
    "probes.distances": ("distance_shares",),
    "probes.divergences": ("entropy",),
    "probes.erasure": ("erasure",),
    "probes.fragility": ("fragility",),
    "probes.gates": ("gates",),
    "probes.grounding": ("grounding",),
    "probes.heads.mixture": ("head_mixture",),
    "probes.heads.ranking": ("head_ranking",),
    "probes.information": ("information",),
    "probes.language": ("head_kinds", "head_statistics"),
    "probes.lexical": ("lexical",),
    "probes.optimal": ("optimal_attention",),
    "probes.plausibility": ("plausibility",),
    "probes.positions": ("position_shares",),
    "probes.saliency": ("saliency",),
    "probes.scores": ("attention_scores",),
    "probes.weights": ("weights",),
    "probes.word_alignment": ("word_alignment",),
    "studies": ("study",),
    "tasks": ("CORPORA", "TASKS", "Batch"),
    "testing": ("check_adapter",),
    "training": ("TrainingSettings", "evaluate", "fit"),
    "training.evaluation": ("bleu",),
    "watching": ("AttentionRecording", "watch"),
}
MODULE_OF = {name: module for module, names in MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in FOLDERS:
        return import_module(f"attnscope.{name}")
    if name in MODULE_OF:
        return getattr(import_module(f"attnscope.{MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'attnscope' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*__all__, *FOLDERS, "__version__"])


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
    first_seed: int | None = None,
    stored_only: bool = False,
) -> "list[Result]":
    """Reproduce findings of a paper, as the command `attnscope reproduce` does, and return their results.

    Args:
        study: The name of a study, or "all".
        findings: Names of findings; none: all of them.
        profile: The sizes to run at, such as "quick" or "paper".
        seeds: The number of seeds; None: that of the profile.
        store: The folder of finished runs and results; a second call continues from there.
        engine: "local" or "ray".
        workers: Processes of the local engine; None: one per core; 0: this process.
        address: The address of a Ray cluster; None: Ray starts its own.
        device: The device to train on.
        progress: Called after each job with ("trained" or "measured", jobs of this kind done, jobs of this kind in all,
            why it failed or "").
        first_seed: The first seed; None: that of the finding, or else of the profile.
        stored_only: Whether to judge what the store has measured, on any device, and to run nothing.

    >>> reproduce("aitken2021", "fig9")
    Traceback (most recent call last):
    ...
    attnscope.errors.BadSetting: there is no finding of aitken2021 'fig9'; choose one of fig2-aed, fig2-ao, ...
    """
    from attnscope.errors import check_seed, choose, require
    from attnscope.lab.engines import engine as engine_named
    from attnscope.models.inference import check_device
    from attnscope.studies import STUDIES
    from attnscope.studies import study as study_named
    from attnscope.studies.reproduce import FindingError
    from attnscope.studies.reproduce import reproduce as run_study

    require(study != "all" or not findings, "all studies run with all findings; name one study to choose")
    studies = [study_named(name) for name in (STUDIES if study == "all" else [study])]
    names = [finding.name for finding in studies[0].findings]
    requested = [studies[0].finding(choose(f"finding of {study}", name, names)) for name in findings]
    for each in studies:
        choose("profile", profile, each.profiles)
    check_device(device)
    require(seeds is None or (type(seeds) is int and seeds > 0), f"seeds is a number of seeds, not {seeds!r}")
    if first_seed is not None:
        check_seed("first_seed", first_seed)
    runner = engine_named(engine, workers, address)
    results: list[Result] = []
    errors: list[FindingError] = []
    for each in studies:
        selected = requested or list(each.findings)
        try:
            results += run_study(
                each, selected, profile, seeds, Path(store), runner, device, progress, first_seed, stored_only
            )
        except FindingError as error:  # the next study does not depend on it
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else FindingError("; ".join(map(str, errors)))
    return results
