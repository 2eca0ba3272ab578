"""Which share of each head's scores is position, and which content? (ours; aitken2021 §3 and §4)

Encoder-decoder Transformers of one, two and four layers, with learned and rotary positions, beside the recurrent AED
and the feed-forward AO of aitken2021, on four of its tasks. With rotary positions a mean of keys over positions means
nothing, so the shares are those of `position_shares`, which permutes the source: they are on one scale for all
networks.

The temporal component μ is a mean over sentences at one step, where all keys are rotated alike, so μ(s) · μ(t) is
defined under rotary positions as well. The length of μ and the angle between the two curves are not: only products of
queries and keys are fixed by a Transformer's function. So we ask where μ(s) · μ(t) is largest. The control is every
network before training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import TransformerSettings
from attnscope.models.inference import Model, traces
from attnscope.probes.decomposition import ComponentAccumulator
from attnscope.probes.decomposition.trajectories import temporal_trajectories
from attnscope.probes.positions import position_shares
from attnscope.studies.aitken2021 import experiments as recurrent
from attnscope.studies.aitken2021.experiments import ATTENDING
from attnscope.studies.bars import BarValues, draw_bars, panel
from attnscope.studies.claims import UNIT, ClaimVerdict
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, Profile, TrainedCase
from attnscope.studies.transformers.experiments import ADAM
from attnscope.tasks import Batch, ExtendedSCAN, OneToOne, ReversedOneToOne, Sorting, SyntheticTask, Task

ONE_TO_ONE, REVERSED, SORTING, ESCAN = "one-to-one", "reversed", "sorting", "eSCAN"
IN_ORDER = (ONE_TO_ONE, REVERSED)  # tasks whose gold position follows from the step alone
LEARNED = 0.98  # word accuracy, as in aitken2021
MAJORITY = 0.5  # of the variance: more than all else together
MEETS = 0.9  # of decoder steps, as in aitken2021
UNTRAINED = 0  # the step of the checkpoint
PERMUTATIONS = 8


@dataclass(frozen=True)
class Sizes:
    """Tasks and networks of a profile."""

    tasks: Mapping[str, SyntheticTask]
    layers: tuple[int, ...]
    transformer: TransformerSettings
    learning_rate: float
    batch_size: int
    steps: int
    recurrent_steps: int  # of AED and AO, whose other settings are those of aitken2021
    num_texts: int  # whose words are permuted


LAYERS = (1, 2, 4)
POSITIONS = ("learned", "rotary")
SIZES = {
    "quick": Sizes(
        {
            ONE_TO_ONE: OneToOne(min_length=10, max_length=12, test_size=200),
            REVERSED: ReversedOneToOne(min_length=12, max_length=12, test_size=200),
            SORTING: Sorting(num_words=5, min_length=10, max_length=12, test_size=200),
            ESCAN: ExtendedSCAN(min_length=5, max_length=11, max_source_length=14, test_size=200),
        },
        LAYERS, TransformerSettings(units=32, heads=2, hidden=64, max_length=32), 2e-3, 32,
        steps=700, recurrent_steps=1200, num_texts=20,
    ),
    "paper": Sizes(
        {
            ONE_TO_ONE: OneToOne(test_size=1000),
            REVERSED: ReversedOneToOne(min_length=20, test_size=1000),
            SORTING: Sorting(num_words=10, test_size=1000),
            ESCAN: ExtendedSCAN(test_size=1000),
        },
        LAYERS, TransformerSettings(units=128, heads=4, hidden=256, max_length=32), 1e-3, 128,
        steps=6000, recurrent_steps=10_000, num_texts=100,
    ),
}  # fmt: skip
RECURRENT = {
    ONE_TO_ONE: recurrent.one_to_one,
    REVERSED: recurrent.reversed_one_to_one,
    SORTING: recurrent.sorting,
    ESCAN: recurrent.escan,
}


class FormedLabel(recurrent.NetworkLabel):
    """A network on a task."""

    @property
    def is_transformer(self) -> bool:
        return self.model not in ATTENDING


def experiments(profile: Profile) -> dict[FormedLabel, Case]:
    sizes = SIZES[profile.name]
    return {
        FormedLabel(task, model): Case({"model": experiment}, sizes.num_texts)
        for task in sizes.tasks
        for model, experiment in {**transformers(sizes, task), **recurrent_networks(sizes, task, profile.name)}.items()
    }


def transformers(sizes: Sizes, task: str) -> dict[str, Experiment]:
    training = replace(
        ADAM, learning_rate=sizes.learning_rate, batch_size=sizes.batch_size, steps=sizes.steps,
        evaluate_every=sizes.steps, checkpoints=(UNTRAINED,),
    )  # fmt: skip
    return {
        f"{layers} layer{'s' * (layers > 1)}, {positions}": Experiment(
            sizes.tasks[task], replace(sizes.transformer, layers=layers, positions=positions), training
        )
        for layers, positions in product(sizes.layers, POSITIONS)
    }


def recurrent_networks(sizes: Sizes, task: str, profile: str) -> dict[str, Experiment]:
    """Return AED and AO as in aitken2021, on the tasks of this profile."""
    networks = {}
    for name, model in ATTENDING.items():
        experiment = RECURRENT[task](model, recurrent.PROFILES.get(profile, recurrent.QUICK))
        training = replace(
            experiment.training, steps=sizes.recurrent_steps, evaluate_every=sizes.recurrent_steps,
            checkpoints=(UNTRAINED,),
        )  # fmt: skip
        networks[name] = replace(experiment, task=sizes.tasks[task], training=training)
    return networks


# Measurements --------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[int]) -> Measurement:
    """Return shares and meeting points of the trained network, and of the same before training."""
    run = subject.runs["model"]
    batches = [batch.to(subject.device) for batch in run.task.batches("test")]
    trained, before = (network_values(run.model(*step), run.task, batches, subject.settings) for step in ((), (0,)))
    return {
        "word_accuracy": run.summary["word_accuracy"],
        **trained,
        **{f"{name}_untrained": before[name] for name in (*SHARES, PEAK) if name in before},
    }


SHARES = ("position", "words", "rest")
PEAK = "peak_at_gold"


def network_values(model: Model, task: Task, batches: Sequence[Batch], num_texts: int) -> dict[str, object]:
    """Return mean shares over all heads, by layer and by head, and the best head's share of steps that meet at gold."""
    shares = position_shares(model, [batches[0].rows(slice(num_texts))], PERMUTATIONS)
    by_head = {"position": shares.position.mean(0), "words": shares.words.mean(0)}  # layers x heads
    by_head["rest"] = 1 - by_head["position"] - by_head["words"]
    values: dict[str, object] = {name: float(heads.mean()) for name, heads in by_head.items()}
    values["most_positional"] = float(by_head["position"].max())
    values["most_symbolic"] = float(by_head["words"].max())
    for layer in range(len(by_head["position"])):
        values |= {f"{name}_{layer + 1}": float(heads[layer].mean()) for name, heads in by_head.items()}
    if type(task) in (OneToOne, ReversedOneToOne):
        values[PEAK] = float(peak_at_gold(model, batches).max())
    return {**values, "by_head": {name: heads.tolist() for name, heads in by_head.items()}}


def peak_at_gold(model: Model, batches: Sequence[Batch]) -> np.ndarray:
    """Return, layers x heads, the share of decoder steps s whose μ(s) · μ(t) is largest at the gold position t."""
    longest = max(batches, key=lambda batch: batch.target.shape[1])
    assert longest.gold_attention is not None
    gold = longest.gold_attention[longest.target_mask.sum(1).argmax()].cpu().numpy()
    layers: list[ComponentAccumulator] = []
    for _, trace in traces(model, batches):
        layers = layers or [ComponentAccumulator() for _ in trace.layers]
        for number, components in enumerate(layers):
            components.update(replace(trace, layers=trace.layers[: number + 1]))  # whose last layer is decomposed
    shares = []
    for fitted in (components.result() for components in layers):
        assert fitted.decoder is not None
        heads = range(len(fitted.encoder.temporal))
        peaks = [temporal_trajectories(fitted.encoder, fitted.decoder, head).peaks for head in heads]
        shares.append([(steps == gold[: len(steps)]).mean() for steps in peaks])
    return np.array(shares)


TEXTS = {"position": "position", "words": "words", "rest": "the rest"}
PEAK_TEXT = "decoder steps whose μ(s)·μ(t) is largest at the gold position, best head"
QUANTITIES = {
    "word_accuracy": "word accuracy",
    **{name: f"share of {text}, all heads" for name, text in TEXTS.items()},
    **{f"{name}_untrained": f"share of {text}, before training" for name, text in TEXTS.items()},
    "most_positional": "share of position, most positional head",
    "most_symbolic": "share of words, most symbolic head",
    **{
        f"{name}_{layer}": f"share of {text}, layer {layer}"
        for layer in range(1, max(LAYERS) + 1)
        for name, text in TEXTS.items()
    },
    PEAK: PEAK_TEXT,
    f"{PEAK}_untrained": f"{PEAK_TEXT}, before training",
}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts: list[ClaimVerdict] = []
    for label in measured:
        learns = f"{label}: learns the task: word accuracy at least {LEARNED:g}"
        verdicts.append(measured.at_least(learns, label, "word_accuracy", LEARNED))
        verdicts += share_claims(measured, label)
        if label.task in IN_ORDER:
            verdicts += meeting_claims(measured, label)
    return verdicts


def share_claims(measured: Measurements, label: FormedLabel) -> list[ClaimVerdict]:
    """Claim that scores follow from position, in sorting from words; and of Transformers, that this is learned."""
    share = "words" if label.task == SORTING else "position"
    if label.task == SORTING:
        text = f"{label}: words explain more of the scores than position"
        verdict = measured.greater(text, label, "words", "position")
    else:
        text = f"{label}: position explains more of the scores than all else: a share of at least {MAJORITY:g}"
        verdict = measured.at_least(text, label, "position", MAJORITY)
    if not label.is_transformer:
        return [verdict]
    learned = f"{label}: the share of {share} is larger than before training"
    return [verdict, measured.greater(learned, label, share, f"{share}_untrained")]


def meeting_claims(measured: Measurements, label: FormedLabel) -> list[ClaimVerdict]:
    """Claim that the temporal components of a head meet at the gold position, and that this is learned."""
    where = "s = t" if label.task == ONE_TO_ONE else "the mirrored step"
    text = f"{label}: temporal components of a head meet at {where}: at least {MEETS:.0%} of the decoder steps"
    learned = f"{label}: more of them meet there than before training"
    return [
        measured.at_least(text, label, PEAK, MEETS),
        measured.greater(learned, label, PEAK, f"{PEAK}_untrained"),
    ]


def figure(measured: Measurements) -> FigureData:
    """Return, by task and network, the shares of each seed's heads (layers x heads); and bars of meeting points."""
    heads = {
        task: {label.model: measured.per_seed(label, "by_head") for label in measured.where(task=task)}
        for task in measured.each("task")
    }
    in_order = measured.only(*(label for label in measured if label.task in IN_ORDER))
    peaks = {
        text: panel(in_order, name, lambda label: label.task, lambda label: label.model)
        for name, text in {PEAK: "trained", f"{PEAK}_untrained": "before training"}.items()
    }
    return {"heads": heads, "peaks": peaks}


def draw(data: FigureData) -> Figure:
    """Draw, by task, the shares of every layer, with one dot per head at its share of position; and meeting points."""
    picture, axes = plots.panels(len(data["heads"]) + 1, 1, size=(11.0, 3.2))
    for ax, (task, networks) in zip(axes, data["heads"].items(), strict=False):
        draw_layers(networks, ax)
        ax.set(title=f"{task}: shares of the scores by layer (dots: position, by head and seed)", ylabel="share")
    by_model: dict[str, dict[str, BarValues]] = {}
    for text, content in data["peaks"].items():
        for task, bars in content.items():
            for model, bar in bars.items():
                by_model.setdefault(model, {})[f"{task}, {text}"] = bar
    draw_bars(by_model, axes[-1], "decoder steps", UNIT)
    axes[-1].set(title="temporal components that meet at the gold position, best head", ylim=(0, 1.05))
    return picture


def draw_layers(networks: Mapping[str, Sequence[Mapping[str, Sequence[Sequence[float]]]]], ax: Axes) -> None:
    rows, dots = {}, []
    for model, seeds in networks.items():
        stacked = {name: np.array([seed[name] for seed in seeds]) for name in SHARES}  # seeds x layers x heads
        for layer in range(stacked["position"].shape[1] if seeds else 0):
            name = model if stacked["position"].shape[1] == 1 else f"{model}: {layer + 1}"
            rows[name] = {TEXTS[share]: values[:, layer].mean() for share, values in stacked.items()}
            dots.append(stacked["position"][:, layer].ravel())
    plots.stacked_shares(pd.DataFrame.from_dict(rows, orient="index"), ax=ax)
    for x, values in enumerate(dots):
        ax.plot(np.full(len(values), x), values, ".", color="tab:orange", markersize=4)


NOTES = (
    "Shares are of the variance of scores within a row (`position_shares`): the words of a sentence are permuted, but "
    "the inputs of the decoder stay those of the sentence. They are not the shares of |terms| of aitken2021, which are "
    "not defined under rotary positions. A command of eSCAN whose words are permuted is no command.",
    "Reversed sentences have one length, since AO has no access to the length; so the gold position follows from the "
    "step. The best head is the best of all layers, before training as well.",
    "Transformers are trained with teacher forcing, AED and AO as in aitken2021 without it and for more steps. In the "
    "profile quick (three seeds) sentences have 10 to 12 letters, or 5 to 11 actions, and Transformers 32 units; AED "
    "and AO get fewer steps than in our runs of aitken2021.",
    "Known: heads of Transformers are positional, symbolic, or both, by the same test (arXiv 2511.11579).",
    "What this does not show: which of the heads the output depends on.",
)

FORMED = Finding(
    name="formed",
    title="Which share of each head's scores is position, which content?",
    section="ours; aitken2021 §3, §4",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=figure, draw=draw, notes=NOTES,
    columns=FormedLabel._asdict,
)  # fmt: skip
