"""What does an epoch of guided training cost at baan2019's settings, and how long do five seeds take to settle?

Lookup tables, GRU 512, single sentences as batches, greedy decoding, clipping: 3,451,708 parameters. Public code
takes 9 to 11 seconds an epoch on one thread of a like machine: measured once, elsewhere, so this is a report and no
ratio. `python -m benchmarks.guided together` trains five seeds, one process a core, for the 25 epochs after which a
guided network has settled, and gives the wall time and the accuracy on new compositions, epoch by epoch. (Minutes.)
"""

import json
import sys
import tempfile
import time

import torch

from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Experiment, train
from attnscope.lab.store import Store
from attnscope.models import PRESETS, build
from attnscope.tasks import LookupTables
from attnscope.training import CrossEntropy, TrainingSettings, evaluate
from attnscope.training.fit import TrainingStep
from attnscope.training.objectives import Guidance

TASK = LookupTables(end=False)
OBJECTIVE = CrossEntropy(total=True) + Guidance(1.0, total=True)
EPOCH = TASK.steps(1)
PUBLIC = "9 to 11 s"  # of one epoch, the public code on a like machine
EPOCHS, SEEDS = 25, 5
SETTINGS = TrainingSettings(
    steps=EPOCHS * EPOCH, batch_size=1, learning_rate=1e-3, betas=(0.9, 0.999), max_grad_norm=5.0, teacher_forcing=0.0,
    evaluate_every=EPOCH, checkpoints=tuple(range(EPOCH, (EPOCHS + 1) * EPOCH, EPOCH)),
)  # fmt: skip


def epoch() -> dict[str, object]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build(PRESETS["lookup_tables"], len(TASK.source_vocabulary), len(TASK.target_vocabulary)).train()
    descent, batches = (
        TrainingStep(model, OBJECTIVE, SETTINGS),
        [TASK.training_batch(0, step, 1) for step in range(EPOCH)],
    )
    descent(batches[0], 0)
    start = time.process_time()
    for step, batch in enumerate(batches):
        descent(batch, step)
    return {"steps": EPOCH, "ours, s an epoch": time.process_time() - start, "public code": PUBLIC}


def settled(seed: int, store: str) -> list[float]:
    """Accuracy on new compositions after each epoch."""
    run = train(Experiment(TASK, PRESETS["lookup_tables"], SETTINGS, OBJECTIVE, seed), Store(store))
    new = [evaluate(run.model(step), TASK.batches("new_compositions")) for step in run.checkpoints]
    return [found["sentence_accuracy"] for found in new]


class Settle:
    """What a worker does, with the store that all share."""

    def __init__(self, store: str):
        self.store = store

    def __call__(self, seed: int) -> list[float]:
        return settled(seed, self.store)


def together() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as store:
        start = time.perf_counter()
        found = LocalEngine().map(Settle(store), range(SEEDS))
        seconds = time.perf_counter() - start
    return {"five seeds together, s": seconds, "new compositions, by epoch": [outcome.value for outcome in found]}


def main() -> dict[str, object]:
    return epoch()


if __name__ == "__main__":
    print(json.dumps(together() if sys.argv[1:] == ["together"] else main(), indent=2))
