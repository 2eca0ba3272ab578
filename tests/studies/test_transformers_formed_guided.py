"""The findings `formed` and `guided` at a tiny size: what is measured and claimed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import attnscope.studies.transformers as transformers
from attnscope.lab.experiment import Experiment
from attnscope.models import TransformerSettings
from attnscope.models.inference import traces
from attnscope.probes.positions import position_shares
from attnscope.studies.finding import Profile
from attnscope.studies.transformers import formed, guided
from attnscope.studies.transformers.formed import FORMED, FormedLabel
from attnscope.studies.transformers.guided import ALL, GUIDED, NONE, ONE, RIGHT, WRONG, GuidedLabel
from attnscope.tasks import LookupTables, OneToOne, ReversedOneToOne, Sorting
from attnscope.training import CrossEntropy, Guidance, TrainingSettings, fit
from attnscope.training.objectives import weight_at
from studies import well_formed

TINY = Profile("tiny", seeds=1)
SMALL = TransformerSettings(units=8, layers=2, heads=2, hidden=8, max_length=16)
LETTERS = OneToOne(min_length=4, max_length=5, test_size=12)


@pytest.fixture(scope="module")
def study():
    tasks = {
        formed.ONE_TO_ONE: LETTERS,
        formed.SORTING: Sorting(min_length=4, max_length=5, test_size=12),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(formed.SIZES, "tiny", formed.Sizes(tasks, (2,), SMALL, 1e-3, 8, 4, 4, 4))
        patch.setitem(guided.SIZES, "tiny", guided.Sizes(SMALL, 4, 8, 1e-3, (0.1, 1.0), 2))
        tables = LookupTables(bits=2, tables=4, heldout_compositions=1, heldout_inputs=1, validation=1, end=False)
        patch.setattr(guided, "lookup_tables", lambda: tables)
        with well_formed.tiny(transformers, (FORMED, GUIDED), TINY) as tiny_study:
            yield tiny_study


@pytest.fixture(scope="module")
def results(study, tmp_path_factory):
    return well_formed.results_of(study, tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("finding", [FORMED, GUIDED], ids=lambda finding: finding.name)
def test_results_are_well_formed(finding, results, study):
    well_formed.check(finding, results[finding.name])
    well_formed.check_without_runs(finding, TINY)


def test_every_network_is_measured_before_training_as_well(results):
    quantities = {}
    for row in results["formed"].table:
        quantities.setdefault((row["task"], row["model"]), set()).add(row["quantity"])
    assert len(quantities) == 2 * (2 + 2)
    assert all(
        {"share of position, before training", "share of words, all heads"} <= one for one in quantities.values()
    )
    assert {task for (task, _), one in quantities.items() if formed.PEAK_TEXT in one} == {formed.ONE_TO_ONE}


def test_temporal_components_of_attention_to_the_gold_position_meet_there():
    """Queries and keys that are one-hot vectors of the gold position and of the position."""
    task = ReversedOneToOne(min_length=5, max_length=5, test_size=12)
    batches = list(task.batches())
    model = Experiment(task, SMALL, TrainingSettings(steps=1)).new_model()

    class Known(type(model)):
        def forward(self, batch, *args, **kwargs):
            trace = super().forward(batch, *args, **kwargs)
            queries = torch.eye(6)[batch.gold_attention][:, None].expand(-1, 2, -1, -1)
            keys = torch.eye(6).expand(len(batch), 2, -1, -1)
            last = replace(trace.last, queries=queries, keys=keys)
            return replace(trace, layers=(*trace.layers[:-1], last))

    model.__class__ = Known
    actual = formed.peak_at_gold(model, batches)
    assert actual[1].tolist() == [1.0, 1.0]
    assert actual[0].max() < 1


def test_shares_of_an_encoder_decoder_tell_position_from_words():
    """Scores follow from words where there are no positions, and from position where there are no embeddings."""
    task = replace(LETTERS, num_words=5, min_length=8, max_length=8)
    batch = next(task.batches())
    model = Experiment(task, replace(SMALL, layers=1, units=16), TrainingSettings(steps=1)).new_model()
    torch.manual_seed(0)
    with torch.no_grad():
        model.encoder.positions.zero_()
        words = position_shares(model, [batch], permutations=16).table()
        model.source_inputs.table.zero_()
        model.encoder.positions.normal_()
        position = position_shares(model, [batch], permutations=16).table()
    np.testing.assert_allclose(words["words"], 1, atol=0.1)
    np.testing.assert_allclose(position["position"], 1, atol=0.1)


def test_recurrent_networks_keep_their_settings_and_transformers_differ_in_depth_and_positions_only(study):
    cases = formed.experiments(TINY)
    models = {label.model: case.runs["model"].model for label, case in cases.items() if label.task == formed.ONE_TO_ONE}
    assert models["AED"] == formed.recurrent.one_to_one(formed.ATTENDING["AED"], formed.recurrent.QUICK).model
    assert {replace(m, layers=1, positions="learned") for name, m in models.items() if "layer" in name} == {
        replace(SMALL, layers=1)
    }
    assert not FormedLabel("eSCAN", "AO").is_transformer


# Guidance ------------------------------------------------------------------------------------------------------------


def test_both_patterns_have_the_same_doses_and_all_networks_the_same_steps(study):
    cases = guided.experiments(TINY)
    doses = {
        (heads, pattern): [label.dose for label in cases if label[:2] == (heads, pattern) and label != NONE]
        for heads in (ONE, ALL)
        for pattern in (RIGHT, WRONG)
    }
    assert set(map(tuple, doses.values())) == {(0.1, 1.0)}
    assert len({replace(case.runs["model"], objective=CrossEntropy()).key for case in cases.values()}) == 1


@pytest.mark.parametrize("label", [GuidedLabel(ONE, RIGHT, 1.0), GuidedLabel(ONE, WRONG, 1.0)], ids=str)
def test_guidance_of_a_head_moves_the_attention_of_that_head(label):
    task = LookupTables(bits=2, tables=4, heldout_compositions=1, heldout_inputs=1, validation=1, end=False)
    settings = TrainingSettings(steps=100, batch_size=16, teacher_forcing=1.0, learning_rate=5e-3, evaluate_every=200)
    torch.manual_seed(0)
    model = Experiment(task, replace(SMALL, units=16), settings).new_model()
    fit(model, task, CrossEntropy() + guided.guidance(label), settings)
    batch, trace = next(iter(traces(model, task.batches("train"), teacher_forcing=1.0)))
    heads = weight_at(trace, guided.guidance(label).places(batch)).transpose(1, 2)[batch.target_mask].mean(0)
    assert heads[guided.GUIDED_HEAD] > 0.9
    assert heads[guided.GUIDED_HEAD] > heads[1] + 0.2
    other = Guidance(shift=1 - guided.SHIFT[label.pattern]).places(batch)
    assert weight_at(trace, other)[:, guided.GUIDED_HEAD][batch.target_mask].mean() < 0.1


def test_the_decoders_residual_stream_is_what_its_output_is_computed_from():
    task = LookupTables(bits=2, tables=4, heldout_compositions=1, heldout_inputs=1, validation=1, end=False)
    model = Experiment(task, SMALL, TrainingSettings(steps=1)).new_model().eval()
    _, trace = next(iter(traces(model, task.batches("train"), teacher_forcing=1.0)))
    behind = guided.residual_stream(model, trace, "decoder")
    layer = model.stack.layers[-1]
    with torch.no_grad():
        logits = model.output(model.stack.norm(behind + layer.feed_forward(layer.norms[-1](behind))))
    torch.testing.assert_close(logits, trace.logits)
