"""What does a training step of AED cost, beside a plain loop over nn.GRUCell with the same arithmetic?

GRU of 128 units, batches of 128, sentences of length 20, one thread of a CPU; with teacher forcing or greedy decoding.
The peer is what one writes first: a cell for each side, a Python loop over steps, attention inside the loop. Both take
the same batches from the same weights, and the losses are compared before anything is timed.
"""

import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from attnscope.models import PRESETS, EncoderDecoder
from attnscope.tasks import START, Batch, OneToOne
from attnscope.training import CrossEntropy, TrainingSettings
from attnscope.training.fit import TrainingStep

TASK = OneToOne(min_length=19, max_length=19)  # 19 letters and the end token
ROUNDS, STEPS = 5, 10
GOAL = 2.0  # at least this many times faster than the loop


class Loop(nn.Module):
    """The same network, step by step."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.encoder, self.decoder = cell(model.encoder.ahead[0].rnn), cell(model.decoder.ahead[0].rnn)
        self.output = nn.Linear(256, len(TASK.target_vocabulary), bias=False)
        self.output.load_state_dict(model.output.state_dict())
        self.first = nn.Parameter(torch.zeros(128))

    def forward(self, batch: Batch, greedy: bool) -> Tensor:
        h, states = self.first.expand(len(batch), -1), []
        for words in batch.source.unbind(1):
            h = self.encoder(one_hot(words, len(TASK.source_vocabulary)).float(), h)
            states.append(h)
        encoder = torch.stack(states, 1)
        word, logits = torch.full((len(batch),), START), []
        for gold in batch.target.unbind(1):
            h = self.decoder(one_hot(word, len(TASK.target_vocabulary)).float(), h)
            alignment = (encoder @ h[:, :, None])[..., 0].masked_fill(~batch.source_mask, -torch.inf)
            context = (alignment.softmax(-1)[:, None] @ encoder)[:, 0]
            logits.append(self.output(torch.cat([h, context], -1)))
            word = logits[-1].argmax(-1) if greedy else gold
        return torch.stack(logits, 1)


def cell(rnn: nn.GRU) -> nn.GRUCell:
    made = nn.GRUCell(rnn.input_size, rnn.hidden_size)
    made.load_state_dict({name.removesuffix("_l0"): value for name, value in rnn.state_dict().items()})
    return made


def loop_step(model: Loop, adam: torch.optim.Optimizer, batch: Batch, greedy: bool) -> float:
    logits = model(batch, greedy)
    loss = cross_entropy(logits.flatten(0, 1), batch.target.flatten())
    adam.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    adam.step()
    return loss.item()


def compare(greedy: bool) -> dict[str, float]:
    torch.manual_seed(0)
    model = EncoderDecoder(PRESETS["aed"], len(TASK.source_vocabulary), len(TASK.target_vocabulary))
    loop, settings = Loop(model), TrainingSettings(learning_rate=1e-3, teacher_forcing=0.0 if greedy else 1.0)
    descent = TrainingStep(model, CrossEntropy(), settings)
    adam = torch.optim.Adam(loop.parameters(), lr=1e-3, betas=settings.betas)
    batches = [TASK.training_batch(0, step, 128) for step in range(STEPS)]

    # A few steps only: sooner or later rounding tips a word that is nearly as likely as another.
    losses = [(descent(batch, 0).item(), loop_step(loop, adam, batch, greedy)) for batch in batches[:5]]
    assert all(abs(ours - theirs) < 1e-5 for ours, theirs in losses), f"the two do not compute the same: {losses}"

    ours, theirs = [], []
    for _ in range(ROUNDS):  # in turns, so that a busy machine slows both
        ours.append(seconds(lambda: [descent(batch, 0) for batch in batches]))
        theirs.append(seconds(lambda: [loop_step(loop, adam, batch, greedy) for batch in batches]))
    return {
        "ours, ms a step": 1e3 * median(ours) / STEPS,
        "loop over nn.GRUCell, ms a step": 1e3 * median(theirs) / STEPS,
        "times faster": median(theirs) / median(ours),
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> dict[str, object]:
    torch.set_num_threads(1)
    return {
        "teacher forcing": compare(greedy=False),
        "greedy decoding": compare(greedy=True),
        "goal, times faster": GOAL,
    }


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
