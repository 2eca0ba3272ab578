"""What is trained: the tasks and networks of aitken2021, at two sizes.

Settings are the paper's; where it is silent, those of the author's notebooks; where these did not converge for us, our
own (docs/papers.md says which is which).
"""

from dataclasses import dataclass, replace

from attnscope.lab.experiment import Experiment
from attnscope.models import CELLS, PRESETS, EncoderDecoderSettings, Positions
from attnscope.studies.finding import Profile
from attnscope.tasks import ExtendedSCAN, OneToOne, ReversedOneToOne, Sorting, SyntheticTask
from attnscope.training import L2, CrossEntropy, TrainingSettings


@dataclass(frozen=True)
class Sizes(Profile):
    """How large and how long; `all_cells`: whether eSCAN is trained with every cell and attention, too."""

    units: int
    batch_size: int
    steps: int
    long_steps: int  # for eSCAN and sorting, and for VED, which learns slowly
    test_size: int
    all_cells: bool


# Author's code: 128 units, batches of 128, 6000 steps (one-to-one) or 10,000 (eSCAN), components from 1000 sentences.
PAPER = Sizes("paper", 5, 128, 128, steps=6000, long_steps=10_000, test_size=1000, all_cells=True)
QUICK = Sizes("quick", 3, 64, 64, steps=1500, long_steps=6000, test_size=500, all_cells=False)
PROFILES = {profile.name: profile for profile in (QUICK, PAPER)}

VED, AED, AO = PRESETS["ved"], PRESETS["aed"], PRESETS["ao"]


def one_to_one(model: EncoderDecoderSettings, sizes: Sizes) -> Experiment:
    """N = 3, lengths from 15 to 20 (§3, figure 2)."""
    return experiment(OneToOne(test_size=sizes.test_size), model, sizes, sizes.steps)


def reversed_one_to_one(model: EncoderDecoderSettings, sizes: Sizes, shortest: int = 15) -> Experiment:
    return experiment(ReversedOneToOne(test_size=sizes.test_size, shortest=shortest), model, sizes, sizes.steps)


def sorting(model: EncoderDecoderSettings, sizes: Sizes) -> Experiment:
    """Ten letters; the paper does not say how many, nor how long its lists are."""
    return experiment(Sorting(test_size=sizes.test_size, words=10), model, sizes, sizes.long_steps)


def escan(model: EncoderDecoderSettings, sizes: Sizes, same_length: bool = False) -> Experiment:
    """Lengths from 15 to 20 (§4). Positions have more room and longer waves than in one-to-one: author's code."""
    if model.positions is not None:
        model = replace(model, input_size=100, positions=Positions(base=100.0))
    task = ExtendedSCAN(test_size=sizes.test_size, same_length=same_length)
    return experiment(task, model, sizes, sizes.long_steps)


def one_to_one_and_escan(sizes: Sizes) -> dict[str, Experiment]:
    """The four networks of figure 5."""
    tasks = {"one-to-one": one_to_one, "eSCAN": escan}
    models = {"AED": AED, "AO": AO}
    return {f"{task}, {model}": tasks[task](models[model], sizes) for task in tasks for model in models}


def experiment(task: SyntheticTask, model: EncoderDecoderSettings, sizes: Sizes, steps: int) -> Experiment:
    return Experiment(
        task=task,
        # Without attention the whole sentence passes through one state, which a small one does not hold.
        model=replace(model, units=PAPER.units if model.attention == "none" else sizes.units),
        training=replace(
            optimiser(model),
            batch_size=sizes.batch_size,
            steps=sizes.long_steps if model.attention == "none" else steps,
        ),
        objective=CrossEntropy() + L2(penalty(task, model)),
    )


def penalty(task: SyntheticTask, model: EncoderDecoderSettings) -> float:
    """Author's saved models: 1e-3 for AED and AO on one-to-one, 1e-4 for eSCAN and VED; of sorting nothing is known."""
    return 1e-4 if model.attention == "none" or isinstance(task, ExtendedSCAN | Sorting) else 1e-3


def optimiser(model: EncoderDecoderSettings) -> TrainingSettings:
    """The author's Adam where it converges: a rate of 0.1 with ε = 0.1, so that small gradients move weights as in SGD.

    Our recurrent networks do not converge with it. With attention, a tenth of both (the ratio kept) and a norm of 1 in
    place of 10 for clipping do; without, only a small rate with the usual ε, clipped hard.
    """
    author = TrainingSettings(learning_rate=0.1, epsilon=0.1, betas=(0.9, 0.99), clip=10.0, schedule="exponential")
    if not CELLS[model.cell].recurrent:
        return author
    if model.attention != "none":
        return replace(author, learning_rate=0.01, epsilon=0.01, clip=1.0)
    return replace(author, learning_rate=2e-3, epsilon=1e-8, betas=(0.9, 0.999), clip=0.1)
