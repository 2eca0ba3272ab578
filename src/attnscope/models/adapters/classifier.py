"""What does the classification token of a Hugging Face classifier attend to, layer by layer?

A trace shows its row of each layer's self-attention: one target word, the class. The rows of other tokens are neither
shown nor changed. As in an encoder-decoder, the decoder state s is what asks: the classification token's residual
stream as it comes to the last layer.
"""

import math
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from attnscope.models.adapters.families import CLASSIFIERS, Encoder
from attnscope.models.adapters.hugging_face import PLAIN, HuggingFace
from attnscope.models.adapters.reader import ClassReader
from attnscope.models.adapters.recording import recording, watching
from attnscope.models.inference import evaluating
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import SPECIALS, Batch


class HFClassifier(HuggingFace):
    """BERT, and MiniLM, which is one; RoBERTa and XLM-RoBERTa; DistilBERT: with any number of classes."""

    reader: ClassReader
    family: Encoder
    rows = 1  # the classification token comes first

    def __init__(self, model: Any, reader: ClassReader):
        super().__init__(model, reader, CLASSIFIERS[model.config.model_type], model.config.num_attention_heads)

    def forward(
        self, batch: Batch, attention: Interventions | None = None, teacher_forcing: float = 1.0, gates: bool = False
    ) -> Trace:
        """As any model's; there is no decoder to be taught."""
        recorder, states = self.recorder(batch, attention), list[Tensor]()
        with recording(self.model, recorder), watching(self.family.asks(self.model), states):
            embedded = self.source_inputs(batch.source)
            encoder = self.encode(embedded, batch).last_hidden_state
            logits = self.family.decided(self.model, encoder[:, : self.rows])
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=encoder,
            decoder=states[0][:, : self.rows],
            layers=recorder.attentions(),
            context=self.context_of(recorder.mixed[self.depth - 1]),
            logits=self.numbered(logits),
        )

    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> Any:
        return self.model.base_model(inputs_embeds=embedded, attention_mask=batch.source_mask.long(), **PLAIN)

    def numbered(self, logits: Float[Tensor, "batch target classes"]) -> Float[Tensor, "batch target words"]:
        """Special words are never said."""
        return pad(logits, (len(SPECIALS), 0), value=-math.inf)

    def replayed(self, batch: Batch) -> Batch:
        """The same texts, and the class that the model decides for."""
        with evaluating(self.model):
            return replace(batch, target=self(batch).predictions)
