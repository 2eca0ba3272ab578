"""How does it learn? One loop for every model, task and objective."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from attnscope.errors import AttnscopeError, require
from attnscope.models.capabilities import GivesTrace
from attnscope.tasks import Batch, Task
from attnscope.training.evaluation import evaluate
from attnscope.training.objectives import CrossEntropy, Objective
from attnscope.training.progress import Progress, load_progress, load_weights, save_progress, save_weights, weights
from attnscope.training.settings import TrainingSettings
from attnscope.training.step import TrainingStep

Monitor = Callable[[nn.Module, Task], Mapping[str, float]]  # a probe asked during training
ReportProgress = Callable[[int, int, Mapping[str, float]], None]  # steps done, steps in all, the last row of the log

EVALUATION_BATCH = 128


class TrainingDiverged(AttnscopeError):
    """The loss is no number any more."""


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
    """Train the model in place and give back the log of its evaluations.

    With a folder, progress is saved there every `save_every` seconds, together with the checkpoints that the settings
    ask for; started again after a kill, the run goes on, and on one CPU thread ends with the same bits.
    """
    objective, settings = objective or CrossEntropy(), settings or TrainingSettings()
    require(isinstance(objective, Objective), f"an objective is one such as CrossEntropy(), not {objective!r}")
    require(isinstance(settings, TrainingSettings), f"settings are TrainingSettings(steps=100), say, not {settings!r}")
    run = TrainingRun(model, task, objective, settings, seed, folder, watch or {})
    return run_to_end(run, report, save_every).progress


def run_to_end(run: "TrainingRun", report: ReportProgress | None = None, save_every: float = 20.0) -> "TrainingRun":
    """All steps that are left."""
    pace = ProgressSaver([run], report, save_every)
    while not run.finished:
        run.advance()
        pace.keep()
    run.finish()
    return run


class ProgressSaver:
    """When to save, and whom to tell, while runs go on side by side."""

    def __init__(self, runs: "Sequence[TrainingRun]", report: ReportProgress | None, save_every: float):
        self.runs, self.report, self.save_every = runs, report, save_every
        self.saved = self.seen = time.monotonic()

    def keep(self) -> None:
        """To be called after every step."""
        now = time.monotonic()
        going = [run for run in self.runs if not run.finished]
        for run in going:
            run.progress.seconds += (now - self.seen) / len(going)
        self.seen = now
        first = self.runs[0]
        if self.report and first.evaluated:
            self.report(first.progress.step, first.settings.steps, first.progress.log[-1])
        if now - self.saved >= self.save_every:
            for run in going:
                run.save()
            self.saved = time.monotonic()


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
        """What the next step learns from."""
        return self.task.training_batch(self.seed, self.progress.step, self.settings.batch_size)

    def advance(self) -> None:
        """One training step, and what is due after it."""
        step = self.progress.step
        self._seed()  # randomness follows from seed and step: nothing else to resume
        self.model.train()
        self.after(self.descent(self.batch().to(self.descent.device), step).item())

    def after(self, loss: float) -> None:
        """What is due when a step is done."""
        self._check(loss, self.progress.step)
        self.progress.step += 1
        self._observe()

    def _seed(self) -> None:
        """On a CPU its own generator alone: torch.manual_seed sees to every kind of device, and takes a while."""
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
        """Evaluate, watch and keep checkpoints where the settings say so."""
        step, last = self.progress.step, self.progress.step >= self.settings.steps
        if step in self.settings.checkpoints and self.folder:
            changed = weights(self.model, self.descent.parameters)
            save_weights(self.folder / "checkpoints" / f"step-{step:06d}.safetensors", changed)
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
        """Is this the best so far, is it good enough, have we waited too long?"""
        progress, settings = self.progress, self.settings
        progress.waited += 1
        price = row["loss"] if settings.best_metric == "loss" else -row[settings.best_metric]
        if progress.lowest is None or price < progress.lowest:
            progress.lowest, progress.waited = price, 0
            progress.best = weights(self.model) if settings.keep_weights == "best" else {}
        enough = settings.stop_at_accuracy is not None and row["word_accuracy"] >= settings.stop_at_accuracy
        tired = settings.patience is not None and progress.waited >= settings.patience
        progress.stopped = enough or tired

    def save(self) -> None:
        if self.folder:
            save_progress(self._state, self.progress, self.model, self.descent.adam)

    def finish(self) -> None:
        if self.settings.keep_weights == "best" and self.progress.best:
            load_weights(self.model, self.progress.best)
        if self.folder:
            save_weights(self.folder / "weights.safetensors", weights(self.model))
            self._state.unlink(missing_ok=True)

    @property
    def _state(self) -> Path:
        assert self.folder is not None
        return self.folder / "progress.safetensors"


def seed_of(seed: int, step: int) -> int:
    """One 63-bit number of two, so that the streams of neighbouring seeds and steps do not meet."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9) % (1 << 63)
