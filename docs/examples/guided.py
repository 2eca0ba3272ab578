"""Does attention supervision put attention on the translated token? A study of one finding, with our own claims."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnscope import plots
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Experiment
from attnscope.models import PRESETS
from attnscope.probes.word_alignment import mean_attention_on_gold
from attnscope.studies.claims import at_least, more_than
from attnscope.studies.finding import Finding, Profile, Study
from attnscope.studies.reproduce import reproduce
from attnscope.tasks import OneToOne
from attnscope.training import CrossEntropy, Guidance, TrainingSettings

QUANTITIES = {"on_gold": "attention on the translated token", "accuracy": "token accuracy"}


def experiments(profile):  # by label, what is trained; each is trained with several seeds
    task, model = OneToOne(min_length=3, max_length=5, test_size=100), replace(PRESETS["ao"], units=32, input_size=16)
    steps = {"quick": 80, "long": 1000}[profile.name]
    training = TrainingSettings(steps, batch_size=32, teacher_forcing=1.0)
    baseline = Experiment(task, model, training)
    return {"guided": replace(baseline, objective=CrossEntropy() + Guidance()), "baseline": baseline}


def measure(run):  # of one trained network, by name: numbers, and lists or arrays for figures
    on_gold = mean_attention_on_gold(run.model(), run.task.batches("test"))
    return {"on_gold": on_gold, "accuracy": run.summary["word_accuracy"]}


def claims(measured):  # thresholds were set before the first run, after which the network was made smaller
    guided, baseline = (measured.values(label, "on_gold") for label in ("guided", "baseline"))
    return [
        at_least("a guided network puts half of its attention on the translated token", guided, 0.5),
        more_than("it puts more attention there than a network without guidance", guided, baseline),
    ]


def draw(data):  # from the output of `figure`, which is stored in the result file as plain lists and numbers
    figure, (ax,) = plots.panels(1, 1, size=(4.0, 3.2))
    plots.bars(pd.DataFrame(data).mean().to_frame("on_gold"), ax, ylabel=QUANTITIES["on_gold"])
    return figure


ON_GOLD = Finding(
    name="on_gold", title="A guided network attends to the translated token", section="ours", experiments=experiments,
    measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims,
    figure=lambda measured: {label: measured.values(label, "on_gold") for label in measured}, draw=draw,
    notes=("What this does not show: whether guidance helps on sentences longer than those of training.",),
)  # fmt: skip
STUDY = Study("guided", (ON_GOLD,), {"quick": Profile("quick", seeds=3), "long": Profile("long", seeds=5)})

if __name__ == "__main__":
    for result in reproduce(STUDY, STUDY.findings, "quick", None, Path("runs"), LocalEngine()):
        print(*(f"{claim.verdict}: {claim.text}; {claim.evidence}" for claim in result.claims), sep="\n")
