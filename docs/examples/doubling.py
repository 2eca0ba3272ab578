"""Can a network learn to say every letter twice? A task: A B becomes A A B B."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from attnscope.errors import require
from attnscope.models import PRESETS, EncoderDecoder
from attnscope.tasks import END, NOWHERE, SPECIALS, TASKS, Batch, SyntheticTask, Vocabulary, pad
from attnscope.testing import check_task
from attnscope.training import TrainingSettings, evaluate, fit


@dataclass(frozen=True)
class Doubling(SyntheticTask):
    """Sentences of 1 to `longest` letters. Every field is a setting, and part of the key of a run."""

    letters: str = "ABC"
    longest: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.longest >= 1, f"a sentence needs at least one letter: longest is {self.longest}")

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self.letters)  # padding, end and start come first by themselves

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.source_vocabulary

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        lengths = random.integers(1, self.longest + 1, size)
        rows = [random.integers(0, len(self.letters), length) + len(SPECIALS) for length in lengths]
        source, source_mask = pad([np.append(row, END) for row in rows])
        target, target_mask = pad([np.append(row.repeat(2), END) for row in rows])
        # Where each target word comes from; the end answers the end. For guidance, and for probes that compare with it.
        guide, _ = pad([np.append(np.arange(len(row)).repeat(2), len(row)) for row in rows], fill=NOWHERE)
        return Batch(source, source_mask, target, target_mask, guide)


TASKS["doubling"] = Doubling  # known to the command line, and to whoever reads a stored run

if __name__ == "__main__":
    torch.set_num_threads(1)  # for a network this small, several threads cost more than they save
    task = Doubling()
    check_task(task)  # a BadSetting says the first thing that is off
    torch.manual_seed(0)
    model = EncoderDecoder(PRESETS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))
    fit(model, task, settings=TrainingSettings(steps=60, batch_size=32))
    print(evaluate(model, task.batches("test")))
