"""Training many seeds of one configuration as one batched model.

On a GPU a small network leaves most of the machine idle. Here the weights of all seeds are stacked, and vmap turns the
forward pass of one model into that of all. Each seed has its own batches, its own random numbers and its own gradient
clipping, and learns what it would learn alone. (Only dropout, and teacher forcing with a probability between 0 and 1,
sample other numbers where batches differ in width from seed to seed, since padding uses up random numbers, too.) The
parameters of each seed's module are views of the stacked weights, so that evaluation, probes and checkpoints are those
of a single run.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from attnscope.models.recurrent import generators
from attnscope.tasks import Batch
from attnscope.training.fit import Progress, ProgressSaver, TrainingRun, TrainingStep, seed_of, trained_parameters
from attnscope.training.objectives import Objective
from attnscope.training.settings import TrainingSettings


def fit_together(runs: Sequence[TrainingRun], save_every: float = 20.0) -> list[Progress]:
    """Train all runs, in groups of the same step: interrupted runs may be at different steps."""
    by_step = sorted(runs, key=lambda run: run.progress.step)
    for _, group in groupby(by_step, key=lambda run: run.progress.step):
        train_group(list(group), save_every)
    return [run.progress for run in runs]


def train_group(runs: Sequence[TrainingRun], save_every: float) -> None:
    replicas, saver = Replicas(runs), ProgressSaver(runs, None, save_every)
    unfinished = [run for run in runs if not run.finished]
    batch = next_batch(runs, unfinished)
    while unfinished:
        losses = replicas.descend(batch, unfinished[0].progress.step)
        batch = next_batch(runs, unfinished, ahead=1)  # computed while the GPU works
        for run, loss in zip(runs, losses.tolist(), strict=True):
            if run in unfinished:
                run.finish_step(loss)
        for run in unfinished:
            if run.finished:
                for parameter in run.model.parameters():  # no longer a view of the stacked ones
                    parameter.data = parameter.data.clone()
                run.finish()
        saver.update()
        unfinished = [run for run in unfinished if not run.finished]


def next_batch(runs: Sequence[TrainingRun], unfinished: Sequence[TrainingRun], ahead: int = 0) -> Batch | None:
    """Return the stacked batches of the next step; finished runs get one as well, without effect."""
    if not unfinished:
        return None
    step = unfinished[0].progress.step + ahead
    return stack_batches([run.task.training_batch(run.seed, step, run.settings.batch_size) for run in runs])


class Replicas(TrainingStep):
    """A training step of many models with one optimiser."""

    def __init__(self, runs: Sequence[TrainingRun]):
        self.runs = runs
        first = runs[0]
        self.weights = stack_parameters([run.model for run in runs])
        self.buffers = stack_buffers([run.model for run in runs])
        super().__init__(first.model, first.objective, first.settings)
        self.loss_module = LossModule(first.model, first.objective, first.settings)
        self.seed_generators = [torch.Generator(self.device) for _ in runs]
        self._restore_moments()

    def descend(self, batch: Batch | None, step: int) -> Tensor:
        """Make one step and return the loss of each replica before it."""
        assert batch is not None
        self.model.train()
        for run, generator in zip(self.runs, self.seed_generators, strict=True):
            generator.manual_seed(seed_of(run.seed, step))
        losses = self(batch.to(self.device), step)
        self._share_moments()
        return losses

    def trained_parameters(self) -> list[nn.Parameter]:
        own = set(map(id, trained_parameters(self.model, self.settings)))
        return [self.weights[name] for name, parameter in self.model.named_parameters() if id(parameter) in own]

    def generators(self) -> Sequence[torch.Generator]:
        return self.seed_generators

    def loss(self, batch: Batch) -> Tensor:
        def loss_of_one(weights: dict[str, Tensor], batch_tensors: dict[str, Tensor]) -> Tensor:
            return functional_call(self.loss_module, weights, (Batch(**batch_tensors),))  # type: ignore[no-any-return]

        tensors = {f"model.{name}": tensor for name, tensor in {**self.weights, **self.buffers}.items()}
        with generators(self.seed_generators):
            return vmap(loss_of_one, randomness="error")(tensors, batch.tensors())

    def clip(self, max_norm: float) -> None:
        """Clip the gradients of each replica by its own norm, as clip_grad_norm_ does."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        factors = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))

    def _share_moments(self) -> None:
        """Make the moments of each run's own optimiser views of the stacked ones, for saving them."""
        for index, parameter in enumerate(self.parameters):
            whole: Mapping[str, Tensor] = self.adam.state[parameter]
            for number, run in enumerate(self.runs):
                adam = run.descent.adam
                own = run.descent.parameters[index]
                if whole and not adam.state[own]:
                    adam.state[own] = {name: value[number] if value.dim() else value for name, value in whole.items()}

    def _restore_moments(self) -> None:
        """Stack the moments that the runs have from an interrupted attempt."""
        for index, parameter in enumerate(self.parameters):
            each = [run.descent.adam.state.pop(run.descent.parameters[index], {}) for run in self.runs]
            if all(each):
                values = {name: [moments[name] for moments in each] for name in each[0]}
                self.adam.state[parameter] = {
                    name: torch.stack(values) if values[0].dim() else values[0] for name, values in values.items()
                }


class LossModule(nn.Module):
    """A model and its loss as one module, so that both use the same weights."""

    def __init__(self, model: nn.Module, objective: Objective, settings: TrainingSettings):
        super().__init__()
        self.model, self.objective, self.settings = model, objective, settings

    def forward(self, batch: Batch) -> Tensor:
        trace = self.model(batch, teacher_forcing=self.settings.teacher_forcing, **self.settings.forward)
        return self.objective(self.model, batch, trace)


def stack_parameters(models: Sequence[nn.Module]) -> dict[str, nn.Parameter]:
    """Return the stacked weights of all models, whose own parameters become views of them."""
    own = [dict(model.named_parameters()) for model in models]
    stacked = {name: nn.Parameter(torch.stack([each[name].detach() for each in own])) for name in own[0]}
    for number, parameters in enumerate(own):
        for name, parameter in parameters.items():
            parameter.data = stacked[name].data[number]
    return stacked


def stack_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers of all models, such as random position codes, with an axis of models in front."""
    own = [dict(model.named_buffers()) for model in models]
    return {name: torch.stack([each[name] for each in own]) for name in own[0]}


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Return stacked batches, padded to common widths, and with empty sentences to a common size."""
    source, target = (max(getattr(batch, side).shape[-1] for batch in batches) for side in ("source", "target"))
    tensors = [batch.widened(source, target, max(map(len, batches))).tensors() for batch in batches]
    return Batch(**{name: torch.stack([each[name] for each in tensors]) for name in tensors[0]})
