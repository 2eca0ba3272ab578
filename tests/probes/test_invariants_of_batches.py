"""No probe reads what stands under padding, and none minds in which order sentences come: all of them in one table.

That more padding and smaller batches change nothing is tested probe by probe, on_device_of each.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from lexical_examples import WORDS, encoder_decoder, random_batch
from reweighing_examples import classifier, texts

from attnscope.probes.adversary import (
    SearchSettings,
    exact_adversaries,
    imitation,
    search_adversaries,
    search_token_adversaries,
)
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.decomposition import decompose
from attnscope.probes.diagnostic import DiagnosticSettings, Samples, fit_diagnostic, last_tokens
from attnscope.probes.erasure import ComprehensivenessAccumulator, FlipAccumulator
from attnscope.probes.fragility import fragility
from attnscope.probes.gates import SaturationAccumulator, activations
from attnscope.probes.grounding import GroundingAccumulator, batch_token_probabilities
from attnscope.probes.heads import head_formation, head_ranking
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.probes.occurrences import gather_occurrences, most_frequent_words, word_counts
from attnscope.probes.optimal import solve_optimal_attention
from attnscope.probes.plausibility import PlausibilityAccumulator
from attnscope.probes.saliency import METHODS
from attnscope.probes.scores import attention_scores

TRANSLATOR = encoder_decoder(inputs="learned", heads=2, attention="query_key_value")
CLASSIFIER, OTHER = classifier(seed=0), classifier(seed=1)
SENTENCES, TEXTS = random_batch(5, seed=3, longest=5), texts(6)
SHORT = SearchSettings(steps=2, restarts=2)
POINTS = {"integrated_gradients": {"points": 3}}  # few will do


def total(scores):
    """Over sentences, so that their order is gone."""
    return scores.values.nansum(0).sum(-1)[:2]


def table_of_batch(gather, *given):
    """The answer of an accumulator that is given one batch."""
    gather.update(*given)
    return gather.result().table()


def salient(method, batch, **more):
    return total(method(TRANSLATOR, batch, **more))


def agreed(batch):
    return table_of_batch(
        AgreementAccumulator(),
        attention_scores(TRANSLATOR(batch)).values,
        batch_lexical_scores(TRANSLATOR, batch).values,
        batch,
    )


def collected(batch):
    result = gather_occurrences(CLASSIFIER, [batch], most_frequent_words(word_counts([batch]), 4))
    return np.concatenate([result.states.sum(0), result.embedded.sum(0), [result.total, result.words.sum()]])


def read_off(batch):
    """Which steps are learned from depends on the order of sentences: here all that are kept, put in order."""
    kinds = last_tokens(batch.source, batch.source_mask, WORDS)
    samples = Samples.of(TRANSLATOR(batch).encoder, batch.source, batch.source_mask, kinds)
    order = np.lexsort(samples.states.T)
    reordered = Samples(samples.states[order], samples.labels[order] % 2, np.arange(len(samples)), samples.types[order])
    return fit_diagnostic(reordered, DiagnosticSettings(penalty="l2", repeats=2)).weights.ravel()


def plausible(batch):
    rationale = (batch.source % 2 * batch.source_mask).float()
    return table_of_batch(
        PlausibilityAccumulator(draws=2),
        replace(batch, rationale=rationale),
        {"α": attention_scores(CLASSIFIER(batch))},
    )


OF_SENTENCES = {
    "activations": lambda batch: activations(TRANSLATOR(batch).encoder, batch.source_mask, None).table(),
    "agreement": agreed,
    "decomposition": lambda batch: decompose(TRANSLATOR, [batch]).table(),
    "decomposition of states": lambda batch: decompose(TRANSLATOR, [batch], of="states").table(),
    "diagnostic": read_off,
    "gates": lambda batch: table_of_batch(SaturationAccumulator(0.4, 0.6), TRANSLATOR(batch, gates=True)).drop(
        columns="gate"
    ),
    "heads, formed": lambda batch: head_formation(TRANSLATOR, [batch]).table(),
    "heads, ranked": lambda batch: head_ranking(TRANSLATOR, [batch]).table(),
    "lexical": lambda batch: total(batch_lexical_scores(TRANSLATOR, batch)),
    "optimal": lambda batch: (
        solve_optimal_attention(TRANSLATOR, TRANSLATOR(batch), 1e-9).table()[["loss", "own loss"]].sum()
    ),
    "adversary of words": lambda batch: search_token_adversaries(TRANSLATOR, batch, batch.target_mask, SHORT).jsd.sum(),
    **{name: partial(salient, method, **POINTS.get(name, {})) for name, method in METHODS.items()},
}
OF_TEXTS = {
    "adversary": lambda batch: search_adversaries(CLASSIFIER, [batch], SHORT).table(),
    "adversary, farthest": lambda batch: exact_adversaries(CLASSIFIER, [batch]).table(),
    "adversary, trained": lambda batch: imitation(CLASSIFIER, OTHER, [batch]).table(),
    "comprehensiveness": lambda batch: table_of_batch(ComprehensivenessAccumulator(draws=2), CLASSIFIER, batch),
    "erasure": lambda batch: table_of_batch(FlipAccumulator(draws=2), CLASSIFIER, batch),
    "fragility": lambda batch: fragility(CLASSIFIER, [batch], draws=3).table(),
    "grounding": lambda batch: table_of_batch(GroundingAccumulator(), batch_token_probabilities(CLASSIFIER, batch)),
    "information": collected,
    "plausibility": plausible,
}
EVERY = [(name, ask, SENTENCES) for name, ask in OF_SENTENCES.items()]
EVERY += [(name, ask, TEXTS) for name, ask in OF_TEXTS.items()]


def with_other_padding(batch):
    """Words where there are none."""
    random = torch.Generator().manual_seed(0)
    source, target = (torch.randint(1, WORDS, side.shape, generator=random) for side in (batch.source, batch.target))
    source, target = batch.source.where(batch.source_mask, source), batch.target.where(batch.target_mask, target)
    return replace(batch, source=source, target=target)


def backwards(batch):
    return replace(batch, **{name: side.flip(0) for name, side in vars(batch).items() if side is not None})


@pytest.mark.parametrize("changed", [with_other_padding, backwards])
@pytest.mark.parametrize(("ask", "batch"), [pytest.param(ask, batch, id=name) for name, ask, batch in EVERY])
def test_results_do_not_depend_on_padding_or_the_order_of_sentences(ask, batch, changed):
    with torch.no_grad():
        before, after = (np.asarray(ask(given), dtype=float) for given in (batch, changed(batch)))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-9)
