"""Do several heads help because one of them starts well? (snell2021 §5.2, eq. 20 and 21, figure 6)

First, single heads are tried on permutations: all weights start alike but for W, and what comes of it says whether this
W was a good start or a bad one. Then networks of eight heads are put together from what was found. With some weights
around it nearly any W is good, with others nearly none, so that heads are tried with several such bases; the networks
then have the first base with which enough were found of both kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.claims import Verdict, at_least, more_than, untested
from attnscope.studies.finding import Case, Finding, ForSeed, Measured, Measurement, Subject
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.studies.snell2021.learning import BLUE, GREEN, RED, Curve, draw_curves, last_step, pictures
from attnscope.studies.snell2021.toys import ToySizes, with_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GOOD, BAD, JUDGED = 0.95, 0.6, 200  # author's code: good if better at any evaluation; bad if worse at this step
ALL_BAD, ONE_GOOD, RANDOM = "all bad", "one good", "random"
PAINT = {ALL_BAD: RED, ONE_GOOD: BLUE, RANDOM: GREEN}

# Seeds of the run say which data it sees, those of a head how W starts. Each has ranges of its own, wide enough for any
# number of seeds, so that nothing is judged by data, nor called random by heads, that served to choose.
APART = 1_000
FRESH_DATA, FRESH_HEADS = 100 * APART, 100 * APART

Choice = Callable[[int], tuple[int, ...]]  # the heads of each seed

HEAD_QUANTITIES = {"good": "heads that are good in all data", "bad": "heads that are bad in all data"}
QUANTITIES = {
    "learnt": f"seeds that learn (word accuracy {GOOD} within {JUDGED} steps)",
    "failed": f"seeds that fail (word accuracy below {BAD} at step {JUDGED})",
    "learnt_at_last": f"seeds at {GOOD} at any time",
    "accuracy": "word accuracy at the end",
}


# First: which heads are good, which are bad? -----------------------------------------------------------------------


def experiments(sizes: Sizes) -> dict[str, ForSeed]:
    """Groups of heads, in each one a seed."""
    heads = sizes.toys.heads
    return {
        f"base {base}, heads {ascii_uppercase[group]}": partial(trial, sizes.toys, base, APART * group)
        for base in heads.bases
        for group in range(heads.groups)
    }


def trial(sizes: ToySizes, base: int, first: int, seed: int) -> Case:
    """One head, alone, with several streams of data."""
    head, streams = (first + seed,), range(sizes.heads.data_seeds)
    return Case({f"data {i}": with_heads(sizes, base, head, sizes.heads.steps, data=APART * i) for i in streams})


def measure(what: Run | Subject) -> Measurement:
    return outcome_of_head(what) if isinstance(what, Subject) else outcome(what)


def outcome_of_head(tried: Subject) -> Measurement:
    """Good or bad if all data say so; otherwise neither."""
    runs = list(tried.runs.values())
    outcomes = [outcome(run) for run in runs]
    start = runs[0].experiment.start
    return {
        "base": start.weights,
        "head": start.heads[0],
        "good": all(each["learnt"] for each in outcomes),
        "bad": all(each["failed"] for each in outcomes),
        "share_learnt": float(np.mean([each["learnt"] for each in outcomes])),
    }


def outcome(run: Run) -> Measurement:
    curve = Curve.of(run)
    return {
        "base": run.experiment.start.weights,
        "learnt": curve.reaches(GOOD, JUDGED),
        "failed": curve.at(JUDGED) < BAD,
        "learnt_at_last": bool(curve.accuracy.max() >= GOOD),
        "accuracy": float(curve.accuracy[-1]),
        "picture": curve.picture,
    }


def tried(measured: Measured) -> dict[int, list[Measurement]]:
    """The heads that were tried, by base."""
    heads = [each for label in measured if label not in PAINT for each in measured[label]]
    bases = dict.fromkeys(int(each["base"]) for each in heads)
    return {base: [each for each in heads if each["base"] == base] for base in bases}


def pool(heads: Sequence[Measurement], kind: str) -> list[int]:
    """The good ones, or the bad ones."""
    return [int(each["head"]) for each in heads if each[kind]]


# Then: what becomes of eight? --------------------------------------------------------------------------------------


def follow_up(sizes: Sizes, measured: Measured) -> dict[str, ForSeed]:
    """The conditions for which enough heads were found, with the first base that allows most of them."""
    possible = {base: choices(heads, sizes.toys.heads.together) for base, heads in tried(measured).items()}
    base = max(possible, key=lambda base: len(possible[base]), default=sizes.toys.heads.bases[0])
    chosen = possible.get(base) or choices([], sizes.toys.heads.together)
    return {condition: partial(network, sizes.toys, base, heads) for condition, heads in chosen.items()}


def choices(heads: Sequence[Measurement], count: int) -> dict[str, Choice]:
    """How each condition finds its heads, where there are enough."""
    good, bad = pool(heads, "good"), pool(heads, "bad")
    found: dict[str, Choice] = {}
    if len(bad) >= count:
        found[ALL_BAD] = partial(bad_heads, bad, count)
    if good and len(bad) >= count - 1:
        found[ONE_GOOD] = partial(one_good_head, good, bad, count)
    found[RANDOM] = partial(random_heads, count)
    return found


def network(sizes: ToySizes, base: int, heads: Choice, seed: int) -> Experiment:
    return with_heads(sizes, base, heads(seed), sizes.heads.shown, data=FRESH_DATA)


def random_heads(count: int, seed: int) -> tuple[int, ...]:
    """Never tried before."""
    return tuple(range(FRESH_HEADS + count * seed, FRESH_HEADS + count * (seed + 1)))


def bad_heads(bad: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Any of them, none twice."""
    return tuple(np.random.default_rng(seed).permutation(bad)[:count].tolist())


def one_good_head(good: Sequence[int], bad: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """First the good one, each in its turn; then bad ones."""
    return good[seed % len(good)], *bad_heads(bad, count - 1, seed)


# What it says ------------------------------------------------------------------------------------------------------


def conditions(measured: Measured) -> Measured:
    return Measured({label: measured[label] for label in PAINT if label in measured})


def table(measured: Measured) -> list[Row]:
    alone = [
        row(model=f"one head, base {base}", quantity=text, values=[each[name] for each in heads])
        for base, heads in tried(measured).items()
        for name, text in HEAD_QUANTITIES.items()
    ]
    return alone + conditions(measured).table(QUANTITIES)


def claims(measured: Measured) -> list[Verdict]:
    alone = [each["share_learnt"] for each in heads_around(measured)]
    return [
        likely(
            "if all heads start badly, the network is likely to fail: at least half of the seeds",
            measured,
            ALL_BAD,
            0.5,
        ),
        likely(
            "if one of them starts well, it is likely to learn: at least half of the seeds", measured, ONE_GOOD, 0.5
        ),
        likely("with heads at random it learns with high chance: at least 90 % of the seeds", measured, RANDOM, 0.9),
        more_often("one good head helps: it learns more often than if all are bad", measured, ONE_GOOD, ALL_BAD),
        more_than("several random heads learn more often than one", measured.values(RANDOM, "learnt"), alone),
    ]


def likely(text: str, measured: Measured, condition: str, share: float) -> Verdict:
    if condition not in measured:
        return missing(text, measured)
    wanted = "failed" if condition == ALL_BAD else "learnt"
    return at_least(text, measured.values(condition, wanted), share)


def more_often(text: str, measured: Measured, condition: str, other: str) -> Verdict:
    if condition not in measured or other not in measured:
        return missing(text, measured)
    return more_than(text, measured.values(condition, "learnt"), measured.values(other, "learnt"))


def missing(text: str, measured: Measured) -> Verdict:
    found = {base: [len(pool(heads, kind)) for kind in ("good", "bad")] for base, heads in tried(measured).items()}
    counts = "; ".join(f"base {base}: {good} good, {bad} bad" for base, (good, bad) in found.items())
    return untested(text, f"too few heads were found with any base to build such networks ({counts})")


def heads_around(measured: Measured) -> list[Measurement]:
    """The single heads that were tried with the base that the networks of several have."""
    return tried(measured).get(int(measured.first(RANDOM)["base"]), []) if measured[RANDOM] else []


def draw(data: Mapping[str, Any]) -> "Figure":
    picture, (ax,) = plots.panels(size=(6.6, 3.6))
    paint = {label: colour for label, colour in PAINT.items() if label in data}
    draw_curves(data, paint, ax, last_step(data), "networks of several heads, by how these start")
    return picture


FIG6 = Finding(
    name="fig6",
    title="Several heads learn because one of them starts well",
    section="§5.2, figure 6",
    experiments=experiments,
    measure=measure,
    table=table,
    claims=claims,
    figure=lambda measured: pictures(measured, list(conditions(measured))),
    draw=draw,
    notes=(
        f"A head is good if, alone, it brings the word accuracy to {GOOD} within {JUDGED} steps, and bad if the "
        f"accuracy is below {BAD} at step {JUDGED} (author's code), with every stream of data that it is tried on; "
        "some are neither. All other weights start the same in every run of a base, with one head or several; the "
        "networks of several heads have the first base that allows most of the three conditions. They see data that no "
        "head was chosen by.",
        "A condition for which too few heads were found is left out, and the claims about it are untested.",
        "Contexts of heads are summed (eq. 21) and heads have no values of their own; the author's script for this "
        "figure averages them, gives each a projection and uses GRUs. We follow the paper.",
        "What this does not show: how good and bad starts differ.",
    ),
    follow_up=follow_up,
    seeds=lambda sizes: sizes.toys.seeds,
)
