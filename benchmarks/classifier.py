"""What does a training step of tutek2020's classifier cost, beside a packed one with a dense table of words?

Batches of 32 texts as long as those of SST (20 words, 15,000 known) and of IMDB (230, 42,000), words of size 300,
a bidirectional LSTM of 150, additive attention, AMSGrad with weight decay, clipping; one thread, processor time. The
peer is written as the public code of Jain and Wallace (2019) has it: nn.LSTM on packed sequences, nn.Embedding trained.
Ours reads padded texts and leaves the words as they are published, as the study does; with words trained it is timed,
too. Lengths of a batch lie close together, as batches are made of similar texts on both sides.
"""

import json
import time
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnscope.models import ClassifierSettings, build
from attnscope.tasks import SPECIALS, Batch
from attnscope.training import CrossEntropy, TrainingSettings
from attnscope.training.fit import TrainingStep

TEXTS, SIZE, UNITS, ROUNDS = 32, 300, 150, 7
SHAPES = {"SST": (20, 15_000, 2.0), "IMDB": (230, 42_000, 5.0)}  # words in a text, words known, goal
SETTINGS = ClassifierSettings(input_size=SIZE, units=UNITS, hidden=UNITS, attention="additive", specials_attended=False)


class Peer(nn.Module):
    def __init__(self, words: int):
        super().__init__()
        self.embedding = nn.Embedding(words, SIZE, padding_idx=0)
        self.rnn = nn.LSTM(SIZE, UNITS, batch_first=True, bidirectional=True)
        self.hidden, self.score = nn.Linear(2 * UNITS, UNITS), nn.Linear(UNITS, 1, bias=False)
        self.output = nn.Linear(2 * UNITS, 1)

    def forward(self, source: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(source), lengths, batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
        scores = self.score(torch.tanh(self.hidden(states)))[..., 0].masked_fill(~mask, -torch.inf)
        return self.output((scores.softmax(-1)[..., None] * states).sum(1))[:, 0]  # type: ignore[no-any-return]


def batch_of(longest: int, words: int) -> Batch:
    torch.manual_seed(0)
    lengths = torch.randint(int(0.83 * longest), longest + 1, (TEXTS,))  # 0.83: as in IMDB's batches
    lengths[0] = longest
    mask = torch.arange(longest) < lengths[:, None]
    source = torch.randint(len(SPECIALS), words, mask.shape) * mask
    target = torch.randint(0, 2, (TEXTS, 1)) + len(SPECIALS)
    return Batch(source, mask, target, torch.ones_like(target, dtype=torch.bool))


def timed(batch: Batch, words: int) -> dict[str, float]:
    """Seconds a step of each, in turns, so that a busy machine slows all."""
    peer = Peer(words)
    adam = torch.optim.Adam(peer.parameters(), 1e-3, amsgrad=True, weight_decay=1e-5)
    lengths, gold = batch.source_mask.sum(1), (batch.target[:, 0] - len(SPECIALS)).float()

    def packed() -> None:
        loss = nn.functional.binary_cross_entropy_with_logits(peer(batch.source, lengths, batch.source_mask), gold)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(peer.parameters(), 5.0)
        adam.step()

    def ours(trained: str) -> TrainingStep:
        settings = TrainingSettings(
            learning_rate=1e-3, amsgrad=True, weight_decay=1e-5, max_grad_norm=5.0, trained=trained
        )
        return TrainingStep(build(SETTINGS, words, 2 + len(SPECIALS)).train(), CrossEntropy(), settings)

    frozen, free = ours("all but words"), ours("all")
    sides = {"packed": packed, "ours": lambda: frozen(batch, 0), "ours, words trained": lambda: free(batch, 0)}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, step in sides.items():
            start = time.process_time()
            step()
            times[name].append(time.process_time() - start)
    return {name: median(found) for name, found in times.items()}


def main() -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    results = {}
    for name, (longest, words, goal) in SHAPES.items():
        found = timed(batch_of(longest, words), words)
        faster = {f"times faster: {side}": found["packed"] / found[side] for side in found if side != "packed"}
        results[name] = {f"{side}, s a step": seconds for side, seconds in found.items()} | faster | {"goal": goal}
    return results


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
