"""What is trained on made-up sequences: copying and the keyword. (snell2021 §3.3, §5.2, §6)

Settings are the paper's; where it is silent, those of the author's code: batches of 128, Adam with a rate of 1e-3 and
no clipping, fresh sentences at every step, an evaluation every ten steps, gold words for the decoder throughout.
"""

from dataclasses import dataclass, replace

import numpy as np

from attnscope.lab.experiment import Experiment
from attnscope.models import PRESETS, ClassifierSettings, EncoderDecoderSettings, Start
from attnscope.tasks import Copying, Keyword
from attnscope.training import TrainingSettings


@dataclass(frozen=True)
class HeadSizes:
    """How many first heads are tried, and how (§5.2)."""

    together: int  # K
    bases: tuple[int, ...]  # seeds of all other weights
    groups: int  # of as many heads as there are seeds, with each base
    data_seeds: int  # must agree on whether a head is good or bad
    steps: int  # for a head to show what it is
    shown: int  # steps of the networks of K heads


@dataclass(frozen=True)
class KeywordSizes:
    """The classifier of §6.1, of which the paper says nothing: `paper` takes the one of A.8."""

    seeds: int
    units: int  # of each direction; the attention has as many
    input_size: int
    length: int
    test_size: int
    steps: int


@dataclass(frozen=True)
class ToySizes:
    """How large, how long, how many seeds."""

    seeds: int
    units: int  # of encoder and decoder, of their words and of N
    batch_size: int
    length: int
    test_size: int
    steps: int  # of copying: what the paper shows, and on
    enough: float | None  # word accuracy at which copying is stopped
    reorderings: int  # fixed permutations of positions (§6.2)
    heads: HeadSizes
    keyword: KeywordSizes


PAPER = ToySizes(
    seeds=20, units=256, batch_size=128, length=40, test_size=128, steps=1500, enough=None, reorderings=1,
    heads=HeadSizes(together=8, bases=(0, 1, 2), groups=2, data_seeds=3, steps=200, shown=300),
    keyword=KeywordSizes(seeds=5, units=256, input_size=300, length=40, test_size=1000, steps=10_000),
)  # fmt: skip
QUICK = ToySizes(
    seeds=4, units=128, batch_size=64, length=40, test_size=64, steps=300, enough=0.99, reorderings=1,
    heads=HeadSizes(together=2, bases=(0, 1), groups=4, data_seeds=1, steps=200, shown=200),
    keyword=KeywordSizes(seeds=3, units=64, input_size=64, length=40, test_size=500, steps=3000),
)  # fmt: skip
SIZES = {"quick": QUICK, "paper": PAPER}

# Copying -----------------------------------------------------------------------------------------------------------

ADAM = TrainingSettings(
    learning_rate=1e-3, betas=(0.9, 0.999), clip=None, teacher_forcing=1.0, evaluate_every=10, batch_size=128
)


def copying(sizes: ToySizes, distribution: str, reordering: int | None = None) -> Experiment:
    """Permutations of 40 words, 40 of 60, or permutations of 40 words mixed with those of 40 others (§3.3, A.3)."""
    words = {"permutations": sizes.length, "sampled": sizes.length * 3 // 2, "mixture": 2 * sizes.length}
    return Experiment(
        task=Copying(sizes.test_size, distribution, words[distribution], sizes.length, reordering=reordering),
        model=network(sizes),
        training=replace(ADAM, steps=sizes.steps, batch_size=sizes.batch_size, enough=sizes.enough),
    )


def with_heads(
    sizes: ToySizes, base: int, heads: tuple[int, ...], steps: int, data: int, combine: str = "sum"
) -> Experiment:
    """Permutations, from the same first weights for all of a base but for W of each head, which has its own seed."""
    alone = copying(sizes, "permutations")
    return replace(
        alone,
        model=replace(network(sizes), heads=len(heads), combine=combine),  # summed: eq. 21
        training=replace(alone.training, steps=steps, enough=None),
        start=Start(weights=base, heads=heads),
        seed=data,
    )


def network(sizes: ToySizes) -> EncoderDecoderSettings:
    return replace(PRESETS["copying"], units=sizes.units, input_size=sizes.units, hidden=sizes.units)


# The keyword -------------------------------------------------------------------------------------------------------

PER_DECADE = 8  # checkpoints


def keyword(sizes: KeywordSizes, bidirectional: bool) -> Experiment:
    """Trained under uniform attention; batches of 32 as in A.8. No end token: the last position is a word."""
    return Experiment(
        task=Keyword(test_size=sizes.test_size, length=sizes.length, end=False),
        model=ClassifierSettings(sizes.input_size, sizes.units, hidden=sizes.units, bidirectional=bidirectional),
        training=replace(
            ADAM,
            steps=sizes.steps,
            batch_size=32,
            attention="uniform",
            evaluate_every=sizes.steps,
            checkpoints=checkpoints(sizes.steps),
        ),
    )


def checkpoints(last: int, first: int = 10) -> tuple[int, ...]:
    """Steps from the first to the last, each as many times the one before.

    >>> checkpoints(100)
    (10, 13, 18, 24, 32, 42, 56, 75, 100)
    """
    count = round(PER_DECADE * np.log10(last / first)) + 1
    return tuple(np.geomspace(first, last, count).round().astype(int).tolist())
