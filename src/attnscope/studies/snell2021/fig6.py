"""Do several heads help because one of them starts well? (snell2021 §5.2, eq. 20 and 21, figure 6)

First, single heads are tried on permutations: initial weights differ in the head only, and the outcome says whether it
is a good or a bad start. Then networks of eight heads are built of these. With some base of other weights nearly any
head is good, with others nearly none, so heads are tried and networks built with several bases.

Two networks are tried: the paper's, whose contexts are summed (and, beside, averaged), and that of the author's script,
in which each head also has a layer for its values.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.claims import ClaimVerdict, more_than, proportion, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PerSeed, TrainedCase
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.studies.snell2021.toys import (
    BLUE,
    FIRST_SEED,
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
ALL_BAD, ALL_LOW, ONE_GOOD, RANDOM = "all bad", "all low", "one good", "random"
PAINT = {ALL_BAD: RED, ALL_LOW: "#CC79A7", ONE_GOOD: BLUE, RANDOM: GREEN}
PAPER = {"sum": "summed", "mean": "averaged"}  # contexts of heads, as in eq. 21 and as in the author's code
AUTHOR = {"projected": "projected and averaged"}
Combinations = Mapping[str, str]  # values of `combine` and their text; single heads have the first one's network

# Seeds of the run say which data it sees, those of a head how it starts. Each group of heads has a range of its own for
# both, and so do networks of several heads: nothing is judged by data that served to choose. If all heads were tried on
# the same few streams, their luck with these would pass for the heads'.
APART = 1_000
FRESH = 1_000_000

Choice = Callable[[int], tuple[int, ...]]  # the heads of each seed

HEAD_QUANTITIES = {
    "good": "heads that are good: they converge with all data",
    "bad": "heads that are bad: they converge with none",
    "share_learnt": "runs of a head that converge",
    "low": f"heads that are low (bad by author's code): word accuracy below {LOW} at step {JUDGED} with all data",
}
QUANTITIES = {
    "learnt": f"seeds that converge (word accuracy {CONVERGED} within {JUDGED} steps)",
    "low": f"seeds with a word accuracy below {LOW} at step {JUDGED}",
    "learnt_at_last": f"seeds at {CONVERGED} at any time",
    "accuracy": "word accuracy at the end",
}


class HeadLabel(NamedTuple):
    """A group of single heads.

    >>> str(HeadLabel(0, "A"))
    'base 0, heads A'
    """

    base: int
    group: str

    def __str__(self) -> str:
        return f"base {self.base}, heads {self.group}"


class NetworkLabel(NamedTuple):
    """Networks of several heads.

    >>> str(NetworkLabel(ALL_BAD, "summed", 1))
    'all bad, summed, base 1'
    """

    condition: str
    combined: str
    base: int

    def __str__(self) -> str:
        return f"{self.condition}, {self.combined}, base {self.base}"


# Single heads: good or bad? ------------------------------------------------------------------------------------------


def experiments(combinations: Combinations, sizes: Sizes) -> dict[HeadLabel, PerSeed]:
    """Return groups of heads, one per seed in each."""
    heads, combine = sizes.toys.heads, next(iter(combinations))
    return {
        HeadLabel(base, ascii_uppercase[group]): partial(trial, sizes.toys, combine, base, APART * group)
        for base in heads.bases
        for group in range(heads.groups)
    }


def trial(sizes: ToySizes, combine: str, base: int, first: int, seed: int) -> Case:
    """Return a single head, with several data streams of its own."""
    head, streams = (first + seed,), range(sizes.heads.data_seeds)
    data = {f"data {i}": FRESH * (i + 1) + first for i in streams}  # to which the seed is added
    steps = sizes.heads.steps
    return Case({part: with_heads(sizes, base, head, steps, begin, combine) for part, begin in data.items()})


def measure(what: Run | TrainedCase) -> Measurement:
    return outcome_of_head(what) if isinstance(what, TrainedCase) else outcome(what)


def outcome_of_head(heads_by_base: TrainedCase) -> Measurement:
    """Return whether a head is good or bad with all data; otherwise it is neither."""
    runs = list(heads_by_base.runs.values())
    outcomes = [outcome(run) for run in runs]
    return {
        "head": runs[0].experiment.start.heads[0],
        "good": all(each["learnt"] for each in outcomes),
        "bad": not any(each["learnt"] for each in outcomes),
        "low": all(each["low"] for each in outcomes),
        "share_learnt": float(np.mean([each["learnt"] for each in outcomes])),
    }


def outcome(run: Run) -> Measurement:
    curve = Curve.of(run)
    return {
        "learnt": curve.reaches(CONVERGED, JUDGED),
        "low": curve.at(JUDGED) < LOW,
        "learnt_at_last": bool(curve.accuracy.max() >= CONVERGED),
        "accuracy": float(curve.accuracy[-1]),
        "picture": curve.picture,
    }


def heads_by_base(measured: Measurements) -> dict[int, list[Measurement]]:
    """Return the heads that were tried, by base."""
    labels = [label for label in measured if isinstance(label, HeadLabel)]
    bases = dict.fromkeys(label.base for label in labels)
    return {base: [each for label in labels if label.base == base for each in measured[label]] for base in bases}


def pool(heads: Sequence[Measurement], kind: str) -> list[int]:
    """Return the ids of the good, bad or low heads."""
    return [int(each["head"]) for each in heads if each[kind]]


# Networks of several heads -------------------------------------------------------------------------------------------


def follow_up(combinations: Combinations, sizes: Sizes, measured: Measurements) -> dict[NetworkLabel, PerSeed]:
    """Return, for every base, the conditions with enough heads."""
    return {
        NetworkLabel(condition, text, base): partial(network, sizes.toys, base, combine, choice)
        for combine, text in combinations.items()
        for base, heads in heads_by_base(measured).items()
        for condition, choice in choices(heads, sizes.toys.heads.together).items()
    }


def choices(heads: Sequence[Measurement], count: int) -> dict[str, Choice]:
    """Return how each condition chooses its heads, where there are enough."""
    good, bad, low = (pool(heads, kind) for kind in ("good", "bad", "low"))
    by_condition: dict[str, Choice] = {}
    if len(bad) >= count:
        by_condition[ALL_BAD] = partial(sampled_heads, bad, count)
    if len(low) >= count:
        by_condition[ALL_LOW] = partial(sampled_heads, low, count)
    if good and len(bad) >= count - 1:
        by_condition[ONE_GOOD] = partial(one_good_head, good, bad, count)
    by_condition[RANDOM] = partial(random_heads, count)
    return by_condition


def network(sizes: ToySizes, base: int, combine: str, heads: Choice, seed: int) -> Experiment:
    return with_heads(sizes, base, heads(seed), sizes.heads.shown, data=0, combine=combine)


def random_heads(count: int, seed: int) -> tuple[int, ...]:
    """Return heads that were never tried."""
    return tuple(range(FRESH + count * seed, FRESH + count * (seed + 1)))


def sampled_heads(heads: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return random heads of these, none twice."""
    return tuple(np.random.default_rng(seed).permutation(heads)[:count].tolist())


def one_good_head(good: Sequence[int], bad: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return a good head, each in turn, and then bad ones."""
    return good[seed % len(good)], *sampled_heads(bad, count - 1, seed)


# Claims and figure -------------------------------------------------------------------------------------------------


def networks(measured: Measurements, text: str) -> Measurements:
    """Return networks of several heads whose contexts are combined so, by condition; all bases together."""
    labels = [label for label in measured if isinstance(label, NetworkLabel) and label.combined == text]
    conditions = [condition for condition in PAINT if any(label.condition == condition for label in labels)]
    return Measurements(
        {one: [each for label in labels if label.condition == one for each in measured[label]] for one in conditions}
    )


def table(measured: Measurements) -> list[Row]:
    alone = [
        row(model=f"one head, base {base}", quantity=text, values=[each[name] for each in heads])
        for base, heads in heads_by_base(measured).items()
        for name, text in HEAD_QUANTITIES.items()
    ]
    return alone + measured.only(*(label for label in measured if isinstance(label, NetworkLabel))).table(QUANTITIES)


Learnt = Mapping[str, Sequence[float]]  # by condition: 1 for every seed that converges
# What is claimed, of which conditions, and how it is judged.
CLAIMS: tuple[tuple[str, set[str], Callable[[str, Learnt], ClaimVerdict]], ...] = (
    (
        "if all heads start badly, the network is likely to fail: at most half of the seeds converge",
        {ALL_BAD},
        lambda text, learnt: proportion(text, [not one for one in learnt[ALL_BAD]]),
    ),
    (
        "the same if all heads are bad by the author's code",
        {ALL_LOW},
        lambda text, learnt: proportion(text, [not one for one in learnt[ALL_LOW]]),
    ),
    (
        "if one of them starts well, it is likely to learn: at least half of the seeds converge",
        {ONE_GOOD},
        lambda text, learnt: proportion(text, learnt[ONE_GOOD]),
    ),
    (
        "if they start at random, it learns with high chance: at least 90 % of the seeds converge",
        {RANDOM},
        lambda text, learnt: proportion(text, learnt[RANDOM], 0.9),
    ),
    (
        "one good head helps: more seeds converge than if all are bad",
        {ONE_GOOD, ALL_BAD},
        lambda text, learnt: more_than(text, learnt[ONE_GOOD], learnt[ALL_BAD]),
    ),
)
ALONE = "several random heads converge more often than one"
MARKS = {f"within {JUDGED} steps": "learnt", "at any time": "learnt_at_last"}


def claims(combinations: Combinations, measured: Measurements) -> list[ClaimVerdict]:
    heads = heads_by_base(measured)
    return [
        verdict
        for text in combinations.values()
        for verdict in claims_about(networks(measured, text), heads, f"contexts {text}")
    ]


def claims_about(
    networks_by_condition: Measurements, heads: Mapping[int, Sequence[Measurement]], how: str
) -> list[ClaimVerdict]:
    """Return each claim at each mark; untested where one of its conditions is missing."""
    missing = untested_for_lack_of(heads)
    verdicts = []
    for when, name in MARKS.items():
        learnt = {condition: networks_by_condition.values(condition, name) for condition in networks_by_condition}
        for text, required, judge in CLAIMS:
            claim = f"{how}, {when}: {text}"
            verdicts.append(judge(claim, learnt) if required <= learnt.keys() else missing(claim))
    alone = [each["share_learnt"] for of_base in heads.values() for each in of_base]
    claim = f"{how}, within {JUDGED} steps: {ALONE}"
    several = networks_by_condition.values(RANDOM, "learnt") if RANDOM in networks_by_condition else None
    return [*verdicts, missing(claim) if several is None else more_than(claim, several, alone)]


def untested_for_lack_of(heads: Mapping[int, Sequence[Measurement]]) -> Callable[[str], ClaimVerdict]:
    counts = {base: [len(pool(each, kind)) for kind in ("good", "bad", "low")] for base, each in heads.items()}
    summary = "; ".join(f"base {base}: {good} good, {bad} bad, {low} low" for base, (good, bad, low) in counts.items())
    return partial(untested, why=f"too few heads were found with any base to build such networks ({summary})")


def figure(combinations: Combinations, measured: Measurements) -> dict[str, CurvePictures]:
    several = {text: networks(measured, text) for text in combinations.values()}
    return {text: pictures(found, list(found)) for text, found in several.items()}


def draw(data: Mapping[str, CurvePictures]) -> Figure:
    picture, axes = plots.panels(1, len(data), size=(5.4, 3.4))
    for (text, curves), ax in zip(data.items(), axes, strict=True):
        paint = {condition: colour for condition, colour in PAINT.items() if condition in curves}
        draw_curves(curves, paint, ax, last_step(curves), f"first weights of heads; contexts {text}")
    return picture


NOTES = (
    f"A head is good if, alone, it brings the word accuracy to {CONVERGED} within {JUDGED} steps (author's code) with "
    "every stream of data that it is tried on, and bad if it does with none; some are neither. Each head has streams "
    "of its own (in the profile quick one, which says little about a head). Bad by the author's code are those whose "
    f"accuracy is below {LOW} at step {JUDGED} with every stream: here 'low'.",
    "All other weights start the same in every run of a base, with one head or several. Networks of several heads are "
    "built with every base that has enough heads, and see data that no head was chosen by; claims take all bases "
    "together. A condition for which too few heads were found is left out, and the claims about it are untested.",
    "The first run (seeds 0 to 19, one base, 300 steps) gave for the paper's network: eight bad heads converge in 20 "
    "of 20 seeds if contexts are summed, in none if they are averaged. These runs have other seeds, three bases and "
    "600 steps.",
    "What this does not show: how good and bad starts differ.",
)


def finding(name: str, title: str, combinations: Combinations, note: str) -> Finding:
    """Return the finding for one network."""
    return Finding(
        name=name,
        title=title,
        section="§5.2, figure 6",
        experiments=partial(experiments, combinations), measure=measure, table=table,
        claims=partial(claims, combinations), figure=partial(figure, combinations), draw=draw,
        notes=(note, *NOTES),
        follow_up=partial(follow_up, combinations),
        first_seed=FIRST_SEED,
        seeds=lambda sizes: sizes.toys.heads.seeds,
    )  # fmt: skip


FIG6 = finding(
    "fig6",
    "Several heads learn because one of them starts well",
    PAPER,
    "Contexts are summed as in eq. 21; averaging, as in the author's script, is shown beside. `fig6-author` has the "
    "network of that script.",
)
FIG6_AUTHOR = finding(
    "fig6-author",
    "Several heads learn because one of them starts well: the author's network",
    AUTHOR,
    "The network of the author's script differs from the paper's: GRUs, separate embeddings of source and target, and "
    "a layer of each head's own for its values, whose outputs are averaged. A head is then W and this layer.",
)
