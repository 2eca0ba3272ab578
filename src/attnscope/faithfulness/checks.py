"""Checks of attention that classifiers and translators share.

The attention judged is that of the last layer, the mean over its heads; of a network with one layer and one head it is
all there is. A classifier has one output word, its decision. Numbers are means over the output words of a text first,
and then over texts. Tokens are subwords where a tokenizer makes subwords; special tokens and padding are left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from attnscope.errors import require
from attnscope.faithfulness.criteria import RANK_CORRELATION, SINGLE_TOKEN, TOKEN_IDENTITY, UNIQUENESS, Interval
from attnscope.faithfulness.records import Part, RankAgreement, Row, rows
from attnscope.faithfulness.subject import PairScores, PerText, PerWord, Reading, Sample, Subject
from attnscope.models.capabilities import EmbedsSource, ReadsOut
from attnscope.models.inference import evaluating
from attnscope.probes.adversary import (
    BatchAdversaries,
    SearchSettings,
    exact_adversaries_in_batch,
    search_adversaries_in_batch,
    search_token_adversaries,
)
from attnscope.probes.agreement import ONE_IN, chance_agreement, top_agreement
from attnscope.probes.counterfactual import MAX_ELEMENTS, read_out_rows, rows_at_a_time
from attnscope.probes.divergences import jsd
from attnscope.probes.grounding import MARGIN, token_probabilities
from attnscope.probes.heads import HeadRanking, head_formation, head_ranking
from attnscope.probes.information import compute_information
from attnscope.probes.lexical import log_odds
from attnscope.probes.occurrences import gather_occurrences, most_frequent_words, word_counts
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores
from attnscope.tasks.batch import Batch

# The most frequent words and their occurrences that are clustered; clusters, and occurrences that a cluster needs.
MAX_WORDS, MAX_TOKENS, MAX_CLUSTERS, PER_CLUSTER = 500, 50_000, 200, 20
REFERENCES = {"gold alignments": "those in the data", "IBM Model 1": "IBM Model 1, fitted to these sentences"}
INFORMATION_COLUMNS = ["nats", "by_chance", "at_most", "tokens", "words", "state_clusters"]
LEAVE_ONE_OUT, GRADIENT = "attention with leave-one-out", "attention with gradient × input"
RANDOM = "random attention with leave-one-out"
SEED, SHUFFLED = "another seed", "its own, shuffled"
TOP, CHANCE, LEAKAGE, ALONE, OWN = "top", "chance", "leakage", "alone", "own"
GROUP = 16  # sentences that are searched together, whatever the batch size: descent magnifies rounding


def formation(subject: Subject, sample: Sample) -> Part:
    """Return the shares of temporal, lexical and other components (aitken2021), entropy and offsets of every head."""
    found = head_formation(subject.model, sample)
    table = found.table()
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
    found = head_ranking(subject.model, sample, gold=gold, saliency=absolute_influence)
    table, between = found.table(), found.agreement_between()
    return Part(
        ranking_sentences(found, table, between), heads=head_columns(table), reference=found.reference,
        agreement=RankAgreement(tuple(map(str, between)), between.to_numpy().tolist()),
    )  # fmt: skip


def absolute_influence(model: EmbedsSource, batch: Batch) -> TokenScores:
    found = influence(model, batch)
    return replace(found, values=found.values.abs())


def ranking_sentences(found: HeadRanking, table: pd.DataFrame, between: pd.DataFrame) -> list[str]:
    if len(table) == 1:
        return ["There is one head, and nothing to rank."]
    first = int(found.ranks().mean(axis=1).to_numpy().argmin())
    (layer, head), lost = table.index[first], table["loss if ablated"].iloc[first]
    matter = int((table["loss if ablated"] > 2 * table["± if ablated"]).sum())
    pairs = [between.iloc[i, j] for i in range(len(between)) for j in range(i)]
    reference = f" Word alignments are compared with {REFERENCES[found.reference]}." if found.reference else ""
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


def information(subject: Subject, sample: Sample) -> Part:
    """Return the mutual information between words and states (tutek2020 §3.4), as a share of what is possible."""
    words = most_frequent_words(word_counts(sample.batches()), MAX_WORDS)
    occurrences = gather_occurrences(subject.model, sample.batches, words, MAX_TOKENS, sample.seed)
    k = min(MAX_CLUSTERS, len(occurrences.words) // PER_CLUSTER)
    if k < 2:
        return Part([f"These texts have only {len(occurrences.words)} tokens, too few to measure information."])
    found = compute_information(occurrences, k, seed=sample.seed)
    share = (found.word.nats - found.word.by_chance) / (found.word.at_most - found.word.by_chance)
    sentence = (
        f"The state at a token carries {share:.0%} of the information about which token it is ({found.word.nats:.2f} "
        f"of at most {found.word.at_most:.2f} nats, {found.word.by_chance:.2f} by chance): attention to a state is "
        "attention to its token only as far as the state still identifies it."
    )
    test = TOKEN_IDENTITY.judge(sentence, Interval(share, share, share), chance=0.0, best=1.0)
    return Part([sentence], rows(found.table()[INFORMATION_COLUMNS]), [test])


def correlation(subject: Subject, sample: Sample) -> Part:
    """Return Kendall's τ between attention and the size of a token's effect (Jain and Wallace 2019)."""
    taus = PerText()
    for reading in sample.readings():
        effect, gradient = reading.leave_one_out.abs(), reading.gradient
        taus.add(LEAVE_ONE_OUT, reading.rank_correlation(reading.attention, effect))
        if gradient is not None:
            taus.add(GRADIENT, reading.rank_correlation(reading.attention, gradient.abs()))
        taus.add(RANDOM, reading.rank_correlation(reading.random(sample.seed), effect))
    found = taus.means()
    tau, random = found[LEAVE_ONE_OUT], found[RANDOM].value
    sentence = (
        f"Attention and leave-one-out rank the tokens of a text with τ = {tau.value:z.2f} on average; random attention "
        f"gets {random:z.2f}, the same order 1."
    )
    test = RANK_CORRELATION.judge(sentence, tau, chance=random, best=1.0)
    return Part([sentence], [{"scores": name, "τ": tau.value, **tau.limits} for name, tau in found.items()], [test])


def adversary(subject: Subject, sample: Sample) -> Part:
    """Return how far attention can move while the output stays (Jain and Wallace 2019): exactly, or by a search."""
    classifier = subject.is_classifier
    settings = classifier_search(sample) if classifier else translator_search(sample)
    found = PerText()
    for reading in sample.readings(None if classifier else GROUP):
        adversaries = batch_adversaries(reading, settings)
        for name in ("jsd", "tvd", "feasible"):
            found.add(name, reading.by_row(getattr(adversaries, name).double()))
    feasible, share = np.nanmean(found["feasible"]), Interval.of(found["jsd"] / math.log(2))
    unit = "texts" if classifier else "output words"
    sentence = (
        f"For {feasible:.0%} of the {unit} there is another attention that changes the output by at most "
        f"{settings.epsilon:.2f} (TVD); on average it is {share.value:.0%} as far away (JSD) as an attention can be."
    )
    row: Row = {
        "JSD, mean": np.nanmean(found["jsd"]), "share of the maximum": share.value, **share.limits,
        f"{unit} with one": feasible, "output change (TVD)": np.nanmean(found["tvd"]),
    }  # fmt: skip
    return Part([sentence], [row], [UNIQUENESS.judge(sentence, share)], histogram=found["jsd"].round(4).tolist())


def batch_adversaries(reading: Reading, settings: SearchSettings) -> BatchAdversaries:
    """Return one adversary per output word; exact for two classes with a linear readout."""
    model, batch = reading.model, reading.texts.batch
    if not reading.subject.is_classifier:
        return search_token_adversaries(model, reading.batch, reading.outputs, settings)
    exact = len(reading.subject.loaded.classes) == 2 and reading.counterfactual.contributions is not None
    return exact_adversaries_in_batch(model, batch) if exact else search_adversaries_in_batch(model, batch, settings)


def classifier_search(sample: Sample) -> SearchSettings:
    return SearchSettings(seed=sample.seed, restarts=2, steps=200) if sample.quick else SearchSettings(seed=sample.seed)


def translator_search(sample: Sample) -> SearchSettings:
    """Return settings with few long steps along the border of what is feasible: each is a readout per output word.

    Tried on a tiny Marian with three scales of its readout: the quick search gets 93 to 114 % as far as five starts of
    500 steps with a fixed penalty of 500. What is found is a lower bound either way.
    """
    restarts, steps = (2, 100) if sample.quick else (3, 250)
    return SearchSettings(restarts=restarts, steps=steps, learning_rate=0.2, penalty=10.0, growth=1.1, seed=sample.seed)


def single_tokens(subject: Subject, sample: Sample) -> Part:
    """Return the share of tokens that lead to the same output alone: leakage (tutek2020 §5, table 3)."""
    model = subject.model
    if not isinstance(model, ReadsOut):
        return Part(["Single-token sufficiency needs a model with `context_of` and `readout`."])
    found, measure = PerText(), decision_measures if subject.is_classifier else word_measures
    for reading in sample.readings():
        for name, values in measure(model, reading).items():
            found.add(name, reading.by_text(values))
    means = found.means()
    leakage = means[LEAKAGE]
    sentence = (
        f"{leakage.value:.0%} of the tokens lead to the same output alone, nearly as surely (within {MARGIN}), when "
        "they get all the attention of the last layer."
    )
    sentences = [sentence]
    if TOP in means:
        sentences.append(
            f"The token attended to most is among the {1 / ONE_IN:.0%} that alone make the gold word likeliest for "
            f"{means[TOP].value:.0%} of the words; a random token is for {means[CHANCE].value:.0%}."
        )
    return Part(sentences, single_token_rows(means), [SINGLE_TOKEN.judge(sentence, leakage)])


def single_token_rows(means: dict[str, Interval]) -> list[Row]:
    names = {
        LEAKAGE: "tokens that suffice alone",
        OWN: "probability of the predicted output",
        ALONE: "... given one token alone",
        TOP: f"agreement of attention with β (top {1 / ONE_IN:.0%})",
        CHANCE: "... by chance",
    }
    return [
        {"measure": name, "mean": means[key].value, **means[key].limits} for key, name in names.items() if key in means
    ]


def decision_measures(model: ReadsOut, reading: Reading) -> dict[str, PerWord]:
    """Return leakage and probabilities of each decision of a classifier."""
    with evaluating(model):
        found = token_probabilities(model, reading.trace)
    return {LEAKAGE: found.leakage()[:, None], ALONE: found.mean[:, None], OWN: found.decision[:, None]}


def word_measures(model: ReadsOut, reading: Reading) -> dict[str, PerWord]:
    """Return leakage, probabilities, and the agreement of attention with β, of each output word of a translator."""
    found = probabilities_alone(model, reading)
    words = reading.words[:, None].expand_as(found.gold)
    own = reading.trace.logits.detach().softmax(-1).amax(-1)
    sufficient = found.likeliest & (found.predicted >= own[..., None] - MARGIN)
    score = found.gold.nan_to_num()
    return {
        TOP: top_agreement(reading.attention, score, words), CHANCE: chance_agreement(score, words),
        LEAKAGE: sufficient.sum(-1) / reading.words.sum(1)[:, None], ALONE: found.predicted.nanmean(-1), OWN: own,
    }  # fmt: skip


@dataclass(frozen=True)
class AloneProbabilities:
    """What each source token alone predicts, per output word; NaN, and false, where there is no word."""

    gold: PairScores  # γ: log-odds of the gold word
    predicted: PairScores  # probability of the word that the model predicts
    likeliest: Bool[Tensor, "batch target source"]  # whether it would be predicted again


def probabilities_alone(model: ReadsOut, reading: Reading, max_elements: int = MAX_ELEMENTS) -> AloneProbabilities:
    """Return a readout per output word and source token, which gets all attention (snell2021 §3.1)."""
    trace = reading.trace
    blank = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    gold, predicted, likeliest = blank, blank.clone(), torch.zeros_like(blank, dtype=torch.bool)
    pairs = (reading.outputs[:, :, None] & reading.words[:, None]).nonzero()
    with evaluating(model):
        for some in pairs.split(rows_at_a_time(trace, max_elements)):
            b, t, source = some.unbind(1)
            logits, output = read_out_rows(model, trace, trace.last.values[b, :, source], b, t), trace.predictions[b, t]
            gold[b, t, source] = log_odds(logits, trace.target[b, t])
            predicted[b, t, source] = log_odds(logits, output).sigmoid()
            likeliest[b, t, source] = logits.argmax(1) == output
    return AloneProbabilities(gold, predicted, likeliest)


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
    require(alike, f"{name} cuts the same texts into different tokens, so that attention cannot be compared")
