"""Parts of audits of translators: closed forms where there are any, explicit loops elsewhere, batches of any size."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import somersd
from torch import nn

import attnscope
from attnscope.auditing.runner import CHECKS
from attnscope.errors import BadSetting
from attnscope.faithfulness import checks, evidence
from attnscope.faithfulness.assessment import assess, concordance
from attnscope.faithfulness.interventions import Effort, WordInterventions
from attnscope.faithfulness.records import to_json
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models import Attention, EncoderDecoder, EncoderDecoderSettings, Trace
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, GivesTrace, ReadsOut
from attnscope.models.examples import Example
from attnscope.models.inputs import Inputs
from attnscope.models.loaded import LoadedModel, TaskReader
from attnscope.probes.adversary import (
    SearchSettings,
    maximise_distance,
    search_adversaries_in_batch,
    search_token_adversaries,
)
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.divergences import tvd
from attnscope.probes.heads.sentences import Sentences
from attnscope.probes.saliency import gold_log_probability
from attnscope.tasks import Copying
from attnscope.testing.contract import half_in_training, state_changes, state_of
from models.adapter_examples import SOURCES, TARGETS, adapter, texts
from probes.reweighing_examples import classifier
from probes.reweighing_examples import texts as labelled_texts

LENGTH, WORDS, GAIN = 6, 12, 4.0
SHORT = SearchSettings(restarts=2, steps=40, learning_rate=0.2, penalty=10.0, growth=1.1)
FEW = replace(SHORT, steps=10)
PARTS = ("quality", "words", "adversary", "single_tokens", "identity", "plausibility", "examples")


class Copier(GivesTrace, ReadsOut, EmbedsSource, nn.Module):
    """It attends to the word to be copied and predicts what it attends to; if `blind`, the mean of all words."""

    readout_is_exact = True

    def __init__(self, blind: bool = False, sharp: float = 8.0, gain: float = GAIN):
        super().__init__()
        self.source_inputs = nn.Embedding.from_pretrained(torch.eye(WORDS + 3).double())
        self.blind, self.sharp, self.gain = blind, sharp, gain

    def forward(self, batch, attention=None, teacher_forcing=1.0, gates=False):
        embedded = self.source_inputs(batch.source)
        share = (batch.source_mask / batch.source_mask.sum(1, keepdim=True))[:, None].to(embedded)
        values = ((share @ embedded).expand_as(embedded) if self.blind else embedded)[:, None]
        alignment = self.sharp * (batch.target[:, :, None] == batch.source[:, None])[:, None].to(embedded)
        weights = intervene(masked_softmax(alignment, batch.source_mask), batch.source_mask, attention)
        context = self.context_of(weights @ values)
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=embedded,
            layers=(Attention(queries=None, keys=None, values=values, scores=alignment, weights=weights),),
            context=context,
            logits=self.readout(context),
        )

    def context_of(self, values):
        return values.mean(1)

    def readout(self, context, decoder=None):
        return self.gain * context


class Closed(GivesTrace, EmbedsSource, nn.Module):
    """The same model without a declared readout."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.source_inputs = inner, inner.source_inputs

    def forward(self, batch, **forward):
        return self.inner(batch, **forward)


class Opaque(GivesTrace, nn.Module):
    """The same model without a declared readout and source embedding."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, batch, **forward):
        return self.inner(batch, **forward)


def copying(model, count=9, links=True):
    task = Copying(distribution="sampled", num_words=WORDS, length=LENGTH, test_size=count)
    inputs = Inputs.of(LoadedModel(model, TaskReader(task), "copier", task), None, max_texts=count)
    diagonal = frozenset((i, i) for i in range(LENGTH))
    inputs.alignments = ((diagonal, diagonal),) * count if links else None
    return Subject(LoadedModel(model, TaskReader(task), "copier", task), inputs)


def marian(seed=0):
    model = attnscope.load(adapter("marian").double())
    point = frozenset({(0, 0)})
    pairs = [*zip(SOURCES, TARGETS, strict=True)]
    pairs += [(s, t) for (s, _), (_, t) in pairwise(zip(SOURCES, TARGETS, strict=True))]
    return Subject(model, Inputs.of(model, [Example(*pair, alignment=(point, point)) for pair in pairs]))


def recurrent(**settings):
    torch.manual_seed(0)
    chosen = EncoderDecoderSettings(**{"units": 8, "attention": "bilinear", "heads": 2} | settings)
    model = EncoderDecoder(chosen, WORDS + 3, WORDS + 3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return copying(model, 7)


SUBJECTS = {"marian": marian, "recurrent": recurrent, "copier": lambda: copying(Copier())}


def run_check(name, subject, size=4, **sample):
    return CHECKS[name](subject, Sample(subject, 100, size, quick=True, **sample))


def named(part):
    return {test.name: test for test in part.tests}


def test_a_model_that_copies_what_it_attends_to_passes_every_test():
    subject = copying(Copier(), count=12)
    tests = named(run_check("words", subject))
    assert tests["route"].value == pytest.approx(1, abs=0.01)
    assert tests["agreement"].value == pytest.approx(1)
    assert tests["route"].answer == tests["agreement"].answer == "yes"
    single, adversary = (run_check(name, subject).tests[0] for name in ("single_tokens", "adversary"))
    assert single.value == pytest.approx(1 / LENGTH)  # the word itself, and no other
    assert adversary.value < 0.1
    assert run_check("quality", subject).table[0]["mean"] == 1


def test_a_model_that_ignores_what_it_attends_to_passes_no_test():
    subject = copying(Copier(blind=True), count=12)
    tests = named(run_check("words", subject))
    assert tests["route"].value == tests["flips with shuffled attention"].value == 0
    assert tests["route"].answer == "no"
    single, adversary = (run_check(name, subject).tests[0] for name in ("single_tokens", "adversary"))
    assert single.value == 1
    assert adversary.value > 0.9


def test_the_effect_of_shuffled_attention_equals_a_softmax_by_hand():
    """Attention on another word of the sentence makes that word as likely as the right one was."""
    tests = assess(copying(Copier(sharp=50.0)).loaded, seed=1)
    likely, unlikely = math.exp(GAIN), 1.0
    moved = (likely - unlikely) / (likely + WORDS + 2)
    flips = tests["flips with shuffled attention"].value
    assert 0.5 < flips < 1
    assert tests["dependence on attention"].value == pytest.approx(flips * moved)


def interventions(subject, rows=None):
    texts = subject.inputs.read(slice(rows))
    return WordInterventions.of(subject.model, Sentences(texts.batch, texts.source, texts.target), Effort())


def test_leave_one_out_effects_equal_explicit_loops(monkeypatch):
    """Words are masked in place, or deleted, and those behind them move up."""
    subject = marian()
    for removal in ("masked", "deleted"):
        monkeypatch.setattr(WordInterventions, "removal", removal)
        result = interventions(subject)
        for sentence, step, effects in zip(result.sentence, result.step, result.leave_one_out, strict=True):
            one = subject.inputs.read(slice(int(sentence), int(sentence) + 1))
            with torch.no_grad():
                whole = subject.model(one.batch).logits.softmax(-1)[0, step]
                for word in range(int(result.words[sentence].sum())):
                    output = subject.model(without(one, word, removal == "masked")).logits.softmax(-1)[0, step]
                    expected = tvd(output, whole) if result.words[sentence].sum() > 1 else 0.0
                    assert float(effects[word]) == pytest.approx(float(expected), abs=1e-6)


def test_how_words_are_removed_follows_from_what_a_translator_declares():
    def opaque():
        return copying(Opaque(Copier()))

    for make, removal in ((marian, "masked"), (recurrent, "replaced"), (opaque, "deleted")):
        assert interventions(make()).removal == removal
        assert run_check("words", make()).sentences[-1] == checks.REMOVALS[removal]


def without(one, word, in_place):
    keep = one.source.unit[0] != word
    if in_place:
        return replace(one.batch, source_mask=one.batch.source_mask & keep)
    names = ("source", "source_mask", "source_special")
    return replace(one.batch, **{name: getattr(one.batch, name)[:, keep] for name in names})


def test_words_masked_in_attention_are_masked_alike_by_a_readout_and_by_a_forward_pass():
    exact, closed = (interventions(copying(model)) for model in (Copier(), Closed(Copier())))
    gone = torch.zeros_like(exact.words_at)
    gone[:, 1::2] = True
    assert exact.reading.exact
    assert not closed.reading.exact
    torch.testing.assert_close(exact.mask(gone), closed.mask(gone))
    assert tvd(exact.mask(gone), exact.own).max() > 0.5


def test_rank_correlations_are_those_of_scipy_with_ties_of_effects():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(5, 9, generator=generator)
    effects = (5 * torch.rand(5, 9, generator=generator)).round() / 5
    noise = 1e-6 * torch.rand(5, 9, generator=generator)
    everywhere = torch.ones(5, 9, dtype=torch.bool)
    result = concordance(scores, effects + noise, everywhere)
    expected = [somersd(e, s).statistic for s, e in zip(scores.numpy(), effects.numpy(), strict=True)]
    np.testing.assert_allclose(result, expected)
    assert concordance(scores, noise, everywhere).isnan().all()


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == pytest.approx(other, abs=1e-6) if isinstance(one, float) else one == other


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("name", [name for name in PARTS if name != "adversary"])
def test_results_do_not_depend_on_batches(kind, name):
    first, *others = (to_json(run_check(name, SUBJECTS[kind](), size)) for size in (1, 3, 7))
    assert all(same(first, other) for other in others)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_adversaries_do_not_depend_on_batches_in_any_precision(kind, monkeypatch):
    monkeypatch.setattr(checks, "translator_search", lambda sample: FEW)
    subject = SUBJECTS[kind]()
    subject.model.float()
    first, *others = (to_json(run_check("adversary", subject, size)) for size in (1, 3, 7))
    assert all(other == first for other in others)


@pytest.mark.parametrize("kind", ["marian", "readout", "input"])
def test_adversaries_do_not_depend_on_padding(kind):
    subject = marian() if kind == "marian" else recurrent(context=kind)
    result = []
    for size in (1, 3, 7):
        parts = [
            search_token_adversaries(subject.model, one.batch, one.batch.target_mask, FEW)
            for one in subject.inputs.texts(size)
        ]
        result.append(torch.cat([part.jsd for part in parts]))
    torch.testing.assert_close(result[1], result[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(result[2], result[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_the_model_is_left_as_it_was(kind):
    subject = SUBJECTS[kind]()
    with half_in_training(subject.model):
        before = state_of(subject.model)
        for name in PARTS:
            run_check(name, subject)
        evidence.another_seed(subject)(subject, Sample(subject, 3))
        assert list(state_changes(before, state_of(subject.model), "an audit")) == []


@pytest.mark.parametrize("kind", ["marian", "closed", "readout", "input"])
def test_a_forward_pass_confirms_the_output_that_an_adversary_keeps(kind):
    subject = marian() if kind == "marian" else recurrent(context="readout" if kind == "closed" else kind)
    model, batch = subject.model, subject.inputs.read(slice(4)).batch
    words = batch.target_mask & (batch.target > 2)
    result = search_token_adversaries(
        Closed(model) if kind == "closed" else model, batch, words, FEW, max_probabilities=1
    )
    sentence, step = words.nonzero().unbind(1)
    with torch.no_grad():
        own = model(batch)
        weights = own.attention.clone()
        weights[sentence, :, step] = result.weights
        other = model(batch, attention=weights)
    moved = tvd(other.logits.softmax(-1), own.logits.softmax(-1))[sentence, step]
    assert (moved <= 0.01).all()
    torch.testing.assert_close(moved, result.tvd, atol=1e-9, rtol=0)
    assert result.jsd.max() > 0.01
    assert (result.weights[~batch.source_mask[sentence][:, None].expand_as(result.weights)] == 0).all()


def test_words_influence_each_other_only_where_attention_reaches_later_ones():
    batch = recurrent().inputs.read(slice(3)).batch
    together = {
        name: CounterfactualAttention.of(recurrent(context=name).model, batch, tokens=batch.target_mask).coupled
        is not None
        for name in ("input", "readout")
    }
    assert together == {"input": True, "readout": False}


def test_a_classifier_is_the_case_of_one_output_word():
    model, batch = classifier(classes=3), labelled_texts(classes=3)
    settings = SearchSettings(steps=30, restarts=2, learning_rate=0.1)
    as_word = maximise_distance(CounterfactualAttention.of(model, batch, tokens=batch.target_mask), settings)
    as_text = maximise_distance(CounterfactualAttention.of_classifier(model, batch), settings)
    torch.testing.assert_close(as_word, as_text, equal_nan=True)


def test_an_adaptive_penalty_gets_as_far_in_fewer_steps():
    subject = marian()
    batch = subject.inputs.read(slice(None)).batch
    quick, slow = (
        search_token_adversaries(subject.model, batch, batch.target_mask, settings).jsd.mean()
        for settings in (replace(SHORT, steps=100), SearchSettings(restarts=2, steps=300, learning_rate=0.1))
    )
    assert quick > slow


def test_a_penalty_may_not_shrink_where_it_should_grow():
    with pytest.raises(BadSetting, match="growth must be at least 1"):
        SearchSettings(growth=0.5)


def test_a_search_for_a_translator_is_refused_where_a_classifier_is_meant():
    subject = marian()
    with pytest.raises(BadSetting, match="decisions of a classifier"):
        search_adversaries_in_batch(subject.model, subject.inputs.read(slice(2)).batch)


def test_a_copying_model_has_alignments_on_the_diagonal():
    part = run_check("plausibility", copying(Copier()))
    rates = {row["word alignment by"]: row["error rate"] for row in part.table}
    assert rates["attention shown"] == rates["best head (layer 0, head 0)"] == 0
    assert 0 <= rates["IBM Model 1"] < 1
    assert run_check("plausibility", copying(Copier(), links=False)) is None


def test_another_seed_is_compared_with_shuffled_attention():
    subject = marian()
    table = {row["attention"]: row for row in evidence.another_seed(marian())(subject, Sample(subject, 6, 2)).table}
    assert table["another seed"]["τ"] == pytest.approx(1)
    assert table["another seed"]["JSD, share of the maximum"] == pytest.approx(0, abs=1e-9)
    assert table["its own, shuffled"]["τ"] < 0.5
    assert table["its own, shuffled"]["JSD, share of the maximum"] > 0.01
    with pytest.raises(BadSetting, match="different tokens"):
        evidence.another_seed(copying(Copier()))(subject, Sample(subject, 3))


def test_a_model_without_a_readout_skips_single_token_sufficiency():
    part = run_check("single_tokens", copying(Closed(Copier())))
    assert part.table == ()
    assert part.tests[0].answer == "not measurable"
    assert "needs a model" in part.sentences[0]
    example = run_check("examples", copying(Closed(Copier()))).examples[0]
    assert list(example.scores) == ["attention", "leave-one-out"]


def test_examples_are_whole_sentences_with_scores_per_word():
    for subject in (marian(), copying(Copier())):
        result = run_check("examples", subject).examples
        assert 4 <= len(result) <= 8
        for example in result:
            assert len(example.special) == len(example.source)
            assert len(example.predicted) == len(example.target)
            for values in example.scores.values():
                assert np.shape(values) == (len(example.target), len(example.source))
            np.testing.assert_allclose(np.sum(example.scores["attention"], 1), 1, atol=5e-3)
            assert np.max(example.scores["each token alone"]) <= 1
    assert all(example.predicted == example.target for example in result)
    assert {example.reason.split(":")[0] for example in result} == {"typical", "extreme", "wrong"}


def test_leave_one_out_is_computed_once_per_batch():
    reading = next(Sample(marian(), 100, 4).readings())
    assert reading.leave_one_out is reading.leave_one_out


def test_sentences_of_one_word_are_left_out():
    """One source word cannot be ranked: the sentence is left out, and one sentence alone has no interval."""
    model = attnscope.load(adapter("marian").double())
    subject = Subject(model, Inputs.of(model, [("a", "ein hund")]))
    assert subject.inputs.read(slice(1)).batch.source.shape[1] == 2
    assert {test.answer for test in run_check("words", subject).tests} == {"not measurable"}
    assert run_check("examples", subject).examples == []


def test_a_sample_consists_of_the_first_sentences():
    subject = marian()
    batch = texts(subject.model).batch
    assert torch.equal(batch.rows(slice(2)).source, subject.inputs.read(slice(2)).batch.source)
    few = evidence.quality(subject, Sample(subject, 2)).table[1]["mean"]
    with torch.no_grad():
        each = gold_log_probability(subject.model(batch.rows(slice(2))))
    words = batch.rows(slice(2)).target_mask & (batch.rows(slice(2)).target > 2)
    expected = np.mean([row[keep].mean() for row, keep in zip(each, words, strict=True)])
    assert few == pytest.approx(expected)
