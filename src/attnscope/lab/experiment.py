"""Experiments (complete configurations of a training run) and Runs (finished experiments in the store)."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from attnscope.errors import AttnscopeError, BadSetting, check_kinds, check_seed, choose, require
from attnscope.files import read_json, write_atomically, write_json
from attnscope.lab.configuration import SCHEMA, describe, rebuild
from attnscope.lab.store import Store, key, verified_run
from attnscope.models import (
    ATTENTIONS,
    CELLS,
    MODELS,
    ClassifierSettings,
    Model,
    ModelSettings,
    Start,
    TransformerClassifierSettings,
    build,
    restart_heads,
    start_copying,
    start_pretrained,
    start_words,
)
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import check_device
from attnscope.probes.decomposition import decompose
from attnscope.tasks import Task
from attnscope.tasks.task import check_task
from attnscope.training import CrossEntropy, Objective, TrainingSettings, evaluate
from attnscope.training.fit import Monitor, ReportProgress, TrainingRun, load_weights, read_tensors, run_to_end
from attnscope.training.settings import ForwardOptions

MAX_THREADS = 512  # of torch; a run may be read on a machine with fewer cores than it was trained on
RECIPE = 2  # part of every key: increased when the meaning of the settings changes


def shares(model: nn.Module, task: Task) -> Mapping[str, float]:
    """Return the main numbers of the decomposition, first head (aitken2021 §4.1)."""
    row = decompose(model, partial(task.batches, "test")).in_sample.table().iloc[0]
    return {str(name): float(value) for name, value in row.items()}


WATCHES: dict[str, Monitor] = {"shares": shares}  # probes that can be logged during training


@dataclass(frozen=True)
class Experiment:
    """A complete configuration of a training run, which is deterministic."""

    task: Task
    model: ModelSettings
    training: TrainingSettings
    objective: Objective = CrossEntropy()  # noqa: RUF009 (frozen)
    seed: int = 0
    start: Start = Start()  # noqa: RUF009 (frozen)
    watch: tuple[str, ...] = ()
    threads: int = 1  # torch is deterministic on one thread only, so their number is part of the key
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, kind, example in (
            ("task", Task, "TASKS['one_to_one']()"),
            ("model", ModelSettings, "MODELS['aed']"),
            ("training", TrainingSettings, "TrainingSettings(steps=100)"),
        ):
            value = getattr(self, name)
            require(isinstance(value, kind), f"the {name} of an experiment is one such as {example}, not {value!r}")
        check_kinds(self)
        for name in self.watch:
            choose("probe to watch", name, WATCHES)
        require(0 < self.threads <= MAX_THREADS, f"threads must be 1 to {MAX_THREADS}, not {self.threads}")
        check_seed("seed", abs(self.seed))  # in a study's case it is an offset, which may be negative

    def config(self) -> dict[str, object]:
        """Return the complete configuration as JSON, of which the key is the hash."""
        check_seed("seed", self.seed)
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        settings |= {"task": self.task.resolved(), "start": self.start.resolved()}
        code = own_code(self)
        described = {name: describe(value) for name, value in settings.items()}
        return {"recipe": RECIPE} | described | ({"code": code} if code else {})

    @classmethod
    def of(cls, config: Mapping[str, object]) -> "Experiment":
        """Return the experiment of a stored configuration."""
        schema = config.get("schema", SCHEMA)
        require(schema == SCHEMA, f"this run was stored under schema {schema}; this version reads schema {SCHEMA}")
        settings = {name: value for name, value in config.items() if name not in ("recipe", "schema", "code")}
        experiment = cls(**{name: rebuild(value) for name, value in settings.items()})
        code = own_code(experiment)
        for name, checksum in config.get("code", {}).items():  # type: ignore[attr-defined]
            require(code.get(name) == checksum, f"this run was trained with other code of {name}; train it again")
        return experiment

    @property
    def key(self) -> str:
        return key(self.config())

    def new_model(self) -> Model:
        seed = self.seed if self.start.weights is None else self.start.weights
        torch.manual_seed(seed)
        model = build(self.model, len(self.task.source_vocabulary), len(self.task.target_vocabulary))
        restart_heads(model, self.start.heads)
        start_words(model, self.task.source_vocabulary, self.start.vectors, seed)
        start_pretrained(model, self.task.source_vocabulary, self.start.pretrained)
        start_copying(model, self.task, self.start.copying)
        return model


def own_code(experiment: Experiment) -> dict[str, str]:
    """Return checksums of the code of the user's classes, by name: other code gives other networks."""
    settings = (experiment.task, experiment.model, *getattr(experiment.objective, "terms", (experiment.objective,)))
    registered = (
        registry.get(getattr(experiment.model, part, ""))
        for part, registry in (("cell", CELLS), ("attention", ATTENTIONS))
    )
    classes = {*map(type, settings), *filter(None, registered)}
    own = sorted(
        (each for each in classes if not each.__module__.startswith("attnscope.")), key=lambda each: each.__name__
    )
    return {each.__name__: code for each in own if (code := source_checksum(each))}


def source_checksum(of: type) -> str | None:
    """Return a checksum of the source of a class; None where there is no source, as in some consoles."""
    with suppress(OSError, TypeError):
        return sha256(inspect.getsource(of).encode()).hexdigest()[:20]
    return None


@dataclass(frozen=True)
class Run:
    """A finished experiment and its folder."""

    experiment: Experiment
    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Run":
        """Return the run in a folder, its files verified."""
        folder = verified_run(folder)
        return cls(Experiment.of(read_json(folder / "config.json")), folder)

    @property
    def task(self) -> Task:
        return self.experiment.task

    @property
    def log(self) -> pd.DataFrame:
        """One row per evaluation."""
        return pd.read_csv(self.folder / "log.csv")

    @cached_property
    def summary(self) -> dict[str, float]:
        """Accuracy on the test set, steps, seconds."""
        summary: dict[str, float] = read_json(self.folder / "summary.json")
        return summary

    @property
    def forward(self) -> ForwardOptions:
        """Options of every forward pass in training, such as uniform attention."""
        return self.experiment.training.forward

    @property
    def checkpoints(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("step-")) for path in self.folder.glob("checkpoints/*.safetensors"))

    @property
    def decoding(self) -> Decoding:
        """How the trained model is evaluated and probed."""
        return self.experiment.training.decoding

    def model(self, checkpoint: int | None = None, decoding: Decoding | None = None) -> Model:
        """Return the trained model, in evaluation mode.

        Args:
            checkpoint: The training step whose weights are loaded; None: the final weights.
            decoding: The model's `decoding`; None: that of the training settings.
        """
        name = "weights" if checkpoint is None else f"checkpoints/step-{checkpoint:06d}"
        if checkpoint is not None and checkpoint not in self.checkpoints:
            raise BadSetting(f"there is no checkpoint {checkpoint}; this run has {self.checkpoints or 'none'}")
        model = self.experiment.new_model()
        model.decoding = decoding or self.decoding
        load_weights(model, read_tensors(self.folder / f"{name}.safetensors"))
        return model.to(self.experiment.device).eval()


def train(experiment: Experiment, store: Store, report: ReportProgress | None = None) -> Run:
    """Return the run of this experiment, from the store or newly trained.

    Args:
        experiment: The configuration.
        store: Where finished runs are stored.
        report: Called with (step, steps, metrics) after each evaluation.
    """
    check_device(experiment.device)
    check_data([experiment], store)
    with store.work(experiment.config()) as work:
        if not work.finished:
            with threads(experiment.threads):
                run = start_training(experiment, work.folder)
                save_results(experiment, run_to_end(run, report))
    return load_run(experiment, store)


def load_run(experiment: Experiment, store: Store) -> Run:
    folder = store.find(experiment.key)
    if folder is None:
        raise AttnscopeError(f"the run {experiment.key} is not in the store {store.root}; train it first")
    return Run(experiment, folder)


def find_run(beginning: str, store: Store) -> Run:
    """Return the finished run whose key begins like this."""
    finished = store.keys()
    folders = [folder for name in finished if name.startswith(beginning) and (folder := store.find(name))]
    if len(folders) != 1:
        keys = ", ".join(finished) or "none"
        raise BadSetting(f"{len(folders)} finished runs begin with {beginning!r} in {store.root}; its runs: {keys}")
    return Run.at(folders[0])


def start_training(experiment: Experiment, folder: Path) -> TrainingRun:
    """Return the run at its first step, or as an interrupted attempt left it."""
    model = experiment.new_model().to(experiment.device)
    watch = {name: WATCHES[name] for name in experiment.watch}
    return TrainingRun(
        model, experiment.task, experiment.objective, experiment.training, experiment.seed, folder, watch
    )


def save_results(experiment: Experiment, run: TrainingRun) -> None:
    """Write the log and a summary on the test set; weights and checkpoints are there already."""
    assert run.folder is not None
    write_atomically(run.folder / "log.csv", pd.DataFrame(run.progress.log).to_csv(index=False).encode())
    on_test = evaluate(
        run.model, experiment.task.batches("test"), decoding=experiment.training.decoding, **experiment.training.forward
    )
    write_json(run.folder / "summary.json", {"steps": run.progress.step, "seconds": run.progress.seconds} | on_test)


CLASSIFIERS = (ClassifierSettings, TransformerClassifierSettings)


def check_data(experiments: Sequence[Experiment], store: Store) -> None:
    """Raise an error before training if the task is invalid, or unsuitable for this model."""
    new = next((experiment for experiment in experiments if not store.find(experiment.key)), None)
    if new is None:
        return
    check_task(new.task, new.seed, new.training.batch_size)  # all experiments of a group have the same task
    if isinstance(new.model, CLASSIFIERS):
        check_target(new)


def check_target(experiment: Experiment) -> None:
    """Raise an error for a classifier if the targets of the task's first batch have more than one token."""
    words = experiment.task.training_batch(experiment.seed, 0, experiment.training.batch_size).target.shape[1]
    task = describe(experiment.task)["kind"]
    others = ", ".join(name for name, settings in MODELS.items() if not isinstance(settings, CLASSIFIERS))
    require(
        words == 1,
        f"a classifier predicts one token, but {task} has targets of up to {words}, their end included; choose a task "
        f"with one target token, such as keyword or sst, or a model that predicts sequences: {others}",
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use this many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
