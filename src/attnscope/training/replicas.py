"""How are many seeds of one configuration trained as one model?

On a GPU a small network leaves most of the machine idle. Here the weights of all seeds lie side by side, and vmap turns
the forward pass of one, as it is written, into that of all. Each seed has its own batches, its own chance and its own
clipping, and learns what it would learn alone. (Only dropout draws other masks where batches differ in width from seed
to seed, since the padding draws as well.) Its own module looks into its share of the weights, so that evaluation,
probes and checkpoints are those of a single run.
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
    """Train them all; those that an earlier attempt left at different steps go in groups of the same step."""
    by_step = sorted(runs, key=lambda run: run.progress.step)
    for _, group in groupby(by_step, key=lambda run: run.progress.step):
        train_group(list(group), save_every)
    return [run.progress for run in runs]


def train_group(runs: Sequence[TrainingRun], save_every: float) -> None:
    replicas, pace = Replicas(runs), ProgressSaver(runs, None, save_every)
    going = [run for run in runs if not run.finished]
    batch = next_batch(runs, going)
    while going:
        losses = replicas.descend(batch, going[0].progress.step)
        batch = next_batch(runs, going, ahead=1)  # made while the GPU works
        for run, loss in zip(runs, losses.tolist(), strict=True):
            if run in going:
                run.after(loss)
        for run in going:
            if run.finished:
                detach_weights(run.model)
                run.finish()
        pace.keep()
        going = [run for run in going if not run.finished]


def next_batch(runs: Sequence[TrainingRun], going: Sequence[TrainingRun], ahead: int = 0) -> Batch | None:
    """Each run's own batch of the step that is next; one that is finished gets one as well, to no effect."""
    if not going:
        return None
    step = going[0].progress.step + ahead
    return stack_batches([run.task.training_batch(run.seed, step, run.settings.batch_size) for run in runs])


class Replicas(TrainingStep):
    """Many models and one optimiser."""

    def __init__(self, runs: Sequence[TrainingRun]):
        self.runs = runs
        first = runs[0]
        self.weights = stack_parameters([run.model for run in runs])
        self.buffers = stack_buffers([run.model for run in runs])
        super().__init__(first.model, first.objective, first.settings)
        self.priced = LossModule(first.model, first.objective, first.settings)
        self.chance = [torch.Generator(self.device) for _ in runs]
        self._take_moments()

    def descend(self, batch: Batch | None, step: int) -> Tensor:
        """One loss a replica, before the step."""
        assert batch is not None
        self.model.train()
        for run, generator in zip(self.runs, self.chance, strict=True):
            generator.manual_seed(seed_of(run.seed, step))
        losses = self(batch.to(self.device), step)
        self._share_moments()
        return losses

    def trained_parameters(self) -> list[nn.Parameter]:
        own = set(map(id, trained_parameters(self.model, self.settings)))
        return [self.weights[name] for name, parameter in self.model.named_parameters() if id(parameter) in own]

    def generators(self) -> Sequence[torch.Generator]:
        return self.chance

    def loss(self, batch: Batch) -> Tensor:
        def of_one(weights: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
            return functional_call(self.priced, weights, (Batch(**tensors),))  # type: ignore[no-any-return]

        named = {f"model.{name}": tensor for name, tensor in {**self.weights, **self.buffers}.items()}
        with generators(self.chance):
            return vmap(of_one, randomness="error")(named, batch.tensors())

    def clip(self, most: float) -> None:
        """Each replica by its own norm, as clip_grad_norm_ does it."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        factors = (most / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))

    def _share_moments(self) -> None:
        """Let each run's own optimiser look into its share of the moments, for saving them."""
        for place, parameter in enumerate(self.parameters):
            whole: Mapping[str, Tensor] = self.adam.state[parameter]
            for number, run in enumerate(self.runs):
                adam = run.descent.adam
                own = run.descent.parameters[place]
                if whole and not adam.state[own]:
                    adam.state[own] = {name: value[number] if value.dim() else value for name, value in whole.items()}

    def _take_moments(self) -> None:
        """Those that the runs had before, from an attempt that was interrupted."""
        for place, parameter in enumerate(self.parameters):
            each = [run.descent.adam.state.pop(run.descent.parameters[place], {}) for run in self.runs]
            if all(each):
                whole = {name: [moments[name] for moments in each] for name in each[0]}
                self.adam.state[parameter] = {
                    name: torch.stack(values) if values[0].dim() else values[0] for name, values in whole.items()
                }


class LossModule(nn.Module):
    """A model and its loss as one module, so that both see the same weights."""

    def __init__(self, model: nn.Module, objective: Objective, settings: TrainingSettings):
        super().__init__()
        self.model, self.objective, self.settings = model, objective, settings

    def forward(self, batch: Batch) -> Tensor:
        trace = self.model(batch, teacher_forcing=self.settings.teacher_forcing, **self.settings.forward)
        return self.objective(self.model, batch, trace)


def stack_parameters(models: Sequence[nn.Module]) -> dict[str, nn.Parameter]:
    """The weights of all models, each of which from now on looks into its share of them."""
    own = [dict(model.named_parameters()) for model in models]
    together = {name: nn.Parameter(torch.stack([each[name].detach() for each in own])) for name in own[0]}
    for number, parameters in enumerate(own):
        for name, parameter in parameters.items():
            parameter.data = together[name].data[number]
    return together


def stack_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers of all models, such as random position codes, with an axis of models in front."""
    own = [dict(model.named_buffers()) for model in models]
    return {name: torch.stack([each[name] for each in own]) for name in own[0]}


def detach_weights(model: nn.Module) -> None:
    """From now on the model has its weights to itself."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Batches side by side, padded to common widths, and with empty sentences to a common size."""
    source, target = (max(getattr(batch, side).shape[-1] for batch in batches) for side in ("source", "target"))
    tensors = [batch.widened(source, target, max(map(len, batches))).tensors() for batch in batches]
    return Batch(**{name: torch.stack([each[name] for each in tensors]) for name in tensors[0]})
