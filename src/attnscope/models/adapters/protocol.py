"""The class that an adapter for a model of one's own inherits.

It can be given to every probe whose needs it declares (see `capabilities`); `attnscope.testing.check_adapter` says
whether it keeps its promises. A Batch holds token ids with masks that are true on what is no padding; sentences are
padded on the right. Target ids 0, 1 and 2 are padding, end and start of a sentence. A classifier has one target token:
class k is the id k + 3, and the logits of the three special ids are -inf.
"""

from abc import ABC, abstractmethod

from torch import nn

from attnscope.models.capabilities import GivesTrace
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import Batch


class Adapter(GivesTrace, nn.Module, ABC):
    """A model whose forward pass gives a Trace. Inherit further capabilities with their methods."""

    @abstractmethod
    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass; `attention` replaces the model's own weights before values are mixed."""
