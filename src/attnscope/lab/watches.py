"""Which probes can be watched during training, by name?"""

from collections.abc import Mapping

from torch import nn

from attnscope.probes import decomposed
from attnscope.tasks import Task
from attnscope.training.fit import Watch


def shares(model: nn.Module, task: Task) -> Mapping[str, float]:
    """The main numbers of the decomposition, first head (aitken2021 §4.1)."""
    row = decomposed(model, task).in_sample.table().iloc[0]
    return {str(name): float(value) for name, value in row.items()}


WATCHES: dict[str, Watch] = {"shares": shares}
