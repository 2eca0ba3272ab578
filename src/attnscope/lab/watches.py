"""Which probes can be watched during training, by name?"""

from collections.abc import Mapping

from torch import nn

from attnscope.probes.decomposition import decompose
from attnscope.tasks import Task
from attnscope.training.fit import Watch


def shares(model: nn.Module, task: Task) -> Mapping[str, float]:
    """How much of the alignment each of the nine terms makes (aitken2021 eq. 3)."""
    raise NotImplementedError


WATCHES: dict[str, Watch] = {"shares": shares}
