"""One step downhill: forward, backward, clip, Adam. On a GPU it is recorded once for each shape of batch, and replayed.

A small network spends its time on launching kernels, not on running them; replaying a recorded step launches them all
at once. The arithmetic is the same. So that real text has few shapes, its batches are padded a little further.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from attnscope.errors import require
from attnscope.models.inference import device_of
from attnscope.tasks import Batch
from attnscope.training.objectives import Objective
from attnscope.training.settings import TrainingSettings

Shape = tuple[torch.Size, torch.Size]
EXACT_SHAPES = 8  # shapes that are recorded as they are; batches of other shapes are padded to one of a few widths
MAX_SHAPES = 64  # shapes that are recorded at all: more of them would fill the memory


@dataclass(frozen=True)
class CapturedStep:
    """A recorded step, the batch that it reads, and the loss that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor

    def replay(self, batch: Batch) -> Tensor:
        self.batch.copy_from(batch)
        self.graph.replay()
        return self.loss


class TrainingStep:
    """A model and its optimiser."""

    def __init__(self, model: nn.Module, objective: Objective, settings: TrainingSettings):
        self.model, self.objective, self.settings = model, objective, settings
        self.device = device_of(model)
        self.on_gpu = self.device.type == "cuda"
        self.parameters = self.trained_parameters()
        # As a tensor, the learning rate can change under a recorded step.
        rate = torch.tensor(settings.learning_rate, device=self.device) if self.on_gpu else settings.learning_rate
        self.adam = torch.optim.Adam(
            self.parameters, rate, settings.betas, settings.epsilon, settings.weight_decay, settings.amsgrad,
            fused=True, capturable=self.on_gpu,
        )  # fmt: skip
        self.captured: dict[Shape, CapturedStep | None] = {}
        self.memory = torch.cuda.graph_pool_handle() if self.on_gpu else None  # no two captured run at once

    def trained_parameters(self) -> list[nn.Parameter]:
        return trained_parameters(self.model, self.settings)

    def __call__(self, batch: Batch, step: int) -> Tensor:
        """The loss before the step."""
        self._set_rate(self.settings.rate(step))
        if not self.on_gpu:
            return self._descend(batch)
        with torch.cuda.device(self.device):
            return self._replay(batch)

    def generators(self) -> Sequence[torch.Generator]:
        """Sources of chance that a step must know of, beside torch's own."""
        return ()

    def loss(self, batch: Batch) -> Tensor:
        trace = self.model(batch, teacher_forcing=self.settings.teacher_forcing, **self.settings.forward)
        return self.objective(self.model, batch, trace)

    def clip(self, most: float) -> None:
        clip_grad_norm_(self.parameters, most)

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
        """The first batch of a shape goes step by step, as a rehearsal; the second one is recorded."""
        if shape_of(batch) not in self.captured and len(self.captured) >= EXACT_SHAPES:
            batch = batch.widened(padded_width(batch.source.shape[-1]), padded_width(batch.target.shape[-1]))
        shape = shape_of(batch)
        if shape not in self.captured:
            if len(self.captured) < MAX_SHAPES:
                self.captured[shape] = None
            return self._descend(batch)
        step = self.captured[shape] or self._capture(batch)
        self.captured[shape] = step
        return step.replay(batch)

    def _capture(self, batch: Batch) -> CapturedStep:
        graph, own = torch.cuda.CUDAGraph(), batch.clone()
        for generator in self.generators():
            graph.register_generator_state(generator)
        self.adam.zero_grad()
        with torch.cuda.graph(graph, pool=self.memory):
            loss = self._descend(own)
        return CapturedStep(graph, own, loss)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """On a GPU, products in TF32, as cuDNN's cells have them anyway; what is measured later is in single precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def trained_parameters(model: nn.Module, settings: TrainingSettings) -> list[nn.Parameter]:
    """Those of the whole model, or of the part of it that decides where to look, or of all but its words."""
    everything = list(model.parameters())
    if settings.trained == "all":
        return everything
    name = "attend" if settings.trained == "attention" else "source_inputs"
    part = getattr(model, name, None)
    own = list(part.parameters()) if isinstance(part, nn.Module) else []
    require(bool(own), f"trained={settings.trained!r} needs a model whose part `{name}` has weights of its own")
    if settings.trained == "attention":
        return own
    return [parameter for parameter in everything if all(parameter is not word for word in own)]


def shape_of(batch: Batch) -> Shape:
    return batch.source.shape, batch.target.shape


def padded_width(width: int) -> int:
    """The next of a few widths: in each doubling, four.

    >>> [padded_width(width) for width in (1, 7, 41, 230)]
    [1, 7, 48, 256]
    """
    step = 1 << max(0, (width - 1).bit_length() - 3)
    return -(-width // step) * step
