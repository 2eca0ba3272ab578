"""One step downhill: forward, backward, clip, Adam. On a GPU it is recorded once for each shape of batch, and replayed.

A small network spends its time on launching kernels, not on running them; replaying a recorded step launches them all
at once. The arithmetic is the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from attnscope.errors import BadSetting
from attnscope.tasks import Batch
from attnscope.training.objectives import Objective
from attnscope.training.settings import TrainingSettings

Shape = tuple[torch.Size, torch.Size]
MOST = 64  # shapes that are recorded; real text has so many that recording them all would fill the memory


@dataclass(frozen=True)
class Recording:
    """A recorded step, the batch that it reads, and the loss that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor

    def replay(self, batch: Batch) -> Tensor:
        self.batch.copy_from(batch)
        self.graph.replay()
        return self.loss


class Descent:
    """A model and its optimiser."""

    def __init__(self, model: nn.Module, objective: Objective, settings: TrainingSettings, device: torch.device):
        self.model, self.objective, self.settings = model, objective, settings
        self.on_gpu = device.type == "cuda"
        # As a tensor, the learning rate can change under a recorded step.
        rate = torch.tensor(settings.learning_rate, device=device) if self.on_gpu else settings.learning_rate
        self.parameters = list((model if settings.trained == "all" else attention_of(model)).parameters())
        self.adam = torch.optim.Adam(
            self.parameters, rate, settings.betas, settings.epsilon, fused=True, capturable=self.on_gpu
        )
        self.recordings: dict[Shape, Recording | None] = {}

    def __call__(self, batch: Batch, step: int) -> Tensor:
        """The loss before the step."""
        self._set_rate(self.settings.rate(step))
        return self._recorded(batch) if self.on_gpu else self._descend(batch)

    def _set_rate(self, rate: float) -> None:
        for group in self.adam.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _descend(self, batch: Batch) -> Tensor:
        trace = self.model(batch, teacher_forcing=self.settings.teacher_forcing, **self.settings.forward)
        loss = self.objective(self.model, batch, trace)
        self.adam.zero_grad()
        loss.backward(inputs=self.parameters)
        if self.settings.clip:
            clip_grad_norm_(self.parameters, self.settings.clip)
        self.adam.step()
        return loss.detach()

    def _recorded(self, batch: Batch) -> Tensor:
        """The first batch of a shape goes step by step, as a rehearsal; the second one is recorded."""
        shape = (batch.source.shape, batch.target.shape)
        if shape not in self.recordings:
            if len(self.recordings) < MOST:
                self.recordings[shape] = None
            return self._descend(batch)
        recording = self.recordings[shape] or self._record(batch)
        self.recordings[shape] = recording
        return recording.replay(batch)

    def _record(self, batch: Batch) -> Recording:
        graph, own = torch.cuda.CUDAGraph(), batch.clone()
        self.adam.zero_grad()
        with torch.cuda.graph(graph):
            loss = self._descend(own)
        return Recording(graph, own, loss)


def attention_of(model: nn.Module) -> nn.Module:
    """The part of a model that decides where to look."""
    part = getattr(model, "attend", None)
    if not isinstance(part, nn.Module) or not list(part.parameters()):
        raise BadSetting("trained='attention' needs a model whose attention (its part `attend`) has weights of its own")
    return part
