"""What must a model do to be asked everything? The contract of an adapter.

A model that follows it can be given to every probe; `attnscope.testing.check_adapter` says whether it does. What it
takes is a Batch: numbers of words, of which 0 is padding, 1 the end and 2 the start of a sentence (a model with other
numbers translates them, see `numbering`), with masks that are true on what is no padding; sentences are padded on the
right. A classifier says one word: class k is the target word k + 3, and the three special words are never said (their
logits are -inf).
"""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from attnscope.models.adapters.interventions import Interventions
from attnscope.models.asking import Asked
from attnscope.models.trace import Trace
from attnscope.tasks.batch import Batch


@runtime_checkable
class Adapter(Protocol, metaclass=Asked):
    """A giver of Traces."""

    @property
    def source_inputs(self) -> nn.Module:
        """Embeds the source; called on `batch.source` itself, once in a forward pass. Saliency takes hold of it."""
        ...

    def __call__(
        self, batch: Batch, attention: Interventions | None = None, teacher_forcing: float = 1.0, gates: bool = False
    ) -> Trace:
        """A forward pass. `attention` is put in the place of the model's own weights before values are mixed."""
        ...

    def context_of(self, values: Tensor) -> Tensor:
        """The context (batch x target x context) that follows from what heads picked: batch x heads x target x value.

        That of the last layer, as trace.context is.
        """
        ...

    def readout(self, context: Tensor, decoder: Tensor | None = None) -> Tensor:
        """The logits with this context, the decoder state held; with the context and state of a trace, its logits."""
        ...
