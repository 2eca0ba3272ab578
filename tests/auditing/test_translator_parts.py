"""The evidence about a translator: closed answers where there are any, plain loops elsewhere, batches of any size."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import nn

import attnscope
from attnscope.errors import BadSetting
from attnscope.faithfulness import checks, examples, translator
from attnscope.faithfulness.records import to_json
from attnscope.faithfulness.subject import Sample, ScoreCache, Subject
from attnscope.models import Attention, EncoderDecoder, EncoderDecoderSettings, Trace
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, GivesTrace, ReadsOut
from attnscope.models.inputs import Example, Inputs
from attnscope.models.loaded import LoadedModel, TaskReader
from attnscope.probes.adversary import (
    SearchSettings,
    maximise_distance,
    search_adversaries_in_batch,
    search_token_adversaries,
)
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.divergences import tvd
from attnscope.probes.saliency import gold_log_probability, influence
from attnscope.tasks import Copying
from attnscope.testing.clauses import half_in_training, state_changes, state_of
from models.adapter_examples import SOURCES, TARGETS, adapter, texts
from probes.reweighing_examples import classifier
from probes.reweighing_examples import texts as labelled_texts

LENGTH, WORDS, GAIN = 6, 12, 4.0
SHORT = SearchSettings(restarts=2, steps=40, learning_rate=0.2, penalty=10.0, growth=1.1)
FEW = replace(SHORT, steps=10)
PARTS = ("quality", "dependence", "adversary", "erasure", "correlation", "single_tokens", "plausibility", "examples")


class Copier(GivesTrace, ReadsOut, EmbedsSource, nn.Module):
    """It looks for the word that is to be said, and says what it found; or, if `blind`, the mean of all words."""

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


def asked(name, subject, size=4, **sample):
    shared = {"examples": examples.translation_examples, "adversary": checks.adversary,
              "correlation": checks.correlation, "single_tokens": checks.single_tokens}  # fmt: skip
    return shared.get(name, getattr(translator, name, None))(subject, Sample(subject, 100, size, quick=True, **sample))


def test_a_model_that_says_what_it_looks_at_passes_every_test():
    subject = copying(Copier())
    tests = {name: asked(name, subject).tests[0] for name in ("dependence", "erasure", "single_tokens", "adversary")}
    assert {test.answer for test in tests.values()} == {"yes"}
    assert tests["erasure"].value == pytest.approx(1)
    assert tests["single_tokens"].value == pytest.approx(1 / LENGTH)  # the word itself, and no other
    assert asked("quality", subject).table[0]["mean"] == 1


def test_a_model_that_looks_but_does_not_use_what_it_sees_passes_none():
    subject = copying(Copier(blind=True))
    tests = {name: asked(name, subject).tests[0] for name in ("dependence", "single_tokens", "adversary")}
    assert {test.answer for test in tests.values()} == {"no"}
    assert tests["dependence"].value == 0
    assert tests["single_tokens"].value == 1
    assert tests["adversary"].value > 0.9
    assert all(row["output change (TVD)"] == pytest.approx(0, abs=1e-6) for row in asked("dependence", subject).table)


def test_uniform_attention_costs_what_a_softmax_says():
    subject = copying(Copier(sharp=50.0))
    row = asked("dependence", subject).table[0]
    own = -math.log1p((WORDS + 2) * math.exp(-GAIN))
    even = GAIN / (LENGTH + 1)  # the logit of each word of the source, its end included
    others = (LENGTH + 1) * math.exp(even) + (WORDS + 2 - LENGTH)
    assert row["attention"] == "uniform"
    assert row["log-probability lost"] == pytest.approx(own - (even - math.log(others)))


def test_what_is_lost_without_a_word_is_what_loops_say():
    subject = marian()
    found = {row["token removed"]: row["log-probability lost"] for row in asked("erasure", subject).table}
    means = []
    for one in subject.inputs.texts(1):
        batch, words = one.batch, one.batch.source.shape[1] - 1  # the last is </s>
        with torch.no_grad():
            trace = subject.model(batch)
            whole = gold_log_probability(trace)[0, :-1]
            kept = [[j for j in range(words + 1) if j != i] for i in range(words)]
            names = ("source", "source_mask", "source_special")
            rest = [replace(batch, **{name: getattr(batch, name)[:, k] for name in names}) for k in kept]
            lost = torch.stack([whole - gold_log_probability(subject.model(one))[0, :-1] for one in rest])
        top = trace.attention.mean(1)[0, :-1, :words].argmax(1)
        attended = lost.gather(0, top[None])[0]
        means.append([attended.mean(), lost.mean(), lost.amax(0).mean()])
    np.testing.assert_allclose(list(found.values()), np.mean(means, 0), atol=1e-9)


def test_rank_correlations_are_those_of_scipy():
    subject = marian()
    table = {row["scores"]: row["τ"] for row in asked("correlation", subject).table}
    taus = []
    for one in subject.inputs.texts(1):
        attention = subject.model(one.batch).attention.mean(1)[0, :-1, :-1].detach()
        slopes = influence(subject.model, one.batch).values[0, :-1, :-1].abs()
        taus.append(np.mean([kendalltau(a, s).statistic for a, s in zip(attention, slopes, strict=True)]))
    assert table["attention with gradient × input"] == pytest.approx(np.mean(taus))
    assert abs(table["random attention with leave-one-out"]) < 0.3


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == pytest.approx(other, abs=1e-6) if isinstance(one, float) else one == other


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("name", [name for name in PARTS if name != "adversary"])
def test_batches_do_not_matter(kind, name):
    first, *others = (to_json(asked(name, SUBJECTS[kind](), size)) for size in (1, 3, 7))
    assert all(same(first, other) for other in others)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_batches_do_not_matter_to_adversaries_in_any_precision(kind, monkeypatch):
    monkeypatch.setattr(checks, "translator_search", lambda sample: FEW)
    subject = SUBJECTS[kind]()
    subject.model.float()
    first, *others = (to_json(asked("adversary", subject, size)) for size in (1, 3, 7))
    assert all(other == first for other in others)


@pytest.mark.parametrize("kind", ["marian", "readout", "input"])
def test_padding_does_not_matter_to_adversaries(kind):
    subject = marian() if kind == "marian" else recurrent(context=kind)
    found = []
    for size in (1, 3, 7):
        parts = [
            search_token_adversaries(subject.model, one.batch, one.batch.target_mask, FEW)
            for one in subject.inputs.texts(size)
        ]
        found.append(torch.cat([part.jsd for part in parts]))
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(found[2], found[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_the_model_is_left_as_it_was(kind):
    subject = SUBJECTS[kind]()
    with half_in_training(subject.model):
        before = state_of(subject.model)
        for name in PARTS:
            asked(name, subject)
        checks.another_seed(subject)(subject, Sample(subject, 3))
        assert list(state_changes(before, state_of(subject.model), "an audit")) == []


@pytest.mark.parametrize("kind", ["marian", "closed", "readout", "input"])
def test_what_an_adversary_is_said_to_keep_is_kept_by_a_forward_pass(kind):
    subject = marian() if kind == "marian" else recurrent(context="readout" if kind == "closed" else kind)
    model, batch = subject.model, subject.inputs.read(slice(4)).batch
    words = batch.target_mask & (batch.target > 2)
    found = search_token_adversaries(
        Closed(model) if kind == "closed" else model, batch, words, FEW, max_probabilities=1
    )
    sentence, step = words.nonzero().unbind(1)
    with torch.no_grad():
        own = model(batch)
        weights = own.attention.clone()
        weights[sentence, :, step] = found.weights
        other = model(batch, attention=weights)
    moved = tvd(other.logits.softmax(-1), own.logits.softmax(-1))[sentence, step]
    assert (moved <= 0.01).all()
    torch.testing.assert_close(moved, found.tvd, atol=1e-9, rtol=0)
    assert found.jsd.max() > 0.01
    assert (found.weights[~batch.source_mask[sentence][:, None].expand_as(found.weights)] == 0).all()


def test_words_hang_together_only_where_attention_reaches_later_ones():
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


def test_a_penalty_that_finds_its_size_gets_as_far_in_fewer_steps():
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


def test_links_on_the_diagonal_are_found_by_a_copier():
    part = asked("plausibility", copying(Copier()))
    rates = {row["word alignment by"]: row["error rate"] for row in part.table}
    assert rates["attention shown"] == rates["best head (layer 0, head 0)"] == 0
    assert 0 <= rates["IBM Model 1"] < 1
    assert asked("plausibility", copying(Copier(), links=False)) is None


def test_another_seed_is_compared_with_shuffled_attention():
    subject = marian()
    table = {row["attention"]: row for row in checks.another_seed(marian())(subject, Sample(subject, 6, 2)).table}
    assert table["another seed"]["τ"] == pytest.approx(1)
    assert table["another seed"]["JSD, share of the maximum"] == pytest.approx(0, abs=1e-9)
    assert table["its own, shuffled"]["τ"] < 0.5
    assert table["its own, shuffled"]["JSD, share of the maximum"] > 0.01
    with pytest.raises(BadSetting, match="different tokens"):
        checks.another_seed(copying(Copier()))(subject, Sample(subject, 3))


def test_a_model_without_a_second_door_is_not_asked_about_words_alone():
    part = asked("single_tokens", copying(Closed(Copier())))
    assert part.tests == part.table == ()
    assert "needs a model" in part.sentences[0]
    example = asked("examples", copying(Closed(Copier()))).examples[0]
    assert list(example.scores) == ["attention", "leave-one-out"]


def test_examples_are_whole_sentences_by_word():
    for subject in (marian(), copying(Copier())):
        found = asked("examples", subject).examples
        assert 4 <= len(found) <= 8
        for example in found:
            assert len(example.special) == len(example.source)
            assert len(example.predicted) == len(example.target)
            for values in example.scores.values():
                assert np.shape(values) == (len(example.target), len(example.source))
            np.testing.assert_allclose(np.sum(example.scores["attention"], 1), 1, atol=5e-3)
            assert np.max(example.scores["each token alone"]) <= 1
    assert all(example.predicted == example.target for example in found)
    assert {example.reason.split(":")[0] for example in found} == {"typical", "extreme", "wrong"}


def test_leave_one_out_is_computed_once_for_several_tests():
    subject = marian()
    asked("erasure", subject)
    computed = list(subject.cache.entries)
    asked("correlation", subject)
    assert [key for key in subject.cache.entries if key[0] == "leave-one-out"] == computed != []


def test_the_cache_of_scores_is_bounded():
    subject = marian()
    batches = [one.batch for one in subject.inputs.texts(1)]
    cache = ScoreCache(max_bytes=3 * 400)
    for batch in batches:
        cache.get("score", batch, lambda: torch.zeros(100))
    assert len(cache.entries) == 3
    newest = [cache.get("score", batch, lambda: torch.ones(100)).sum() for batch in batches[-3:]]
    assert newest == [0, 0, 0]
    assert cache.get("score", batches[0], lambda: torch.ones(100)).sum() == 100


def test_sentences_without_a_choice_of_words_count_for_nothing():
    """One source word cannot be ranked: the sentence is left out, and one sentence alone has no interval."""
    model = attnscope.load(adapter("marian").double())
    subject = Subject(model, Inputs.of(model, [("a", "ein hund")]))
    assert subject.inputs.read(slice(1)).batch.source.shape[1] == 2
    assert asked("erasure", subject).tests[0].answer == "unclear"
    assert asked("correlation", subject).tests[0].answer == "unclear"
    assert asked("examples", subject).examples == []


def test_a_sample_of_the_first_sentences_is_what_is_asked_about():
    subject = marian()
    batch = texts(subject.model).batch
    assert torch.equal(batch.rows(slice(2)).source, subject.inputs.read(slice(2)).batch.source)
    few = translator.quality(subject, Sample(subject, 2)).table[1]["mean"]
    with torch.no_grad():
        each = gold_log_probability(subject.model(batch.rows(slice(2))))
    words = batch.rows(slice(2)).target_mask & (batch.rows(slice(2)).target > 2)
    expected = np.mean([row[kept].mean() for row, kept in zip(each, words, strict=True)])
    assert few == pytest.approx(expected)
