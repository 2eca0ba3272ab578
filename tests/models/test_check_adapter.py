"""The contract of an adapter: models that keep it pass, and each broken clause is reported."""

import math
import time
from dataclasses import replace

import pytest
import torch
from adapter_examples import adapter, texts
from torch import nn
from torch.nn.functional import embedding, pad

from attnscope.errors import BadSetting
from attnscope.models import (
    MODELS,
    Attention,
    BagOfWordsSettings,
    ClassifierSettings,
    EncoderDecoderSettings,
    Trace,
    build,
    uniform,
)
from attnscope.models.adapters import Adapter
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, MasksInPlace, ReadsOut
from attnscope.tasks import PAD, SPECIALS, Batch
from attnscope.testing import CLAUSES, BrokenContract, check_adapter, quick_check
from attnscope.testing.contract import state_changes, state_of

WORDS, CLASSES = 12, 3


class Theirs(nn.Module):
    """A model that somebody brings: it knows nothing of attnscope."""

    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(WORDS, 6), nn.GRU(6, 5, batch_first=True)
        self.score, self.output = nn.Linear(5, 1), nn.Linear(5, CLASSES)


class Adapted(Adapter, ReadsOut, EmbedsSource):
    """All that it takes to ask it everything."""

    def __init__(self, theirs):
        super().__init__()
        self.theirs, self.source_inputs = theirs, theirs.embedding

    def forward(self, batch, attention=None, teacher_forcing=1.0, gates=False):
        embedded = self.source_inputs(batch.source)
        states, _ = self.theirs.rnn(embedded)
        alignment = self.theirs.score(states).mT[:, None]  # batch x 1 x 1 x source
        own = masked_softmax(alignment, batch.source_mask)
        weights = intervene(own, batch.source_mask, attention)
        layer = Attention(queries=None, keys=None, values=states[:, None], scores=alignment, weights=weights)
        context = self.context_of(weights @ layer.values)
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=states,
            layers=(layer,),
            context=context,
            logits=self.readout(context),
        )

    def context_of(self, values):
        return values[:, 0]

    def readout(self, context, decoder=None):
        return pad(self.theirs.output(context), (len(SPECIALS), 0), value=-math.inf)


def sentences(classes=CLASSES):
    torch.manual_seed(0)
    mask = torch.arange(6) < torch.tensor([6, 3, 1, 5])[:, None]
    source = torch.randint(3, WORDS, mask.shape).masked_fill(~mask, PAD)
    if classes is not None:
        target = torch.arange(4)[:, None] % classes + len(SPECIALS)
        return Batch(source, mask, target, torch.ones_like(target, dtype=torch.bool))
    target_mask = torch.arange(5) < torch.tensor([2, 5, 1, 4])[:, None]
    target = torch.randint(3, WORDS, target_mask.shape).masked_fill(~target_mask, PAD)
    return Batch(source, mask, target, target_mask)


def build_model(kind, *args):
    torch.manual_seed(1)
    return kind(*args)


def test_a_class_of_thirty_lines_keeps_the_contract():
    model = build_model(Adapted, Theirs())
    assert isinstance(model, Adapter)
    assert not isinstance(model.theirs, Adapter)
    check_adapter(model, [sentences()])


def small(settings):
    if not isinstance(settings, EncoderDecoderSettings):
        return {ClassifierSettings: ClassifierSettings(input_size=6, units=3, hidden=4)}.get(
            type(settings), BagOfWordsSettings(size=4)
        )
    one_hot = WORDS + 8 if settings.positions else None  # room for positions
    return replace(
        settings, units=8, hidden=settings.hidden and 8, target_input_size=settings.target_input_size and 8,
        input_size=one_hot if settings.inputs == "one_hot" else 8,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_network_of_the_studies_keeps_the_contract(name):
    classes = CLASSES if name == "classifier" else None
    words = WORDS if classes is None else classes + len(SPECIALS)
    check_adapter(build_model(build, small(MODELS[name]), WORDS, words), [sentences(classes)])


@pytest.mark.parametrize("attention", ["mlp", "additive", "dot"])
@pytest.mark.parametrize("grounding", ["none", "concat", "residual"])
def test_the_classifiers_of_tutek2020_keep_the_contract(attention, grounding):
    settings = ClassifierSettings(
        input_size=6, units=3, hidden=4, attention=attention, grounding=grounding, specials_attended=False
    )
    check_adapter(build_model(build, settings, WORDS, CLASSES + len(SPECIALS)), [sentences()])


class OtherMask(Adapted):
    def forward(self, batch, attention=None, **more):
        return replace(super().forward(batch, attention), source_mask=~batch.source_mask)


class Misshapen(Adapted):
    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        object.__setattr__(trace, "encoder", trace.encoder.transpose(0, 1))  # past the checks of these tests
        return trace


class SeesPadding(Adapted):
    def forward(self, batch, attention=None, **more):
        everything = torch.ones_like(batch.source_mask)
        trace = super().forward(replace(batch, source_mask=everything), attention)
        return replace(trace, source_mask=batch.source_mask)


class ReadsMaskedWords(MasksInPlace, Adapted):
    """Declares that masked positions are not read, but its GRU reads all but padding."""


class Doubled(Adapted):
    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        return replace(trace, layers=(replace(trace.last, weights=2 * trace.attention),))


class OtherAlignment(Adapted):
    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        return replace(trace, layers=(replace(trace.last, scores=2 * trace.scores),))


class OtherKeys(Adapted):
    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        keys = trace.encoder[:, None]
        return replace(trace, layers=(replace(trace.last, queries=keys[:, :, :1], keys=keys),))


class Ignores(Adapted):
    """Shows the weights that it is given, and goes by its own."""

    def forward(self, batch, attention=None, **more):
        trace, own = super().forward(batch, attention), super().forward(batch)
        return replace(own, layers=(replace(own.last, weights=trace.attention),))


class IgnoresAttention(Adapted):
    """Ignores `attention=`."""

    def forward(self, batch, attention=None, **more):
        return super().forward(batch)


class Sharpens(Adapted):
    """What it is given is worked over once more."""

    def forward(self, batch, attention=None, **more):
        def squared(weights, mask):
            squares = intervene(weights, mask, attention) ** 2
            return squares / squares.sum(-1, keepdim=True)

        return super().forward(batch, None if attention is None else squared)


class TellsFunctionsOfPadding(Adapted):
    def forward(self, batch, attention=None, **more):
        if not callable(attention):
            return super().forward(batch, attention)
        return super().forward(batch, lambda weights, mask: attention(weights, torch.ones_like(mask)))


class AppliesFunctionsByHalf(Adapted):
    """A function as attention has half of its effect."""

    def forward(self, batch, attention=None, **more):
        if not callable(attention):
            return super().forward(batch, attention)
        return super().forward(batch, lambda weights, mask: (weights + attention(weights, mask)) / 2)


class OtherContext(Adapted):
    def context_of(self, values):
        return 2 * values[:, 0]

    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        return replace(trace, context=trace.context / 2, logits=self.readout(trace.context / 2))


class InconsistentReadout(Adapted):
    def readout(self, context, decoder=None):
        return super().readout(2 * context)

    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        return replace(trace, logits=super().readout(trace.context))


class MixesSentences(Adapted):
    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        logits = trace.logits + trace.logits[..., len(SPECIALS) :].mean()
        return replace(trace, logits=logits)


class ReadsBackwards(Adapted):
    def __init__(self, theirs):
        super().__init__(theirs)
        self.theirs.rnn = nn.GRU(6, 5, batch_first=True, bidirectional=True)
        self.theirs.score, self.theirs.output = nn.Linear(10, 1), nn.Linear(10, CLASSES)


class AroundSourceInputs(Adapted):
    def forward(self, batch, attention=None, **more):
        self.__dict__["around"] = True
        return super().forward(batch, attention)

    @property
    def source_inputs(self):
        return Around(self.theirs.embedding) if self.__dict__.get("around") else self.theirs.embedding

    @source_inputs.setter
    def source_inputs(self, module):
        pass


class Around(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.table = words.weight

    def forward(self, words):
        return embedding(words, self.table)


class WithoutGradient(Adapted):
    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        return replace(trace, logits=trace.logits.detach())


class StaysInEvaluation(Adapted):
    def forward(self, batch, attention=None, **more):
        self.eval()
        return super().forward(batch, attention)


class Learns(Adapted):
    def forward(self, batch, attention=None, **more):
        with torch.no_grad():
            self.theirs.output.bias += 1
        return super().forward(batch, attention)


class LeavesAHook(Adapted):
    def forward(self, batch, attention=None, **more):
        self.theirs.rnn.register_forward_hook(lambda *_: None)
        return super().forward(batch, attention)


class ForgetsAfterAnException(Adapted):
    def forward(self, batch, attention=None, **more):
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        trace = super().forward(batch, attention)
        for module, training in modes:
            module.training = training
        return trace


class SwallowsExceptions(Adapted):
    def forward(self, batch, attention=None, **more):
        try:
            return super().forward(batch, attention)
        except Exception:
            return super().forward(batch)


class GivesLogits(Adapted):
    def forward(self, batch, attention=None, **more):
        return super().forward(batch, attention).logits


class Fails(Adapted):
    def forward(self, batch, attention=None, **more):
        if len(batch) == 1:
            raise IndexError("one is too few")
        return super().forward(batch, attention)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (OtherMask, "trace.source_mask is not that of the batch"),
        (Misshapen, r"trace.encoder is \(6, 4, 5\), but batch x positions are \(4, 6\)"),
        (SeesPadding, "attention of layer 0 is not zero on padding"),
        (Doubled, "attention of layer 0 does not sum to one"),
        (OtherAlignment, "attention of layer 0 is not the softmax of its scores"),
        (OtherKeys, "scores of layer 0 are not queries · keys"),
        (SeesPadding, "the mask passed to an intervention is true on padding"),
        (Ignores, "all attention on the first or on the last token gives the same logits"),
        (IgnoresAttention, "a function passed as attention= was never called"),
        (Sharpens, "passing the model's own weights as a tensor changes the logits"),
        (TellsFunctionsOfPadding, "the mask passed to an intervention is true on padding"),
        (AppliesFunctionsByHalf, "attention=uniform is not one over the number of tokens"),
        (AppliesFunctionsByHalf, "attention=uniform, and the same weights as a tensor, give different logits"),
        (Doubled, "the trace does not hold the weights passed"),
        (OtherContext, "context_of.weights @ values. is not trace.context"),
        (InconsistentReadout, "readout.trace.context, trace.decoder. is not trace.logits"),
        (MixesSentences, "the logits of sentence 1 alone differ from those in its batch"),
        (ReadsMaskedWords, "another token at a masked position in the middle of a text changes the logits"),
        (ReadsBackwards, "the encoder states of sentence 1 with more padding differ"),
        (AroundSourceInputs, "did not call source_inputs"),
        (WithoutGradient, "the output has no gradient with respect to the source embeddings"),
        (StaysInEvaluation, "a pass changes the model: training or evaluation modes"),
        (Learns, "a pass changes the model: parameters"),
        (LeavesAHook, "a pass changes the model: hooks"),
        (ForgetsAfterAnException, "an exception in a pass changes the model: training or evaluation modes"),
        (SwallowsExceptions, "an exception raised in a function .* does not propagate"),
        (GivesLogits, "a pass returns a Tensor, not a Trace"),
        (Fails, "a batch is its sentences: IndexError: one is too few"),
    ],
)
def test_every_broken_clause_of_the_contract_is_reported(broken, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_adapter(build_model(broken, Theirs()), [sentences()])


class Translator(Adapter):
    """Around a network of ours, to break what only a decoder can break."""

    def __init__(self, words):
        super().__init__()
        self.ours = build(small(MODELS["aed"]), words, words)

    def forward(self, batch, attention=None, **more):
        return self.ours(batch, attention)


class LogitsFromTarget(Translator):
    def forward(self, batch, attention=None, **more):
        trace = self.ours(batch, attention)
        return replace(trace, logits=trace.logits.scatter(-1, batch.target[..., None], 9.0))


class DecoderInputIsTarget(Translator):
    def forward(self, batch, attention=None, **more):
        return replace(self.ours(batch, attention), decoder_input=batch.target)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (LogitsFromTarget, "another target token at position 2 changes the logits there"),
        (DecoderInputIsTarget, "trace.decoder_input is not"),
    ],
)
def test_a_decoder_that_reads_the_answer_is_reported(broken, sentence):
    check_adapter(build_model(Translator, WORDS), [sentences(None)])
    with pytest.raises(AssertionError, match=sentence):
        check_adapter(build_model(broken, WORDS), [sentences(None)])


def wrong_in_layers(forward):
    """A Hugging Face model of two layers, with a pass of another kind."""
    model = adapter("bert")
    plain = model.forward
    model.forward = lambda batch, attention=None, **more: forward(plain, batch, attention)
    return model, texts(model).batch


def test_a_model_of_several_layers_must_know_where_attention_is_changed():
    def always_the_first(plain, batch, attention):
        return plain(batch, {0: next(iter(attention.values()))} if isinstance(attention, dict) else attention)

    model, batch = wrong_in_layers(always_the_first)
    with pytest.raises(AssertionError, match=r"\{\(0, 0\): uniform\} does not make exactly that head uniform"):
        check_adapter(model, [batch])

    def never(plain, batch, attention):
        return plain(batch, None if isinstance(attention, dict) else attention)

    model, batch = wrong_in_layers(never)
    with pytest.raises(AssertionError, match="making head 1 of layer 1 uniform changes no logit"):
        check_adapter(model, [batch])


def test_an_attention_implementation_that_is_not_restored_is_reported():
    def switches(plain, batch, attention):
        model.model.set_attn_implementation("eager")
        return plain(batch, attention)

    model, batch = wrong_in_layers(switches)
    with pytest.raises(AssertionError, match="changes the model: attention implementation"):
        check_adapter(model, [batch])


def test_all_violations_are_reported_at_once():
    with pytest.raises(AssertionError) as caught:
        check_adapter(build_model(SeesPadding, Theirs()), [sentences()])
    lines = str(caught.value).splitlines()
    assert lines[0] == "SeesPadding violates the contract of an adapter:"
    assert len(lines) > 3
    assert all(line.split(":")[0] in CLAUSES for line in lines[1:])


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Ignores, "all attention on the first or on the last token gives the same logits"),
        (IgnoresAttention, "a function passed as attention= was never called"),
        (Misshapen, "trace.encoder is"),
        (GivesLogits, "a pass returns a Tensor, not a Trace"),
    ],
)
def test_the_short_check_refuses_a_model_that_ignores_changed_attention(broken, sentence):
    with pytest.raises(BrokenContract, match=f"{broken.__name__} violates .*{sentence}") as caught:
        quick_check(build_model(broken, Theirs()), sentences())
    assert "\n" not in str(caught.value)


class DropsSpecialPositions(Adapted):
    """Builds its Trace from the tensors of the batch, and not from the batch."""

    def forward(self, batch, attention=None, **more):
        return replace(super().forward(batch, attention), source_special=None)


def test_a_trace_without_the_special_positions_of_its_batch_is_refused():
    batch = sentences()
    marked = replace(batch, source_special=batch.source < 5)
    broken = build_model(DropsSpecialPositions, Theirs())
    sentence = r"trace.source_special is not that of the batch; build the trace with Trace.of\(batch, ...\)"
    with pytest.raises(BrokenContract, match=sentence) as caught:
        quick_check(broken, marked)
    assert "\n" not in str(caught.value)
    with pytest.raises(AssertionError, match=sentence):
        check_adapter(broken, [marked])
    for model, one in ((build_model(Adapted, Theirs()), marked), (broken, batch)):
        quick_check(model, one)
        check_adapter(model, [one])


class SameEverywhere(Adapted):
    """All positions have the same value, so it decides alike wherever it attends."""

    def forward(self, batch, attention=None, **more):
        trace = super().forward(batch, attention)
        values = trace.last.values[:, :, :1].expand_as(trace.last.values)
        context = self.context_of(trace.attention @ values)
        layer = replace(trace.last, values=values)
        return replace(trace, layers=(layer,), context=context, logits=self.readout(context))


def test_the_short_check_is_fast_and_accepts_a_model_that_does_not_use_attention():
    quick_check(build_model(SameEverywhere, Theirs()), sentences())
    model = adapter("marian")
    batch, before = texts(model).batch, state_of(model)
    start = time.perf_counter()
    quick_check(model, batch)
    assert time.perf_counter() - start < 2
    assert not list(state_changes(before, state_of(model), "a check"))


def test_a_batch_without_padding_is_refused():
    batch = sentences()
    easy = Batch(batch.source[:1], batch.source_mask[:1], batch.target[:1], batch.target_mask[:1])
    with pytest.raises(BadSetting, match="texts of different lengths"):
        check_adapter(build_model(Adapted, Theirs()), [easy])


@torch.no_grad()
def test_the_example_accepts_any_attention():
    model = build_model(Adapted, Theirs())
    batch = sentences()
    trace = model(batch, attention=uniform)
    mean = (trace.encoder * batch.source_mask[..., None]).sum(1) / batch.source_mask.sum(1, keepdim=True)
    torch.testing.assert_close(trace.context[:, 0], mean)
