"""Where is one batch after the other taken apart, without asking for the memory each time?"""

from collections.abc import Sequence
from math import prod

from torch import Tensor


class Workspace:
    """Memory that is kept from batch to batch: to get it anew costs as much as to fill it.

    What was written there lasts until the next call.
    """

    def __init__(self) -> None:
        self.memory: Tensor | None = None

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialised tensor of the same type and on the same device as another."""
        memory, size = self.memory, prod(shape)
        if memory is None or len(memory) < size or memory.dtype != like.dtype or memory.device != like.device:
            self.memory = memory = like.new_empty(size)
        return memory[:size].view(*shape)
