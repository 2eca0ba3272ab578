"""Parts of an audit that are not about faithfulness: quality, formation, heads, another seed, human annotations.

The attention is that of the last layer, the mean over its heads; of a network with one layer and one head it is all
there is. Numbers are means over the output words of a text first, and then over texts.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import require
from attnscope.faithfulness.assessment import agreement_columns
from attnscope.faithfulness.criteria import AGREEMENT_BOUNDS, Interval
from attnscope.faithfulness.interventions import QUICK, Effort, WordInterventions
from attnscope.faithfulness.records import Part, RankAgreement, Row, rows
from attnscope.faithfulness.subject import PairScores, PerText, PerWord, Reading, Sample, Subject
from attnscope.models.capabilities import EmbedsSource
from attnscope.probes.divergences import jsd
from attnscope.probes.heads import HeadRanking, head_formation, head_ranking
from attnscope.probes.heads.mixture import SCORES, HeadMixture, head_mixture, removal_keys
from attnscope.probes.heads.ranking import HeadAlignmentAccumulator, gold_reference, model_1_reference
from attnscope.probes.heads.sentences import HeadValues, Sentences, SpecialTokens
from attnscope.probes.plausibility import PlausibilityAccumulator
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores
from attnscope.probes.word_alignment import AlignmentAccumulator
from attnscope.tasks.batch import Batch
from attnscope.training.evaluation import decide

REFERENCES = {"gold alignments": "those in the data", "IBM Model 1": "IBM Model 1, fitted to these sentences"}
SEED, SHUFFLED = "another seed", "its own, shuffled"
COLLAPSED = (
    "Warning: the model is right in {:.1%} of these texts, and always predicting the commonest class in {:.1%}. "
    "Whatever its attention explains, its decisions are of no use."
)


def quality(subject: Subject, sample: Sample) -> Part:
    """Return the quality of the outputs."""
    return class_quality(subject, sample) if subject.is_classifier else word_quality(sample)


def class_quality(subject: Subject, sample: Sample) -> Part:
    """Return accuracy and macro F1 beside the share of the commonest class; a collapsed model gets a warning."""
    decisions = decide(subject.model, sample.batches())
    commonest = float(np.bincount(decisions.gold, minlength=len(subject.loaded.classes)).max() / len(decisions.gold))
    sentence = (
        f"It classifies {decisions.accuracy:.1%} of these texts correctly; always predicting the commonest class would "
        f"get {commonest:.1%}. Attention can explain a decision, not make up for a poor one."
    )
    row = {"accuracy": decisions.accuracy, "macro F1": decisions.macro_f1, "commonest class": commonest}
    warning = COLLAPSED.format(decisions.accuracy, commonest) if decisions.accuracy <= commonest else ""
    f1 = "Macro F1 is the mean over classes of F1, the harmonic mean of precision and recall: all count alike."
    return Part([sentence, f1], [row], warning=warning)


@torch.no_grad()
def word_quality(sample: Sample) -> Part:
    """Return accuracy and log-probability of the output words with teacher forcing."""
    measures = PerText()
    for reading in sample.readings():
        own, gold = log_probabilities(reading, reading.trace.logits), reading.trace.target[reading.outputs]
        measures.add("word accuracy", reading.by_row((own.argmax(1) == gold).double()))
        measures.add("log-probability of the gold word", reading.by_row(gold_values(reading, own)))
    means = measures.means()
    accuracy, log_probability = means.values()
    sentence = (
        f"With teacher forcing it predicts {accuracy.value:.1%} of the words correctly, and gives the gold word a "
        f"probability of {np.exp(log_probability.value):.2f} (geometric mean). Attention can explain a prediction, not "
        "make up for a poor one."
    )
    return Part([sentence], [{"measure": name, "mean": mean.value, **mean.limits} for name, mean in means.items()])


def log_probabilities(reading: Reading, logits: Float[Tensor, "batch target words"]) -> Float[Tensor, "rows words"]:
    """Return log-probabilities of the vocabulary, one row per output word."""
    return logits.detach()[reading.outputs].log_softmax(-1)


def gold_values(reading: Reading, values: Float[Tensor, "rows words"]) -> Float[Tensor, " rows"]:
    """Return the value of each gold word."""
    return values.gather(1, reading.trace.target[reading.outputs][:, None])[:, 0]


def formation(subject: Subject, sample: Sample) -> Part:
    """Return the shares of temporal, lexical and other components (aitken2021), entropy and offsets of every head."""
    table = head_formation(subject.model, sample).table()
    return Part(formation_sentences(table), heads=head_columns(table))


def formation_sentences(table: pd.DataFrame) -> list[str]:
    largest = table[["time", "word", "rest"]].idxmax(axis=1).value_counts()
    heads = len(table)
    layer, head = table.index[int(table["entropy"].to_numpy().argmin())]
    where = "" if heads == 1 else f" in layer {layer}, head {head}, where it is sharpest"
    counts = f"the {largest.index[0]}" if heads == 1 else ", ".join(f"the {n} in {c}" for n, c in largest.items())
    return [
        "Attention scores vary with position (time), with the tokens (word), or with both (rest). "
        f"The largest share has {counts}{f' of {heads} heads' * (heads > 1)}.",
        f"The entropy of attention is {table['entropy'].min():.2f} of at most 1{where}; "
        f"{table['on specials'].mean():.0%} of all attention is on special tokens.",
    ]


def rank_heads(subject: Subject, sample: Sample) -> Part:
    """Return the heads ranked by four criteria, and the agreement of the rankings."""
    gold = None if subject.alignments is None else subject.alignments[: sample.num_texts]
    ranking = head_ranking(subject.model, sample, gold=gold, saliency=absolute_influence)
    table, between = ranking.table(), ranking.agreement_between()
    return Part(
        ranking_sentences(ranking, table, between), heads=head_columns(table), reference=ranking.reference,
        agreement=RankAgreement(tuple(map(str, between)), between.to_numpy().tolist()),
    )  # fmt: skip


def absolute_influence(model: EmbedsSource, batch: Batch) -> TokenScores:
    saliency = influence(model, batch)
    return replace(saliency, values=saliency.values.abs())


def ranking_sentences(ranking: HeadRanking, table: pd.DataFrame, between: pd.DataFrame) -> list[str]:
    if len(table) == 1:
        return ["There is one head, and nothing to rank."]
    first = int(ranking.ranks().mean(axis=1).to_numpy().argmin())
    (layer, head), lost = table.index[first], table["loss if ablated"].iloc[first]
    matter = int((table["loss if ablated"] > 2 * table["± if ablated"]).sum())
    pairs = [between.iloc[i, j] for i in range(len(between)) for j in range(i)]
    reference = f" Word alignments are compared with {REFERENCES[ranking.reference]}." if ranking.reference else ""
    return [
        f"Layer {layer}, head {head} has the best mean rank. Ablating it costs {lost:.3f} nats of log-probability; "
        f"ablation of a single head has an effect for {matter} of {len(table)} heads.{reference}",
        f"The rankings agree with τ = {pd.Series(pairs).mean():.2f} on average (1 would be the same order): "
        "the head that one criterion ranks first need not be first by another.",
    ]


def head_columns(table: pd.DataFrame) -> dict[str, list[float | None]]:
    """Return a table of heads column by column."""
    flat = table.reset_index()
    return {str(name): flat[name].tolist() for name in flat}


def mixture(subject: Subject, sample: Sample) -> Part:
    """Return the agreement of the last layer, the best head and a mixture of all heads, on test texts.

    Best head and mixture are learned from the other half of the texts (`head_mixture`).
    """
    result = head_mixture(subject.model, sample, seed=sample.seed)
    agreements, correlations = mixture_agreements(subject, sample, result), result.table()["correlation"]
    layer, head = result.best
    names = (
        *SCORES[:1],
        f"best of {result.coefficients.size} heads (layer {layer}, head {head})",
        "mixture of all heads",
    )
    values = ", ".join(
        f"{interval.value:.0%} by the {name}" for name, interval in zip(names, agreements.values(), strict=True)
    )
    sentences = [
        f"The word with the largest score has, of the squared effect of the best word, {values}. Best head and mixture "
        f"are learned from random removals of tokens in {result.learned_from} texts, and tested on the "
        f"{len(result.correlations)} others.",
        f"Agreement is a yes from {AGREEMENT_BOUNDS.yes:.0%}. It is one half of the verdict: whether effects pass "
        "through the attention of other layers (route) is not tested here.",
    ]
    table: list[Row] = [
        {
            "score": name, "agreement": interval.value, **interval.limits,
            "agreement would be": AGREEMENT_BOUNDS.answer(interval), "texts": interval.texts,
            "correlation with the effects of removals": float(correlations[key]),
        }
        for name, (key, interval) in zip(names, agreements.items(), strict=True)
    ]  # fmt: skip
    return Part(sentences, table)


def mixture_agreements(subject: Subject, sample: Sample, mixture: HeadMixture) -> dict[str, Interval]:
    """Return the agreement of each score on the test texts, by predicted class as in the test `agreement`."""
    effort, columns = QUICK if sample.quick else Effort(), defaultdict[str, list[float]](list)
    for texts in sample.texts(1):
        if int(removal_keys(texts.batch, sample.seed)) not in mixture.test_keys:
            continue
        sentences = Sentences(texts.batch, texts.source, texts.target)
        interventions = WordInterventions.of(subject.model, sentences, effort, sample.seed, sample.whole_words)
        heads = interventions.reading.layer_weights[:, 0, :, 0].double()  # layers x heads x source
        columns["class"].append(int(interventions.own.argmax()))
        for name, weights in mixture.weights.items():
            score = interventions.by_word(torch.einsum("lh,lhs->s", torch.from_numpy(weights).to(heads), heads)[None])
            squares = agreement_columns(interventions, score)
            columns[name].append(float(squares["top"]) if interventions.judged else math.nan)
            columns[f"best of {name}"].append(float(squares["best"]))
    classes, values = subject.loaded.classes, {name: np.array(numbers) for name, numbers in columns.items()}
    return {
        name: Interval.by_class(values[name], values[f"best of {name}"], values["class"], classes, within=(-1.0, 1.0))
        for name in mixture.weights
    }


def another_seed(other: Subject) -> Callable[[Subject, Sample], Part]:
    """Return the check that compares the attention of two models, such as two seeds, on the same texts."""

    def compare(subject: Subject, sample: Sample) -> Part:
        taus, distances = PerText(), PerText()
        for texts, same in zip(sample.texts(), other.inputs.texts(sample.batch_size, sample.num_texts), strict=True):
            one, two = Reading.of(subject, texts), Reading.of(other, same)
            check_same_tokens(one.batch, two.batch, other.loaded.name)
            foreign, shuffled = two.attention.to(one.attention), one.shuffled(sample.seed)
            random = one.random(sample.seed).to(one.attention) if subject.is_classifier else shuffled
            for name, score, weights in ((SEED, foreign, foreign), (SHUFFLED, random, shuffled)):
                taus.add(name, one.rank_correlation(one.attention, score))
                distances.add(name, one.by_text(relative_jsd(one.attention, weights)))
        tau, far = taus.means(), distances.means()
        sentence = (
            f"The attention of {other.loaded.name} has a rank correlation of τ = {tau[SEED].value:.2f} with that of "
            f"{subject.loaded.name}, at {far[SEED].value:.0%} of the largest distance (JSD); shuffled weights get "
            f"{tau[SHUFFLED].value:.2f} and {far[SHUFFLED].value:.0%}."
        )
        columns = "JSD, share of the maximum"
        return Part(
            [sentence], [{"attention": n, "τ": tau[n].value, **tau[n].limits, columns: far[n].value} for n in tau]
        )

    return compare


def relative_jsd(one: PairScores, other: PairScores) -> PerWord:
    """Return the Jensen-Shannon divergence as a share of the largest."""
    return jsd(one.double(), other.double()) / math.log(2)


def check_same_tokens(one: Batch, other: Batch, name: str) -> None:
    alike = one.source.shape == other.source.shape and one.target.shape == other.target.shape
    alike = alike and bool((one.source.cpu() == other.source.cpu()).all())
    require(alike, f"{name} splits the same texts into different tokens, so that attention cannot be compared")


def plausibility(subject: Subject, sample: Sample) -> Part | None:
    """Return the agreement of attention with human annotations, where there are any."""
    return rationale_agreement(subject, sample) if subject.is_classifier else alignment_agreement(subject, sample)


def rationale_agreement(subject: Subject, sample: Sample) -> Part | None:
    """Return the agreement of attention with human rationales (DeYoung et al. 2020), where there are any."""
    if not subject.inputs.has_rationales:
        return None
    probe = PlausibilityAccumulator(seed=sample.seed)
    for reading in sample.readings():
        probe.update(reading.texts.batch, {name: values.abs() for name, values in token_scores(reading).items()})
    table = probe.result().table()
    precision, chance = table.loc["attention", ["average_precision", "average_precision_chance"]].astype(float)
    sentence = (
        f"Attention finds the words of human rationales with an average precision of {precision:.2f}; chance would get "
        f"{chance:.2f}. This shows what convinces people, not what the model does."
    )
    return Part([sentence], rows(table))


def token_scores(reading: Reading) -> dict[str, Float[Tensor, "batch source"]]:
    """Return attention and the other scores of the tokens' importance to the decision."""
    scores = {
        "attention": reading.attention, "leave-one-out": reading.leave_one_out, "gradient × input": reading.gradient,
        "rollout": reading.rollout,
    }  # fmt: skip
    return {name: values[:, 0] for name, values in scores.items() if values is not None}


def alignment_agreement(subject: Subject, sample: Sample) -> Part | None:
    """Return alignment error rates of attention, the best head and IBM Model 1, where there is a gold alignment."""
    if subject.alignments is None:
        return None
    shown, heads = (HeadAlignmentAccumulator(gold_reference(subject.alignments)) for _ in range(2))
    corpus: list[Sentences] = []
    for reading in sample.readings():
        sentences = Sentences(reading.batch, reading.texts.source, reading.texts.target)
        special = SpecialTokens.of(reading.model, reading.batch)
        heads.update(reading.counterfactual.layer_weights, sentences, special)
        shown.update(reading.attention[None, :, None], sentences, special)
        corpus.append(sentences)
    error, by_head, model_1 = float(shown.result()[0, 0]), heads.result(), model_1_error(subject, corpus)
    layer, head, least = best_head(by_head)
    best = f"; the best of {by_head.numel()} heads, layer {layer}, head {head}, has {least:.2f}"
    sentence = (
        f"Word alignment by the highest attention has an error rate of {error:.2f}{best * (by_head.numel() > 1)}, and "
        f"IBM Model 1, fitted to these {sum(map(len, corpus)):,} sentences, {model_1:.2f}. This shows what people "
        "expect to see, not what the model does."
    )
    rates = {"attention shown": error, f"best head (layer {layer}, head {head})": least, "IBM Model 1": model_1}
    return Part([sentence], [{"word alignment by": name, "error rate": value} for name, value in rates.items()])


def best_head(errors: HeadValues) -> tuple[int, int, float]:
    """Return layer, head and error rate of the head with the lowest."""
    layer, head = divmod(int(errors.nan_to_num(nan=torch.inf).argmin()), errors.shape[1])
    return layer, head, float(errors[layer, head])


def model_1_error(subject: Subject, corpus: list[Sentences]) -> float:
    """Return the alignment error rate of IBM Model 1."""
    assert subject.alignments is not None
    reference, gold = model_1_reference(subject.model, corpus), gold_reference(subject.alignments)
    counts = AlignmentAccumulator()
    for sentences in corpus:
        for predicted, expected in zip(reference(sentences), gold(sentences), strict=True):
            counts.update(predicted.sure, expected)
    return counts.result().error_rate
