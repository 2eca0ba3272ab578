"""Is the knowledge to translate single words there before attention, and does it predict it? (snell2021 §3, §5.1)

Translators with one layer learn Multi30k. Over training we measure A(α, α̂(τ)), how far the attention of another seed
agrees with that of the trained network, and A(α, β^uf(τ)), the agreement with the lexical probe of a network that is
trained under uniform attention; ξ puts the second in terms of the first. The control reads β^uf from the source of
another sentence of the same length: what agrees there is due to positions and end tokens.

Networks with one or two layers and one, two or eight heads copy permutations of the same words, whose counts carry no
lexical information, and the control of §3.3, where they do. The intervention starts permutations with lexical weights,
or with scrambled ones of the same size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from attnscope.lab.experiment import Experiment, Run
from attnscope.models import Start, TransformerSettings
from attnscope.models.capabilities import ReadsOut
from attnscope.plots.style import grid
from attnscope.probes.agreement import LearningCurve
from attnscope.probes.lexical import batch_lexical_scores, lexical_scores
from attnscope.studies.bars import draw_curves
from attnscope.studies.claims import UNIT, ClaimVerdict
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, Profile, TrainedCase, cases
from attnscope.studies.snell2021.agreements import agreement_of, attention_score, most_accurate, sample, score_sample
from attnscope.studies.snell2021.experiments import FIRST_SEEDS, with_either_attention
from attnscope.studies.snell2021.toys import LEARNT, Curve
from attnscope.studies.snell2021.toys import measure as measure_curve
from attnscope.studies.transformers.experiments import ADAM
from attnscope.studies.transformers.induction import STARTS, change_point
from attnscope.tasks import CORPORA, Batch, Copying, Subwords, Translation, Words

CORPUS = "multi30k_en_de"
PERMUTATIONS, CONTROL = "permutations", "control"
LAYERS, HEADS = (1, 2), (1, 2, 8)  # of networks that copy
RANDOM, GIVEN, SCRAMBLED = STARTS


@dataclass(frozen=True)
class Sizes:
    """Networks, training and measurements of a profile."""

    units: int  # of translators; feed-forward networks have twice as many
    vocabulary: Words | Subwords
    translator_heads: tuple[int, ...]
    batch_size: int
    learning_rate: float  # of translators
    steps: int
    num_checkpoints: int
    sentences: int  # of the validation split, that agreement is measured on
    copier_units: int
    length: int  # of sequences to copy
    copying_batch: int
    copying_steps: int
    evaluate_every: int
    test_size: int


SIZES = {
    # Whole words and a high learning rate, since with 1,000 subwords and 1e-3 a pilot had no attention after 600 steps.
    "quick": Sizes(
        units=64, vocabulary=Words(max_size=1500), translator_heads=(8,), batch_size=32, learning_rate=5e-3,
        steps=1200, num_checkpoints=12, sentences=100,
        copier_units=64, length=20, copying_batch=32, copying_steps=800, evaluate_every=10, test_size=64,
    ),
    "paper": Sizes(
        units=256, vocabulary=Subwords(size=8000), translator_heads=(1, 8), batch_size=64, learning_rate=1e-3,
        steps=9000, num_checkpoints=24, sentences=500,
        copier_units=128, length=40, copying_batch=128, copying_steps=3000, evaluate_every=10, test_size=128,
    ),
}  # fmt: skip


class LearnedLabel(NamedTuple):
    """A task, a network, and how its lexical weights start.

    >>> str(LearnedLabel(PERMUTATIONS, 1, 8)), str(LearnedLabel(PERMUTATIONS, 2, 1, GIVEN))
    ('permutations, 1 layer, 8 heads', 'permutations, 2 layers, 1 head, given')
    """

    task: str
    layers: int
    heads: int
    start: str = RANDOM

    def __str__(self) -> str:
        return f"{self.task}, {self.network}" + (f", {self.start}" if self.start != RANDOM else "")

    @property
    def network(self) -> str:
        return ", ".join(f"{n} {name}{'s' * (n > 1)}" for n, name in ((self.layers, "layer"), (self.heads, "head")))


def experiments(profile: Profile) -> dict[LearnedLabel, Case]:
    sizes = SIZES[profile.name]
    translation_labels = [LearnedLabel(CORPUS, 1, heads) for heads in sizes.translator_heads]
    copying_labels = [LearnedLabel(*parts) for parts in product((PERMUTATIONS, CONTROL), LAYERS, HEADS)]
    start_labels = [LearnedLabel(PERMUTATIONS, 1, 1, start) for start in (GIVEN, SCRAMBLED)]
    return {
        **cases(translation_labels, partial(translation, sizes)),
        **{label: Case({"model": copying(sizes, label)}, sizes) for label in (*copying_labels, *start_labels)},
    }


def translation(sizes: Sizes, label: LearnedLabel) -> Case:
    """Return the network whose attention is α, another seed, and one that is trained under uniform attention."""
    task = CORPORA[CORPUS]
    assert isinstance(task, Translation)
    checkpoints = {0, *np.geomspace(8, sizes.steps, sizes.num_checkpoints).round().astype(int).tolist()}
    standard = Experiment(
        replace(task, vocabulary=sizes.vocabulary).resolved(),  # a missing corpus is noticed here
        network(sizes.units, label),
        replace(
            ADAM, steps=sizes.steps, batch_size=sizes.batch_size, learning_rate=sizes.learning_rate,
            evaluate_every=sizes.steps, checkpoints=tuple(sorted(checkpoints)),
        ),
    )  # fmt: skip
    runs = with_either_attention(standard)
    return Case({role: replace(run, seed=FIRST_SEEDS[role]) for role, run in runs.items()}, sizes)


def copying(sizes: Sizes, label: LearnedLabel) -> Experiment:
    """Return a network that copies all words of its vocabulary in any order, or two thirds of them (§3.3)."""
    distribution, factor = ("permutations", 2) if label.task == PERMUTATIONS else ("sampled", 3)
    return Experiment(
        Copying(sizes.test_size, distribution, sizes.length * factor // 2, sizes.length),
        network(sizes.copier_units, label),
        replace(
            ADAM, steps=sizes.copying_steps, batch_size=sizes.copying_batch, evaluate_every=sizes.evaluate_every,
            stop_at_accuracy=LEARNT,
        ),
        start=Start(copying=label.start),
    )  # fmt: skip


def network(units: int, label: LearnedLabel) -> TransformerSettings:
    return TransformerSettings(units=units, layers=label.layers, heads=label.heads, hidden=2 * units)


# Measurements --------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[Sizes]) -> Measurement:
    if "model" in subject.runs:
        return copying_measurement(subject.runs["model"], subject.device)
    return translation_measurement(subject)


AGREEMENTS = {  # the curves of a translator
    "again": "A(α, α̂(τ))",
    "lexical": "A(α, β̂(τ))",
    "uniform": "A(α, β^uf(τ))",
    "mismatched": "A(α, β^uf(τ)), mismatched",
}


def translation_measurement(subject: TrainedCase[Sizes]) -> Measurement:
    """Return agreements with α over training, their best values and change points, and ξ of β^uf."""
    pairs = [matched_and_not(batch) for batch in sample(subject, "validation")]
    matched, mismatched = ([pair[i] for pair in pairs] for i in range(2))
    standard, again, uniform = (subject.runs[role] for role in ("standard", "again", "uniform"))
    best = most_accurate(standard, matched)
    alpha = score_sample(standard.model(best, "teacher_forced"), matched, attention_score).values
    curves: dict[str, list[float]] = {name: [] for name in (*AGREEMENTS, "chance", "accuracy")}
    for step in again.checkpoints:
        other, uf = again.model(step, "teacher_forced"), uniform.model(step, "teacher_forced")
        attended = score_sample(other, matched, attention_score)
        scores = {
            "again": attended.values,
            "lexical": score_sample(other, matched, lexical_scores).values,
            "uniform": score_sample(uf, matched, lexical_scores, **uniform.forward).values,
            "mismatched": score_sample(uf, mismatched, lexical_scores, **uniform.forward).values,
        }
        agreements = {name: agreement_of(alpha, values, matched) for name, values in scores.items()}
        for name, agreement in agreements.items():
            curves[name].append(agreement.top)
        curves["chance"].append(agreements["uniform"].chance)
        curves["accuracy"].append(attended.accuracy)
    learning = LearningCurve(tuple(again.checkpoints), tuple(curves["again"]), tuple(curves["accuracy"]))
    top = int(np.argmax(curves["uniform"]))
    context = learning.contextualise(curves["uniform"][top])
    return {
        "accuracy": learning.final,
        "xi_untrained": learning.performance[0],
        "xi_uniform": context.value,
        "exceeded": float(context.exceeded),
        "agreement_again": curves["again"][-1],
        "agreement_uniform": curves["uniform"][top],
        "agreement_mismatched": max(curves["mismatched"]),  # at its own best, as that of matched pairs
        "agreement_chance": curves["chance"][top],
        **{f"{name}_change": change_point(again.checkpoints, curves[name]) for name in ("again", "lexical", "uniform")},
        "steps": again.checkpoints,
        "curves": {name: curves[name] for name in (*AGREEMENTS, "accuracy")},
    }


def matched_and_not(batch: Batch) -> tuple[Batch, Batch]:
    """Return the sentences of which another has a source of the same length; and the same with that one's source."""
    lengths = batch.source_mask.sum(1)
    partner = torch.arange(len(lengths))
    for length in lengths.unique():
        rows = (lengths == length).nonzero()[:, 0].to(partner.device)
        partner[rows] = rows.roll(1)
    rows = (partner != torch.arange(len(lengths))).nonzero()[:, 0]
    matched = replace(batch, **{name: value[rows] for name, value in batch.tensors().items()})
    return matched, replace(matched, source=batch.source[partner[rows]])


def copying_measurement(run: Run, device: str) -> Measurement:
    """Return when the task is learnt, and β of the word that is copied before and after training."""
    curve, training = Curve.of(run), run.experiment.training
    numbers = measure_curve(run)
    batch = next(run.task.batches("test")).to(device)
    steps = list(range(training.evaluate_every, training.steps + 1, training.evaluate_every))
    return {
        **{name: numbers[name] for name in ("learnt", "steps_needed", "accuracy")},
        "lexical_first": beta_at_gold(run.experiment.new_model().to(device), batch),
        "lexical": beta_at_gold(run.model(), batch),
        "steps": steps,
        "curves": {"accuracy": [curve.at(step) for step in steps]},
    }


def beta_at_gold(model: ReadsOut, batch: Batch) -> float:
    assert batch.gold_attention is not None
    beta = batch_lexical_scores(model, batch, decoding="teacher_forced").probability
    return float(beta.gather(2, batch.gold_attention[..., None]).mean())


QUANTITIES = {
    "accuracy": "word accuracy when training ends, teacher forcing",
    "agreement_again": "A(α, α̂) of another seed when training ends",
    "agreement_uniform": "A(α, β^uf) at its best",
    "agreement_mismatched": "A(α, β^uf) of mismatched pairs at its best",
    "agreement_chance": "chance",
    "xi_uniform": "ξ(α, β^uf): accuracy of another seed when its attention first agrees more",
    "exceeded": "share of seeds in which it does",
    "xi_untrained": "accuracy before training",
    "uniform_change": "change point of A(α, β^uf(τ)), log2(1 + step)",
    "lexical_change": "change point of A(α, β̂(τ)), log2(1 + step)",
    "again_change": "change point of A(α, α̂(τ)), log2(1 + step)",
    "learnt": "share of seeds that have learnt (99 % of the words)",
    "steps_needed": "steps until they have; never counts as the last step",
    "lexical_first": "β of the word that is copied, before training",
    "lexical": "β of the word that is copied, trained",
}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = [claim for label in measured if label.task == CORPUS for claim in translation_claims(measured, label)]
    for control in (label for label in measured if label.task == CONTROL):
        learnt = f"{control}: the network learns the task in every seed"
        delay = f"{control.network}: delay: permutations are learnt later than the control"
        verdicts.append(measured.proportion(learnt, control, "learnt"))
        verdicts.append(measured.more_than(delay, control._replace(task=PERMUTATIONS), control, "steps_needed"))
    random, given, scrambled = (LearnedLabel(PERMUTATIONS, 1, 1, start) for start in (RANDOM, GIVEN, SCRAMBLED))
    premise = (
        "permutations: given lexical weights translate: β of the word that is copied is higher than with scrambled"
    )
    sooner = "permutations are learnt earlier from given lexical weights than from {} ones"
    return [
        *verdicts,
        measured.more_than(premise, given, scrambled, "lexical_first"),
        *(
            measured.more_than(sooner.format(other.start), other, given, "steps_needed")
            for other in (random, scrambled)
        ),
    ]


def translation_claims(measured: Measurements, label: LearnedLabel) -> list[ClaimVerdict]:
    """Claim that β^uf predicts attention, more than mismatched pairs do, and is there before it."""
    others = {"chance": "agreement_chance", "that of mismatched pairs": "agreement_mismatched"}
    earlier = {
        "A(α, β^uf(τ)), without any attention,": "uniform_change",
        "A(α, β̂(τ)), in the network that learns attention,": "lexical_change",
    }
    trivial = f"{label}: ξ(α, β^uf) is not trivial: above the accuracy before training"
    return [
        *(
            measured.greater(f"{label}: A(α, β^uf) is above {text}", label, "agreement_uniform", name)
            for text, name in others.items()
        ),
        measured.greater(trivial, label, "xi_uniform", "xi_untrained"),
        *(
            measured.greater(f"{label}: {text} changes before A(α, α̂(τ))", label, "again_change", name)
            for text, name in earlier.items()
        ),
    ]


def figure(measured: Measurements) -> FigureData:
    """Return agreements of each translator; accuracies of both tasks by network; accuracies by start.

    A panel has steps, and by name one curve per seed.
    """

    def seeds(label: LearnedLabel, name: str = "accuracy") -> list[Sequence[float]]:
        return [curves[name] for curves in measured.per_seed(label, "curves")]

    def copying_panel(labels: Mapping[str, LearnedLabel]) -> FigureData:
        first = measured.first(next(iter(labels.values())))
        return {"steps": first["steps"], "curves": {name: seeds(label) for name, label in labels.items()}}

    translations = {
        str(label): {
            "steps": measured.first(label)["steps"],
            "curves": {text: seeds(label, name) for name, text in AGREEMENTS.items()},
        }
        for label in measured
        if label.task == CORPUS and measured[label]
    }
    networks = {
        f"copying, {label.network}": copying_panel({PERMUTATIONS: label._replace(task=PERMUTATIONS), CONTROL: label})
        for label in measured
        if label.task == CONTROL
    }
    by_start = {start: LearnedLabel(PERMUTATIONS, 1, 1, start) for start in STARTS}
    return {**translations, **networks, "permutations, lexical weights": copying_panel(by_start)}


def draw(data: FigureData) -> Figure:
    """Draw one panel per network: means over seeds with their interval."""
    picture, axes = grid(len(data), 3, size=(3.9, 3.0))
    for ax, (title, content) in zip(axes, data.items(), strict=True):
        curves = {name: np.array(seeds) for name, seeds in content["curves"].items()}
        draw_curves(
            1 + np.array(content["steps"]), curves, ax, UNIT,
            xlabel="1 + training step", ylabel="agreement" if title.startswith(CORPUS) else "word accuracy",
        )  # fmt: skip
        if title.startswith(CORPUS):
            ax.set_xscale("log", base=2)
        ax.set_title(title)
    return picture


NOTES = (
    "α is the mean over heads of the cross-attention, at the checkpoint with the best validation accuracy; A is the "
    "top-5 % agreement of snell2021 eq. 10 on validation sentences, end tokens included. β^uf is read from a network "
    "whose cross-attention is uniform in training and evaluation; its self-attention is learned as ever.",
    "Mismatched pairs: the probabilities of the words of a sentence given the source of another of the same length, "
    "compared with α at the same positions. Sentences without such a partner are left out throughout.",
    "A change point is the step at which a curve has made half of its way, as in `induction`; NaN, and left out, where "
    "it moves by less than 0.1.",
    "Copying: sentences are all words of the vocabulary in random order (permutations), or two thirds of it (the "
    "control). Given lexical weights pass on the embedding of the word attended to as its output; scrambled ones are "
    "of the same size and translate every word wrongly.",
    "Known, of recurrent networks: A(α, β^uf) is above chance on all corpora, and permutations are learnt late or "
    "never (snell2021 tables 2 and 5, figure 3; our runs in results/snell2021).",
    "What this does not show: the same of deeper translators, in which attention of lower layers would have to be "
    "uniform, too; and whether lexical knowledge is necessary.",
)

LEARNED = Finding(
    name="learned",
    title="Is the knowledge to translate single words there before attention, and does it predict it?",
    section="ours; snell2021 §3, §5.1",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=figure, draw=draw, notes=NOTES,
    columns=lambda label: {"task": label.task, "network": label.network, "start": label.start},
)  # fmt: skip
