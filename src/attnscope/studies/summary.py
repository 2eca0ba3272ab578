"""Verdicts over all results: ranks of claims, correction for multiplicity, and the headline claims of the papers.

Headline claims are corrected by Holm within the list of each paper, supporting claims by Benjamini and Hochberg within
each study, sanity checks not at all. `count` says how many of each chance is expected to decide. Claims about
substitutes of the paper's data are not counted, and a repeated sentence counts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scipy.stats import false_discovery_control

from attnscope.studies import STUDIES, study
from attnscope.studies.claims import LEVEL, ClaimVerdict, Estimate, Range
from attnscope.studies.headlines import HEADLINES, Headline
from attnscope.studies.result import Result, Row, counts, labels_of

ALPHA = 2 * LEVEL
RANKS = ("headline", "supporting", "sanity")
DECIDED = ("holds", "fails", "equivalent")


def tests(headline: Headline, result: Result, claim: ClaimVerdict) -> bool:
    """Return whether a claim of a result is one that tests the headline."""
    patterns = headline.tests.get(result.finding, ()) if headline.study == result.study else ()
    return any(fnmatchcase(claim.text, pattern) for pattern in patterns)


def rank(result: Result, claim: ClaimVerdict) -> str:
    """Return one of `RANKS`; a claim that tests a headline is a headline claim, whatever else it is."""
    if any(tests(headline, result, claim) for headline in HEADLINES):
        return "headline"
    checks = study(result.study).sanity if result.study in STUDIES else ()
    return "sanity" if any(fnmatchcase(claim.text, pattern) for pattern in checks) else "supporting"


def substitute(result: Result, text: str) -> str:
    """Return what stands in for the corpus of the paper that a claim or a label names; empty if nothing does."""
    substitutes = study(result.study).substitutes if result.study in STUDIES else {}
    return next((what for corpus, what in substitutes.items() if re.search(rf"\b{re.escape(corpus)}\b", text)), "")


# Supporting claims and sanity checks ---------------------------------------------------------------------------------


def verdicts(results: Sequence[Result], rank_name: str) -> dict[tuple[str, str], str]:
    """Return the verdict of each distinct sentence of a rank, by study and text, corrected where the rank is.

    Where a sentence is repeated and its verdicts differ, it is undecided.
    """
    by_sentence: dict[tuple[str, str], str] = {}
    for name in dict.fromkeys(result.study for result in results):
        claims = list(_claims_of_rank(results, name, rank_name))
        words = _correct(claims) if rank_name == "supporting" else [claim.verdict for claim in claims]
        for claim, word in zip(claims, words, strict=True):
            earlier = by_sentence.setdefault((name, claim.text), word)
            by_sentence[name, claim.text] = word if word == earlier else "undecided"
    return by_sentence


def _claims_of_rank(results: Sequence[Result], name: str, rank_name: str) -> Iterator[ClaimVerdict]:
    for result in results:
        for claim in result.claims if result.study == name else ():
            if rank(result, claim) == rank_name and not substitute(result, claim.text):
                yield claim


def _correct(claims: Sequence[ClaimVerdict]) -> list[str]:
    """Return verdicts at a false discovery rate of 5 %; those without p-values, and what is not random, stay."""
    is_random = [claim.p is not None and is_tested(claim) for claim in claims]
    p = [two_sided(*claim.p) for claim, random in zip(claims, is_random, strict=True) if random and claim.p]
    adjusted: Iterator[float] = iter(false_discovery_control(p) if p else [])
    return [
        "undecided" if random and next(adjusted) > ALPHA and claim.verdict in DECIDED else claim.verdict
        for claim, random in zip(claims, is_random, strict=True)
    ]


def is_tested(claim: ClaimVerdict) -> bool:
    """Return whether a test of the claim could have decided it: not if it is not random, nor before it is measured."""
    is_measured = claim.estimate is None or claim.estimate["n"] != 0
    is_random = claim.test is None or claim.test.kind not in ("exact", "none")
    return is_random and is_measured and claim.verdict != "not testable"


def two_sided(p_holds: float, p_fails: float) -> float:
    return min(1.0, 2 * min(p_holds, p_fails))


@dataclass(frozen=True)
class RankCount:
    """How many distinct sentences of a rank got each verdict, and how many chance is expected to decide, at most."""

    verdicts: Mapping[str, int]
    by_chance: float


def count(results: Sequence[Result]) -> dict[str, RankCount]:
    """Return the counts by rank."""
    headlines = judge_headlines(results)
    by_rank = {"headline": RankCount(counts(each.verdict for each in headlines), _headlines_by_chance(headlines))}
    for name in RANKS[1:]:
        words = verdicts(results, name)
        by_rank[name] = RankCount(counts(words.values()), _claims_by_chance(results, name, words))
    return by_rank


def _headlines_by_chance(headlines: Sequence[HeadlineVerdict]) -> float:
    """Return how many headlines chance is expected to decide, at most.

    Holm's correction allows any decision by chance in 5 % of the lists, one per paper. The earlier rule does not
    correct: of m claims of which u are needed, one of m - u + 1 has to hold by chance, or one of u to fail, each with
    2.5 %, so a headline adds (m + 1) times 2.5 %.
    """
    corrected = {each.headline.study for each in headlines if each.p is not None}
    earlier = [min(1.0, (len(each.claims) + 1) * LEVEL) for each in headlines if each.p is None and each.claims]
    return ALPHA * len(corrected) + sum(earlier)


def _claims_by_chance(results: Sequence[Result], rank_name: str, words: Mapping[tuple[str, str], str]) -> float:
    """Return how many claims of a rank chance is expected to decide, at most.

    Where Benjamini and Hochberg's correction applies, that is 5 % of the decided claims. Elsewhere it is 5 % of the
    tested ones: a claim is tested on both sides, at 2.5 % each. What is not random, or not tested, adds nothing.
    """
    names = dict.fromkeys(result.study for result in results)
    claims = {(name, claim.text): claim for name in names for claim in _claims_of_rank(results, name, rank_name)}
    count_by_chance = 0
    for sentence, claim in claims.items():
        is_corrected = rank_name == "supporting" and claim.p is not None
        count_by_chance += is_tested(claim) and (words[sentence] in DECIDED or not is_corrected)
    return ALPHA * count_by_chance


# Headline claims -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadlineVerdict:
    """A headline with its verdict.

    Attributes:
        headline: The headline.
        verdict: One of the verdicts of claims.
        claims: The claims that test it, without those about substitutes.
        uncorrected: The verdict without a correction, by the number of claims that hold and fail.
        p: The two-sided p-value, corrected; None by the earlier rule.
        row: The row of a table that stands for it, if any has a published number.
    """

    headline: Headline
    verdict: str
    uncorrected: str
    claims: Sequence[ClaimVerdict]
    p: float | None
    row: Row | None

    @property
    def held(self) -> int:
        return sum(bool(claim.holds) for claim in self.claims)


def judge_headlines(results: Sequence[Result]) -> list[HeadlineVerdict]:
    """Return the verdicts of all headlines of the studies that have results, corrected by Holm within each paper.

    Results of the first schema have no p-values: their verdicts are combined uncorrected, and count in Holm's list.
    """
    judgements: list[HeadlineVerdict] = []
    for name in dict.fromkeys(result.study for result in results):
        headlines = [headline for headline in HEADLINES if headline.study == name]
        claims = [_claims_of(headline, results) for headline in headlines]
        tails = [_combine(headline, group) for headline, group in zip(headlines, claims, strict=True)]
        adjusted = holm([1.0 if each is None else two_sided(*each) for each in tails])
        for headline, group, each, p in zip(headlines, claims, tails, adjusted, strict=True):
            before, row = _by_count(headline, group), _row(headline, results)
            word = before if each is None else _by_tails(group, *each, p)
            judgements.append(HeadlineVerdict(headline, word, before, group, None if each is None else p, row))
    return judgements


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down procedure.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [1.0] * len(p), 0.0
    for place, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = largest
    return adjusted


def _claims_of(headline: Headline, results: Sequence[Result]) -> list[ClaimVerdict]:
    return [
        claim
        for result in results
        for claim in result.claims
        if tests(headline, result, claim) and not substitute(result, claim.text)
    ]


def num_required(headline: Headline, claims: Sequence[ClaimVerdict]) -> int:
    """Return how many of the claims have to hold."""
    return max(1, math.ceil(headline.share * len(claims)))


def _combine(headline: Headline, claims: Sequence[ClaimVerdict]) -> tuple[float, float] | None:
    """Return p-values of the partial conjunction, that enough claims hold and that too few do (Benjamini and Heller).

    With u of m claims needed, the first is m − u + 1 times the u-th smallest p-value. None without p-values.
    """
    if not claims or any(claim.p is None for claim in claims):
        return None
    m, u = len(claims), num_required(headline, claims)
    holds, fails = (sorted(claim.p[side] for claim in claims if claim.p) for side in (0, 1))
    return min(1.0, (m - u + 1) * holds[u - 1]), min(1.0, u * fails[m - u])


def _by_tails(claims: Sequence[ClaimVerdict], p_holds: float, p_fails: float, adjusted: float) -> str:
    if all(claim.verdict == "not testable" for claim in claims):
        return "not testable"
    if adjusted > ALPHA:
        return "undecided"
    return "holds" if p_holds < p_fails else "fails"


def _by_count(headline: Headline, claims: Sequence[ClaimVerdict]) -> str:
    """Return the verdict by the earlier rule, which does not correct."""
    if not claims:
        return "undecided"
    if all(claim.verdict == "not testable" for claim in claims):
        return "not testable"
    u = num_required(headline, claims)
    if sum(bool(claim.holds) for claim in claims) >= u:
        return "holds"
    return "fails" if sum(claim.verdict == "fails" for claim in claims) > len(claims) - u else "undecided"


def _row(headline: Headline, results: Sequence[Result]) -> Row | None:
    if headline.number is None:
        return None
    finding, pattern = headline.number
    own = [result for result in results if (result.study, result.finding) == (headline.study, finding)]
    rows = [line for result in own for line in result.table]
    return next((line for line in rows if fnmatchcase(" | ".join(labels_of(line).values()), pattern)), None)


def interval(line: Row, within: Range | None = None) -> Range | None:
    """Return the 95 % interval of a row; in results of the first schema, that of its mean, sd and n.

    Args:
        line: A row of a table.
        within: The range of its quantity, for results of the first schema, which do not store it.
    """
    if line["sd"] is None:
        return None
    if "low" in line:
        return line["low"], line["high"]
    return Estimate.of(line["mean"], line["sd"], line["n"], within).bounds()
