"""Tests of a classifier's attention: dependence (tutek2020 §3.2), erasure and agreement with human rationales."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attnscope.faithfulness.criteria import COMPREHENSIVENESS, DEPENDENCE, Interval
from attnscope.faithfulness.records import Part, Row, rows
from attnscope.faithfulness.subject import Reading, Sample, Subject
from attnscope.models import uniform
from attnscope.models.inference import evaluating
from attnscope.probes.counterfactual import class_probabilities
from attnscope.probes.erasure import ComprehensivenessAccumulator, FlipAccumulator, ProbabilityDrops
from attnscope.probes.fragility import Fragility, FragilityAccumulator, describe_predictions
from attnscope.probes.plausibility import PlausibilityAccumulator
from attnscope.tasks.batch import Batch
from attnscope.training.evaluation import Decisions, decide

ATTENTION, RANDOM = "attention", "random"
COLUMNS = {
    "comprehensiveness": "comprehensiveness", "sufficiency": "sufficiency",
    "fraction": "fraction of tokens removed until the decision flips", "flipped": "decisions that flip",
}  # fmt: skip
DEPENDENCE_COLUMNS = {
    "accuracy": "accuracy", "macro f1": "macro F1", "changed": "decisions changed", "change": "output change (TVD)"
}  # fmt: skip


def quality(subject: Subject, sample: Sample) -> Part:
    """Return accuracy and macro F1 beside the share of the commonest class."""
    found = decide(subject.model, sample.batches())
    commonest = float(np.bincount(found.gold, minlength=len(subject.loaded.classes)).max() / len(found.gold))
    sentence = (
        f"It classifies {found.accuracy:.1%} of these texts correctly; always predicting the commonest class would "
        f"get {commonest:.1%}. Attention can explain a decision, not make up for a poor one."
    )
    return Part([sentence], [{"accuracy": found.accuracy, "macro F1": found.macro_f1, "commonest class": commonest}])


def dependence(subject: Subject, sample: Sample) -> Part:
    """Return how decisions change with other attention: fragility (tutek2020 table 1)."""
    fragility = FragilityAccumulator(subject.model, draws=20 if sample.quick else 100, seed=sample.seed)
    all_layers = []
    for batch in sample.batches():
        fragility.update(batch)
        if subject.depth > 1:
            all_layers.append(uniform_in_all_layers(subject, batch))
    found = fragility.result()
    changed = Interval.of(np.stack([draw.chosen != found.own.chosen for draw in found.draws]).mean(0))
    table = [dependence_row("its own", [found.own], found), dependence_row("uniform", [found.uniform], found),
             dependence_row("shuffled", found.draws, found)]  # fmt: skip
    if all_layers:
        decisions = Decisions(np.concatenate(all_layers), found.own.gold)
        table.append(dependence_row("uniform in all layers", [decisions], found))
    where = "the attention" if subject.depth == 1 else "the attention of the last layer"
    sentence = f"Shuffling {where} among the tokens of a text changes {changed.value:.1%} of the decisions."
    return Part([sentence], table, [DEPENDENCE.judge(sentence, changed, chance=0.0)])


def dependence_row(name: str, decisions: list[Decisions], found: Fragility) -> Row:
    """Return means over decisions with so many other attentions."""
    each = [describe_predictions(one, found.own) for one in decisions]
    means = {column: float(np.mean([one[key] for one in each])) for key, column in DEPENDENCE_COLUMNS.items()}
    return {"attention": name, **means}


def uniform_in_all_layers(subject: Subject, batch: Batch) -> Float[np.ndarray, "texts classes"]:
    with evaluating(subject.model):
        logits = subject.model(batch, attention=dict.fromkeys(range(subject.depth), uniform)).logits
    return np.asarray(class_probabilities(logits).cpu().numpy())


def erasure(subject: Subject, sample: Sample) -> Part:
    """Return comprehensiveness and sufficiency (DeYoung et al. 2020) and decision flips (Serrano & Smith 2019)."""
    draws = 2 if sample.quick else 5
    drops = ComprehensivenessAccumulator(draws=draws, seed=sample.seed)
    flips = FlipAccumulator(draws=draws, seed=sample.seed)
    for reading in sample.readings():
        scores = {name: values for name, values in token_scores(reading).items() if name != ATTENTION}
        for accumulator in (drops, flips):
            accumulator.update(subject.model, reading.texts.batch, scores)
    found = drops.result()
    by_score = {name: mean_drop(each) for name, each in found.scores.items()}
    attention, random = by_score[ATTENTION], by_score[RANDOM]
    best = max((name for name in by_score if name not in (ATTENTION, RANDOM)), key=lambda name: by_score[name].mean())
    share = Interval.ratio(attention - random, by_score[best] - random)
    sentence = (
        f"Removing the tokens that attention ranks highest lowers the probability of the decision by "
        f"{attention.mean():.3f}, random tokens by {random.mean():.3f}, and the tokens that {best} ranks highest by "
        f"{by_score[best].mean():.3f}: attention covers {share.value:.0%} of the distance from chance to the best."
    )
    table = found.table().join(flips.result().table())[list(COLUMNS)].rename(columns=COLUMNS)
    return Part([sentence], rows(table), [COMPREHENSIVENESS.judge(sentence, share, chance=0.0, best=1.0)])


def mean_drop(drops: ProbabilityDrops) -> Float[np.ndarray, " texts"]:
    return np.asarray(drops.comprehensiveness.double().mean((1, 2)).cpu().numpy())


def token_scores(reading: Reading) -> dict[str, Float[Tensor, "batch source"]]:
    """Return attention and the other scores of the tokens' importance to the decision."""
    scores = {
        ATTENTION: reading.attention, "leave-one-out": reading.leave_one_out, "gradient × input": reading.gradient,
        "rollout": reading.rollout,
    }  # fmt: skip
    return {name: values[:, 0] for name, values in scores.items() if values is not None}


def plausibility(subject: Subject, sample: Sample) -> Part | None:
    """Return the agreement of attention with human rationales (DeYoung et al. 2020), where there are any."""
    if not subject.inputs.has_rationales:
        return None
    probe = PlausibilityAccumulator(seed=sample.seed)
    for reading in sample.readings():
        probe.update(reading.texts.batch, {name: values.abs() for name, values in token_scores(reading).items()})
    table = probe.result().table()
    precision, chance = table.loc[ATTENTION, ["average_precision", "average_precision_chance"]].astype(float)
    sentence = (
        f"Attention finds the words of human rationales with an average precision of {precision:.2f}; chance would get "
        f"{chance:.2f}. This shows what convinces people, not what the model does."
    )
    return Part([sentence], rows(table))
