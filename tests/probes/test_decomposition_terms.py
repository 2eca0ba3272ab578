"""The nine terms of the alignment, their shares, and attention rebuilt from some of them."""

import numpy as np
import pytest
import torch
from decomposition_examples import WORDS, Table, Tiny, random_batch, slow_components, states_of
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import BadSetting
from attnscope.models.trace import Trace
from attnscope.probes.decomposition import (
    PARTS,
    TEMPORAL,
    TERMS,
    ComponentAccumulator,
    FittedComponents,
    MeasureAccumulator,
    Shares,
    attention_from_terms,
    scores_from_terms,
    terms,
)
from attnscope.tasks.batch import Batch


def fitted(trace: Trace) -> FittedComponents:
    fit = ComponentAccumulator()
    fit.update(trace)
    return fit.result()


def nine_terms(trace: Trace) -> torch.Tensor:
    components = fitted(trace)
    queries = components.decoder.split(trace.last.queries, trace.decoder_input)
    keys = components.encoder.split(trace.last.keys, trace.source)
    return terms(queries, keys)


def shares(trace: Trace, top_k: int = 5) -> Shares:
    measure = MeasureAccumulator(fitted(trace), top_k=top_k)
    measure.update(trace)
    return measure.result().attention.shares


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), heads=st.sampled_from([1, 2, 4]), size=st.integers(1, 6))
def test_nine_terms_sum_to_the_alignment(seed: int, heads: int, size: int) -> None:
    trace = Tiny(heads=heads, seed=seed).eval()(random_batch(size, seed))
    torch.testing.assert_close(nine_terms(trace).sum((0, 1)), trace.scores)


def test_each_term_is_the_product_of_one_part_of_the_query_and_one_of_the_key() -> None:
    trace = Tiny().eval()(random_batch(3, seed=0))
    components = fitted(trace)
    queries = components.decoder.split(trace.last.queries, trace.decoder_input)
    keys = components.encoder.split(trace.last.keys, trace.source)
    nine = terms(queries, keys)
    for i, mine in enumerate(PARTS):
        for j, theirs in enumerate(PARTS):
            torch.testing.assert_close(nine[i, j], getattr(queries, mine) @ getattr(keys, theirs).mT)


def test_attention_from_all_nine_terms_is_the_attention() -> None:
    trace = Tiny().eval()(random_batch(5, seed=1))
    torch.testing.assert_close(attention_from_terms(nine_terms(trace), trace.source_mask), trace.attention)


def test_attention_rebuilt_from_some_terms_sums_to_one_over_the_source() -> None:
    trace = Tiny().eval()(random_batch(5, seed=1))
    nine = nine_terms(trace)
    for keep in (TEMPORAL, [("input", "delta"), ("delta", "input")], []):
        rebuilt = attention_from_terms(nine, trace.source_mask, keep)
        torch.testing.assert_close(rebuilt.sum(-1), torch.ones_like(rebuilt[..., 0]))
        assert rebuilt.masked_select(~trace.source_mask[:, None, None]).sum() == 0
    torch.testing.assert_close(scores_from_terms(nine, TEMPORAL), nine[0, 0])


def test_a_term_that_does_not_exist_is_refused_with_the_parts_that_do() -> None:
    with pytest.raises(BadSetting, match=r"temporal.*input.*delta"):
        scores_from_terms(nine_terms(Tiny().eval()(random_batch(1, seed=0))), [("temporal", "word")])


def slow_shares(trace: Trace, head: int, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Figure 5a as its author computed it, one decoder step after the other; and the signed ratio of sums."""
    encoder, decoder = (slow_components(states_of(trace, side, head)) for side in ("encoder", "decoder"))
    absolute, signed = [], []
    for b in range(len(trace.source)):
        for s in np.flatnonzero(trace.target_mask[b]):
            query = three(trace.last.queries[b, head, s], decoder, int(s), int(trace.decoder_input[b, s]))
            candidates = np.flatnonzero(trace.source_mask[b])
            scores = trace.scores[b, head, s].detach().numpy()[candidates]
            shares, plain = [], []
            for t in candidates[np.argsort(-scores)[:top]]:
                key = three(trace.last.keys[b, head, t], encoder, int(t), int(trace.source[b, t]))
                nine = np.array([[q @ k for k in key] for q in query])
                shares.append(np.abs(nine) / np.abs(nine).sum())
                plain.append(nine)
            absolute.append(np.mean(shares, axis=0))
            signed.append(np.mean(plain, axis=0))
    return np.mean(absolute, axis=0), np.sum(signed, axis=0) / np.sum(signed)


def three(vector: torch.Tensor, components: tuple[dict, dict], time: int, word: int) -> list[np.ndarray]:
    temporal, input_ = components[0][time], components[1][word]
    return [temporal, input_, vector.detach().numpy() - temporal - input_]


@pytest.mark.parametrize("head", [0, 1])
@pytest.mark.parametrize("top", [1, 5, 50])
def test_shares_equal_an_explicit_loop_also_for_short_sources(head: int, top: int) -> None:
    trace = Tiny().eval()(random_batch(8, seed=2))
    absolute, signed = slow_shares(trace, head, top)
    result = shares(trace, top)
    np.testing.assert_allclose(result.absolute[head].numpy(), absolute, atol=1e-12)
    np.testing.assert_allclose(result.signed[head].numpy(), signed, atol=1e-9)


def test_shares_sum_to_one_overall_and_at_every_step() -> None:
    result = shares(Tiny().eval()(random_batch(8, seed=2)))
    for values in (result.absolute, result.signed, result.absolute_by_step, result.signed_by_step):
        torch.testing.assert_close(values.sum((-1, -2)), torch.ones_like(values[..., 0, 0]))


def test_shares_by_step_average_to_the_whole_when_weighted_by_their_sequences() -> None:
    result = shares(Tiny().eval()(random_batch(8, seed=2)))
    weights = result.steps / result.steps.sum(0)
    torch.testing.assert_close(torch.einsum("th,thij->hij", weights.double(), result.absolute_by_step), result.absolute)


def time_and_words(time_size: float, word_size: float, query_word_size: float) -> Table:
    """Times along the first axes, words along others; each word's and each time's vectors have a mean of zero."""
    torch.manual_seed(0)
    time, word, query_word = torch.zeros(9, 24), torch.zeros(WORDS, 24), torch.zeros(WORDS, 24)
    time[:, :9] = time_size * torch.eye(9)
    word[:, 9:16] = word_size * torch.randn(WORDS, 7)
    query_word[:, 9:16] = query_word_size * torch.randn(WORDS, 7)
    return Table(*(table.double() for table in (time, word, query_word)))


def balanced_batch() -> Batch:
    """Every source word at every position equally often, so that no time step is confounded with a word."""
    words = torch.cartesian_prod(*[torch.arange(3, WORDS)] * 3)
    mask = torch.ones_like(words, dtype=torch.bool)
    return Batch(words, mask, words, mask)


def test_an_alignment_of_time_alone_gives_a_temporal_share_of_one() -> None:
    result = shares(time_and_words(1.0, 0.0, 0.0)(balanced_batch()), top_k=1)
    torch.testing.assert_close(result.temporal, torch.ones_like(result.temporal))
    torch.testing.assert_close(result.signed[:, 0, 0], torch.ones_like(result.temporal))


def test_an_alignment_of_words_alone_gives_a_temporal_share_of_zero() -> None:
    model = time_and_words(0.0, 1.0, 1.0)
    model.word[3:] -= model.word[3:].mean(0)  # or their mean would be a temporal component
    model.query_word[3:] -= model.query_word[3:].mean(0)
    model.query_word[:3] = 0
    result = shares(model(balanced_batch()))
    torch.testing.assert_close(result.temporal, torch.zeros_like(result.temporal), atol=1e-12, rtol=0)
    torch.testing.assert_close(result.absolute[:, 1, 1], torch.ones_like(result.temporal))


def test_tables_name_the_terms() -> None:
    result = shares(Tiny().eval()(random_batch(4, seed=3)))
    assert list(result.table().columns) == ["·".join(term) for term in TERMS]
    assert list(result.table().index) == ["head 0", "head 1"]
    np.testing.assert_allclose(result.bars().sum(axis=1), 1)
    assert result.by_step(head=1, signed=True).shape == (len(result.steps), 9)
    assert result.bars().loc["head 1", "temporal·temporal"] == pytest.approx(float(result.temporal[1]))
