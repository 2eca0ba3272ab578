"""What do adapters of Hugging Face models have in common?"""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from attnscope.models.adapters.families import Family
from attnscope.models.adapters.interventions import by_layer
from attnscope.models.adapters.numbering import Numbering
from attnscope.models.adapters.reader import Reader
from attnscope.models.adapters.recording import Recorder, recording, transformers
from attnscope.models.capabilities import EmbedsSource, GivesTrace, HasLayers, ReadsOut, ReadsTexts, SelfAttends
from attnscope.models.inference import evaluating
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import Batch

# What the library is asked for. Hidden states are not: it would leave hooks in the model for good.
PLAIN = {"return_dict": True, "output_attentions": False, "output_hidden_states": False}


class SourceInputs(nn.Module):
    """The words of the source as vectors, as the encoder takes them in before it adds positions."""

    def __init__(self, words: nn.Module, numbering: Numbering, scale: float):
        super().__init__()
        self.words, self.numbering, self.scale = words, numbering, scale

    def forward(self, source: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source input"]:
        embedded: Tensor = self.words(self.numbering.ids_of(source))
        return embedded if self.scale == 1 else embedded * self.scale


class HuggingFace(GivesTrace, ReadsOut, EmbedsSource, ReadsTexts, HasLayers, SelfAttends, nn.Module, ABC):
    """A Hugging Face model as a giver of Traces. It is always asked in evaluation mode."""

    rows: int | None = None  # how many queries the trace shows; None: all
    readout_is_exact = True  # nothing behind the last layer looks at another position: a readout says what a pass would

    def __init__(self, model: Any, reader: Reader, family: Family, heads: int):
        super().__init__()
        transformers()
        self.model, self.reader, self.family, self.heads = model, reader, family, heads
        self.depth = len(family.attentions(model))
        encoder = model.get_encoder() if model.config.is_encoder_decoder else model
        words = encoder.get_input_embeddings()
        self.source_inputs = SourceInputs(words, reader.source, getattr(encoder, "embed_scale", 1.0))

    @abstractmethod
    def forward(
        self, batch: Batch, attention: Interventions | None = None, teacher_forcing: float = 1.0, gates: bool = False
    ) -> Trace:
        """As any model's. There are no gates to show. `adapters.interventions` says what `attention` may be."""

    @abstractmethod
    def replayed(self, batch: Batch) -> Batch:
        """The same texts, and what the model itself says of them in the place of the target."""

    @abstractmethod
    def numbered(self, logits: Float[Tensor, "batch target ids"]) -> Float[Tensor, "batch target words"]:
        """Logits by number of the word."""

    def recorder(self, batch: Batch, attention: Interventions | None) -> Recorder:
        modules = self.family.attentions(self.model)
        changes = by_layer(attention, len(modules), self.heads)
        return Recorder({module: i for i, module in enumerate(modules)}, batch.source_mask, changes, self.rows)

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        """The encoder's whole self-attention, the first layer first: what rollout needs."""
        modules = self.family.self_attentions(self.model)
        recorder = Recorder({module: i for i, module in enumerate(modules)}, batch.source_mask)
        with recording(self.model, recorder):
            self.encode(self.source_inputs(batch.source), batch)
        return tuple(layer.weights for layer in recorder.attentions())

    @abstractmethod
    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> Any:
        """A pass through the encoder."""

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        """What the heads picked, side by side; the projection comes with the readout."""
        return values.transpose(1, 2).flatten(2)

    def readout(
        self, context: Float[Tensor, "batch target context"], decoder: Float[Tensor, "batch target units"] | None = None
    ) -> Float[Tensor, "batch target words"]:
        """What would be said with this context of the last layer, the state held that asked: exact."""
        with evaluating(self.model, keep_gradients=True):
            return self.numbered(self.family.said(self.model, context, decoder))
