"""What does a training step over padded sentences cost, beside packed ones? A bidirectional LSTM on real lengths.

Batches of 32 sentences of up to 230 words, words of size 300, 150 and 256 units a direction: a step of forward and
backward, on one thread (processor time) and on two (wall time, for a machine with nothing else to do). Sentences of a
training batch are of similar lengths: for IMDB the shortest has 0.83 of the longest one's words. Mixed lengths are
timed as well. The peer is nn.LSTM on a packed sequence. States and gradients are compared before anything is timed.
"""

import json
import time
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnscope.models.cells import LSTM
from attnscope.models.recurrent import Recurrent

SENTENCES, LONGEST, INPUTS, ROUNDS = 32, 230, 300, 5
UNITS = (150, 256)  # tutek2020's classifier and snell2021's
SHORTEST = {"a training batch": 190, "mixed lengths": 57}
GOAL = 4.0  # at least this many times faster


def packed_twin(ours: Recurrent, units: int) -> nn.LSTM:
    twin = nn.LSTM(INPUTS, units, batch_first=True, bidirectional=True)
    sides = {"": ours.ahead[0].rnn, "_reverse": ours.back[0].rnn}
    twin.load_state_dict({f"{k}{end}": v for end, rnn in sides.items() for k, v in rnn.state_dict().items()})
    return twin


def compare(units: int, threads: int, shortest: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    torch.manual_seed(0)
    ours = Recurrent(LSTM, INPUTS, units, bidirectional=True, trained_first=False)
    theirs = packed_twin(ours, units)
    lengths = torch.randint(shortest, LONGEST + 1, (SENTENCES,))
    lengths[0] = LONGEST
    mask = torch.arange(LONGEST) < lengths[:, None]
    inputs = torch.randn(SENTENCES, LONGEST, INPUTS)

    def padded_states() -> Tensor:
        return ours.read(inputs, mask, ends=False).states[mask]

    def packed_states() -> Tensor:
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(theirs(packed)[0], batch_first=True)[0][mask]

    torch.testing.assert_close(padded_states(), packed_states(), rtol=1e-4, atol=1e-5)
    times: dict[str, list[float]] = {"padded": [], "packed": []}
    for _ in range(ROUNDS):  # in turns, so that a busy machine slows both
        for name, states in {"padded": padded_states, "packed": packed_states}.items():
            start = clock()
            states().square().sum().backward()
            times[name].append(clock() - start)
    torch.testing.assert_close(
        ours.back[0].rnn.weight_ih_l0.grad, theirs.weight_ih_l0_reverse.grad, rtol=1e-3, atol=1e-2
    )
    padded, packed = (median(found) for found in times.values())
    return {"padded, s a step": padded, "packed, s a step": packed, "times faster": packed / padded, "goal": GOAL}


def main() -> dict[str, dict[str, float]]:
    return {
        f"{lengths}, {units} units, threads: {threads}": compare(units, threads, shortest)
        for lengths, shortest in SHORTEST.items()
        for units in UNITS
        for threads in (1, 2)
    }


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
