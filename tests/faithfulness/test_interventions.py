"""Words replaced in place: an independent loop, what is left of them, batches, and models with known answers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from attnscope.errors import AttnscopeError
from attnscope.faithfulness import assess
from attnscope.faithfulness.assessment import MOVED, TESTS, at_least
from attnscope.faithfulness.criteria import AGREEMENT, ROUTE, Interval
from attnscope.faithfulness.interventions import Effort, WordInterventions
from attnscope.faithfulness.verdict import decide, verdict
from attnscope.lab.experiment import Experiment, train
from attnscope.lab.store import Store
from attnscope.loading import load
from attnscope.models import PRESETS, EncoderDecoder, EncoderDecoderSettings, Positions
from attnscope.models.capabilities import GivesTrace
from attnscope.probes.divergences import tvd
from attnscope.probes.heads.sentences import Sentences
from attnscope.tasks import Batch, Copying
from attnscope.testing.known_answers import known_answer
from attnscope.training import TrainingSettings

WORDS = 12
CASES = {"readout": {}, "both directions": {"bidirectional": True}, "input": {"context": "input"}}


def network(**settings):
    """A recurrent translator with random parameters, large enough that words matter."""
    torch.manual_seed(0)
    chosen = EncoderDecoderSettings(
        **{"units": 8, "attention": "bilinear", "heads": 2, "inputs": "learned", "input_size": 5} | settings
    )
    model = EncoderDecoder(chosen, WORDS, WORDS).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def sentences(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(3, WORDS, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    source = source.masked_fill(~mask, 0)
    return Sentences(Batch(source, mask, source.clone(), mask), None, None)


def interventions(model, data):
    return WordInterventions.of(model, data, Effort())


def every_second(words):
    removed = torch.zeros_like(words.words)
    removed[:, 1::2] = True
    return removed & words.words


def remove(words, removed, attended=True):
    return words.remove(torch.arange(len(removed)), removed, lambda _, outputs: outputs.flatten(1), attended)


@torch.no_grad()
def by_loop(model, batch, removed, attended):
    """The same from the model's own parts, one sentence after the other."""
    outputs = []
    for b in range(len(batch)):
        one = batch.rows(slice(b, b + 1))
        gone = removed[b, : one.source.shape[1]]
        table = model.source_inputs.table[one.source[0]]
        table[gone] = table[~gone].mean(0)

        def change(weights, mask, gone=gone):
            left = weights.masked_fill(gone, 0)
            return left / left.sum(-1, keepdim=True)

        handle = model.source_inputs.register_forward_hook(lambda *_, table=table: table[None])
        logits = model(one, attention=None if attended else change).logits
        handle.remove()
        outputs.append(logits[0].softmax(-1))
    return outputs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("attended", [True, False])
def test_a_replaced_word_is_the_mean_of_the_remaining_ones(case, attended):
    model, data = network(**CASES[case]), sentences(6, 4, 5)
    words = interventions(model, data)
    assert words.removal == "replaced"
    removed = every_second(words)
    result = remove(words, removed, attended).unflatten(1, words.whole.shape[1:])
    for row, expected in zip(result, by_loop(model, data.batch, removed, attended), strict=True):
        torch.testing.assert_close(row[: len(expected)], expected)


def test_a_replaced_word_has_no_effect_left():
    model, data = network(bidirectional=True), sentences(6, 6)
    removed = every_second(interventions(model, data))
    other = data.batch.clone()
    other.source[removed] = torch.where(other.source[removed] == 3, 4, 3)
    one, two = (interventions(model, Sentences(batch, None, None)) for batch in (data.batch, other))
    assert tvd(one.whole, two.whole).max() > 0.1
    torch.testing.assert_close(remove(one, removed), remove(two, removed))


def test_words_are_replaced_alike_in_any_batch():
    model, data = network(), sentences(7, 3, 5)
    together = remove(words := interventions(model, data), removed := every_second(words))
    together = together.unflatten(1, words.whole.shape[1:])
    for b in range(3):
        one = Sentences(data.batch.rows(slice(b, b + 1)), None, None)
        alone = interventions(model, one)
        expected = remove(alone, removed[b : b + 1, : alone.words.shape[1]]).unflatten(1, alone.whole.shape[1:])
        torch.testing.assert_close(together[b, : expected.shape[1]], expected[0])


def test_where_only_attention_passes_words_on_replacing_and_masking_are_the_same():
    """States of a feed-forward encoder hold their own word alone."""
    words = interventions(network(cell="feedforward", readout="context", positions=Positions()), sentences(6, 6, 6))
    removed = every_second(words)
    rest = remove(words, removed, attended=False).unflatten(1, words.whole.shape[1:])
    masked = words.mask(removed[words.sentence])
    torch.testing.assert_close(masked, rest[words.sentence, words.step])
    assert tvd(masked, words.own).max() > 0.05


def test_the_model_is_left_without_hooks_also_after_an_error():
    model = network()
    words = interventions(model, sentences(4, 4))
    remove(words, every_second(words))
    assert not model.source_inputs._forward_hooks
    model.source_inputs, before = nn.Identity(), model.source_inputs
    with pytest.raises((AttnscopeError, RuntimeError, TypeError, IndexError)):
        remove(words, every_second(words))
    assert not before._forward_hooks
    assert not model.source_inputs._forward_hooks


# Models with known answers


class Opaque(GivesTrace, nn.Module):
    """A translator that does not show its source embedding."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, batch, **forward):
        return self.inner(batch, **forward)


def assess_known(kind, seed=0, wrap=lambda model: model):
    known = known_answer(kind, seed)
    return assess(wrap(known.model), known.batches(50, seed=3), quick=True)


@pytest.mark.parametrize(("kind", "answer"), [
    ("translator-recurrent", "yes"), ("translator-recurrent-permuted", "no"), ("translator-recurrent-skip", "no"),
])  # fmt: skip
def test_a_recurrent_translator_gets_the_answer_of_its_certificate(kind, answer):
    for seed in range(2):
        result = assess_known(kind, seed)
        assert (result.removal, result.answer) == ("replaced", answer)


def test_permuted_states_would_pass_if_effects_were_measured_without_attention(monkeypatch):
    """Why effects are those of the replacement alone: a position without attention loses the words of others, too."""
    kind, original = "translator-recurrent-permuted", WordInterventions.remove
    assert assess_known(kind)["agreement"].answer == "no"
    monkeypatch.setattr(WordInterventions, "remove", lambda self, *args, **_: original(self, *args[:3], attended=False))
    result = assess_known(kind)
    assert result["agreement"].answer != "no"
    assert result["route"].answer != "no"


def test_a_low_route_by_deletion_is_undecided_and_says_why():
    result = assess_known("translator-recurrent", wrap=Opaque)
    route, agreement = result["route"], result["agreement"]
    assert result.removal == "deleted"
    assert route.value < ROUTE.bounds.no
    assert route.high == 1
    assert (route.answer, agreement.answer, result.answer) == ("undecided", "yes", "undecided")
    text = " ".join(verdict(result.tests, "the choice of words").paragraphs)
    assert MOVED in text
    assert "More texts could change the answer of route" not in text


def test_agreement_still_says_no_where_route_is_a_lower_bound():
    result = assess_known("translator-recurrent-permuted", wrap=Opaque)
    assert result["route"].answer == "undecided"
    assert result.answer == "no"


@pytest.mark.parametrize(("value", "low", "answer"), [
    (0.9, 0.85, "yes"), (0.5, 0.45, "with care"), (0.5, 0.3, "undecided"), (0.0, 0.0, "undecided"),
])  # fmt: skip
def test_a_lower_bound_is_never_a_no(value, low, answer):
    interval = Interval(value, low, value + 0.05, texts=50)
    route = at_least(TESTS[0], interval, MOVED)
    assert route.answer == answer
    assert decide([route, AGREEMENT.judge("", Interval(1.0, 0.95, 1.0, texts=50))]) == answer
    assert decide([route, AGREEMENT.judge("", Interval(0.0, 0.0, 0.1, texts=50))]) == "no"


def test_undefined_values_are_no_lower_bound():
    assert at_least(TESTS[0], Interval(reason="there is no effect to compare with"), MOVED).answer == "not measurable"


@pytest.mark.slow
def test_a_trained_recurrent_network_that_attends_to_what_it_copies_is_not_refused(tmp_path, monkeypatch):
    """The control of the explorer of copying (snell2021 §3.3), with 0.91 of its attention on the right word."""
    network = replace(PRESETS["copying"], units=64, input_size=64, hidden=None)
    settings = TrainingSettings(
        steps=400, batch_size=64, learning_rate=2e-3, betas=(0.9, 0.999), max_grad_norm=None, teacher_forcing=1.0,
        evaluate_every=20, decoding="teacher_forced",
    )  # fmt: skip
    run = train(Experiment(Copying(64, "sampled", 36, 12), network, settings), Store(tmp_path))
    assert run.summary["word_accuracy"] > 0.98
    model = load(run)
    replaced = assess(model, quick=True)
    monkeypatch.setattr(WordInterventions, "removal", "deleted")
    deleted = assess(model, quick=True)
    assert replaced.answer in ("yes", "with care")
    assert deleted.answer == "undecided"
    assert replaced["route"].value > deleted["route"].value + 0.2
