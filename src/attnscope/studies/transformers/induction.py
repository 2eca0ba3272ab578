"""Is the phase change of induction heads preceded by lexical knowledge? (ours; Olsson 2022, snell2021 §3)

Two-layer decoder-only networks learn repeated sequences and real text. Over training we measure the loss, the scores of
previous-token and induction heads and of attention sinks, and the lexical probe: the probability of the next token if
the last layer attends to nothing but its earlier occurrence. It says whether a token that is attended to is translated
into the right output, whatever attention does. On repeated sequences the lexical map is the identity, or another
bijection with a permuted output vocabulary.

A change point is the step at which a curve has made half of its way from its first to its most extreme value, on a
logarithmic scale of steps. The intervention gives the network the copying weights at the start, or scrambled ones of
the same size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from attnscope.lab.experiment import Experiment
from attnscope.models import Start, TransformerDecoderSettings
from attnscope.models.capabilities import ReadsOut
from attnscope.plots.style import grid
from attnscope.probes.language import head_statistics
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.studies.bars import draw_curves
from attnscope.studies.claims import UNIT, ClaimVerdict
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, Profile, TrainedCase, cases
from attnscope.tasks import CORPORA, Batch, Classification, NextTokens, RepeatedSequences, Task, Words
from attnscope.training import TrainingSettings, evaluate

IDENTITY, PERMUTED = "identity", "permuted"
STARTS = ("random", "given", "scrambled")
FORMED = 0.5  # of the weight of a head is on the token after an earlier occurrence: an induction head has formed
MIN_CHANGE = 0.1  # of a score or probability, or of the loss in nats: less is no change
ALIKE = 0.5  # doublings of the number of steps within which two change points count as equal


@dataclass(frozen=True)
class Sizes:
    """Tasks, network and training of a profile."""

    task: RepeatedSequences
    model: TransformerDecoderSettings
    training: TrainingSettings
    text: str  # a corpus
    vocabulary: Words
    text_length: int
    text_steps: int
    num_checkpoints: int
    test_size: int  # sequences that every checkpoint is measured on


SIZES = {
    "quick": Sizes(
        RepeatedSequences(num_words=32, length=24, min_period=6, max_period=12, test_size=200),
        TransformerDecoderSettings(units=48, heads=2, hidden=96, positions="rotary"),
        TrainingSettings(steps=400, batch_size=32, learning_rate=2e-3, evaluate_every=200),
        text="sst", vocabulary=Words(max_size=500), text_length=32, text_steps=400, num_checkpoints=24, test_size=50,
    ),
    "paper": Sizes(
        RepeatedSequences(num_words=64, length=64, min_period=16, max_period=32, test_size=500),
        TransformerDecoderSettings(units=128, heads=4, hidden=256, positions="rotary"),
        TrainingSettings(steps=8000, batch_size=64, learning_rate=1e-3, evaluate_every=2000),
        text="imdb", vocabulary=Words(max_size=4000), text_length=128, text_steps=16_000, num_checkpoints=40,
        test_size=200,
    ),
}  # fmt: skip


class InductionLabel(NamedTuple):
    """A task and how the copying weights start.

    >>> str(InductionLabel(PERMUTED, "given"))
    'permuted, given'
    """

    task: str
    start: str

    def __str__(self) -> str:
        return ", ".join(self)


def experiments(profile: Profile) -> dict[InductionLabel, Case]:
    sizes = SIZES[profile.name]
    tasks = {IDENTITY: sizes.task, PERMUTED: replace(sizes.task, permutation_seed=0)}
    synthetic = {
        InductionLabel(name, start): case(sizes, task, sizes.training.steps, Start(copying=start))
        for name, task in tasks.items()
        for start in STARTS
    }
    return synthetic | cases([InductionLabel(sizes.text, STARTS[0])], lambda label: text_case(sizes))


def case(sizes: Sizes, task: Task, steps: int, start: Start) -> Case:
    """Return one network with its checkpoints, at steps that grow by a constant factor."""
    checkpoints = tuple(sorted({0, *np.geomspace(8, steps, sizes.num_checkpoints).round().astype(int).tolist()}))
    training = replace(sizes.training, steps=steps, checkpoints=checkpoints)
    return Case({"model": Experiment(task, sizes.model, training, start=start)}, sizes)


def text_case(sizes: Sizes) -> Case:
    corpus = CORPORA[sizes.text]
    assert isinstance(corpus, Classification)
    task = NextTokens(replace(corpus, vocabulary=sizes.vocabulary), sizes.text_length)
    task.part("test")  # a missing corpus is noticed here
    return case(sizes, task, sizes.text_steps, Start())


# Measurements --------------------------------------------------------------------------------------------------------

SCORES = {  # by name in a measurement: the layer, and the measure of its heads
    "previous": (0, "previous"), "induction": (1, "induction"), "sink": (1, "first"),
}  # fmt: skip
CURVES = {
    "lexical": "lexical probe",
    "previous": "previous-token head",
    "induction": "induction head",
    "sink": "attention sink",
    "accuracy": "accuracy",
    "loss": "loss",
}


def measure(subject: TrainedCase[Sizes]) -> Measurement:
    """Return curves over checkpoints, their change points in doublings of the number of steps, and final values."""
    run, sizes = subject.runs["model"], subject.settings
    sequences = measured_sequences(run.task, sizes).to(subject.device)
    checkpoints = run.checkpoints
    rows = [checkpoint_values(run.model(step), run.task, sequences, sizes.test_size) for step in checkpoints]
    curves = {name: [row[name] for row in rows] for name in CURVES}
    changes = {f"{name}_change": change_point(checkpoints, values) for name, values in curves.items()}
    final = {name: values[-1] for name, values in curves.items()}
    return {**final, "lexical_first": curves["lexical"][0], **changes, "steps": checkpoints, "curves": curves}


def measured_sequences(task: Task, sizes: Sizes) -> Batch:
    """Return repeated sequences of the task, or for real text of random tokens of its vocabulary."""
    if not isinstance(task, RepeatedSequences):
        task = replace(sizes.task, num_words=len(task.source_vocabulary) - 3, permutation_seed=None)
    return next(task.batches("test", sizes.test_size))


def checkpoint_values(model: ReadsOut, task: Task, sequences: Batch, test_size: int) -> dict[str, float]:
    """Return the loss and accuracy on the task, the best head of each kind, and the lexical probe at gold positions."""
    heads = head_statistics(model, [sequences]).values
    assert sequences.gold_attention is not None
    beta = batch_lexical_scores(model, sequences).probability
    at_gold = beta.gather(2, sequences.gold_attention[..., None])[..., 0]
    on_task = evaluate(model, [next(task.batches("test", test_size))])
    return {
        **{name: float(heads[measure][layer].max()) for name, (layer, measure) in SCORES.items()},
        "lexical": float(at_gold.mean()), "loss": on_task["loss"], "accuracy": on_task["word_accuracy"],
    }  # fmt: skip


def change_point(steps: Sequence[int], values: Sequence[float]) -> float:
    """Return log2(1 + step) at which a curve is half-way from its first to its most extreme value; NaN without change.

    >>> change_point([0, 1, 3, 7], [0.0, 0.0, 1.0, 1.0])
    1.5
    """
    way = np.abs(np.asarray(values) - values[0])
    if way.max() < MIN_CHANGE:
        return float("nan")
    half, after = way.max() / 2, int(np.argmax(way >= way.max() / 2))
    x = np.log2(1 + np.asarray(steps, dtype=float))
    share = (half - way[after - 1]) / (way[after] - way[after - 1])
    return float(x[after - 1] + share * (x[after] - x[after - 1]))


QUANTITIES = {
    **{name: f"{text}, trained" for name, text in CURVES.items()},
    "lexical_first": "lexical probe, before training",
    **{f"{name}_change": f"change point of the {text}, log2(1 + step)" for name, text in CURVES.items()},
}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    own = [label for label in measured if label.start == STARTS[0]]
    verdicts = [claim for label in own for claim in order_claims(measured, label)]
    for task in (IDENTITY, PERMUTED):
        random, given, scrambled = (InductionLabel(task, start) for start in STARTS)
        sooner = f"{task}: an induction head forms earlier where copying weights are given at the start"
        later = f"{task}: it forms later where they are scrambled than where they are random"
        verdicts.append(measured.more_than(sooner, random, given, "induction_change"))
        verdicts.append(measured.more_than(later, scrambled, random, "induction_change"))
    alike = f"an induction head forms at the same step, within {ALIKE:g} doublings, with the identity and permuted"
    identity, permuted = (InductionLabel(task, STARTS[0]) for task in (IDENTITY, PERMUTED))
    return [*verdicts, measured.equivalent(alike, identity, permuted, "induction_change", ALIKE)]


def order_claims(measured: Measurements, label: InductionLabel) -> list[ClaimVerdict]:
    """Claim that an induction head forms, and that it comes after lexical knowledge and a previous-token head."""
    where = label.task
    earlier = f"{where}: the {{}} changes before the induction head"
    return [
        measured.at_least(f"{where}: an induction head forms: its score is {FORMED:g}", label, "induction", FORMED),
        *(
            measured.greater(earlier.format(CURVES[name]), label, "induction_change", f"{name}_change")
            for name in ("lexical", "previous")
        ),
    ]


def figure(measured: Measurements) -> FigureData:
    """Return, by label, steps, and by quantity one curve and one change point per seed (JSON has null for NaN)."""
    return {
        str(label): {
            "steps": measured.first(label)["steps"],
            "curves": {name: [seed[name] for seed in measured.per_seed(label, "curves")] for name in SHOWN},
            "changes": {name: measured.values(label, f"{name}_change") for name in SHOWN},
        }
        for label in measured
    }


SHOWN = ("lexical", "previous", "induction", "sink", "accuracy")


def draw(data: FigureData) -> Figure:
    """Draw one panel per label: means over seeds with their interval, dotted lines at change points."""
    picture, axes = grid(len(data), 3, size=(3.9, 3.0))
    for ax, (label, content) in zip(axes, data.items(), strict=True):
        curves = {CURVES[name]: np.array(seeds) for name, seeds in content["curves"].items()}
        change_points = {name: values for name, values in content["changes"].items() if None not in values}
        draw_curves(
            1 + np.array(content["steps"]), curves, ax, UNIT, xlabel="1 + training step",
            marks={CURVES[name]: 2 ** np.mean(np.array(values, dtype=float)) for name, values in change_points.items()},
        )  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_title(label)
    return picture


NOTES = (
    "Scores are the highest over the heads of a layer: previous token of the first, induction and sink of the last. On "
    "real text, heads and lexical knowledge are measured on repeated sequences of random tokens, loss and accuracy on "
    "the text.",
    "The output layer is not tied to the embedding, so that the identity has to be learned like any other map; the "
    "claim that both are alike is a check of this.",
    "Known: in Transformers trained on text, induction heads form in a narrow window early in training, with a visible "
    "bump in the loss, and two layers are needed (Olsson et al. 2022, In-context learning and induction heads). In-"
    "context classification appears abruptly, since the parts of an induction head depend on each other (Reddy 2023, "
    "arXiv 2312.03002). On Markov chains, networks first predict uniformly, then by the frequencies of tokens in the "
    "context, and then by induction, in a sharp transition (Edelman et al. 2024, arXiv 2402.11004): the middle phase "
    "needs lexical knowledge and no attention pattern.",
    "What this does not show: that lexical knowledge is necessary. Giving and scrambling it change how early attention "
    "is useful.",
)

INDUCTION = Finding(
    name="induction",
    title="Is the phase change of induction heads preceded by lexical knowledge?",
    section="ours; Olsson et al. 2022, snell2021 §3",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=figure, draw=draw, notes=NOTES,
    columns=InductionLabel._asdict,
)  # fmt: skip
