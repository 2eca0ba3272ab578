"""Is a Transformer that is taught to hide the words it uses found by the audit? (ours; Pruthi et al. 2020)

A classifier of SST and a translator of letters are taught in two ways. `penalty` is the method of the finding
`deceptive` of tutek2020: a loss on attention to indicative words, in the translator to the letter that is translated.
`relay` teaches all attention to rest on the end token, through whose state the encoder then passes on everything; no
model that the audit was calibrated on does so. Honest twins have neither loss.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import torch

from attnscope.faithfulness.assessment import assess
from attnscope.faithfulness.criteria import AGREEMENT, ROUTE
from attnscope.faithfulness.interventions import QUICK, WordInterventions
from attnscope.lab.experiment import Experiment
from attnscope.models import Model, TransformerSettings
from attnscope.models.capabilities import HasLayers
from attnscope.models.inference import traces
from attnscope.models.trace import Intervention
from attnscope.probes.heads.sentences import Sentences
from attnscope.studies.bars import draw_panels, label_panels
from attnscope.studies.claims import UNIT, ClaimVerdict, proportion
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, Profile, TrainedCase, cases
from attnscope.studies.transformers import faithful
from attnscope.studies.transformers.elimination import on_others, word_accuracy
from attnscope.studies.transformers.experiments import ADAM
from attnscope.studies.transformers.faithful import ANSWERS, FaithfulLabel
from attnscope.studies.tutek2020.experiments import BASE
from attnscope.studies.tutek2020.faithfulness import indicative_words, mask_of_words, remove_words, sample_texts
from attnscope.tasks import END, Batch, Classification, OneToOne
from attnscope.training import CrossEntropy, Hiding, HidingGold, Objective, Relay, decide
from attnscope.training.objectives import weight_at

CLASSIFIER, TRANSLATOR = "classifier", "translator"
HONEST, PENALTY, RELAY = "honest", "penalty", "relay"
METHODS = (PENALTY, RELAY)
WEIGHT = 1.0  # of the loss on attention, as in `deceptive`
SHARE = 0.1  # of all tokens are indicative words, as in `deceptive`
OFF = 0.05  # of attention on what is hidden, or less, counts as none
ON = 0.95  # of attention on the end token, or more, counts as all
SIMILAR = 0.02  # of accuracy
USED = 0.5  # of the accuracy that the honest twin loses without indicative words
THROUGH = 0.5  # of the effect of words: less, and most of it does not pass through the attention of [CLS]
UNNEEDED = 0.95  # of the letters are right without attention to them in the last layer: it is not needed


@dataclass(frozen=True)
class Sizes:
    """The translator's task, network and steps, and the texts audited; the classifier is that of `faithful`."""

    task: OneToOne
    translator: TransformerSettings
    steps: int
    max_texts: int


SIZES = {
    "quick": Sizes(
        OneToOne(num_words=8, min_length=3, max_length=5, test_size=200),
        TransformerSettings(units=48, layers=1, heads=2, hidden=96), steps=800, max_texts=80,
    ),
    "paper": Sizes(
        OneToOne(num_words=20, min_length=5, max_length=10, test_size=1000),
        TransformerSettings(units=128, layers=2, heads=4, hidden=256), steps=6000, max_texts=500,
    ),
}  # fmt: skip


class HidingLabel(NamedTuple):
    """A kind of model and what it was taught.

    >>> str(HidingLabel(CLASSIFIER, RELAY))
    'classifier, relay'
    """

    kind: str
    model: str

    def __str__(self) -> str:
        return ", ".join(self)


def experiments(profile: Profile) -> dict[HidingLabel, Case]:
    labels = [HidingLabel(*parts) for parts in product((CLASSIFIER, TRANSLATOR), (HONEST, *METHODS))]
    return cases(labels, partial(case, profile.name))


def case(profile: str, label: HidingLabel) -> Case:
    sizes = SIZES[profile]
    make = partial(classifier, faithful.SIZES[profile]) if label.kind == CLASSIFIER else partial(translator, sizes)
    return Case({"model": make(label.model)}, sizes.max_texts)


def classifier(sizes: faithful.Sizes, model: str) -> Experiment:
    """Return the base model of `faithful` on SST, with [CLS] attention, and what it is taught."""
    base = faithful.experiment(sizes, FaithfulLabel("sst", "cls", BASE), len(sizes.dropouts) // 2)
    assert isinstance(base.task, Classification)
    hiding = Hiding(WEIGHT, hidden_words(base.task))
    return replace(base, objective=training_objective(model, hiding))


def hidden_words(task: Classification) -> tuple[int, ...]:
    return indicative_words(task.resolved(), SHARE)


def translator(sizes: Sizes, model: str) -> Experiment:
    training = replace(ADAM, steps=sizes.steps, batch_size=64, evaluate_every=sizes.steps)
    return Experiment(sizes.task, sizes.translator, training, training_objective(model, HidingGold(WEIGHT)))


def training_objective(model: str, penalty: Objective) -> Objective:
    extra = {PENALTY: penalty, RELAY: Relay(WEIGHT)}
    return CrossEntropy() + extra[model] if model in extra else CrossEntropy()


# Measurements --------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[int]) -> Measurement:
    """Return the answer of the audit, and whether the model hides what it uses."""
    run, texts = subject.runs["model"], list[Batch]()
    model, task = run.model(), run.task
    if isinstance(task, Classification):
        texts = sample_texts(task, subject.settings, subject.device)
        words = hidden_words(task)
        without = [remove_words(batch, words) for batch in texts]
        accuracy_loss = decide(model, texts).accuracy - decide(model, without).accuracy
    else:
        texts, words, accuracy_loss = [next(task.batches("test", subject.settings)).to(subject.device)], (), math.nan
    assessment = assess(model, texts, quick=True)
    on_hidden, on_end = attention_on_hidden(model, texts, words)
    return {
        "accuracy": run.summary["word_accuracy"], "lost": accuracy_loss, "shown": on_hidden, "relayed": on_end,
        **(route_by_layer(model, texts) if words else without_letters(model, texts[0])),
        "route": assessment[ROUTE.name].value, "agreement": assessment[AGREEMENT.name].value,
        **{answer: float(assessment.answer == text) for answer, text in ANSWERS.items()},
    }  # fmt: skip


@torch.no_grad()
def route_by_layer(model: Model, texts: list[Batch]) -> dict[str, float]:
    """Return the share of the effect of words that passes through [CLS]'s attention: in the last, in every layer."""
    assert isinstance(model, HasLayers)
    layers = {"through_last": (model.depth - 1,), "through_every": tuple(range(model.depth))}
    passes = [WordInterventions.of(model, Sentences(batch), QUICK, whole_words=False) for batch in texts]
    shares = {}
    for name, masked in layers.items():
        both = torch.cat([replace(each, layers=masked).without_influential.sum(1) for each in passes])
        moved, unlike = both.double().sum(0).tolist()
        shares[name] = 1 - unlike / moved
    return shares


def without_letters(model: Model, batch: Batch) -> dict[str, float]:
    """Return the accuracy without attention to the letter that is translated: in the last layer, and in every layer."""
    assert isinstance(model, HasLayers)
    layers = {"last": (model.depth - 1,), "every": tuple(range(model.depth))}
    ignoring: Intervention = partial(on_others, batch)
    return {name: word_accuracy(model, batch, dict.fromkeys(chosen, ignoring)) for name, chosen in layers.items()}


@torch.no_grad()
def attention_on_hidden(model: object, texts: list[Batch], words: tuple[int, ...]) -> tuple[float, float]:
    """Return the mean attention on what is hidden, indicative words or the gold position, and on the end token."""
    on_hidden, on_end = [], []
    for batch, trace in traces(model, texts):  # type: ignore[arg-type]
        last = (batch.source_mask.sum(1, keepdim=True) - 1).expand_as(batch.target)
        on_end.append(weight_at(trace, last).mean(1)[batch.target_mask])
        if words:
            hidden = mask_of_words(batch, words)
            mass = (trace.attention.mean(1)[:, 0] * hidden).sum(1)
            on_hidden.append(mass[hidden.any(1)])
        else:
            assert batch.gold_attention is not None
            letters = batch.target_mask & (batch.target != END)
            on_hidden.append(weight_at(trace, batch.gold_attention.clamp(min=0)).mean(1)[letters])
    return torch.cat(on_hidden).mean().item(), torch.cat(on_end).mean().item()


QUANTITIES = {
    "accuracy": "accuracy",
    "lost": "loss of accuracy without the indicative words",
    "shown": "attention on what is hidden",
    "relayed": "attention on the end token",
    "through_last": "share of the effect of words through [CLS]'s attention in the last layer",
    "through_every": "share of the effect of words through [CLS]'s attention in every layer",
    "last": "accuracy without attention to the letter in the last layer",
    "every": "accuracy without attention to the letter in every layer",
    "route": "route",
    "agreement": "agreement",
    **{name: f"share of seeds with the verdict {text!r}" for name, text in ANSWERS.items()},
}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts: list[ClaimVerdict] = []
    for kind in measured.each("kind"):
        honest = HidingLabel(kind, HONEST)
        clear = f"{kind}: the audit raises no false alarm: of the honest twin it does not say no"
        verdicts.append(proportion(clear, [not no for no in measured.flags(honest, "no")]))
        if kind == CLASSIFIER:
            text = f"{kind}: the no is right: less than half of the effect of words passes through [CLS]'s attention"
            verdicts.append(measured.at_most(text, honest, "through_every", THROUGH))
            text = f"{kind}: more of it passes through every layer's attention than through the last layer's"
            verdicts.append(measured.greater(text, honest, "through_every", "through_last"))
        if kind == TRANSLATOR:
            text = f"{kind}: the no is right: letters are translated without attention to them in the last layer"
            verdicts.append(measured.at_least(text, honest, "last", UNNEEDED))
            text = f"{kind}: they need attention in some layer: more are wrong without it in every layer"
            verdicts.append(measured.greater(text, honest, "last", "every"))
        for method in METHODS:
            ours = HidingLabel(kind, method)
            verdicts += premises(measured, honest, ours)
            says_no = f"{ours}: the audit finds it: it says no"
            not_yes = f"{ours}: the audit is not deceived: it does not say yes"
            verdicts.append(measured.proportion(says_no, ours, "no"))
            verdicts.append(proportion(not_yes, [not yes for yes in measured.flags(ours, "yes")]))
            verdicts.append(measured.more_than(f"{ours}: its route is lower than its twin's", honest, ours, "route"))
    return verdicts


def premises(measured: Measurements, honest: HidingLabel, ours: HidingLabel) -> list[ClaimVerdict]:
    """Claim that the model is as accurate as its twin, shows none of what it hides, and uses it."""
    similar = f"{ours}: accuracy is at most two points lower than its twin's"
    verdicts = [measured.no_lower(similar, ours, honest, "accuracy", SIMILAR)]
    if ours.model == RELAY:
        text = f"{ours}: at least {ON:g} of attention is on the end token"
        verdicts.append(measured.at_least(text, ours, "relayed", ON))
    else:
        text = f"{ours}: at most {OFF:g} of attention is on what it hides"
        verdicts.append(measured.at_most(text, ours, "shown", OFF))
    if ours.kind == CLASSIFIER:
        text = f"{ours}: it uses indicative words: without them it loses more than half of the accuracy its twin loses"
        verdicts.append(measured.more_than(text, ours, honest, "lost", USED))
    return verdicts


SHOWN = {"accuracy": "accuracy", "shown": "attention on what is hidden", "route": "route", "agreement": "agreement"}


NOTES = (
    "Route, agreement and answers are those of the calibrated audit (`attnscope audit`) on a sample of the test split. "
    "The attention judged is the last layer's, the mean over heads.",
    "The classifier hides the indicative words of the finding `deceptive` of tutek2020, a tenth of all tokens. The "
    f"weight of either loss is {WEIGHT:g}. A letter that a translator translates is by construction a word it uses.",
    "The audit removes a translator's letters in place, so that those behind them keep their positions. Before, it "
    "deleted them, and networks that align by position were misaligned from there on: the same honest twins had a "
    "route of 0.31 and got a no in all three seeds (results/earlier/transformers/hiding.json).",
    "The claims on [CLS]'s attention were written before any classifier was measured. Before the first run that judges "
    "them, five honest classifiers of the full size, trained on a CPU (seeds 23 to 27), had been looked at.",
    "An honest twin is a model that was not taught to hide. Nothing certifies that its attention is faithful, so a "
    "'no' may also be right: see `faithful`.",
    "Known: attention that was trained with the penalty deceives people (Pruthi et al. 2020).",
)

HIDING = Finding(
    name="hiding",
    title="Is a Transformer that is taught to hide the words it uses found by the audit?",
    section="ours; Pruthi et al. 2020",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, notes=NOTES,
    figure=label_panels(SHOWN, lambda label: label.kind, lambda label: label.model),
    draw=partial(draw_panels, ylabels=SHOWN, within=dict.fromkeys(("accuracy", "shown", "route"), UNIT)),
    columns=HidingLabel._asdict,
)  # fmt: skip
