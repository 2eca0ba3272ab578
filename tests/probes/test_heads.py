"""How each layer and head attends, and which heads matter."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import PRESETS, Attention, ClassifierSettings, Trace, build, uniform
from attnscope.models.adapters import ablated, by_word, up_to
from attnscope.models.attention import changes_by_layer, masked_softmax
from attnscope.models.capabilities import EmbedsSource, GivesTrace, HasLayers
from attnscope.models.inference import with_predicted_target
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.decomposition import decompose
from attnscope.probes.heads import HeadRankingAccumulator, Sentences, head_formation, head_ranking
from attnscope.probes.saliency import influence
from attnscope.probes.word_alignment import GoldAlignment
from attnscope.tasks.batch import END, SPECIALS, START, Batch, pad
from attnscope.testing.contract import half_in_training, state_changes, state_of
from models.adapter_examples import CLASSIFIERS, ENCODER_DECODERS, SOURCES, TARGETS, adapter, texts

WORDS, LONGEST = 15, 8
ALIGNS, LOOKS_NOWHERE = (1, 0), (0, 1)


class Planted(GivesTrace, EmbedsSource, HasLayers, nn.Module):
    """Two layers of two heads; what is said is what head 0 of layer 1 picks, which looks at the place of the output.

    Of the heads that nothing follows from, one looks at all places alike, and two at places from the end.
    """

    depth = 2

    def __init__(self):
        super().__init__()
        self.source_inputs = nn.Embedding(WORDS, WORDS)
        with torch.no_grad():
            self.source_inputs.weight.copy_(torch.eye(WORDS))
        self.double()

    def forward(self, batch, attention=None, teacher_forcing=1.0, gates=False):
        embedded = self.source_inputs(batch.source)
        changes = changes_by_layer(attention, layers=2, heads=2)
        fed = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
        layers = tuple(self.layer(i, embedded, batch, changes.get(i, [])) for i in range(2))
        picked = layers[1].weights[:, 0] @ layers[1].values[:, 0]
        return Trace.of(
            batch,
            decoder_input=fed,
            embedded=embedded,
            encoder=embedded,
            decoder=picked,
            layers=layers,
            context=picked,
            logits=6 * picked,
        )

    def layer(self, number, embedded, batch, changes):
        source, target = (one_hot(torch.arange(words.shape[1]), LONGEST) for words in (batch.source, batch.target))
        looks = {(1, 0): 40.0, (0, 1): 0.0, (0, 0): -5.0, (1, 1): -3.0}
        queries = torch.stack([target * looks[number, head] for head in range(2)]).expand(len(embedded), -1, -1, -1)
        keys = source.double().expand(len(embedded), 2, -1, -1)
        alignment = queries.double() @ keys.mT
        weights = masked_softmax(alignment, batch.source_mask)
        for change in changes:
            weights = change(weights, batch.source_mask)
        return Attention(
            queries=queries.double(),
            keys=keys,
            values=embedded[:, None].expand(-1, 2, -1, -1),
            scores=alignment,
            weights=weights,
        )


def copying(count, seed=0, shortest=2):
    """Sentences to be copied, end tokens included, each word at most once in each."""
    random = np.random.default_rng(seed)
    rows = [
        np.array([*random.permutation(np.arange(3, WORDS))[: random.integers(shortest, LONGEST)], END])
        for _ in range(count)
    ]
    return Batch(*pad(rows), *pad(rows))


def one_by_one(batch):
    return [batch.rows(slice(i, i + 1)) for i in range(len(batch))]


def diagonal_links(batch):
    return [GoldAlignment.of((i, i) for i in range(int(mask.sum()) - 1)) for mask in batch.source_mask]


def same(one, other):
    pd.testing.assert_frame_equal(one, other, rtol=1e-4, atol=1e-5)


def own_model(settings, words=WORDS):
    torch.manual_seed(1)
    return build(settings, WORDS, words)


def translation(**changed):
    return own_model(replace(PRESETS["translation"], units=8, hidden=8, input_size=8, **changed))


def classifier(**settings):
    return own_model(ClassifierSettings(input_size=6, units=3, hidden=4, **settings), words=3 + len(SPECIALS))


def labelled(batch):
    target = torch.arange(len(batch))[:, None] % 3 + len(SPECIALS)
    return replace(batch, target=target, target_mask=torch.ones_like(target, dtype=torch.bool))


# Which heads to believe


def test_a_head_that_decides_everything_is_first_by_every_criterion():
    batch = copying(6)
    result = head_ranking(Planted(), [batch], gold=diagonal_links(batch))
    assert result.alignment_error[ALIGNS] == 0
    assert (result.ranks().loc[ALIGNS] == 1).all()
    assert not (result.ranks().drop([ALIGNS]) <= 1).any(axis=None)  # uniform attention has no τ, and no rank by it
    assert result.reference == "gold alignments"
    assert (result.sentences, result.tokens) == (6, int(batch.target_mask.sum()))


def test_a_head_without_consequences_has_no_effect():
    result = head_ranking(Planted(), [copying(6)])
    for effect in (result.ablated, result.uniform):
        others = torch.ones(2, 2, dtype=torch.bool).index_put((torch.tensor(1), torch.tensor(0)), torch.tensor(False))
        assert (effect.loss[others] == 0).all()
        assert (effect.changed[others] == 0).all()
        assert (effect.error[others] == 0).all()


def test_without_the_head_that_decides_every_word_is_as_likely_as_any_other():
    result = head_ranking(Planted(), [copying(5)])
    own = 6 - math.log(math.exp(6) + WORDS - 1)
    assert result.ablated.loss[ALIGNS].item() == pytest.approx(own + math.log(WORDS))
    assert result.ablated.error[ALIGNS].item() == pytest.approx(0, abs=1e-6)
    assert result.ablated.changed[ALIGNS].item() == 1.0  # what is said is then the first of equals, padding


def test_without_gold_alignments_heads_are_compared_with_ibm_model_1():
    batch = copying(60)
    result = head_ranking(Planted(), [batch], saliency=None)
    assert result.reference == "IBM Model 1"
    assert result.alignment_error[ALIGNS] < 0.05
    assert result.ranks()["alignment"].idxmin() == ALIGNS
    assert "saliency" not in result.ranks()


def test_a_head_that_attends_to_the_influential_word_agrees_with_saliency():
    batch, model = copying(6), Planted()
    result = head_ranking(model, [batch])
    agree, trace = AgreementAccumulator(), model(batch)
    words = replace(batch, source_mask=batch.source_mask & (batch.source != END))
    agree.update(trace.layers[0].weights[:, 0].detach(), influence(model, batch).values, words)
    assert result.saliency.kendall[0, 0].item() == pytest.approx(agree.result().kendall)
    assert result.saliency.top[0, 0].item() == pytest.approx(agree.result().top)
    assert result.saliency.chance == pytest.approx(agree.result().chance)
    assert result.saliency.top[ALIGNS] > result.saliency.top[0, 0]


@pytest.mark.parametrize("kind", ["marian", "t5", "bert"])
def test_effects_are_those_of_a_pass_with_that_head_changed(kind):
    model = adapter(kind)
    sentences = texts(model)
    result, batch = head_ranking(model, [sentences], saliency=None), sentences.batch
    for name, change in {"ablated": ablated, "uniform": uniform}.items():
        effect = getattr(result, name)
        for layer, head in [(0, 1), (1, 0)]:
            lost, flips, words = [], 0, batch.target_mask.sum(1).double().numpy()
            with torch.no_grad():
                own, other = model(batch), model(batch, attention={(layer, head): change})
            for i, mask in enumerate(batch.target_mask):
                gold = batch.target[i, mask][:, None]
                each = [t.logits[i, mask].log_softmax(-1).gather(1, gold).sum().item() for t in (own, other)]
                lost.append(each[0] - each[1])
                flips += int((own.predictions[i, mask] != other.predictions[i, mask]).sum())
            mean = sum(lost) / words.sum()
            n = len(words)
            error = math.sqrt(n / (n - 1) * ((np.array(lost) - mean * words) ** 2).sum()) / words.sum()
            assert effect.loss[layer, head].item() == pytest.approx(mean, abs=1e-5)
            assert effect.error[layer, head].item() == pytest.approx(error, abs=1e-5)
            assert effect.changed[layer, head].item() == pytest.approx(flips / words.sum())


def test_alignments_of_texts_are_between_words_and_not_subwords():
    model = adapter("marian")
    sentences = texts(model)
    with torch.no_grad():
        weights = by_word(model(sentences.batch).layers[1].weights[:, 1], sentences.source, sentences.target)
    gold = []
    for i in range(len(SOURCES)):
        result = set()
        for j in range(len(TARGETS[i].split())):
            best = int(weights[i, j].nan_to_num(-1).argmax())
            if best < len(SOURCES[i].split()):  # and not the end token, which comes last
                result.add((best, j))
        gold.append(GoldAlignment.of(result))
    result = head_ranking(model, [sentences], gold=gold, saliency=None)
    assert result.alignment_error[1, 1] == 0
    assert result.ranks()["alignment"].loc[1, 1] == 1


@pytest.mark.parametrize("kind", ["bart", "distilbert", "roberta"])
@pytest.mark.parametrize("of", ["gold", "own"])
def test_a_batch_of_many_is_as_many_batches_of_one(kind, of):
    model = adapter(kind)
    gold = TARGETS if kind == "bart" else [1, 0, 1, 1]
    whole, single = ([*model.reader.batches(SOURCES, gold, size)] for size in (4, 1))
    one, other = head_ranking(model, whole, of=of), head_ranking(model, single, of=of)
    same(one.table(), other.table())
    assert (one.sentences, one.tokens) == (other.sentences, other.tokens)


def test_rankings_by_predictions_use_predictions_as_targets():
    model = adapter("bert")
    sentences = texts(model)
    predicted = with_predicted_target(model, sentences.batch)
    same(head_ranking(model, [sentences], of="own").table(), head_ranking(model, [predicted]).table())
    ours = translation()
    result = head_ranking(ours, [copying(3)], of="own", saliency=None)
    assert result.of == "own"
    assert result.tokens != int(copying(3).target_mask.sum())


@pytest.mark.parametrize("model", [translation(), translation(heads=2, attention="query_key_value")])
def test_our_own_translator_has_one_layer(model):
    batch = copying(5)
    one, other = head_ranking(model, [batch]), head_ranking(model, one_by_one(batch))
    same(one.table(), other.table())
    assert one.table().index.get_level_values("layer").unique().tolist() == [0]
    same(head_formation(model, [batch]).table(), head_formation(model, one_by_one(batch)).table())


def test_our_own_classifier_has_one_head():
    model, batch = classifier(attention="dot"), labelled(copying(6))
    table = head_ranking(model, [batch]).table()
    assert len(table) == 1
    assert "alignment error" not in table
    assert (table.filter(like="rank by") == 1).all(axis=None)
    assert np.isnan(head_ranking(model, [batch]).agreement_between().loc["ablation", "uniform"])  # of one head


def test_only_the_first_sentences_are_used_however_they_come():
    model = adapter("marian")
    whole = [*model.reader.batches(SOURCES, TARGETS, 4)]
    few = [*model.reader.batches(SOURCES[:3], TARGETS[:3], 2)]
    result = head_ranking(model, whole, max_sentences=3)
    assert result.sentences == 3
    same(result.table(), head_ranking(model, few).table())
    same(head_formation(model, whole, max_sentences=3).table(), head_formation(model, few).table())


def test_two_halves_of_a_stream_merge_into_the_whole():
    model, batch = Planted(), copying(6)
    halves = [HeadRankingAccumulator(model), HeadRankingAccumulator(model)]
    for rank, rows in zip(halves, (slice(0, 2), slice(2, 6)), strict=True):
        rank.update(Sentences(batch.rows(rows)))
    halves[0].merge(halves[1])
    whole = HeadRankingAccumulator(model)
    whole.update(Sentences(batch))
    same(halves[0].result().table(), whole.result().table())


def test_agreement_of_rankings_equals_scipy():
    from scipy.stats import kendalltau, spearmanr

    model = adapter("marian", decoder_layers=3)
    result = head_ranking(model, [texts(model)])
    ranks = result.ranks()
    for name, reference in {"kendall": kendalltau, "spearman": spearmanr}.items():
        table = result.agreement_between(name)
        assert np.allclose(np.diag(table), 1)
        expected = reference(ranks["ablation"], ranks["saliency"]).statistic
        assert table.loc["ablation", "saliency"] == pytest.approx(expected)


# How attention is formed


def test_attention_by_position_has_a_temporal_share_of_one():
    result = head_formation(Planted(), [copying(30)])
    assert result.shares.of == "nine terms"
    torch.testing.assert_close(result.shares.groups[1, 0], torch.tensor([1.0, 0, 0]).double())


def test_uniform_attention_has_maximum_entropy():
    result = head_formation(Planted(), [copying(8)]).profile
    assert result.entropy[LOOKS_NOWHERE].item() == pytest.approx(1)
    assert result.special[LOOKS_NOWHERE].item() == pytest.approx(result.special_if_uniform)
    assert result.entropy[ALIGNS].item() == pytest.approx(0, abs=1e-6)
    assert result.offset[ALIGNS].item() == pytest.approx(0, abs=1e-6)
    assert result.spread[ALIGNS].item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", ["bart", "bert"])
def test_entropy_offsets_and_special_tokens_equal_an_explicit_loop(kind):
    model = adapter(kind)
    sentences = texts(model)
    result, batch = head_formation(model, [sentences]).profile, sentences.batch
    with torch.no_grad():
        weights = model(batch).layers[1].weights[:, 1].double()
    entropies, offsets, masses, on_specials = [], [], [], []
    for i in range(len(batch)):
        source, target = int(batch.source_mask[i].sum()), int(batch.target_mask[i].sum())
        names = sentences.source.tokens[i]
        for t in range(target):
            row = weights[i, t, :source]
            entropies.append(-(row * row.log()).sum().item() / math.log(source))
            on_specials.append(
                sum(row[s].item() for s in range(source) if names[s] in ("<s>", "</s>", "[CLS]", "[SEP]"))
            )
            for s in range(source):
                offsets.append(s - ((t + 0.5) * source / target - 0.5))
                masses.append(row[s].item())
    mean = np.average(offsets, weights=masses)
    assert result.entropy[1, 1].item() == pytest.approx(np.mean(entropies), abs=1e-5)
    assert result.offset[1, 1].item() == pytest.approx(mean, abs=1e-5)
    assert result.spread[1, 1].item() == pytest.approx(
        math.sqrt(np.average((np.array(offsets) - mean) ** 2, weights=masses)), abs=1e-4
    )
    assert result.special[1, 1].item() == pytest.approx(np.mean(on_specials), abs=1e-5)


@pytest.mark.parametrize("kind", ["marian", "t5", "bert"])
def test_the_nine_terms_of_each_layer_are_those_of_a_model_that_ends_there(kind):
    model = adapter(kind)
    batch = texts(model).batch
    result = head_formation(model, [batch], min_count=2)
    for layer in range(2):
        reference = decompose(lambda b, layer=layer: up_to(model(b), layer), [batch], min_count=2).in_sample.attention
        torch.testing.assert_close(result.shares.terms[layer], reference.shares.absolute, rtol=1e-4, atol=1e-5)
        time, common = reference.common.absolute[:, 0, 0], result.shares.common[layer, :, 0]
        torch.testing.assert_close(common, time, rtol=1e-4, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(result.shares.groups.sum(-1), torch.ones(2, 2).double())


def test_without_an_inner_product_the_shares_are_those_of_states():
    model, batch = classifier(attention="additive"), labelled(copying(6))
    result = head_formation(model, [batch])
    assert result.shares.of == "encoder states"
    lengths = decompose(model, [batch], of="states").in_sample.encoder.geometry
    parts = torch.stack([lengths.length(name)[0] for name in ("temporal", "input", "delta")])
    torch.testing.assert_close(result.shares.groups[0, 0], parts / parts.sum())
    assert "time, common words" not in result.table()


def test_masked_positions_are_not_counted():
    model, batch = classifier(attention="mlp", specials_attended=False), labelled(copying(6))
    with torch.no_grad():
        for parameter in model.attend.parameters():
            parameter.zero_()
    assert head_formation(model, [batch]).profile.entropy.item() == pytest.approx(1)
    assert head_formation(model, [batch]).profile.special_if_uniform == 0


@pytest.mark.parametrize("kind", ["mbart", "roberta"])
def test_formation_does_not_depend_on_the_batch_size(kind):
    model = adapter(kind)
    gold = TARGETS if kind == "mbart" else [1, 0, 1, 1]
    whole, single = ([*model.reader.batches(SOURCES, gold, size)] for size in (4, 1))
    one, other = head_formation(model, whole, min_count=1), head_formation(model, single, min_count=1)
    same(one.table(), other.table())
    assert (one.sentences, one.tokens) == (4, int(whole[0].batch.target_mask.sum()))


# What stays as it was, and what is refused


@pytest.mark.parametrize("kind", [*ENCODER_DECODERS, *CLASSIFIERS])
@torch.no_grad()
def test_layers_before_a_changed_head_are_not_recomputed(kind):
    model = adapter(kind)
    batch, calls = texts(model).batch, []
    again = CounterfactualAttention.of(model, batch)
    again.change_head(1, 0, ablated)  # a plain pass comes first
    handles = [part.register_forward_pre_hook(lambda part, _: calls.append(part)) for part in model.model.modules()]
    result = again.change_head(1, 0, uniform).logits[batch.target_mask]
    for handle in handles:
        handle.remove()
    first, second = model.family.attentions(model.model)
    assert first not in calls
    assert second in calls
    expected = model(batch, attention={(1, 0): uniform}).logits[batch.target_mask]
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_a_pass_that_fails_leaves_all_layers_as_they_were():
    model = adapter("marian")
    again = CounterfactualAttention.of(model, texts(model).batch)
    forwards = [vars(part).get("forward") for part in model.modules()]

    def fails(weights, mask):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again.change_head(1, 0, fails)
    assert [vars(part).get("forward") for part in model.modules()] == forwards


@pytest.mark.parametrize("kind", ["marian", "bert", "ours"])
def test_the_model_is_left_unchanged(kind):
    model = translation() if kind == "ours" else adapter(kind)
    data = copying(4) if kind == "ours" else texts(model)
    of = "gold" if kind == "ours" else "own"
    calm = head_ranking(model, [data], of=of).table(), head_formation(model, [data]).table()
    with half_in_training(model), torch.enable_grad():
        before = state_of(model)
        excited = head_ranking(model, [data], of=of).table(), head_formation(model, [data]).table()
        assert not [*state_changes(before, state_of(model), "a probe of heads")]
    for one, other in zip(calm, excited, strict=True):
        same(one, other)


def test_each_result_is_drawn_by_layer_and_head():
    model = adapter("marian")
    sentences = texts(model)
    for result, panels in ((head_formation(model, [sentences]), 7), (head_ranking(model, [sentences]), 4)):
        ax = result.plot()
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("head", "layer")
        figure = result.plot_all()
        assert len([ax for ax in figure.axes if ax.get_title()]) == panels
        assert len(result.table()) == 4
    with pytest.raises(BadSetting, match="there is no column 'noise'"):
        head_formation(model, [sentences]).plot(column="noise")


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: head_formation(Planted(), iter([copying(2)])), "an iterator"),
        (lambda: head_formation(Planted(), []), "there is no data yet"),
        (lambda: head_ranking(Planted(), []), "there is no data yet"),
        (lambda: head_ranking(Planted(), [copying(2)], max_sentences=0), "at least one is needed"),
        (
            lambda: head_ranking(Planted(), [copying(3)], gold=diagonal_links(copying(2))),
            "gold alignments for 2 sentences only",
        ),
        (
            lambda: head_ranking(Planted(), [copying(2)], gold=diagonal_links(copying(2)), of="own"),
            "gold alignments are between",
        ),
        (lambda: head_ranking(Planted(), [copying(2)], of="silver"), "there is no output 'silver'"),
        (lambda: head_ranking(Planted(), [copying(2)], of="own"), "does not declare: .*Generates"),
        (lambda: head_ranking(Planted(), [copying(2)]).agreement_between("pearson"), "there is no rank correlation"),
        (lambda: head_formation(own_model(PRESETS["ved"]), [copying(2)]), "has no attention"),
        (lambda: head_ranking(own_model(PRESETS["ved"]), [copying(2)]), "has no attention"),
    ],
)
def test_invalid_requests_are_refused_with_a_message(ask, sentence):
    with pytest.raises(AttnscopeError, match=sentence):
        ask()
