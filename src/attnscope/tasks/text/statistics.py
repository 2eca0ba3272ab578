"""How large is a corpus as it was prepared? (snell2021 table 9)"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnscope.tasks.batch import SPECIALS, lengths
from attnscope.tasks.text.classification import Classification
from attnscope.tasks.text.corpus import Part
from attnscope.tasks.text.splits import PARTS
from attnscope.tasks.text.task import TextTask
from attnscope.tasks.text.words import UNKNOWN


def statistics(task: TextTask) -> pd.DataFrame:
    """One row a split: sentences, their lengths without special words, vocabularies, and what was left out or cut.

    `repeated` counts sentences whose source, in numbers, is in the training split too; `left_out` counts the rows of
    the file that the settings do not ask for, by their class or their split.
    """
    return pd.DataFrame([{"split": name} | described(task, name) for name in PARTS]).set_index("split")


def described(task: TextTask, name: str) -> dict[str, float | None]:
    part = task.part(name)
    row: dict[str, float | None] = {"sentences": len(part)}
    row |= measured("source", part.source, task.marks[0].count)
    row |= {"source_vocabulary": len(task.source_vocabulary), "unknown": unknown(part.source)}
    if isinstance(task, Classification):
        row |= {"classes": len(task.classes), "largest_class": largest_class(part)}
    else:
        row |= measured("target", part.target, task.marks[1].count)
        row |= {"target_vocabulary": len(task.target_vocabulary)}
    row |= {"longest_allowed": task.preparation.max_length}
    row |= {"empty": part.lost.empty, "dropped": part.lost.dropped, "truncated": part.lost.truncated}
    return row | {"repeated": repeated(task, name), "left_out": task.corpus.left_out}


def measured(side: str, numbers: Sequence[np.ndarray], specials: int) -> dict[str, float | None]:
    words = lengths(numbers) - specials
    return {
        f"{side}_mean": float(words.mean()),
        f"{side}_median": float(np.median(words)),
        f"{side}_longest": int(words.max()),
    }


def unknown(numbers: Sequence[np.ndarray]) -> float:
    """The share of running words that are unknown."""
    words = np.concatenate(numbers)
    words = words[words >= len(SPECIALS)]
    return float((words == UNKNOWN).mean())


def largest_class(part: Part) -> float:
    return float(np.bincount(np.concatenate(part.target)).max() / len(part))


def repeated(task: TextTask, name: str) -> int:
    if name == "training":
        return 0
    trained_on = {row.tobytes() for row in task.part("training").source}
    return sum(row.tobytes() in trained_on for row in task.part(name).source)
