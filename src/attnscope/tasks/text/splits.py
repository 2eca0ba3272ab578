"""Which sentences are for training, which to choose by, which to measure on?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnscope.errors import BadSetting, require
from attnscope.tasks.text.rows import SPLIT, UNSPLIT

PARTS = ("training", "validation", "test")


@dataclass(frozen=True)
class Splits:
    """The splits as published, by their names there; one without a name is drawn from the training split by seed.

    What is drawn is distinct: sentences with the same source, but for case and spacing, stay together. The same
    published split may serve two parts, as where a paper validates on a sample of the test set.
    """

    training: tuple[str, ...] = (UNSPLIT,)
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    field: str = SPLIT
    validation_share: float = 0.1  # of the distinct sources of the training split, where validation has no name
    test_share: float = 0.1
    max_validation: int | None = None  # a sample of so many sentences stands for the whole validation split
    max_test: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(bool(self.training), "splits must name the published split to train on, such as 'train' or 'all'")
        for name in ("validation_share", "test_share"):
            share = getattr(self, name)
            require(0 < share < 1, f"{name} must be between 0 and 1, not {share}")
        require(self.validation_share + self.test_share < 1, "the two shares leave nothing to train on")
        for name in ("max_validation", "max_test"):
            most = getattr(self, name)
            require(most is None or most > 0, f"{name} must be positive or None, not {most}")
        require(self.seed >= 0, f"the seed of a split must not be negative, but is {self.seed}")
        shared = set(self.training) & {*self.validation, *self.test}
        require(not shared, f"{', '.join(sorted(shared))} cannot be trained on and measured on as well")


def split(published: Sequence[str], sources: Sequence[str], splits: Splits, file: str) -> dict[str, np.ndarray]:
    """The numbers of the rows in each part, in the order of the file.

    `published` is the split that each row names, `sources` its source sentence.
    """
    rows = {part: named(published, getattr(splits, part), part, file) for part in PARTS if getattr(splits, part)}
    rows |= drawn(rows["training"], sources, splits)
    for number, part in enumerate(("validation", "test")):
        most = getattr(splits, f"max_{part}")
        if most is not None and len(rows[part]) > most:
            random = np.random.default_rng((splits.seed, 1 + number))
            rows[part] = np.sort(random.choice(rows[part], most, replace=False))
    for part in PARTS:
        require(len(rows[part]) > 0, f"the {part} split of {file} is empty: there are too few sentences to draw from")
    return rows


def named(published: Sequence[str], names: tuple[str, ...], part: str, file: str) -> np.ndarray:
    counts = Counter(published)
    for name in names:
        if name not in counts:
            there = ", ".join(f"{split} ({count} rows)" for split, count in counts.items()) or "none"
            raise BadSetting(
                f"{file} has no split {name!r} for {part}; its splits are {there}. Name them in Splits, or leave "
                "validation or test empty to have them drawn"
            )
    return np.flatnonzero(np.isin(np.array(published), names))


def drawn(pool: np.ndarray, sources: Sequence[str], splits: Splits) -> dict[str, np.ndarray]:
    """Validation and test rows drawn from the training rows, where they have no name, and what is left to train on."""
    shares = {part: getattr(splits, f"{part}_share") for part in ("validation", "test") if not getattr(splits, part)}
    if not shares:
        return {}
    group = groups([sources[i] for i in pool])
    order = np.random.default_rng((splits.seed, 0)).permutation(group.max() + 1)
    parts, start = {}, 0
    for part, share in shares.items():
        stop = start + round(share * len(order))
        parts[part] = pool[np.isin(group, order[start:stop])]
        start = stop
    return parts | {"training": pool[np.isin(group, order[start:])]}


def groups(sources: Sequence[str]) -> np.ndarray:
    """The number of each source among the distinct ones.

    >>> groups(["Hi.", "Run!", "hi. "]).tolist()
    [0, 1, 0]
    """
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(" ".join(source.split()).casefold(), len(numbers)) for source in sources])
