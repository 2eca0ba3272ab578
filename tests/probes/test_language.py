"""Statistics and kinds of heads of language models, against whole attention matrices and models with known heads."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from language_examples import foreign, language_model, tokenizer

import attnscope
from attnscope.errors import AttnscopeError
from attnscope.models.capabilities import HasLayers, PredictsNextToken
from attnscope.models.inference import traces
from attnscope.models.trace import AttentionRows
from attnscope.probes.agreement import AgreementAccumulator, agreement
from attnscope.probes.distances import distance_shares
from attnscope.probes.divergences import entropy
from attnscope.probes.fragility import fragility
from attnscope.probes.language import HeadSums, add_rows, concerned_of, head_kinds, head_statistics, repeated_tokens
from attnscope.probes.lexical import lexical_scores, lexical_scores_at
from attnscope.probes.positions import position_shares
from attnscope.tasks import Batch

TEXTS = ["the cat sat on the mat", "a dog sees the old dog", "the the the"]


def reference(model, texts):
    """The same statistics from whole matrices, row by row."""
    result = {}
    for text in texts:
        trace = model.trace([text])
        ids = trace.source[0].tolist()
        for i in range(1, len(ids)):
            row = torch.stack([layer.weights[0, :, i, : i + 1] for layer in trace.layers]).detach().double()
            patterns = {
                "first": [0],
                "previous": [i - 1],
                "duplicate": [j for j in range(i) if ids[j] == ids[i]],
                "induction": [j for j in range(1, i + 1) if ids[j - 1] == ids[i] and j - 1 < i],
            }
            for name, keys in patterns.items():
                if keys:
                    result.setdefault(name, []).append(row[:, :, keys].sum(-1))
                rest = [j for j in keys if j > 0]
                if rest and i > 1:
                    without = row[:, :, rest].sum(-1) / row[:, :, 1:].sum(-1)
                    result.setdefault(f"{name} without sink", []).append(without)
            result.setdefault("entropy", []).append(torch.special.entr(row).sum(-1) / np.log(i + 1))
            result.setdefault("distance", []).append((row * (i - torch.arange(i + 1))).sum(-1))
    return {name: torch.stack(values).mean(0).numpy() for name, values in result.items()}


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "gpt_oss", "mistral"])
@pytest.mark.parametrize("block", [2, 256])
def test_statistics_by_blocks_are_those_of_whole_matrices(kind, block):
    model = language_model(kind)
    result = head_statistics(model, TEXTS, block=block)
    for name, expected in reference(model, TEXTS).items():
        np.testing.assert_allclose(result.values[name], expected, atol=1e-5, err_msg=name)
    assert result.tokens == sum(model.trace([text]).source.shape[1] for text in TEXTS)
    assert result.table().index.names == ["layer", "head"]


def test_a_hybrid_model_reports_which_blocks_attend():
    result = head_statistics(language_model("qwen3_next"), TEXTS)
    assert (result.layers, result.blocks) == ((3,), 4)
    assert result.table().index.get_level_values("layer").unique().tolist() == [3]


def test_patterns_of_a_made_up_head_are_recognised():
    ids = torch.tensor([[7, 8, 9, 7, 8]])
    induction = torch.zeros(1, 1, 5, 5)
    for row, key in enumerate([0, 0, 0, 1, 2]):  # the token after the earlier 7, and after the earlier 8
        induction[0, 0, row, key] = 1
    sums = HeadSums()
    add_rows(sums, ids, AttentionRows(0, 0, induction, induction, None))
    assert sums.mean("induction").item() == 1
    assert sums.mean("duplicate").item() == 0
    assert sums.mean("induction if uniform").item() == pytest.approx((1 / 4 + 1 / 5) / 2)
    assert concerned_of("induction", ids).tolist() == [[False, False, False, True]]
    assert concerned_of("duplicate token", ids).tolist() == [[False, False, False, True]]


class Copier(HasLayers, PredictsNextToken, torch.nn.Module):
    """Predicts the token after an earlier occurrence of the present one, by its first head; the second is idle."""

    depth, attending_blocks, num_blocks = 1, (0,), 1

    def __init__(self, reader):
        super().__init__()
        self.reader = reader

    def weights(self, ids):
        length = ids.shape[1]
        same = (ids[:, :, None] == ids[:, None]) & torch.ones(length, length).tril(-1).bool()
        result = torch.zeros_like(same)
        result[:, :, 1:] = same[:, :, :-1]
        copying = torch.where(result.any(-1, keepdim=True), result, torch.arange(length) == 0).float()
        idle = (torch.arange(length) == 0).float().expand_as(copying)
        weights = torch.stack([copying, idle], 1)
        return weights / weights.sum(-1, keepdim=True)

    def observe(self, batch, observer, block=256):
        weights = self.weights(batch.source)
        observer(AttentionRows(0, 0, weights, weights, None))

    def logits_with(self, batch, attention):
        weights = self.weights(batch.source)
        for (_, head), change in attention.items():
            weights[:, head] = change(weights[:, [head]], batch.source_mask)[:, 0]
        ids = self.reader.target.from_tokenizer(batch.source)
        return 5 * weights[:, 0] @ torch.nn.functional.one_hot(ids, self.reader.target.vocab_size).float()


def test_an_induction_head_is_confirmed_by_ablation_and_an_idle_sink_is_not():
    reader = language_model("gpt2").reader
    result = head_kinds(attnscope.LoadedModel(Copier(reader), reader, "copier"), top=0)
    table = result.table().set_index(["kind", "head"])
    assert table.loc[("induction", 0), "score"] == pytest.approx(1.0)
    assert table.loc[("induction", 0), "confirmed"]
    assert table.loc[("induction", 0), "loss change"] > 2
    assert not table.loc[("induction", 1), "confirmed"]
    assert table.loc[("sink", 1), "score"] == pytest.approx(1.0)
    assert table.loc[("sink", 1), "loss change"] == 0
    assert not table.loc[("sink", 1), "confirmed"]


def test_repeated_tokens_repeat_and_are_of_the_vocabulary():
    model = language_model("llama")
    batch = repeated_tokens(model, length=10, count=3)
    assert batch.source.shape == (3, 20)
    assert torch.equal(batch.source[:, :10], batch.source[:, 10:])
    assert int(batch.source.min()) > 2
    assert torch.equal(batch.target[:, :-1], batch.source[:, 1:])


def test_random_heads_are_not_confirmed_as_a_rule():
    """Control: with random weights, few of the heads look like a kind at all."""
    table = head_kinds(language_model("llama"), top=0).table()
    assert table["confirmed"].mean() < 0.2


class Scores(PredictsNextToken, torch.nn.Module):
    """Its heads score by position alone, by token alone, by both, and by chance."""

    def forward(self, batch, attention=None, teacher_forcing=None, gates=False):
        from attnscope.models.trace import Attention, Trace

        ids, places = batch.source.float(), torch.arange(batch.source.shape[1]).float().expand(batch.source.shape)
        torch.manual_seed(int(ids.sum()))
        scores = torch.stack([places, ids, places / places.std() + ids / ids.std(), torch.randn(ids.shape)], 1)[
            :, :, None
        ]
        layer = Attention(values=scores.mT, scores=scores, weights=scores.softmax(-1))
        return Trace.of(batch, embedded=ids[..., None], encoder=ids[..., None], logits=torch.zeros(len(ids), 1, 90),
                        layers=(layer,))  # fmt: skip


def test_positional_and_symbolic_heads_are_told_apart():
    torch.manual_seed(1)
    ids = torch.stack([torch.randperm(80)[:20] + 5 for _ in range(8)])
    mask = torch.ones_like(ids, dtype=torch.bool)
    batch = Batch(ids, mask, ids[:, :1], mask[:, :1])
    table = position_shares(Scores(), [batch], permutations=24).table()
    assert table["kind"].tolist()[:2] == ["positional", "symbolic"]
    np.testing.assert_allclose(table["position"][:2], [1, 0], atol=0.08)
    np.testing.assert_allclose(table["words"][:2], [0, 1], atol=0.08)
    assert 0.25 < table["position"].iloc[2] < 0.75
    assert abs(table["rest"].iloc[3] - 1) < 0.1


def test_position_shares_of_real_families():
    for kind in ("gpt2", "llama"):
        table = position_shares(language_model(kind), ["the cat sat on the mat the old dog", TEXTS[1] * 2]).table()
        assert table.shape[0] == 8
        assert table[["position", "words"]].to_numpy().max() < 1.1


def test_lexical_agreement_of_whole_texts_counts_each_token_over_those_before_it():
    model = language_model("llama")
    batch = model.reader.read_whole(["the cat sat on the mat"]).batch
    result = agreement(model, [batch])
    assert result.words == batch.source.shape[1]
    assert 0 <= result.chance <= result.words


def test_other_models_are_refused():
    from adapter_examples import adapter

    with pytest.raises(AttnscopeError, match="predicts next tokens"):
        head_statistics(adapter("bert"), TEXTS)


def test_memory_of_statistics_does_not_grow_with_the_square_of_the_length():
    """No tensor of T x T is made: the largest one has a block of rows."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for one in result if isinstance(result, tuple | list) else (result,):
                if isinstance(one, torch.Tensor):
                    self.largest = max(self.largest, one.numel())
            return result

    model = attnscope.load(foreign("llama"), tokenizer=tokenizer())
    length = 2048
    ids = torch.randint(3, 60, (1, length))
    mask = torch.ones_like(ids, dtype=torch.bool)
    with Largest() as seen, torch.no_grad():
        head_statistics(model, Batch(ids, mask, ids, mask), block=64)
    assert seen.largest <= 64 * length * 4  # rows x keys x heads


def test_shares_without_a_sink_that_has_nearly_all_the_weight_stay_shares():
    ids = torch.randint(0, 4, (1, 40), generator=torch.Generator().manual_seed(0))
    scores = 3 * torch.randn(1, 2, 40, 40, generator=torch.Generator().manual_seed(1))
    scores[:, :, :, 0] += 25  # the others have about 1e-10 of the weight
    weights = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf).softmax(-1)
    sums = HeadSums()
    add_rows(sums, ids, AttentionRows(0, 0, scores, weights, None))
    result = {name: sums.mean(name) for name, _ in sums.sums if name.endswith("without sink")}
    assert all((value >= 0).all() and (value <= 1).all() for name, value in result.items() if "distance" not in name)
    plain = HeadSums()
    scores[:, :, :, 0] -= 25
    weights = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf).softmax(-1)
    add_rows(plain, ids, AttentionRows(0, 0, scores, weights, None))
    for name, value in result.items():
        np.testing.assert_allclose(value, plain.mean(name), rtol=1e-3)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_lexical_probe_of_the_last_layer_is_its_readout_and_of_others_a_pass_with_one_token(kind):
    model = language_model(kind)
    batch = model.reader.read_whole(["the old cat sat on", "a dog sleeps"]).batch
    ((_, trace),) = traces(model, batch)
    for head in (None, 2):
        by_passes = lexical_scores_at(model.module, trace, -1, head)
        by_readout = lexical_scores(model.module, trace, head)
        torch.testing.assert_close(by_passes.values, by_readout.values, equal_nan=True, rtol=1e-4, atol=1e-4)
    target, source = 3, 1
    alone = torch.zeros_like(trace.layers[0].weights[:1])
    alone[:, :, 0, source] = 1
    prompt = Batch(
        batch.source[:1, : target + 1], batch.source_mask[:1, : target + 1], batch.target[:1, target : target + 1],
        batch.target_mask[:1, target : target + 1],
    )  # fmt: skip
    changed = model.module(prompt, attention={0: alone[:, :, :1, : target + 1]})
    expected = changed.logits[0, 0].log_softmax(-1)[prompt.target[0, 0]].exp()
    result = lexical_scores_at(model.module, trace, 0).probability[0, target, source]
    assert result.item() == pytest.approx(expected.item(), rel=1e-4)


def test_agreement_of_a_layer_compares_its_attention_with_its_lexical_probe():
    model, texts = language_model("llama"), ["the old cat sat on", "a dog sleeps the old"]
    ((_, trace),) = traces(model, texts)
    total = AgreementAccumulator()
    total.update(trace.layers[0].weights.mean(1), lexical_scores_at(model.module, trace, 0).values, trace)
    assert agreement(model, texts, layer=0) == total.result()


def test_without_the_sink_measures_do_not_depend_on_the_first_token():
    model, texts = language_model("gpt2"), ["the old cat sat on the mat", "a dog sleeps the old house"]
    ((batch, trace),) = traces(model, texts)
    weights = trace.attention[:, :, 0, 1:]
    expected = []
    for row, there in zip(weights, batch.source_mask[:, 1:], strict=True):
        kept = row[:, there] / row[:, there].sum(-1, keepdim=True)
        expected.append(-(kept * kept.log()).sum(-1) / np.log(int(there.sum())))
    np.testing.assert_allclose(entropy(model, texts, sink=False).values, torch.stack(expected).numpy(), rtol=1e-4)
    observed = []

    def keep(own, mask):
        observed.append(own)
        return own

    model.module(batch, attention=keep)
    without = fragility(model, texts, draws=2, sink=False)
    assert not np.allclose(without.uniform.probabilities, fragility(model, texts, draws=2).uniform.probabilities)
    rest = observed[0].clone()
    for i, there in enumerate(batch.source_mask):
        places = there.nonzero().flatten()[1:]
        rest[i][:, :, places] = rest[i][:, :, places].mean(-1, keepdim=True)
    expected = model.module(batch, attention=rest).logits[:, 0, 3:].double().softmax(-1)
    np.testing.assert_allclose(without.uniform.probabilities, expected.detach().numpy(), rtol=1e-3, atol=1e-6)
    with_sink, without_sink = agreement(model, texts), agreement(model, texts, sink=False)
    assert without_sink.chance != with_sink.chance


class Scored(PredictsNextToken, torch.nn.Module):
    """Shows scores that are made up: by distance, by token, by both, and by chance."""

    attending_blocks, num_blocks = (0,), 1

    def __init__(self, length):
        super().__init__()
        random = torch.Generator().manual_seed(3)
        self.parameter = torch.nn.Parameter(torch.zeros(1))
        self.by_distance, self.by_token = (torch.randn(length, generator=random) for _ in range(2))

    def observe(self, batch, observer, block=256):
        ids = batch.source[0]
        places = torch.arange(len(ids))
        distance = self.by_distance[(places[:, None] - places).clamp_min(0)]
        token = self.by_token[ids].expand(len(ids), -1)
        noise = torch.randn(len(ids), len(ids), generator=torch.Generator().manual_seed(int(ids.sum())))
        scores = torch.stack([distance, token, distance + token, noise, distance + places[:, None]])[None]
        weights = scores.masked_fill(places > places[:, None], -torch.inf).softmax(-1)
        for start in range(0, len(ids), 7):
            observer(AttentionRows(0, start, scores[:, :, start : start + 7], weights[:, :, start : start + 7], None))


def test_shares_of_distance_and_token_recover_known_ones():
    length, window = 60, 12
    ids = torch.randint(0, 20, (40, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids, dtype=torch.bool)
    result = distance_shares(Scored(length), Batch(ids, mask, ids, mask), window=window)
    distance, token = result.distance[0], result.token[0]
    np.testing.assert_allclose(distance[[0, 4]], 1, rtol=1e-4)  # what all keys of a row share does not count
    assert token[1] == pytest.approx(1 - 1 / window, abs=0.03)  # a key is itself part of the mean of its row
    assert abs(distance[1]) < 0.02
    assert abs(token[0]) < 0.02
    assert token[2] == pytest.approx((1 - distance[2]) * (1 - 1 / window), abs=0.03)
    assert min(distance[2], token[2]) > 0.2
    assert max(abs(distance[3]), abs(token[3])) < 0.02
    model = Scored(length)
    expected = model.by_distance[:window] - model.by_distance[:window].mean()
    np.testing.assert_allclose(result.scores[0, 0], expected, atol=1e-5)
    assert result.table()["highest at"].iloc[0] == int(expected.argmax())


def test_distance_shares_of_real_families_do_not_depend_on_blocks_and_need_two_texts():
    texts = ["the old cat sat on the mat and the old dog sleeps", "a dog sees the old cat and the mat on the old house"]
    for kind in ("gpt2", "llama"):
        table = distance_shares(language_model(kind), texts, window=8).table()
        assert len(table) == 8
        assert table[["distance", "token", "rest"]].notna().all(axis=None)
    with pytest.raises(AttnscopeError, match="at least two"):
        distance_shares(language_model("gpt2"), texts[:1], window=8)
    with pytest.raises(AttnscopeError, match="sliding window"):
        distance_shares(language_model("mistral"), texts, window=8)
