"""Which experiments are trained as one batched model on a GPU, and their training.

Measurements do not depend on this module: its code is not part of their keys.
"""

import gc
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import torch

from attnscope.lab.experiment import Experiment, Run, check_data, load_run, save_results, start_training, train
from attnscope.lab.store import Store
from attnscope.models import CELLS, ClassifierSettings, EncoderDecoderSettings, Start, TransformerSettings
from attnscope.models.inference import check_device
from attnscope.tasks import Scan, SyntheticTask, Translation
from attnscope.tasks.lookup_tables import TableTask
from attnscope.training.replicas import fit_together

MAX_REPLICAS = 64  # runs trained as one model; of models with several heads, the number of heads of all runs
MAX_TEXT_REPLICAS = 8  # of models of text, whose embeddings fill the memory
SMALL_TASKS = (SyntheticTask, TableTask, Scan)  # with few words, so that replicas need little memory for embeddings


def group_for_workers(experiments: Sequence[Experiment]) -> list[tuple[Experiment, ...]]:
    """Return the experiments that one worker trains: on a CPU one, on a GPU those that differ in their seed only."""
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        template = replace(experiment, seed=0, start=Start()) if replicable(experiment) else experiment
        groups.setdefault(template.key, []).append(experiment)
    return [
        tuple(group[start : start + limit])
        for group in groups.values()
        for limit in (max_group_size(group[0]),)
        for start in range(0, len(group), limit)
    ]


def max_group_size(experiment: Experiment) -> int:
    """Return how many replicas fit on a GPU: every head of a replica has its own states."""
    limit = MAX_REPLICAS if isinstance(experiment.task, SMALL_TASKS) else MAX_TEXT_REPLICAS
    if isinstance(experiment.model, TransformerSettings):  # its heads share the states
        return limit
    return max(1, limit // getattr(experiment.model, "heads", 1))


def replicable(experiment: Experiment) -> bool:
    """Return whether seeds are trained as one model: most networks are, on a GPU."""
    if torch.device(experiment.device).type != "cuda":
        return False
    task, model = experiment.task, experiment.model
    if isinstance(model, EncoderDecoderSettings):
        return CELLS[model.cell].supports_vmap and isinstance(task, (*SMALL_TASKS, Translation))
    return isinstance(task, SyntheticTask) or isinstance(model, ClassifierSettings | TransformerSettings)


def train_all(experiments: Sequence[Experiment], store: Store) -> list[Run]:
    """Train experiments of one group as one model; where a GPU runs out of memory, half by half."""
    if len(experiments) == 1:
        return [train(experiments[0], store)]
    check_device(experiments[0].device)
    check_data(experiments, store)
    with suppress(torch.OutOfMemoryError):
        train_as_one(experiments, store)
        return [load_run(experiment, store) for experiment in experiments]
    gc.collect()
    torch.cuda.empty_cache()
    half = len(experiments) // 2
    return train_all(experiments[:half], store) + train_all(experiments[half:], store)


def train_as_one(experiments: Sequence[Experiment], store: Store) -> None:
    with ExitStack() as stack:
        ordered = sorted(experiments, key=lambda experiment: experiment.key)  # no two processes wait for each other
        works = [(experiment, stack.enter_context(store.work(experiment.config()))) for experiment in ordered]
        runs = [
            (experiment, start_training(experiment, work.folder)) for experiment, work in works if not work.finished
        ]
        fit_together([run for _, run in runs])
        for experiment, run in runs:
            save_results(experiment, run)
