"""Which state of a classifier encodes a word? (snell2021 §6.1, eq. 22 to 24, figure 7)

Trained under uniform attention, is the presence of the keyword encoded in its own state, in the next one, or in the
last one of the sentence? γ is the log-odds of the right answer if all attention were on one state.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import Classifier
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.studies.claims import ClaimVerdict, Values, finite, more_than, spread
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.studies.snell2021.toys import keyword
from attnscope.tasks import NOWHERE, Batch
from attnscope.training import evaluate

EARLY = 0.9  # validation accuracy: the first checkpoint above it is 'early'
PLACES = {
    "keyword": "γ at the keyword",
    "after": "γ one word after it",
    "mean": "mean γ of all words",
    "last": "γ at the last word",
}
TIMES = {
    "start": "at the first checkpoint",
    "early": "when accuracy first exceeds 0.9",
    "late": "at the end of training",
}
QUANTITIES = {
    "accuracy": "accuracy at the end of training",
    "step_early": "checkpoint at which accuracy first exceeds 0.9",
    **{f"{place}_{time}": f"{text}, {when}" for time, when in TIMES.items() for place, text in PLACES.items()},
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {
        "one direction": keyword(sizes.toys.keyword, bidirectional=False),
        "two directions": keyword(sizes.toys.keyword, bidirectional=True),
    }


def measure(run: Run) -> Measurement:
    steps = run.checkpoints
    numbers = [measure_checkpoint(run, step) for step in steps]
    curves = {name: np.array([each[name] for each in numbers]) for name in (*PLACES, "accuracy")}
    early = first_above(curves["accuracy"], EARLY)
    times = {"start": 0, "early": early, "late": -1}
    return {
        "accuracy": curves["accuracy"][-1],
        "step_early": at(steps, early),
        **{f"{place}_{time}": at(curves[place], i) for place in PLACES for time, i in times.items()},
        "picture": {"steps": steps, **curves},
    }


def at(values: Values, checkpoint: int | None) -> float:
    return float("nan") if checkpoint is None else float(values[checkpoint])


def first_above(values: np.ndarray, threshold: float) -> int | None:
    above = np.flatnonzero(values > threshold)
    return int(above[0]) if len(above) else None


def measure_checkpoint(run: Run, checkpoint: int) -> dict[str, float]:
    """Return γ at the four places, and the accuracy, at this step."""
    model = run.model(checkpoint)
    assert isinstance(model, Classifier)
    device = run.experiment.device
    gamma, places = zip(
        *(
            of_positives(batch, batch_lexical_scores(model, batch, **run.forward).log_odds[:, 0])
            for batch in (batch.to(device) for batch in run.task.batches("test"))
        ),
        strict=True,
    )
    accuracy = evaluate(model, run.task.batches("validation"), **run.forward)["word_accuracy"]
    return {**at_places(torch.cat(gamma), torch.cat(places)), "accuracy": accuracy}


def of_positives(
    batch: Batch, gamma: Float[Tensor, "batch source"]
) -> tuple[Float[Tensor, "positives source"], Int[Tensor, " positives"]]:
    """Return γ and the place of the keyword in the sentences that have one, except as their last word."""
    assert batch.gold_attention is not None
    place = batch.gold_attention[:, 0]
    positive = (place != NOWHERE) & (place < gamma.shape[1] - 1)
    return gamma[positive], place[positive]


def at_places(gamma: Float[Tensor, "positives source"], place: Int[Tensor, " positives"]) -> dict[str, float]:
    """Return the four quantities of §6.1, each a mean over sentences.

    >>> at_places(torch.tensor([[5.0, 3.0, 1.0], [0.0, 4.0, 2.0]]), torch.tensor([0, 1]))
    {'keyword': 4.5, 'after': 2.5, 'mean': 2.5, 'last': 1.5}
    """
    rows = torch.arange(len(gamma), device=gamma.device)
    values = {"keyword": gamma[rows, place], "after": gamma[rows, place + 1], "mean": gamma, "last": gamma[:, -1]}
    return {name: value.mean().item() for name, value in values.items()}


# Claims and figure ---------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        verdict
        for label in measured
        for verdict in (
            *hypothesis_2(measured, label, "start"),
            *hypothesis_2(measured, label, "early"),
            *observation_3(measured, label),
        )
    ]


def hypothesis_2(measured: Measurements, label: str, time: str) -> Iterable[ClaimVerdict]:
    """γ at l* ≫ γ at l* + 1 ≫ mean ≈ γ at L (eq. 23)."""
    keyword, after, mean, last = four(measured, label, time)
    when = f"{label}, {TIMES[time]}"
    yield more_than(f"{when}: γ is larger at the keyword than one word after it", keyword, after)
    yield more_than(f"{when}: γ is larger one word after the keyword than on average", after, mean)
    yield nearer(f"{when}: γ at the last word is near the average", last, after, mean)


def observation_3(measured: Measurements, label: str) -> Iterable[ClaimVerdict]:
    """γ at L ≫ γ at l* + 1 ≫ mean ≈ γ at l* (eq. 24)."""
    keyword, after, mean, last = four(measured, label, "late")
    when = f"{label}, {TIMES['late']}"
    yield more_than(f"{when}: γ is larger at the last word than one word after the keyword", last, after)
    yield more_than(f"{when}: γ is larger one word after the keyword than on average", after, mean)
    yield nearer(f"{when}: γ at the keyword is near the average", keyword, after, mean)


def four(measured: Measurements, label: str, time: str) -> list[np.ndarray]:
    return [np.array(measured.values(label, f"{place}_{time}")) for place in PLACES]


def nearer(text: str, value: np.ndarray, after: np.ndarray, mean: np.ndarray) -> ClaimVerdict:
    """Claim ≈ as the opposite of ≫: one is nearer to the mean than the other is above it."""
    return more_than(f"{text}, nearer than γ one word after the keyword is above it", after - mean, abs(value - mean))


def figure(measured: Measurements) -> FigureData:
    return {label: over_seeds(measured[label]) for label in measured}


def over_seeds(measurements: Sequence[Measurement]) -> FigureData:
    """Return mean and spread of γ at each place by checkpoint, and the median step of the early checkpoint."""
    pictures = [each["picture"] for each in measurements]
    curves = {text: np.array([picture[place] for picture in pictures]) for place, text in PLACES.items()}
    early_steps = finite([each["step_early"] for each in measurements])
    return {
        "steps": pictures[0]["steps"],
        "mean": {text: values.mean(0) for text, values in curves.items()},
        "spread": {text: [spread(values) for values in seeds.T.tolist()] for text, seeds in curves.items()},
        "early": float(np.median(early_steps)) if early_steps else None,
    }


def draw(data: FigureData) -> Figure:
    picture, axes = plots.panels(1, len(data), size=(5.6, 3.4))
    for (label, content), ax in zip(data.items(), axes, strict=True):
        marks = {} if content["early"] is None else {"early": content["early"]}
        plots.profiles(
            content["steps"], content["mean"], ax=ax, xlabel="training step (dotted: accuracy first above 0.9)",
            ylabel="γ, positive sentences (logarithmic above 1)", marks=marks, bands=content["spread"],
        )  # fmt: skip
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=1.0)  # the first steps and the last are orders of magnitude apart
        ax.autoscale()
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:g}")
        ax.set_title(f"LSTM, {label}")
    return picture


FIG7 = Finding(
    name="fig7",
    title="Under uniform attention, the encoding of a word moves away from it",
    section="§6.1, figure 7",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=figure, draw=draw,
    notes=(
        "Over positive test sentences whose keyword is not the last word. The paper gives neither the size of this "
        "network nor its training, nor says whether it reads in both directions: the profile paper takes the "
        "classifier of A.8 (words of size 300, 256 units a direction, batches of 32, Adam with a rate of 1e-3) and "
        "trains it for longer, once with one direction and once with two. Sentences have no end token.",
        "The paper states hypothesis 2 for when 'training starts'. We had set, before any run, the first checkpoint "
        "with an accuracy above 0.9 on validation sentences. A small run showed that by then the last word leads "
        "already; the first checkpoint of all, after ten steps, was added as the more literal reading. Both are shown.",
        "Bands show the standard deviation over seeds.",
        "What this does not show: anything about attention that is learnt.",
    ),
    seeds=lambda sizes: sizes.toys.keyword.seeds,
)  # fmt: skip
