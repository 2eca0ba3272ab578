"""A task: repeat every letter. A B becomes A A B B."""

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
    """Sentences of 1 to `max_length` letters. Every field is a setting, and part of the key of a run."""

    letters: str = "ABC"
    max_length: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_length >= 1, f"a sentence needs at least one letter: max_length is {self.max_length}")

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self.letters)  # preceded by padding, END and START

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.source_vocabulary

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        lengths = random.integers(1, self.max_length + 1, size)
        rows = [random.integers(0, len(self.letters), length) + len(SPECIALS) for length in lengths]
        source, source_mask = pad([np.append(row, END) for row in rows])
        target, target_mask = pad([np.append(row.repeat(2), END) for row in rows])
        # The source position of each target token, that of END included: for guidance, and for probes that use it.
        gold_attention, _ = pad([np.append(np.arange(len(row)).repeat(2), len(row)) for row in rows], fill=NOWHERE)
        return Batch(source, source_mask, target, target_mask, gold_attention)


TASKS["doubling"] = Doubling  # registered for the command line, and for reading stored runs

if __name__ == "__main__":
    torch.set_num_threads(1)  # for a network this small, several threads cost more than they save
    task = Doubling()
    check_task(task)  # raises BadSetting at the first violation
    torch.manual_seed(0)
    model = EncoderDecoder(PRESETS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))
    fit(model, task, settings=TrainingSettings(steps=60, batch_size=32))
    print(evaluate(model, task.batches("test")))
