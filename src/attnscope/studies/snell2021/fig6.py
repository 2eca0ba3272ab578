"""Do several heads help because one of them starts well? (snell2021 §5.2, eq. 20 and 21, figure 6)

First, single heads are tried on permutations: initial weights differ in W only, and the outcome says whether this W is
a good or a bad start. Then networks of eight heads are built of these. With some base of other weights nearly any W is
good, with others nearly none, so heads are tried with several bases; the networks have the first base with enough heads
of both kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import ascii_uppercase

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.claims import ClaimVerdict, at_least, at_most, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PerSeed, TrainedCase
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.studies.snell2021.toys import (
    BLUE,
    GREEN,
    RED,
    Curve,
    CurvePictures,
    ToySizes,
    draw_curves,
    last_step,
    pictures,
    with_heads,
)

CONVERGED, JUDGED = 0.95, 200  # author's code: good if the word accuracy is better at any evaluation of 200 steps
LOW = 0.6  # author's code: bad if it is worse at the last of them
ALL_BAD, ONE_GOOD, RANDOM = "all bad", "one good", "random"
PAINT = {ALL_BAD: RED, ONE_GOOD: BLUE, RANDOM: GREEN}
COMBINATIONS = {"sum": "summed", "mean": "averaged"}  # contexts of heads, as in eq. 21 and as in the author's code

# Seeds of the run say which data it sees, those of a head how W starts. Each group of heads has a range of its own for
# both, and so do networks of several heads: nothing is judged by data that served to choose. If all heads were tried on
# the same few streams, their luck with these would pass for the heads'.
APART = 1_000
FRESH = 1_000_000

Choice = Callable[[int], tuple[int, ...]]  # the heads of each seed

HEAD_QUANTITIES = {
    "good": "heads that are good: they converge with all data",
    "bad": "heads that are bad: they converge with none",
    "share_learnt": "runs of a head that converge",
    "low": f"heads that author's code calls bad: word accuracy below {LOW} at step {JUDGED} with all data",
}
QUANTITIES = {
    "learnt": f"seeds that converge (word accuracy {CONVERGED} within {JUDGED} steps)",
    "low": f"seeds with a word accuracy below {LOW} at step {JUDGED}",
    "learnt_at_last": f"seeds at {CONVERGED} at any time",
    "accuracy": "word accuracy at the end",
}


# Single heads: good or bad? ------------------------------------------------------------------------------------------


def experiments(sizes: Sizes) -> dict[str, PerSeed]:
    """Return groups of heads, one per seed in each."""
    heads = sizes.toys.heads
    return {
        f"base {base}, heads {ascii_uppercase[group]}": partial(trial, sizes.toys, base, APART * group)
        for base in heads.bases
        for group in range(heads.groups)
    }


def trial(sizes: ToySizes, base: int, first: int, seed: int) -> Case:
    """Return a single head, with several data streams of its own."""
    head, streams = (first + seed,), range(sizes.heads.data_seeds)
    data = {f"data {i}": FRESH * (i + 1) + first for i in streams}  # to which the seed is added
    return Case({part: with_heads(sizes, base, head, sizes.heads.steps, begin) for part, begin in data.items()})


def measure(what: Run | TrainedCase) -> Measurement:
    return outcome_of_head(what) if isinstance(what, TrainedCase) else outcome(what)


def outcome_of_head(tried: TrainedCase) -> Measurement:
    """Return whether a head is good or bad with all data; otherwise it is neither."""
    runs = list(tried.runs.values())
    outcomes = [outcome(run) for run in runs]
    start = runs[0].experiment.start
    return {
        "base": start.weights,
        "head": start.heads[0],
        "good": all(each["learnt"] for each in outcomes),
        "bad": not any(each["learnt"] for each in outcomes),
        "low": all(each["low"] for each in outcomes),
        "share_learnt": float(np.mean([each["learnt"] for each in outcomes])),
    }


def outcome(run: Run) -> Measurement:
    curve = Curve.of(run)
    return {
        "base": run.experiment.start.weights,
        "learnt": curve.reaches(CONVERGED, JUDGED),
        "low": curve.at(JUDGED) < LOW,
        "learnt_at_last": bool(curve.accuracy.max() >= CONVERGED),
        "accuracy": float(curve.accuracy[-1]),
        "picture": curve.picture,
    }


def tried(measured: Measurements) -> dict[int, list[Measurement]]:
    """Return the heads that were tried, by base."""
    heads = [each for label in measured for each in measured[label] if "head" in each]
    bases = dict.fromkeys(int(each["base"]) for each in heads)
    return {base: [each for each in heads if each["base"] == base] for base in bases}


def pool(heads: Sequence[Measurement], kind: str) -> list[int]:
    """Return the ids of the good heads, or of the bad ones."""
    return [int(each["head"]) for each in heads if each[kind]]


# Networks of several heads -------------------------------------------------------------------------------------------


def follow_up(sizes: Sizes, measured: Measurements) -> dict[str, PerSeed]:
    """Return the conditions with enough heads, for the first base that allows most of them."""
    possible = {base: choices(heads, sizes.toys.heads.together) for base, heads in tried(measured).items()}
    base = max(possible, key=lambda base: len(possible[base]), default=sizes.toys.heads.bases[0])
    chosen = possible.get(base) or choices([], sizes.toys.heads.together)
    return {
        f"{condition}, {text}": partial(network, sizes.toys, base, combine, heads)
        for combine, text in COMBINATIONS.items()
        for condition, heads in chosen.items()
    }


def choices(heads: Sequence[Measurement], count: int) -> dict[str, Choice]:
    """Return how each condition chooses its heads, where there are enough."""
    good, bad = pool(heads, "good"), pool(heads, "bad")
    found: dict[str, Choice] = {}
    if len(bad) >= count:
        found[ALL_BAD] = partial(bad_heads, bad, count)
    if good and len(bad) >= count - 1:
        found[ONE_GOOD] = partial(one_good_head, good, bad, count)
    found[RANDOM] = partial(random_heads, count)
    return found


def network(sizes: ToySizes, base: int, combine: str, heads: Choice, seed: int) -> Experiment:
    return with_heads(sizes, base, heads(seed), sizes.heads.shown, data=0, combine=combine)


def random_heads(count: int, seed: int) -> tuple[int, ...]:
    """Return heads that were never tried."""
    return tuple(range(FRESH + count * seed, FRESH + count * (seed + 1)))


def bad_heads(bad: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return random bad heads, none twice."""
    return tuple(np.random.default_rng(seed).permutation(bad)[:count].tolist())


def one_good_head(good: Sequence[int], bad: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return a good head, each in turn, and then bad ones."""
    return good[seed % len(good)], *bad_heads(bad, count - 1, seed)


# Claims and figure -------------------------------------------------------------------------------------------------


def networks(measured: Measurements, text: str) -> Measurements:
    """Return networks of several heads whose contexts are summed, or averaged, by condition."""
    labels = {condition: f"{condition}, {text}" for condition in PAINT}
    return Measurements({condition: measured[label] for condition, label in labels.items() if label in measured})


def table(measured: Measurements) -> list[Row]:
    alone = [
        row(model=f"one head, base {base}", quantity=text, values=[each[name] for each in heads])
        for base, heads in tried(measured).items()
        for name, text in HEAD_QUANTITIES.items()
    ]
    several = Measurements({label: measured[label] for label in measured if "base" not in label})
    return alone + several.table(QUANTITIES)


ONE_HEAD = "one head, of any kind"
Learnt = Mapping[str, Sequence[float]]  # by condition: 1 for every seed that converges
# What is claimed, of which conditions, and how it is judged.
CLAIMS: tuple[tuple[str, set[str], Callable[[str, Learnt], ClaimVerdict]], ...] = (
    (
        "if all heads start badly, the network is likely to fail: at most half of the seeds converge",
        {ALL_BAD},
        lambda text, learnt: at_most(text, learnt[ALL_BAD], 0.5),
    ),
    (
        "if one of them starts well, it is likely to learn: at least half of the seeds converge",
        {ONE_GOOD},
        lambda text, learnt: at_least(text, learnt[ONE_GOOD], 0.5),
    ),
    (
        "if they start at random, it learns with high chance: at least 90 % of the seeds converge",
        {RANDOM},
        lambda text, learnt: at_least(text, learnt[RANDOM], 0.9),
    ),
    (
        "one good head helps: more seeds converge than if all are bad",
        {ONE_GOOD, ALL_BAD},
        lambda text, learnt: more_than(text, learnt[ONE_GOOD], learnt[ALL_BAD]),
    ),
    (
        "several random heads converge more often than one",
        {RANDOM},
        lambda text, learnt: more_than(text, learnt[RANDOM], learnt[ONE_HEAD]),
    ),
)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    heads = tried(measured)
    return [
        verdict for text in COMBINATIONS.values() for verdict in claims_about(networks(measured, text), heads, text)
    ]


def claims_about(found: Measurements, heads: Mapping[int, Sequence[Measurement]], how: str) -> list[ClaimVerdict]:
    """Return each claim; untested where one of its conditions is missing."""
    bases = {int(each["base"]) for condition in found for each in found[condition]}
    alone = [each["share_learnt"] for base in bases for each in heads[base]]
    learnt = {condition: found.values(condition, "learnt") for condition in found} | {ONE_HEAD: alone}
    missing = untested_for_lack_of(heads)
    return [
        judge(f"contexts {how}: {text}", learnt) if needed <= learnt.keys() else missing(f"contexts {how}: {text}")
        for text, needed, judge in CLAIMS
    ]


def untested_for_lack_of(heads: Mapping[int, Sequence[Measurement]]) -> Callable[[str], ClaimVerdict]:
    counts = {base: [len(pool(each, kind)) for kind in ("good", "bad")] for base, each in heads.items()}
    found = "; ".join(f"base {base}: {good} good, {bad} bad" for base, (good, bad) in counts.items())
    return partial(untested, why=f"too few heads were found with any base to build such networks ({found})")


def figure(measured: Measurements) -> dict[str, CurvePictures]:
    several = {text: networks(measured, text) for text in COMBINATIONS.values()}
    return {text: pictures(found, list(found)) for text, found in several.items()}


def draw(data: Mapping[str, CurvePictures]) -> Figure:
    picture, axes = plots.panels(1, len(data), size=(5.4, 3.4))
    for (text, curves), ax in zip(data.items(), axes, strict=True):
        paint = {condition: colour for condition, colour in PAINT.items() if condition in curves}
        draw_curves(curves, paint, ax, last_step(curves), f"first weights of heads; contexts {text}")
    return picture


FIG6 = Finding(
    name="fig6",
    title="Several heads learn because one of them starts well",
    section="§5.2, figure 6",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        f"A head is good if, alone, it brings the word accuracy to {CONVERGED} within {JUDGED} steps (author's code) "
        "with every stream of data that it is tried on, and bad if it does with none; some are neither. Each head has "
        "streams of its own (in the profile quick one, which says little about a head).",
        "All other weights start the same in every run of a base, with one head or several; the networks of several "
        "heads have the first base that allows most of the three conditions, and see data that no head was chosen by. "
        "A condition for which too few heads were found is left out, and the claims about it are untested.",
        "We had set, before any run, to call a head bad as the author's code does: a word accuracy below "
        f"{LOW} at step {JUDGED}. In the first full run only 9 of 200 heads were, since a network of ours that has not "
        "found the attention is at about 0.6 by then, and no network could be built of so few. So we took the paper's "
        "words: a head is bad if training with it does not converge. At full size no network of bad heads had been "
        "trained at that time.",
        "Contexts are summed as in eq. 21. The author's script for this figure averages them, gives each head a "
        "projection of its own and uses GRUs; averaging is shown beside.",
        "What this does not show: how good and bad starts differ.",
    ),
    follow_up=follow_up,
    seeds=lambda sizes: sizes.toys.seeds,
)  # fmt: skip
