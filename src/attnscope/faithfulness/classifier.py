"""What would the papers ask of a classifier's attention? The evidence, part by part.

What is shown to people is taken to be the attention of the last layer, the mean over its heads: that of a network with
one layer and one head is all there is. The output is the class that the model decides for, right or wrong.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import require
from attnscope.faithfulness.criteria import DEPENDS, NO_OTHER, NOT_ALONE, POINTS, RANKS, Interval
from attnscope.faithfulness.records import Part
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models import uniform
from attnscope.models.adapters import rollout
from attnscope.models.capabilities import EmbedsSource, ReadsOut
from attnscope.models.inference import device_of, evaluating
from attnscope.probes.adversary import (
    BatchAdversaries,
    SearchSettings,
    exact_adversaries_in_batch,
    search_adversaries_in_batch,
)
from attnscope.probes.agreement import kendall
from attnscope.probes.counterfactual import CounterfactualAttention, class_probabilities
from attnscope.probes.erasure import ComprehensivenessAccumulator, FlipAccumulator, ProbabilityDrops
from attnscope.probes.fragility import Fragility, FragilityAccumulator
from attnscope.probes.grounding import MARGIN, batch_token_probabilities
from attnscope.probes.plausibility import PlausibilityAccumulator
from attnscope.probes.removal import random_score
from attnscope.probes.saliency import influence, leave_one_out
from attnscope.probes.scores import attention_scores
from attnscope.tasks.batch import Batch
from attnscope.training.decisions import Decisions, decide

SHOWN, LEFT_OUT, GRADIENT, ROLLOUT, RANDOM = "attention", "leave one out", "gradient", "rollout", "random"
COLUMNS = {
    "comprehensiveness": "comprehensiveness", "sufficiency": "sufficiency",
    "fraction": "share of words gone until the decision flips", "flipped": "decisions that flip",
}  # fmt: skip
Values = Float[Tensor, "batch source"]


def quality(subject: Subject, sample: Sample) -> Part:
    made = decide(subject.model, sample.batches())
    often = np.bincount(made.gold, minlength=len(subject.classes)).max() / len(made.gold)
    return {
        "sentences": [
            f"It decides {made.accuracy:.1%} of these texts rightly; always choosing the commonest class would get "
            f"{often:.1%}. Attention can explain a decision, not make up for a poor one."
        ],
        "table": [{"accuracy": made.accuracy, "macro F1": made.macro_f1, "commonest class": float(often)}],
        "tests": [],
    }


def dependence(subject: Subject, sample: Sample) -> Part:
    """Fragility (tutek2020 table 1)."""
    perturb, everywhere = FragilityAccumulator(subject.model, draws=20 if sample.quick else 100, seed=sample.seed), []
    for texts in sample():
        perturb.update(texts.batch)
        if subject.depth > 1:
            everywhere.append(with_all_uniform(subject, texts.batch))
    found = perturb.result()
    changed = np.stack([made.chosen != found.own.chosen for made in found.draws]).mean(0)
    rows = [row("its own", found.own, found), row("uniform", found.uniform, found), shuffled_row(found)]
    if everywhere:
        rows.append(row("uniform in all layers", Decisions(np.concatenate(everywhere), found.own.gold), found))
    share = Interval.of(changed)
    shown = "the attention" if subject.depth == 1 else "the attention of the last layer"
    sentence = f"Shuffling {shown} among the words of a text changes {share.value:.1%} of the decisions."
    test = DEPENDS.answered(sentence, share, chance=0.0)
    return {"sentences": [sentence], "table": rows, "tests": [test]}


def row(name: str, made: Decisions, found: Fragility) -> dict[str, Any]:
    moved = np.abs(made.probabilities - found.own.probabilities).sum(1) / 2
    return {
        "attention": name, "accuracy": made.accuracy, "macro F1": made.macro_f1,
        "decisions changed": float((made.chosen != found.own.chosen).mean()), "output moved (TVD)": float(moved.mean()),
    }  # fmt: skip


def shuffled_row(found: Fragility) -> dict[str, Any]:
    each = [row("shuffled", made, found) for made in found.draws]
    means = {name: float(np.mean([one[name] for one in each])) for name in each[0] if name != "attention"}
    return {"attention": "shuffled"} | means


def with_all_uniform(subject: Subject, batch: Batch) -> Float[np.ndarray, "texts classes"]:
    with evaluating(subject.model):
        logits = subject.model(batch, attention=dict.fromkeys(range(subject.depth), uniform)).logits
    return np.asarray(class_probabilities(logits).cpu().numpy())


def adversary(subject: Subject, sample: Sample) -> Part:
    """The search of Jain and Wallace (2019), or the exact answer where there is one."""
    settings = (
        SearchSettings(seed=sample.seed, restarts=2, steps=200) if sample.quick else SearchSettings(seed=sample.seed)
    )
    found = [farthest_found(subject, texts.batch, settings) for texts in sample()]
    jsd, feasible = (torch.cat([getattr(one, name) for one in found]).cpu().numpy() for name in ("jsd", "feasible"))
    share = Interval.of(jsd / math.log(2))
    sentence = (
        f"For {feasible.mean():.0%} of the texts another attention was found that moves the output by at most "
        f"{settings.epsilon:.2f}; on average it is {share.value:.0%} as far away (JSD) as an attention can be."
    )
    test = NO_OTHER.answered(sentence, share)
    table = [{"JSD, mean": jsd.mean(), "share of the largest": share.value, "texts with one": feasible.mean()}]
    return {"sentences": [sentence], "table": table, "tests": [test], "histogram": jsd.round(4)}


def farthest_found(subject: Subject, batch: Batch, settings: SearchSettings) -> BatchAdversaries:
    asked = CounterfactualAttention.of_classifier(subject.model, batch)
    exact = asked.contributions is not None and len(subject.classes) == 2
    return (
        exact_adversaries_in_batch(subject.model, batch)
        if exact
        else search_adversaries_in_batch(subject.model, batch, settings)
    )


def erasure(subject: Subject, sample: Sample) -> Part:
    """Comprehensiveness and sufficiency (DeYoung et al. 2020); words until a decision flips (Serrano & Smith 2019)."""
    draws = 2 if sample.quick else 5
    cut, faded = (
        ComprehensivenessAccumulator(draws=draws, seed=sample.seed),
        FlipAccumulator(draws=draws, seed=sample.seed),
    )
    for texts in sample():
        scores = {name: values for name, values in scores_of(subject, texts.batch).items() if name != SHOWN}
        cut.update(subject.model, texts.batch, scores)
        faded.update(subject.model, texts.batch, scores)
    found, flips = cut.result(), faded.result().table()
    gone = {name: by_text(drops) for name, drops in found.scores.items()}
    best = max((name for name in gone if name not in (SHOWN, RANDOM)), key=lambda name: gone[name].mean())
    share = Interval.ratio(gone[SHOWN] - gone[RANDOM], gone[best] - gone[RANDOM])
    sentence = (
        f"Cutting out the words that it points at lowers the probability of the decision by {gone[SHOWN].mean():.3f}, "
        f"words at random by {gone[RANDOM].mean():.3f}, and the words named by “{best}” by {gone[best].mean():.3f}: "
        f"it goes {share.value:.0%} of the way from chance to that."
    )
    test = POINTS.answered(sentence, share, chance=0.0, best=1.0)
    table = found.table().join(flips)[list(COLUMNS)].rename(columns=COLUMNS).reset_index()
    return {"sentences": [sentence], "table": table.to_dict("records"), "tests": [test]}


def by_text(drops: ProbabilityDrops) -> Float[np.ndarray, " texts"]:
    return np.asarray(drops.comprehensiveness.double().mean((1, 2)).cpu().numpy())


def correlation(subject: Subject, sample: Sample) -> Part:
    """Kendall's τ between attention and the size of a word's effect (Jain and Wallace 2019)."""
    found: dict[str, list[Tensor]] = {LEFT_OUT: [], GRADIENT: [], RANDOM: []}
    for texts in sample():
        scores, words = scores_of(subject, texts.batch), texts.batch.word_mask
        drawn = random_score(texts.batch, sample.seed).to(scores[SHOWN])
        for name in (LEFT_OUT, GRADIENT):
            if name in scores:
                found[name].append(kendall(scores[SHOWN], scores[name].abs().to(scores[SHOWN]), words))
        found[RANDOM].append(kendall(drawn, scores[LEFT_OUT].abs().to(drawn), words))
    taus = {name: Interval.of(torch.cat(each).cpu().numpy()) for name, each in found.items() if each}
    shown = taus[LEFT_OUT]
    sentence = (
        f"Attention and the effect of leaving a word out rank the words of a text with τ = {shown.value:.2f} on "
        f"average; random attention would get {taus[RANDOM].value:.2f}, the same order 1."
    )
    test = RANKS.answered(sentence, shown, chance=taus[RANDOM].value, best=1.0)
    names = {
        LEFT_OUT: "attention with leave one out",
        GRADIENT: "attention with gradient",
        RANDOM: "random with leave one out",
    }
    table = [{"scores": names[name], "τ": tau.value, "from": tau.low, "to": tau.high} for name, tau in taus.items()]
    return {"sentences": [sentence], "table": table, "tests": [test]}


def tokens(subject: Subject, sample: Sample) -> Part:
    """Per-token probabilities and leakage (tutek2020 §5, table 3)."""
    if not hasattr(subject.model, "readout"):
        return {
            "sentences": ["This model does not tell what it would say of one word alone."],
            "table": [],
            "tests": [],
        }
    alone, sure, leaks = [], [], []
    for texts in sample():
        found = batch_token_probabilities(cast(ReadsOut, subject.model), texts.batch)
        alone.append(found.mean)
        sure.append(found.decision)
        leaks.append(found.leakage())
    leakage = Interval.of(torch.cat(leaks).cpu().numpy())
    mean, decision = (float(torch.cat(each).nanmean()) for each in (alone, sure))
    sentence = (
        f"{leakage.value:.0%} of the words of a text would make its decision alone, nearly as surely "
        f"(within {MARGIN}), had they all the attention."
    )
    test = NOT_ALONE.answered(sentence, leakage)
    table = [{"probability of the decision": decision, "of a word alone": mean, "words that would do": leakage.value}]
    return {"sentences": [sentence], "table": table, "tests": [test]}


def plausibility(subject: Subject, sample: Sample) -> Part | None:
    """Against what people marked (DeYoung et al. 2020)."""
    if not subject.has_rationales:
        return None
    probe = PlausibilityAccumulator(seed=sample.seed)
    for texts in sample():
        probe.update(texts.batch, {name: values.abs() for name, values in scores_of(subject, texts.batch).items()})
    table = probe.result().table()
    shown = table.loc[SHOWN].to_dict()
    precision, chance = (shown[name] for name in ("average_precision", "average_precision_chance"))
    sentence = (
        f"Words that people marked as reasons: attention finds them with an average precision of {precision:.2f}; "
        f"chance would get {chance:.2f}. This says what convinces people, not what the model does."
    )
    return {"sentences": [sentence], "table": table.reset_index().to_dict("records"), "tests": []}


def between(subject: Subject, other: Subject, sample: Sample) -> Part:
    """Attention of two models, such as two seeds, on the same texts, beside shuffled attention."""
    taus: dict[str, list[Tensor]] = {other.name: [], "shuffled": []}
    for texts, theirs in zip(sample(), other.texts(sample.size, sample.most), strict=True):
        check_alike(texts.batch, theirs.batch, other.name)
        own, foreign, words = shown_of(subject, texts.batch), shown_of(other, theirs.batch), texts.batch.word_mask
        taus[other.name].append(kendall(own, foreign, words))
        taus["shuffled"].append(kendall(own, random_score(texts.batch, sample.seed).to(own), words))
    found = {name: Interval.of(torch.cat(each).cpu().numpy()) for name, each in taus.items()}
    sentence = f"{other.name} ranks the words of a text as {subject.name} does with τ = {found[other.name].value:.2f}."
    table = [{"attention": name, "τ": tau.value, "from": tau.low, "to": tau.high} for name, tau in found.items()]
    return {"sentences": [sentence], "table": table, "tests": []}


def shown_of(subject: Subject, batch: Batch) -> Values:
    with evaluating(subject.model):
        return attention_scores(subject.model(batch)).values[:, 0]


def check_alike(one: Batch, other: Batch, name: str) -> None:
    alike = one.source.shape == other.source.shape and bool((one.source == other.source).all())
    require(alike, f"{name} cuts these texts into other pieces, so that their attention cannot be compared")


def scores_of(subject: Subject, batch: Batch) -> Mapping[str, Values]:
    """Attention, and what else tells which words matter to the decision; made once for each batch."""
    key = (batch.source.cpu().numpy().tobytes(), batch.source.shape)
    if key not in subject.kept:
        subject.kept[key] = made_scores(subject, batch.to(device_of(subject.model)))
    return cast(Mapping[str, Values], subject.kept[key])


def made_scores(subject: Subject, batch: Batch) -> dict[str, Values]:
    model: Any = subject.model
    with evaluating(model):
        trace = model(batch)
    decided = replace(batch, target=trace.predictions)
    found = {SHOWN: attention_scores(trace).values[:, 0], LEFT_OUT: leave_one_out(model, decided).values[:, 0]}
    if hasattr(model, "source_inputs"):
        found[GRADIENT] = influence(cast(EmbedsSource, model), decided).values[:, 0]
    if hasattr(model, "self_attention"):
        with evaluating(model):
            found[ROLLOUT] = rollout(model.self_attention(batch))[:, 0]
    # A text's only word has no effect that could be compared: zero.
    return {name: values.detach().nan_to_num(nan=0.0) for name, values in found.items()}
