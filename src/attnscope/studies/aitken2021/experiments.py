"""The experiments of aitken2021: tasks, networks and training settings, at two sizes.

Settings are the paper's; where it is silent, those of the author's notebooks; where these did not converge for us, our
own (docs/papers.md says which is which).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from attnscope.lab.experiment import Experiment
from attnscope.models import CELLS, PRESETS, EncoderDecoderSettings, Positions
from attnscope.studies.finding import Profile, published_by
from attnscope.tasks import (
    ExtendedSCAN,
    OneToOne,
    Preparation,
    ReversedOneToOne,
    Sorting,
    SyntheticTask,
    Translation,
    Words,
)
from attnscope.tasks.text import TRANSLATIONS
from attnscope.training import L2, CrossEntropy, TrainingSettings

published = published_by("aitken2021")


@dataclass(frozen=True)
class Sizes(Profile):
    """Sizes of networks and data, and steps; `all_cells`: whether eSCAN is trained with all cells and attentions."""

    units: int
    batch_size: int
    steps: int
    long_steps: int  # for eSCAN and sorting, and for VED, which learns slowly
    test_size: int
    all_cells: bool
    text_words: int  # of either language, at most
    text_steps: int


# Author's code: 128 units, batches of 128, 6000 steps (one-to-one) or 10,000 (eSCAN), components from 1000 sentences.
PAPER = Sizes(
    "paper", 5, 128, 128, steps=6000, long_steps=10_000, test_size=1000, all_cells=True,
    text_words=30_000, text_steps=10_000,
)  # fmt: skip
QUICK = Sizes(
    "quick", 3, 64, 64, steps=1500, long_steps=6000, test_size=500, all_cells=False,
    text_words=3000, text_steps=2000,
)  # fmt: skip
PROFILES = {profile.name: profile for profile in (QUICK, PAPER)}

VED, AED, AO = PRESETS["ved"], PRESETS["aed"], PRESETS["ao"]
ATTENDING = {"AED": AED, "AO": AO}


class NetworkLabel(NamedTuple):
    """A network on a task.

    >>> str(NetworkLabel("eSCAN", "AED, GRU"))
    'eSCAN, AED, GRU'
    """

    task: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)


TRANSLATION = tuple(NetworkLabel("translation", model) for model in ATTENDING)  # in figure 5; those of figure 4
TRANSLATION_NOTE = (
    "English to French: sentences of Tatoeba stand in for ParaCrawl, of which the paper took over 30 million. They "
    "are shorter and simpler; the 150,000 training pairs have 13,000 English and 22,000 French words. Sizes, optimiser "
    "and teacher forcing, in training and in measuring, are our choice."
)


def one_to_one(model: EncoderDecoderSettings, sizes: Sizes) -> Experiment:
    """N = 3, lengths from 15 to 20 (§3, figure 2)."""
    return experiment(OneToOne(test_size=sizes.test_size), model, sizes, sizes.steps)


def reversed_one_to_one(model: EncoderDecoderSettings, sizes: Sizes, min_length: int = 15) -> Experiment:
    return experiment(ReversedOneToOne(test_size=sizes.test_size, min_length=min_length), model, sizes, sizes.steps)


def sorting(model: EncoderDecoderSettings, sizes: Sizes) -> Experiment:
    """Ten letters; the paper does not say how many, nor how long its lists are."""
    return experiment(Sorting(test_size=sizes.test_size, num_words=10), model, sizes, sizes.long_steps)


def escan(model: EncoderDecoderSettings, sizes: Sizes, same_length: bool = False) -> Experiment:
    """Lengths from 15 to 20 (§4). Positions have more room and longer waves than in one-to-one: author's code."""
    if model.positions is not None:
        model = replace(model, input_size=100, positions=Positions(base=100.0))
    task = ExtendedSCAN(test_size=sizes.test_size, same_length=same_length)
    return experiment(task, model, sizes, sizes.long_steps)


def translation(model: EncoderDecoderSettings, sizes: Sizes) -> Experiment:
    """English to French (§4). The paper gives neither sizes nor optimiser, so all of this is ours.

    Thousands of words need learned inputs. Training uses teacher forcing, as is usual. The weights are those of the
    lowest validation loss, since the corpus is small enough to be memorised.
    """
    positions = None if model.positions is None else Positions(base=100.0)  # as eSCAN's
    return Experiment(
        task=english_to_french(sizes),
        model=replace(model, units=sizes.units, inputs="learned", input_size=sizes.units, positions=positions),
        training=TrainingSettings(
            steps=sizes.text_steps,
            batch_size=sizes.batch_size,
            learning_rate=1e-3,
            betas=(0.9, 0.999),
            max_grad_norm=1.0,
            teacher_forcing=1.0,
            evaluate_every=max(sizes.text_steps // 20, 1),
            keep_weights="best",
        ),
    )


def english_to_french(sizes: Sizes) -> Translation:
    """At most 30,000 words per language, sentences of at most 15 words (§4). Tatoeba stands in for ParaCrawl."""
    corpus = TRANSLATIONS["tatoeba_en_fr"]
    return replace(
        corpus,
        vocabulary=Words(min_count=1, max_size=sizes.text_words),
        preparation=Preparation(max_length=15),
        splits=replace(corpus.splits, max_validation=sizes.test_size, max_test=sizes.test_size),
    )


def escan_networks(sizes: Sizes) -> dict[str, Experiment]:
    """AED and AO on eSCAN."""
    return {name: escan(model, sizes) for name, model in ATTENDING.items()}


def translations(sizes: Sizes) -> dict[str, Experiment]:
    """The two networks of figure 4."""
    return {name: translation(model, sizes) for name, model in ATTENDING.items()}


def of_figure_5(sizes: Sizes) -> dict[NetworkLabel, Experiment]:
    """The networks of figure 5a to 5c: three tasks, two architectures."""
    tasks = {"one-to-one": one_to_one, "eSCAN": escan, "translation": translation}
    return {
        NetworkLabel(task, name): make(model, sizes)
        for task, make in tasks.items()
        for name, model in ATTENDING.items()
    }


def experiment(task: SyntheticTask, model: EncoderDecoderSettings, sizes: Sizes, steps: int) -> Experiment:
    return Experiment(
        task=task,
        # Without attention one state must hold the whole sentence: it needs the paper's size.
        model=replace(model, units=PAPER.units if model.attention == "none" else sizes.units),
        training=replace(
            optimiser(model),
            batch_size=sizes.batch_size,
            steps=sizes.long_steps if model.attention == "none" else steps,
        ),
        objective=CrossEntropy() + L2(penalty(task, model)),
    )


def penalty(task: SyntheticTask, model: EncoderDecoderSettings) -> float:
    """Return the L2 penalty of the author's saved models: 1e-3 for AED and AO on one-to-one, 1e-4 for eSCAN and VED."""
    return 1e-4 if model.attention == "none" or isinstance(task, ExtendedSCAN | Sorting) else 1e-3


def optimiser(model: EncoderDecoderSettings) -> TrainingSettings:
    """Return the author's Adam where it converges: learning rate 0.1, ε = 0.1 (small gradients are used as in SGD).

    Our recurrent networks do not converge with it and its clipping at 10. With attention, a tenth of both (the ratio
    kept) and clipping at 1 do; without, only a small rate with the usual ε, clipped hard.
    """
    author = TrainingSettings(
        learning_rate=0.1, epsilon=0.1, betas=(0.9, 0.99), max_grad_norm=10.0, schedule="exponential"
    )
    if not CELLS[model.cell].recurrent:
        return author
    if model.attention != "none":
        return replace(author, learning_rate=0.01, epsilon=0.01, max_grad_norm=1.0)
    return replace(author, learning_rate=2e-3, epsilon=1e-8, betas=(0.9, 0.999), max_grad_norm=0.1)
