"""What is asked of every model, whether it classifies or translates?"""

from dataclasses import replace
from typing import Any

import pandas as pd

from attnscope.faithfulness.criteria import SPEAKS, Interval
from attnscope.faithfulness.records import Part
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models.capabilities import EmbedsSource
from attnscope.probes.heads import HeadFormation, HeadRanking, head_formation, head_ranking
from attnscope.probes.information import compute_information
from attnscope.probes.occurrences import gather_occurrences, most_frequent_words, word_counts
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores
from attnscope.tasks.batch import Batch

WORDS, TOKENS, CLUSTERS, PER_CLUSTER = 500, 50_000, 200, 20  # words that are looked at; tokens a cluster needs
REFERENCES = {"gold links": "those in the data", "IBM Model 1": "IBM Model 1, fitted to these sentences"}
SHOWN = ["nats", "by_chance", "at_most", "tokens", "words", "state_clusters"]


def how_formed(subject: Subject, sample: Sample) -> Part:
    """Shares of time, word and rest (aitken2021), entropy and offsets, of every layer and head."""
    found = head_formation(subject.model, sample)
    table = found.table()
    return {"sentences": about_forming(found, table), "heads": columns(table), "table": [], "tests": []}


def about_forming(found: HeadFormation, table: pd.DataFrame) -> list[str]:
    largest = table[["time", "word", "rest"]].idxmax(axis=1).value_counts()
    heads = len(table)
    layer, head = table.index[int(table["entropy"].to_numpy().argmin())]
    where = "" if heads == 1 else f" in layer {layer}, head {head}, where it is sharpest"
    said = f"the {largest.index[0]}" if heads == 1 else ", ".join(f"the {n} in {c}" for n, c in largest.items())
    return [
        "What makes the weights differ: where words stand (time), which words they are (word), or both (rest). "
        f"The largest share has {said}{f' of {heads} heads' * (heads > 1)}.",
        f"The entropy of attention is {table['entropy'].min():.2f} of at most 1{where}; "
        f"{table['on specials'].mean():.0%} of all attention is on special tokens.",
    ]


def which_heads(subject: Subject, sample: Sample) -> Part:
    """The heads by four criteria, and whether these agree."""
    gold = None if subject.links is None else subject.links[: sample.texts]
    found = head_ranking(subject.model, sample, gold=gold, saliency=effect)
    table, between = found.table(), found.agreement_between()
    return {
        "sentences": about_heads(found, table, between), "heads": columns(table), "table": [], "tests": [],
        "between": {"names": list(between), "values": between.to_numpy()}, "reference": found.reference,
    }  # fmt: skip


def effect(model: EmbedsSource, batch: Batch, **forward: Any) -> TokenScores:
    """How much a word matters, whichever way: the size of its influence."""
    found = influence(model, batch, **forward)
    return replace(found, values=found.values.abs())


def about_heads(found: HeadRanking, table: pd.DataFrame, between: pd.DataFrame) -> list[str]:
    if len(table) == 1:
        return ["There is one head, and nothing to rank."]
    first = int(found.ranks().mean(axis=1).to_numpy().argmin())
    (layer, head), lost = table.index[first], table["loss if ablated"].iloc[first]
    matter = int((table["loss if ablated"] > 2 * table["± if ablated"]).sum())
    pairs = [between.iloc[i, j] for i in range(len(between)) for j in range(i)]
    links = f" Links are held against {REFERENCES[found.reference]}." if found.reference else ""
    return [
        f"Layer {layer}, head {head} has the best mean rank. Without it the output loses {lost:.3f} nats of "
        f"log-probability; {matter} of {len(table)} heads are missed when they are silenced alone.{links}",
        f"The rankings agree with τ = {pd.Series(pairs).mean():.2f} on average (1 would be the same order): "
        "a head that one criterion puts first need not be believed by another.",
    ]  # fmt: skip


def columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    """A table of heads, column by column."""
    flat = table.reset_index()
    return {str(name): flat[name].tolist() for name in flat}


def information(subject: Subject, sample: Sample) -> Part:
    """Mutual information between words and states (tutek2020 §3.4), as a share of what is possible."""
    words = most_frequent_words(word_counts(sample.batches()), WORDS)
    occurrences = gather_occurrences(subject.model, sample.batches, words, TOKENS, sample.seed)
    k = min(CLUSTERS, len(occurrences.words) // PER_CLUSTER)
    if k < 2:
        few = f"There are only {len(occurrences.words)} words in these texts, too few to measure information."
        return {"sentences": [few], "table": [], "tests": []}
    found = compute_information(occurrences, k, seed=sample.seed)
    share = (found.word.nats - found.word.by_chance) / (found.word.at_most - found.word.by_chance)
    sentence = (
        f"The state at a word tells {share:.0%} of what could be known about which word it is ({found.word.nats:.2f} "
        f"of at most {found.word.at_most:.2f} nats, {found.word.by_chance:.2f} by chance): attention to a state is "
        "attention to its word only as far as the state still speaks of it."
    )
    test = SPEAKS.answered(sentence, Interval(share, share, share), chance=0.0, best=1.0)
    return {"sentences": [sentence], "table": found.table()[SHOWN].reset_index().to_dict("records"), "tests": [test]}
