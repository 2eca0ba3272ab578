"""What does a training step of the copying network cost, beside a plain model of nn.LSTM; and 20 seeds of it on a GPU?

LSTM of 256 units, batches of 128, 40 words and the end token (snell2021 §3.3). The peer is what one writes first: an
nn.LSTM for each side, attention by two products, torch's Adam. Both take the same batches from the same weights, and
the losses are compared before anything is timed. On a CPU, one thread; on a GPU, if there is one, 20 seeds as one model
against one plain model after the other.
"""

import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnscope.models import PRESETS, EncoderDecoder
from attnscope.tasks import START, Batch, Copying
from attnscope.training import CrossEntropy, TrainingSettings
from attnscope.training.fit import TrainingRun, TrainingStep, tensor_cores
from attnscope.training.replicas import Replicas, stack_batches

TASK = Copying()
SETTINGS = TrainingSettings(learning_rate=1e-3, betas=(0.9, 0.999), max_grad_norm=None, teacher_forcing=1.0)
ROUNDS, STEPS, SEEDS = 5, 4, 20
GOAL_CPU, GOAL_GPU = 1.0, 20.0  # at least this many times faster; on the GPU, for each seed


class Plain(nn.Module):
    """The same network."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(model.source_inputs.table.detach().clone(), freeze=False)
        self.encoder, self.decoder = (twin(side.ahead[0].rnn) for side in (model.encoder, model.decoder))
        self.score, self.context = copied(model.attend.query), copied(model.context_layer)
        self.hidden, self.output = copied(model.hidden[0]), copied(model.output)

    def forward(self, batch: Batch) -> Tensor:
        heard = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
        states, last = self.encoder(self.words(batch.source))
        said, _ = self.decoder(self.words(heard), last)
        weights = (self.score(said) @ states.mT).masked_fill(~batch.source_mask[:, None], -torch.inf).softmax(-1)
        both = torch.cat([said, self.context(weights @ states)], -1)
        return self.output(torch.tanh(self.hidden(both)))


def twin(lstm: nn.LSTM) -> nn.LSTM:
    made = nn.LSTM(lstm.input_size, lstm.hidden_size, batch_first=True)
    made.load_state_dict(lstm.state_dict())
    return made


def copied(layer: nn.Linear) -> nn.Linear:
    made = nn.Linear(layer.in_features, layer.out_features)
    made.load_state_dict(layer.state_dict())
    return made


def plain_step(model: Plain, adam: torch.optim.Optimizer, batch: Batch) -> Tensor:
    loss = cross_entropy(model(batch).flatten(0, 1), batch.target.flatten())
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss.detach()


def network(seed: int = 0) -> EncoderDecoder:
    torch.manual_seed(seed)
    return EncoderDecoder(PRESETS["copying"], len(TASK.source_vocabulary), len(TASK.target_vocabulary))


def on_cpu() -> dict[str, float]:
    model = network()
    plain, descent = Plain(model), TrainingStep(model, CrossEntropy(), SETTINGS)
    adam = torch.optim.Adam(plain.parameters(), 1e-3)
    batches = [TASK.training_batch(0, step, 128) for step in range(STEPS)]
    losses = [(descent(batch, 0).item(), plain_step(plain, adam, batch).item()) for batch in batches]
    assert all(abs(ours - theirs) < 1e-4 for ours, theirs in losses), f"the two do not compute the same: {losses}"
    ours, theirs = in_turns(
        lambda: [descent(batch, 0) for batch in batches],
        lambda: [plain_step(plain, adam, batch) for batch in batches],
        time.process_time,
    )
    return {"ours, ms a step": ours, "nn.LSTM, ms a step": theirs, "times faster": theirs / ours, "goal": GOAL_CPU}


def on_gpu() -> dict[str, float]:
    runs = [TrainingRun(network(seed).cuda(), TASK, CrossEntropy(), SETTINGS, seed, None, {}) for seed in range(SEEDS)]
    plain = Plain(network()).cuda()
    adam = torch.optim.Adam(plain.parameters(), 1e-3)
    replicas = Replicas(runs)
    each = [[TASK.training_batch(seed, step, 128) for seed in range(SEEDS)] for step in range(STEPS)]
    together = [stack_batches(batches).to("cuda") for batches in each]
    alone = [batches[0].to("cuda") for batches in each]
    losses = [
        (replicas.descend(a, 0)[0].item(), plain_step(plain, adam, b).item())
        for a, b in zip(together, alone, strict=True)
    ]
    assert all(abs(ours - theirs) < 1e-2 for ours, theirs in losses), f"the two do not compute the same: {losses}"

    def descend() -> None:
        for batch in together:
            replicas.descend(batch, 0)
        torch.cuda.synchronize()

    @tensor_cores()  # for both
    def step() -> None:
        for batch in alone:
            plain_step(plain, adam, batch)
        torch.cuda.synchronize()

    ours, theirs = in_turns(descend, step, time.perf_counter)
    return {
        f"{SEEDS} seeds as one, ms a step": ours,
        "one nn.LSTM model, ms a step": theirs,
        "times faster for each seed": SEEDS * theirs / ours,
        "goal": GOAL_GPU,
    }


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    """Median milliseconds a step, in turns, so that a busy machine slows both."""
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for call, found in zip((ours, theirs), times, strict=True):
            start = clock()
            call()
            found.append(clock() - start)
    return [1e3 * median(found) / STEPS for found in times]


def main() -> dict[str, object]:
    torch.set_num_threads(1)
    found: dict[str, object] = {"CPU": on_cpu()}
    return found | {"GPU": on_gpu() if torch.cuda.is_available() else "torch sees no GPU"}


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
