"""The experiments of snell2021 on artificial sequences, copying and the keyword, and their learning curves.

(snell2021 §3.3, §5.2, §6.) Settings are the paper's; where it is silent, those of the author's code: batches of 128,
Adam with a learning rate of 1e-3 and no clipping, fresh sentences at every step, an evaluation every ten steps, teacher
forcing throughout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes

from attnscope.lab.experiment import Experiment, Run
from attnscope.models import PRESETS, ClassifierSettings, EncoderDecoderSettings, Start
from attnscope.plots.style import axes, line_legend, name_axes, styled
from attnscope.studies.claims import ClaimVerdict, Proportion, Values, exact, untested
from attnscope.studies.finding import Measurement, Measurements, PublishedOf
from attnscope.studies.result import Row, row
from attnscope.tasks import Copying, Keyword
from attnscope.training import TrainingSettings


@dataclass(frozen=True)
class HeadSizes:
    """How many initial heads are tried, and how (§5.2)."""

    seeds: int  # networks of K heads with each base
    together: int  # K
    bases: tuple[int, ...]  # seeds of all other weights
    groups: int  # of as many heads as there are seeds, with each base
    data_seeds: int  # must agree on whether a head is good or bad
    steps: int  # of a single head
    shown: int  # steps of the networks of K heads


@dataclass(frozen=True)
class KeywordSizes:
    """The classifier of §6.1, which the paper does not describe: the profile paper takes the one of A.8."""

    seeds: int
    units: int  # of each direction; the attention has as many
    input_size: int
    length: int
    test_size: int
    steps: int


@dataclass(frozen=True)
class ToySizes:
    """Sizes of networks, tasks and training, and numbers of seeds."""

    seeds: int
    units: int  # of encoder and decoder, of their embeddings and of N
    batch_size: int
    length: int
    test_size: int
    steps: int  # of copying: what the paper shows, and on
    stop_at_accuracy: float | None  # word accuracy at which copying is stopped
    reorderings: int  # fixed permutations of positions (§6.2)
    heads: HeadSizes
    keyword: KeywordSizes
    first_reordering: int = 0  # those that earlier runs have shown are not judged again


PAPER = ToySizes(
    seeds=20, units=256, batch_size=128, length=40, test_size=128, steps=3000, stop_at_accuracy=None, reorderings=10,
    first_reordering=5,
    heads=HeadSizes(seeds=10, together=8, bases=(0, 1, 2), groups=4, data_seeds=3, steps=200, shown=600),
    keyword=KeywordSizes(seeds=5, units=256, input_size=300, length=40, test_size=1000, steps=10_000),
)  # fmt: skip
QUICK = ToySizes(
    seeds=4, units=128, batch_size=64, length=40, test_size=64, steps=300, stop_at_accuracy=0.99, reorderings=1,
    heads=HeadSizes(seeds=4, together=2, bases=(0, 1), groups=4, data_seeds=1, steps=200, shown=200),
    keyword=KeywordSizes(seeds=3, units=64, input_size=64, length=40, test_size=500, steps=3000),
)  # fmt: skip
SIZES = {"quick": QUICK, "paper": PAPER}

# Copying -----------------------------------------------------------------------------------------------------------

ADAM = TrainingSettings(
    learning_rate=1e-3, betas=(0.9, 0.999), max_grad_norm=None, teacher_forcing=1.0, evaluate_every=10, batch_size=128
)


def copying(sizes: ToySizes, distribution: str, reordering: int | None = None) -> Experiment:
    """Return copying of permutations of 40 words, of 40 of 60, or of a mixture of two sets of 40 (§3.3, A.3)."""
    words = {"permutations": sizes.length, "sampled": sizes.length * 3 // 2, "mixture": 2 * sizes.length}
    return Experiment(
        task=Copying(sizes.test_size, distribution, words[distribution], sizes.length, permutation_seed=reordering),
        model=network(sizes),
        training=replace(ADAM, steps=sizes.steps, batch_size=sizes.batch_size, stop_at_accuracy=sizes.stop_at_accuracy),
    )


def with_heads(
    sizes: ToySizes, base: int, heads: tuple[int, ...], steps: int, data: int, combine: str = "sum"
) -> Experiment:
    """Return copying of permutations: all initial weights are those of a base, except for each head's own.

    Args:
        sizes: Sizes of network and training.
        base: The seed of all other initial weights.
        heads: The seed of each head's initial weights.
        steps: Steps of training.
        data: The seed of the run.
        combine: "sum" (eq. 21), "mean", or "projected": the network of the author's script.
    """
    alone = copying(sizes, "permutations")
    model = network(sizes)
    if combine == "projected":  # GRUs, two embeddings, and no layer on contexts but each head's own
        model = replace(model, cell="gru", shared_inputs=False, context_layer=False)
    return replace(
        alone,
        model=replace(model, heads=len(heads), combine=combine),
        training=replace(alone.training, steps=steps, stop_at_accuracy=None),
        start=Start(weights=base, heads=heads),
        seed=data,
    )


def network(sizes: ToySizes) -> EncoderDecoderSettings:
    """Return the copying network at this size."""
    return replace(PRESETS["copying"], units=sizes.units, input_size=sizes.units, hidden=sizes.units)


# The keyword -------------------------------------------------------------------------------------------------------

PER_DECADE = 8  # checkpoints


def keyword(sizes: KeywordSizes, bidirectional: bool) -> Experiment:
    """Return a classifier trained under uniform attention; batches of 32 as in A.8; the last position is a word."""
    return Experiment(
        task=Keyword(test_size=sizes.test_size, length=sizes.length, end=False),
        model=ClassifierSettings(sizes.input_size, sizes.units, hidden=sizes.units, bidirectional=bidirectional),
        training=replace(
            ADAM,
            steps=sizes.steps,
            batch_size=32,
            attention="uniform",
            evaluate_every=sizes.steps,
            checkpoints=geometric_steps(sizes.steps),
        ),
    )


def geometric_steps(last: int) -> tuple[int, ...]:
    """Return steps from 10 to the last at a constant ratio.

    >>> geometric_steps(100)
    (10, 13, 18, 24, 32, 42, 56, 75, 100)
    """
    count = round(PER_DECADE * np.log10(last / 10)) + 1
    return tuple(np.geomspace(10, last, count).round().astype(int).tolist())


LEARNT = 0.99  # word accuracy; the paper says "perfect accuracy"
WINDOW = 300  # steps that the paper shows (§6.2)
FIRST_SEED = 20  # seeds 0 to 19 were run before delay and failure were separate claims

QUANTITIES = {
    "learnt_in_time": f"seeds that have learnt (99 % of the words) within {WINDOW} steps",
    "accuracy_in_time": f"word accuracy at step {WINDOW}",
    "learnt": "seeds that have learnt at the end",
    "step_learnt": "step at which they have, mean of those that do",
    "accuracy": "word accuracy at the end",
}
RED, BLUE, GREEN = "#D55E00", "#0072B2", "#009E73"  # the paper's, in a colour-blind safe palette


CurvePicture = Mapping[str, Sequence[float] | np.ndarray]  # `steps`, and the word `accuracy` at each
CurvePictures = Mapping[str, Sequence[CurvePicture]]  # by label, one per seed


@dataclass(frozen=True)
class Curve:
    """Word accuracy on the validation set at each evaluation; a run that was stopped keeps its last value."""

    steps: np.ndarray
    accuracy: np.ndarray

    @classmethod
    def of(cls, run: Run) -> "Curve":
        """Return the curve in the log of a run."""
        return cls(run.log["step"].to_numpy(), run.log["word_accuracy"].to_numpy())

    def first(self, threshold: float) -> float:
        """Return the first step with this accuracy; NaN if there is none."""
        steps = self.steps[self.accuracy >= threshold]
        return float(steps[0]) if len(steps) else float("nan")

    def at(self, step: int) -> float:
        """Return the accuracy at the last evaluation up to this step."""
        return float(self.accuracy[self.steps <= step][-1])

    def reaches(self, threshold: float, within: int) -> bool:
        return self.first(threshold) <= within  # false for NaN

    @property
    def picture(self) -> CurvePicture:
        """Figure data."""
        return {"steps": self.steps, "accuracy": self.accuracy}


def measure(run: Run) -> Measurement:
    curve = Curve.of(run)
    step = curve.first(LEARNT)
    return {
        "learnt_in_time": curve.reaches(LEARNT, WINDOW),
        "accuracy_in_time": curve.at(WINDOW),
        "learnt": bool(np.isfinite(step)),
        "step_learnt": step,
        # A run that never learns needs more steps than there are.
        "steps_needed": step if np.isfinite(step) else float(run.experiment.training.steps),
        "accuracy": float(curve.accuracy[-1]),
        "picture": curve.picture,
    }


def table_of(measured: Measurements, published_of: PublishedOf) -> list[Row]:
    """Return the rows of a task that is learnt or not, and the median step at which it is."""
    text = "step at which they have, median of all seeds (one number)"
    medians = [row(model=label, quantity=text, values=[median(measured, label)]) for label in measured]
    return measured.table(QUANTITIES, published_of) + medians


def median(measured: Measurements, label: str) -> float:
    """Return the median over seeds of the step at which a task is learnt: infinite where more than half never do."""
    steps = np.array(measured.values(label, "step_learnt"))
    return float(np.median(np.where(np.isnan(steps), np.inf, steps))) if len(steps) else float("nan")


def sometimes(text: str, flags: Values, control: Values) -> ClaimVerdict:
    """Claim that it is so in some seeds, and in none of the control.

    One seed shows it. That no seed does leaves small rates possible, so the claim is undecided then.

    >>> sometimes("it fails", [False, True], [False]).verdict, sometimes("it fails", [False, False], [False]).verdict
    ('holds', 'undecided')
    """
    ours, theirs = Proportion.of_flags(flags), Proportion.of_flags(control)
    evidence = f"{ours}; in the control {theirs}"
    if not ours.n or not theirs.n:
        return untested(text, "there was no seed")
    if ours.mean > 0 and theirs.mean == 0:
        return exact(text, [True], evidence)
    why = "the control does the same" if theirs.mean > 0 else f"a rate of up to {ours.high:.0%} is not excluded"
    return replace(untested(text, why), evidence=evidence)


# Drawing -----------------------------------------------------------------------------------------------------------


def pictures(measured: Measurements, labels: Sequence[str]) -> CurvePictures:
    """Return the curves of all seeds."""
    return {label: [each["picture"] for each in measured[label]] for label in labels}


def ends(data: CurvePictures) -> list[int]:
    """Return the last steps to show: that of the paper's figures and, if training went on, the end."""
    last = last_step(data)
    return [WINDOW, last] if last > WINDOW else [last]


def last_step(data: CurvePictures) -> int:
    """Return the last step of all curves."""
    return max(int(curve["steps"][-1]) for curves in data.values() for curve in curves)


@styled
def draw_curves(data: CurvePictures, paint: Mapping[str, str], ax: Axes, last: int, title: str) -> None:
    """Draw one thin curve per seed, one colour per group; the curve of a stopped run goes on horizontally."""
    ax = axes(ax)
    for label, colour in paint.items():
        for curve in data[label]:
            points = [(step, y) for step, y in zip(curve["steps"], curve["accuracy"], strict=True) if step <= last]
            steps, accuracy = zip(*points, (last, points[-1][1]), strict=True)
            ax.plot(steps, accuracy, color=colour, linewidth=1.0, alpha=0.65)
    ax.set_xlim(0, last)
    ax.set_ylim(-0.02, 1.02)
    ax.set_title(title)
    name_axes(ax, "training step", "word accuracy")
    line_legend(ax, {label: {"color": colour} for label, colour in paint.items()})
