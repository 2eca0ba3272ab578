"""Does it help to tell a network where to look? A study of one finding, with claims of our own."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnscope import plots
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Experiment
from attnscope.models import PRESETS
from attnscope.studies.claims import at_least, more_than
from attnscope.studies.finding import Finding, Profile, Study
from attnscope.studies.reproduce import reproduce
from attnscope.tasks import OneToOne
from attnscope.training import CrossEntropy, Guidance, TrainingSettings

QUANTITIES = {"looked": "attention on the word that is translated", "accuracy": "word accuracy"}


def experiments(profile):  # by label, what is trained; every seed of it follows
    task, model = OneToOne(min_length=3, max_length=5, test_size=100), replace(PRESETS["ao"], units=32, input_size=16)
    training = TrainingSettings(steps=80 if profile.name == "quick" else 1000, batch_size=32, teacher_forcing=1.0)
    told = Experiment(task, model, training, CrossEntropy() + Guidance())
    return {"told": told, "not told": Experiment(task, model, training)}


def measure(run):  # what one trained network says, by name: numbers, and lists or arrays for pictures
    batch = next(run.task.batches("test", run.task.test_size))
    attention = run.model()(batch).attention.mean(1)  # batch x target x source
    looked = attention.gather(2, batch.gold_attention.clamp(min=0)[:, :, None])[..., 0]
    return {"looked": looked[batch.target_mask].mean().item(), "accuracy": run.summary["word_accuracy"]}


def claims(measured):  # bounds stood before the first run, after which the network was made smaller
    told, free = (measured.values(label, "looked") for label in ("told", "not told"))
    return [
        at_least("a network that is told where to look does so: half of its attention is there", told, 0.5),
        more_than("it looks there more than one that is not told", told, free),
    ]


def draw(data):  # from what `figure` left in the result file, which is plain lists and numbers
    picture, (ax,) = plots.panels(1, 1, size=(4.0, 3.2))
    plots.bars(pd.DataFrame(data).mean().to_frame("looked"), ax, ylabel=QUANTITIES["looked"])
    return picture


LOOKED = Finding(
    name="looked", title="Told where to look, a network looks there", section="ours", experiments=experiments,
    measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims,
    figure=lambda measured: {label: measured.values(label, "looked") for label in measured}, draw=draw,
    notes=("What this does not show: whether looking there helps on sentences longer than those of training.",),
)  # fmt: skip
STUDY = Study("looking", (LOOKED,), {"quick": Profile("quick", seeds=3), "long": Profile("long", seeds=5)})

if __name__ == "__main__":
    for result in reproduce(STUDY, STUDY.findings, "quick", None, Path("runs"), LocalEngine()):
        print(*(f"{claim.word}: {claim.text}; {claim.evidence}" for claim in result.claims), sep="\n")
