"""What does IBM Model 1 count? The table behind figures 1, 4, 5 and 8. (snell2021 §4.2, §4.3)

C (eq. 16) counts how often an input and an output word occur together; Trans (eq. 17) are its rows as shares; of a pair
of sentences, β (eq. 18) is Trans(y_t | x_l), and α (eq. 19) is β over its sum over l.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csc_array

from attnscope.models.ibm import Bags
from attnscope.tasks import END, Batch, Task


def bags_of(task: Task, batches: Iterable[Batch]) -> Bags:
    return Bags.of(map(without_ends, batches), len(task.source_words), len(task.target_words))


def without_ends(batch: Batch) -> Batch:
    """End tokens occur with every word and say nothing: they are not counted."""
    return replace(
        batch,
        source_mask=batch.source_mask & (batch.source != END),
        target_mask=batch.target_mask & (batch.target != END),
    )


def entries(table: csc_array, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
    """A few rows and columns of a large table."""
    return np.asarray(table.tocsr()[list(rows)].tocsc()[:, list(columns)].toarray())
