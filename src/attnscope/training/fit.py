"""The training loop for every model, task and objective, which saves its progress.

A step is forward, backward, clip, Adam. On a GPU it is captured once for each shape of batch, and replayed: a small
network spends its time on launching kernels, not on running them, and a replayed step launches them all at once. The
arithmetic is the same. So that real text has few shapes, its batches are padded a little further.

A killed run resumes with the same bits. Data and randomness depend on the seed and the step alone, so only weights,
Adam's moments and the log are saved. They go into one file, which is written atomically and carries its checksum. It
also lists the checksums of the checkpoints so far, since a resumed run does not write them again. If one of them is
wrong, training restarts.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from attnscope.errors import AttnscopeError, require
from attnscope.files import discard, file_checksum, read_checked, write_atomically, write_checked
from attnscope.models import TransformerSettings
from attnscope.models.capabilities import GivesTrace
from attnscope.models.inference import device_of
from attnscope.tasks import Batch, Task
from attnscope.training.evaluation import evaluate
from attnscope.training.objectives import CrossEntropy, Objective
from attnscope.training.settings import TrainingSettings

Weights = dict[str, Tensor]


@dataclass
class Progress:
    """The state of a training run."""

    step: int = 0
    log: list[dict[str, float]] = field(default_factory=list)
    lowest: float | None = None  # the loss, or minus the accuracy, of the best evaluation
    waited: int = 0  # evaluations since the best one
    stopped: bool = False
    seconds: float = 0.0  # of training, earlier attempts included
    checkpoints: dict[str, str] = field(default_factory=dict)  # SHA-256 by path in the folder of the run
    best: Weights = field(default_factory=dict)


def save_progress(path: Path, progress: Progress, model: nn.Module, adam: torch.optim.Optimizer) -> None:
    tensors = (
        with_prefix("model", weights(model)) | with_prefix("best", progress.best) | with_prefix("adam", moments(adam))
    )
    facts = {name: value for name, value in vars(progress).items() if name != "best"}
    write_checked(path, json.dumps(facts).encode() + b"\n" + save(tensors))


def load_progress(path: Path, model: nn.Module, adam: torch.optim.Optimizer) -> Progress:
    """Restore model and optimiser from the file; without an undamaged file, return the progress of a new run."""
    data = read_checked(path)
    if data is None:
        return Progress()
    facts, _, content = data.partition(b"\n")
    progress = Progress(**json.loads(facts))
    for name, checksum in progress.checkpoints.items():
        checkpoint = path.parent / name
        if not checkpoint.is_file() or file_checksum(checkpoint) != checksum:
            discard(path, f"{name} is missing or altered")
            return Progress()
    tensors = load(content)
    load_weights(model, without_prefix("model", tensors))
    restore_moments(adam, without_prefix("adam", tensors))
    progress.best = without_prefix("best", tensors)
    return progress


def weights(model: nn.Module, only: Iterable[nn.Parameter] | None = None) -> Weights:
    """Return the parameters by name, shared ones once; with `only`, those parameters."""
    included = {id(parameter) for parameter in (model.parameters() if only is None else only)}
    return {
        name: parameter.detach().cpu().clone().contiguous()
        for name, parameter in model.named_parameters()
        if id(parameter) in included
    }


@torch.no_grad()
def load_weights(model: nn.Module, tensors: Weights) -> None:
    """Load weights; parameters that are not among them stay as they are."""
    own = dict(model.named_parameters())
    unknown = [name for name, value in tensors.items() if name not in own or own[name].shape != value.shape]
    if unknown:
        raise AttnscopeError(
            f"these weights belong to another model: it has no {', '.join(unknown[:3])} of such a size"
        )
    for name, value in tensors.items():
        own[name].copy_(value)


def save_weights(path: Path, tensors: Weights) -> str:
    """Write weights, and return the SHA-256 of the file."""
    data = save(tensors)
    write_atomically(path, data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(path: Path) -> Weights:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise AttnscopeError(f"{path} is not a readable safetensors file ({error})") from error


def moments(adam: torch.optim.Optimizer) -> Weights:
    states = adam.state_dict()["state"]
    return {f"{i}.{name}": value.cpu().contiguous() for i, state in states.items() for name, value in state.items()}


def restore_moments(adam: torch.optim.Optimizer, saved: Weights) -> None:
    states: dict[int, Weights] = {}
    for key, value in saved.items():
        i, name = key.split(".")
        states.setdefault(int(i), {})[name] = value
    adam.load_state_dict({"state": states, "param_groups": adam.state_dict()["param_groups"]})


def with_prefix(prefix: str, tensors: Weights) -> Weights:
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def without_prefix(prefix: str, tensors: Weights) -> Weights:
    return {name.removeprefix(f"{prefix}/"): v for name, v in tensors.items() if name.startswith(f"{prefix}/")}


# One step ------------------------------------------------------------------------------------------------------------


Shape = tuple[torch.Size, torch.Size]
EXACT_SHAPES = 8  # shapes that are captured as they are; further batches are padded to one of a few widths
MAX_SHAPES = 64  # shapes that are captured at all: more of them would fill the memory


@dataclass(frozen=True)
class CapturedStep:
    """A captured step, the batch that it reads, and the loss that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor

    def replay(self, batch: Batch) -> Tensor:
        self.batch.copy_from(batch)
        self.graph.replay()
        return self.loss


class TrainingStep:
    """One optimisation step of a model."""

    def __init__(self, model: nn.Module, objective: Objective, settings: TrainingSettings):
        self.model, self.objective, self.settings = model, objective, settings
        self.device = device_of(model)
        self.on_gpu = self.device.type == "cuda"
        self.parameters = self.trained_parameters()
        # As a tensor, the learning rate can change in a captured step.
        rate = torch.tensor(settings.learning_rate, device=self.device) if self.on_gpu else settings.learning_rate
        self.adam = torch.optim.Adam(
            self.parameters, rate, settings.betas, settings.epsilon, settings.weight_decay, settings.amsgrad,
            fused=True, capturable=self.on_gpu,
        )  # fmt: skip
        self.captured: dict[Shape, CapturedStep | None] = {}
        self.memory = torch.cuda.graph_pool_handle() if self.on_gpu else None  # shared: steps never run concurrently

    def trained_parameters(self) -> list[nn.Parameter]:
        return trained_parameters(self.model, self.settings)

    def __call__(self, batch: Batch, step: int) -> Tensor:
        """Make one step and return the loss before it."""
        self._set_rate(self.settings.rate(step))
        if not self.on_gpu:
            return self._descend(batch)
        with torch.cuda.device(self.device):
            return self._replay(batch)

    def generators(self) -> Sequence[torch.Generator]:
        """Return further random generators of a step, beside torch's own."""
        return ()

    def loss(self, batch: Batch) -> Tensor:
        trace = self.model(batch, teacher_forcing=self.settings.teacher_forcing, **self.settings.forward)
        return self.objective(self.model, batch, trace)

    def clip(self, max_norm: float) -> None:
        clip_grad_norm_(self.parameters, max_norm)

    def _set_rate(self, rate: float) -> None:
        for group in self.adam.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _descend(self, batch: Batch) -> Tensor:
        with tensor_cores():
            return self._step(batch)

    def _step(self, batch: Batch) -> Tensor:
        loss = self.loss(batch)
        self.adam.zero_grad()
        loss.sum().backward(inputs=self.parameters)
        if self.settings.max_grad_norm:
            self.clip(self.settings.max_grad_norm)
        self.adam.step()
        return loss.detach()

    def _replay(self, batch: Batch) -> Tensor:
        """Run the first batch of a shape without capture, as a warm-up; capture the second one."""
        if shape_of(batch) not in self.captured and len(self.captured) >= EXACT_SHAPES:
            widest = max_positions(self.model)
            batch = batch.widened(*(padded_width(side.shape[-1], widest) for side in (batch.source, batch.target)))
        shape = shape_of(batch)
        if shape not in self.captured:
            if len(self.captured) < MAX_SHAPES:
                self.captured[shape] = None
            return self._descend(batch)
        step = self.captured[shape] or self._capture(batch)
        self.captured[shape] = step
        return step.replay(batch)

    def _capture(self, batch: Batch) -> CapturedStep:
        graph, static_batch = torch.cuda.CUDAGraph(), batch.clone()
        for generator in self.generators():
            graph.register_generator_state(generator)
        self.adam.zero_grad()
        with torch.cuda.graph(graph, pool=self.memory):
            loss = self._descend(static_batch)
        return CapturedStep(graph, static_batch, loss)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Use TF32 for products on a GPU, as cuDNN's cells do anyway; evaluation stays in single precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def trained_parameters(model: nn.Module, settings: TrainingSettings) -> list[nn.Parameter]:
    """Return the parameters of the whole model, of its attention, or of all but its word embeddings."""
    everything = list(model.parameters())
    if settings.trained == "all":
        return everything
    name = "attend" if settings.trained == "attention" else "source_inputs"
    part = getattr(model, name, None)
    own = list(part.parameters()) if isinstance(part, nn.Module) else []
    require(bool(own), f"trained={settings.trained!r} needs a model whose part `{name}` has weights")
    if settings.trained == "attention":
        return own
    return [parameter for parameter in everything if all(parameter is not word for word in own)]


def shape_of(batch: Batch) -> Shape:
    return batch.source.shape, batch.target.shape


def padded_width(width: int, max_width: int | None = None) -> int:
    """Return the next of a few widths: four per doubling; at most `max_width`, unless the width itself is larger.

    >>> [padded_width(width) for width in (1, 7, 41, 230)], padded_width(257, max_width=258)
    ([1, 7, 48, 256], 258)
    """
    step = 1 << max(0, (width - 1).bit_length() - 3)
    padded = -(-width // step) * step
    return padded if max_width is None else min(padded, max(width, max_width))


def max_positions(model: nn.Module) -> int | None:
    """Return the most tokens that a Transformer has learned positions for; None for other models."""
    settings = getattr(model, "settings", None)
    if isinstance(settings, TransformerSettings) and settings.positions == "learned":
        return settings.max_length
    return None


# The loop ------------------------------------------------------------------------------------------------------------


Monitor = Callable[[nn.Module, Task], Mapping[str, float]]  # a probe that runs during training
ReportProgress = Callable[[int, int, Mapping[str, float]], None]  # steps done, steps in all, the last row of the log

EVALUATION_BATCH = 128


class TrainingDiverged(AttnscopeError):
    """The loss became infinite or NaN."""


def fit(
    model: nn.Module,
    task: Task,
    objective: Objective | None = None,
    settings: TrainingSettings | None = None,
    seed: int = 0,
    folder: Path | None = None,
    watch: Mapping[str, Monitor] | None = None,
    report: ReportProgress | None = None,
    save_every: float = 20.0,
) -> Progress:
    """Train the model in place and return the log of its evaluations.

    Args:
        model: A network, such as `build` returns.
        task: Gives the batches of training and validation.
        objective: The loss; None: cross entropy.
        settings: Optimiser, steps, evaluations; None: the defaults.
        seed: Random seed of the data and of dropout.
        folder: Progress and checkpoints are saved here. A killed run resumes, and on one CPU thread ends with the same
            bits. None: nothing is saved.
        watch: By name, functions of (model, task) that are called at each evaluation.
        report: Called with (step, steps, metrics) after each evaluation.
        save_every: Seconds between two saves of the progress.
    """
    objective, settings = objective or CrossEntropy(), settings or TrainingSettings()
    require(
        isinstance(model, nn.Module) and isinstance(task, Task), "fit takes a model and a task, such as TASKS[...]()"
    )
    require(isinstance(objective, Objective), f"an objective is one such as CrossEntropy(), not {objective!r}")
    require(isinstance(settings, TrainingSettings), f"settings are TrainingSettings(steps=100), say, not {settings!r}")
    run = TrainingRun(model, task, objective, settings, seed, folder, watch or {})
    return run_to_end(run, report, save_every).progress


def run_to_end(run: "TrainingRun", report: ReportProgress | None = None, save_every: float = 20.0) -> "TrainingRun":
    """Train for all remaining steps."""
    saver = ProgressSaver([run], report, save_every)
    while not run.finished:
        run.advance()
        saver.update()
    run.finish()
    return run


class ProgressSaver:
    """Saves and reports the progress of runs that are trained together."""

    def __init__(self, runs: "Sequence[TrainingRun]", report: ReportProgress | None, save_every: float):
        self.runs, self.report, self.save_every = runs, report, save_every
        self.last_save = self.last_update = time.monotonic()

    def update(self) -> None:
        """Add up the time, and report and save where due; called after every step."""
        now = time.monotonic()
        unfinished = [run for run in self.runs if not run.finished]
        for run in unfinished:
            run.progress.seconds += (now - self.last_update) / len(unfinished)
        self.last_update = now
        first = self.runs[0]
        if self.report and first.evaluated:
            self.report(first.progress.step, first.settings.steps, first.progress.log[-1])
        if now - self.last_save >= self.save_every:
            for run in unfinished:
                run.save()
            self.last_save = time.monotonic()


class TrainingRun:
    """One training run, step by step."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        objective: Objective,
        settings: TrainingSettings,
        seed: int,
        folder: Path | None,
        watch: Mapping[str, Monitor],
    ):
        self.model, self.task, self.settings, self.objective = model, task, settings, objective
        self.seed, self.folder, self.watch = seed, folder, watch
        if isinstance(model, GivesTrace):
            model.decoding = settings.decoding
        self.descent = TrainingStep(model, objective, settings)
        self.progress = load_progress(self._state, model, self.descent.adam) if folder else Progress()
        if self.progress.step == 0:
            self._observe()

    @property
    def finished(self) -> bool:
        return self.progress.stopped or self.progress.step >= self.settings.steps

    @property
    def evaluated(self) -> bool:
        return bool(self.progress.log) and self.progress.log[-1]["step"] == self.progress.step

    def batch(self) -> Batch:
        """Return the batch of the next step."""
        return self.task.training_batch(self.seed, self.progress.step, self.settings.batch_size)

    def advance(self) -> None:
        """Make one training step; evaluate and save checkpoints where due."""
        step = self.progress.step
        self._seed()  # randomness depends on seed and step alone, so it needs no saving
        self.model.train()
        self.finish_step(self.descent(self.batch().to(self.descent.device), step).item())

    def finish_step(self, loss: float) -> None:
        """Count a step that was made; evaluate and save checkpoints where due."""
        self._check(loss, self.progress.step)
        self.progress.step += 1
        self._observe()

    def _seed(self) -> None:
        """Seed torch; on a CPU only its own generator, since torch.manual_seed seeds all devices, which is slow."""
        on_cpu = self.descent.device.type == "cpu"
        seed = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed(seed_of(self.seed, self.progress.step))

    def _check(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"the loss became {loss} at step {step + 1} of {self.settings.steps} (seed {self.seed}, "
                f"learning rate {self.settings.rate(step):g}); a lower learning_rate or max_grad_norm may help"
            )

    def _observe(self) -> None:
        """Evaluate and save checkpoints at the steps that the settings name."""
        step, last = self.progress.step, self.progress.step >= self.settings.steps
        if step in self.settings.checkpoints and self.folder:
            name = f"checkpoints/step-{step:06d}.safetensors"
            trained = weights(self.model, self.descent.parameters)
            self.progress.checkpoints[name] = save_weights(self.folder / name, trained)
        if step % self.settings.evaluate_every == 0 or last:
            row: dict[str, float] = {"step": step}
            self._seed()  # with a teacher-forcing probability, evaluation is random as well
            validation = self.task.batches("validation", size=EVALUATION_BATCH)
            row |= evaluate(
                self.model, validation, teacher_forcing=self.settings.teacher_forcing, **self.settings.forward
            )
            for name, probe in self.watch.items():
                row |= {f"{name}.{key}": float(value) for key, value in probe(self.model, self.task).items()}
            self.progress.log.append(row)
            self._judge(row)

    def _judge(self, row: Mapping[str, float]) -> None:
        """Update the best evaluation, and stop by `stop_at_accuracy` or `patience`."""
        progress, settings = self.progress, self.settings
        progress.waited += 1
        value = row["loss"] if settings.best_metric == "loss" else -row[settings.best_metric]
        if progress.lowest is None or value < progress.lowest:
            progress.lowest, progress.waited = value, 0
            progress.best = weights(self.model) if settings.keep_weights == "best" else {}
        is_accurate = settings.stop_at_accuracy is not None and row["word_accuracy"] >= settings.stop_at_accuracy
        out_of_patience = settings.patience is not None and progress.waited >= settings.patience
        progress.stopped = is_accurate or out_of_patience

    def save(self) -> None:
        if self.folder:
            save_progress(self._state, self.progress, self.model, self.descent.adam)

    def finish(self) -> None:
        if self.settings.keep_weights == "best" and self.progress.best:
            load_weights(self.model, self.progress.best)
        if self.folder:
            save_weights(self.folder / "weights.safetensors", weights(self.model))
            for path in self.folder.glob(f"{self._state.name}*"):  # also damaged ones that were set aside
                path.unlink()

    @property
    def _state(self) -> Path:
        assert self.folder is not None
        return self.folder / "progress.safetensors"


def seed_of(seed: int, step: int) -> int:
    """Return a 63-bit seed for a seed and a step, such that neighbouring ones have unrelated random streams."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9) % (1 << 63)
