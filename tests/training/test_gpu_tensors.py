"""What a GPU asks of a training step, checked without one.

Tensors without values, on the device `meta`, stand for those of a GPU: an operation on tensors of two devices is
refused, and so is one whose shape depends on values, which could not be captured in a CUDA graph.
"""

from dataclasses import replace
from itertools import chain

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.func import functional_call, vmap

from attnscope.models import (
    PRESETS,
    Positions,
    TransformerClassifierSettings,
    TransformerDecoderSettings,
    TransformerSettings,
    build,
)
from attnscope.models.recurrent import generators
from attnscope.tasks import Batch, Keyword, LookupTables, OneToOne, RepeatedSequences
from attnscope.training import (
    CrossEntropy,
    Guidance,
    Hiding,
    HidingGold,
    MaskedWords,
    Objective,
    Relay,
    TrainingSettings,
    Tying,
)
from attnscope.training.fit import max_positions, padded_width
from attnscope.training.replicas import LossModule, stack_batches

GPU = "meta"  # torch without CUDA cannot index tensors that pretend to be on a GPU
SEEDS = 2
SMALL = {"units": 8, "layers": 2, "heads": 2, "hidden": 12, "max_length": 16, "dropout": 0.1}
TEACHER = TrainingSettings(teacher_forcing=1.0)
LETTERS = OneToOne(num_words=4, min_length=3, max_length=5, test_size=10)
KEYWORD = Keyword(num_words=5, length=6, test_size=10)
REPEATED = RepeatedSequences(num_words=6, length=12, min_period=3, max_period=4, test_size=10)
GRU = replace(PRESETS["aed"], units=8, input_size=10, positions=Positions())
GUIDED = replace(PRESETS["lookup_tables"], units=8, input_size=5, target_input_size=8)
CLASSIFIER = TransformerClassifierSettings(**SMALL)
CASES = {
    "learned positions": (LETTERS, TransformerSettings(**SMALL), TEACHER, CrossEntropy() + Relay(1.0)),
    "rotary positions": (LETTERS, TransformerSettings(**SMALL, positions="rotary"), TEACHER, HidingGold(1.0)),
    "uniform attention": (LETTERS, TransformerSettings(**SMALL), replace(TEACHER, attention="uniform"), CrossEntropy()),
    "guidance": (LETTERS, TransformerSettings(**SMALL), TEACHER, Guidance(1.0, share=0.5, head=1, shift=1)),
    "language model": (REPEATED, TransformerDecoderSettings(**SMALL), TEACHER, CrossEntropy()),
    "gru": (LETTERS, GRU, TEACHER, CrossEntropy()),
    "gru, free running": (LETTERS, GRU, TrainingSettings(teacher_forcing=0.0), CrossEntropy()),
    "gru, guided": (LookupTables(), GUIDED, TrainingSettings(teacher_forcing=0.0), Guidance(1.0, share=0.5)),
    "feedforward": (LETTERS, replace(GRU, cell="feedforward", readout="context"), TEACHER, CrossEntropy()),
    "ugrnn without attention": (
        LETTERS,
        replace(GRU, cell="ugrnn", attention="none", readout="state"),
        TrainingSettings(teacher_forcing=0.0),
        CrossEntropy(),
    ),
    "[CLS]": (KEYWORD, CLASSIFIER, TEACHER, Tying(1.0) + MaskedWords(0.1)),
    "pooling": (KEYWORD, replace(CLASSIFIER, readout="pooling"), TEACHER, Hiding(1.0, (4, 5)) + MaskedWords(0.1)),
}


def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=GPU)


def ensemble_loss(case) -> torch.Tensor:
    """Return the losses of an ensemble of seeds, as a training step computes them."""
    task, settings, training, objective = case
    model = build(settings, len(task.source_vocabulary), len(task.target_vocabulary)).train()
    batch = stack_batches([task.training_batch(seed, 0, 3) for seed in range(SEEDS)])
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.no_grad(),
        generators([torch.Generator() for _ in range(SEEDS)]),
    ):
        weights = {f"model.{name}": on_gpu(torch.stack([p.detach()] * SEEDS)) for name, p in stacked(model)}
        priced = LossModule(model, objective, training)
        of_one = vmap(lambda own, tensors: functional_call(priced, own, (Batch(**tensors),)), randomness="error")
        return of_one(weights, {name: on_gpu(value) for name, value in batch.tensors().items()})


def stacked(model: nn.Module):
    tensors = chain(model.named_parameters(), model.named_buffers())
    return ((name, torch.empty(tensor.shape)) for name, tensor in tensors)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_loss_of_an_ensemble_mixes_no_devices_and_reads_no_values(case):
    losses = ensemble_loss(case)
    assert losses.shape == (SEEDS,)
    assert losses.device == torch.device(GPU)


class OnCPU(Objective):
    def __call__(self, model, batch, trace):
        return trace.logits.mean() + torch.ones(3).mean(0, keepdim=True)


class ReadsValues(Objective):
    def __call__(self, model, batch, trace):
        return trace.logits.mean() * torch.arange(3, device=GPU).sum().item()


@pytest.mark.parametrize(
    ("objective", "error"), [(OnCPU(), RuntimeError), (ReadsValues(), DataDependentOutputException)]
)
def test_the_check_detects_device_transfers_and_synchronisation(objective, error):
    task, settings, training, _ = CASES["learned positions"]
    with pytest.raises(error):
        ensemble_loss((task, settings, training, objective))


@pytest.mark.parametrize(("positions", "most"), [("learned", 16), ("rotary", None)])
def test_batches_are_padded_no_wider_than_there_are_positions(positions, most):
    model = build(TransformerSettings(**SMALL, positions=positions), *(len(LETTERS.source_vocabulary),) * 2)
    assert max_positions(model) == most
    assert [padded_width(width, max_positions(model)) for width in (9, 15, 16)] == [10, 16, 16]
    batch = LETTERS.training_batch(0, 0, 3)
    width = padded_width(14, max_positions(model))
    assert model(batch.widened(width, width), teacher_forcing=1.0).logits.shape[1] == width


def test_a_width_that_would_be_padded_beyond_the_positions_stays_within_them():
    assert padded_width(257) == 320
    assert padded_width(257, 258) == 258
    assert padded_width(300, 258) == 300  # for the model to refuse
