"""What a model can do, declared by inheritance. A probe states what it needs, and `needs` checks it.

    class MyClassifier(GivesTrace, ReadsOut, EmbedsSource, nn.Module): ...

    needs(model, ReadsOut, by="the lexical probe")

None has state or an `__init__`, so they may be combined in any order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models.trace import AttentionRows, Interventions, Trace
from attnscope.tasks.batch import Batch
from attnscope.tasks.task import Task

if TYPE_CHECKING:
    from attnscope.models.adapters.readers import Chat, Reader, Source, Target


# The decoder's input at each step: the gold token before it, or the token that it predicted.
Decoding = Literal["teacher_forced", "greedy"]


class Decodings(dict[Decoding, float]):
    """By decoding, the probability of the gold token; any other name raises BadSetting."""

    def __missing__(self, name: Decoding) -> float:
        raise BadSetting(f"there is no decoding {name!r}; choose one of {', '.join(self)}")


TEACHER_FORCING = Decodings({"teacher_forced": 1.0, "greedy": 0.0})


class MissingCapability(AttnscopeError):
    """A probe needs something that the model does not declare."""


class _Forward:
    decoding: Decoding = "teacher_forced"  # what `teacher_forcing=None` means

    def gold_probability(self, teacher_forcing: float | None) -> float:
        """Return the probability that the decoder is given the gold token, where None means: by `decoding`."""
        return TEACHER_FORCING[self.decoding] if teacher_forcing is None else teacher_forcing

    if TYPE_CHECKING:

        def __call__(
            self,
            batch: Batch,
            attention: Interventions | None = None,
            teacher_forcing: float | None = None,
            gates: bool = False,
        ) -> Trace:
            """Run a forward pass.

            Args:
                batch: Token ids of source and target, with masks.
                attention: Weights to use in place of the model's own (batch x heads x target x source), or a function
                    of (weights, mask) that returns them; a model that HasLayers also takes {layer: ...} and
                    {(layer, head): ...}.
                teacher_forcing: The probability that the decoder is given the gold token; None: by `decoding`.
                gates: Whether the trace holds the gates of recurrent cells.
            """


class GivesTrace(_Forward):
    """A forward pass over a Batch returns a Trace."""


class GivesLogits(_Forward):
    """Logits without a Trace: a pass that records nothing, for probes that need only the output."""

    tokens_at_once: int = 1 << 10  # more in one pass are no faster on a CPU

    def logits(self, batch: Batch, teacher_forcing: float | None = None) -> Float[Tensor, "batch target words"]:
        """Return the logits of a forward pass, as a trace has them."""
        raise NotImplementedError


class ReadsOut(_Forward):
    """Logits can be computed from a context in place of the one of a forward pass."""

    # Whether a readout equals a forward pass with that attention even where there is a decoder state. (Without one, as
    # in a classifier, it always does.)
    readout_is_exact: bool = False

    def context_of(self, values: Float[Tensor, "batch heads target value"]) -> Float[Tensor, "batch target context"]:
        """Return the context that follows from the mixed values of each head of the last layer."""
        raise NotImplementedError

    def readout(
        self, context: Float[Tensor, "*any context"], decoder: Float[Tensor, "*any units"] | None = None
    ) -> Float[Tensor, "*any words"]:
        """Return the logits with this context, the decoder state held; with a trace's own, the trace's logits."""
        raise NotImplementedError


class EmbedsSource(_Forward):
    """The source embedding is a module, called on `batch.source` itself, once in a forward pass."""

    source_inputs: nn.Module


class MasksInPlace(_Forward):
    """Source positions that are masked are not read, wherever they are, and all others keep their positions.

    So a word can be removed without moving those behind it, as deleting it from the text would.
    """


class Generates(_Forward):
    """Outputs can be generated without a target."""

    def generate(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        max_length: int,
        **options: object,
    ) -> Int[Tensor, "batch generated"]:
        """Return token ids of up to `max_length` steps; END and all that follows it are END.

        `options` are those of a search, where the model has any.
        """
        raise NotImplementedError


class PredictsNextToken(_Forward):
    """A language model: target tokens are predicted from the last positions of the source, one each.

    A position attends to itself and to those before it. Where there are several target tokens, the mask that a function
    given as `attention=` receives is batch x target x source.
    """

    attending_blocks: tuple[int, ...]  # the numbers of the blocks that attend, which in hybrids are not all
    num_blocks: int

    def trace_texts(
        self,
        texts: "Sequence[Source | Chat]",
        answers: "Sequence[Target] | None" = None,
        attention: Interventions | None = None,
        rows: Sequence[int] | None = None,
        layers: Sequence[int] | None = None,
        generate: int = 0,
    ) -> Trace:
        """Return the trace of whole texts, or of the answers to prompts; see `LoadedModel.trace`."""
        raise NotImplementedError

    def observe(self, batch: Batch, observer: Callable[[AttentionRows], None], block: int = 256) -> None:
        """Show the attention of every layer, a block of rows at a time: memory grows with the length of the texts.

        Args:
            batch: Whole texts. With padding or sliding windows, there is one mask of T x T bytes.
            observer: Called with each block of rows of each layer, the first layer first.
            block: Rows at a time.
        """
        raise NotImplementedError

    def logits_with(self, batch: Batch, attention: Interventions) -> Float[Tensor, "batch target words"]:
        """Return the logits of a pass with other attention, at every position and not only at those that predict."""
        raise NotImplementedError


class ReadsTexts:
    """Texts become Batches through the model's own reader."""

    reader: "Reader"


class HasLayers(_Forward):
    """There are several layers of attention, and `attention=` may name layers and heads."""

    depth: int


class SelfAttends(_Forward):
    """The encoder's self-attention can be recorded, as attention rollout needs."""

    def self_attention(self, batch: Batch) -> tuple[Float[Tensor, "batch heads source source"], ...]:
        """Return the self-attention weights of each layer, the first layer first."""
        raise NotImplementedError


class WrapsModel:
    """Holds a model together with its name, its reader and the task that it was trained on (see `LoadedModel`)."""

    module: nn.Module
    reader: "Reader"
    name: str
    task: Task | None


# What is missing, and what to add.
EXPLANATIONS: dict[type, tuple[str, str]] = {
    GivesTrace: ("gives a Trace", "a forward pass (batch, attention, teacher_forcing, gates) that returns one"),
    GivesLogits: ("gives logits without a Trace", "the method logits(batch, teacher_forcing)"),
    ReadsOut: ("can be read out from a context", "the methods context_of(values) and readout(context, decoder)"),
    EmbedsSource: ("shows its source embedding", "a module source_inputs, called on batch.source in a forward pass"),
    MasksInPlace: (
        "masks source positions in place",
        "a pass that reads no position where source_mask is false",
    ),
    Generates: ("generates outputs", "the method generate(source, source_mask, max_length)"),
    PredictsNextToken: ("predicts next tokens", "logits of one target token for each of the last source positions"),
    ReadsTexts: ("reads texts", "a reader, such as attnscope.models.adapters.WordReader"),
    HasLayers: ("has layers of attention", "the number of layers as depth, and attention={layer: ...}"),
    SelfAttends: ("shows its self-attention", "the method self_attention(batch)"),
}


def needs(model: object, *capabilities: type, by: str) -> None:
    """Raise MissingCapability unless the model declares all of these.

    Args:
        model: A model, or a LoadedModel around one.
        capabilities: Classes of this module.
        by: What needs them, as the subject of the sentence, such as "the lexical probe".
    """
    module = model.module if isinstance(model, WrapsModel) else model
    for capability in capabilities:
        if not isinstance(module, capability) and not isinstance(model, capability):
            ability, remedy = EXPLANATIONS[capability]
            raise MissingCapability(
                f"{by} needs a model that {ability}, which {type(module).__name__} does not declare: "
                f"let its class inherit attnscope.models.capabilities.{capability.__name__} and give it {remedy}"
            )


class Adapter(GivesTrace, nn.Module, ABC):
    """The base class for your own model: a forward pass that gives a Trace.

    Inherit further capabilities with their methods; `attnscope.testing.check_adapter` checks them.

    A Batch holds token ids, padded on the right, with masks that are false on padding. Source ids are the model's own;
    `Batch.source_special` marks special tokens. Target ids 0, 1 and 2 are padding, end and start of a sentence. A
    classifier has one target token: class k is the id k + 3, and the logits of the three special ids are -inf.
    """

    @abstractmethod
    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass; `attention` replaces the model's own weights before values are mixed."""
