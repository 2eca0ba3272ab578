"""Every file that the pages of docs show is complete, short, and works as the page describes."""

import re
import runpy
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

import attnscope
from attnscope import studies
from attnscope.errors import BadSetting
from attnscope.lab import engines
from attnscope.lab.configuration import KINDS
from attnscope.lab.experiment import Experiment, find_run, train
from attnscope.lab.store import Store
from attnscope.models import ATTENTIONS, CELLS, EncoderDecoder, EncoderDecoderSettings, uniform
from attnscope.models.inference import traces
from attnscope.probes import PROBES
from attnscope.studies.aitken2021.experiments import QUICK
from attnscope.studies.result import Result, load_results, verify
from attnscope.tasks import END, SPECIALS, TASKS, OneToOne
from attnscope.testing import check_adapter
from attnscope.testing.contract import state_changes, state_of
from attnscope.training import TrainingSettings

DOCS = Path(__file__).parent.parent.parent / "docs"
FILES = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "examples").glob("*.py")}
NAMES = ("extending.md", "own-model.md", "reproduce-a-paper.md")
PAGES = "".join((DOCS / name).read_text(encoding="utf-8") for name in NAMES)


@pytest.fixture(autouse=True)
def at_home(monkeypatch, tmp_path):
    """In a folder of one's own that sees the examples; afterwards nobody knows of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    monkeypatch.setattr(studies, "STUDIES", list(studies.STUDIES))
    known = [(registry, dict(registry)) for registry in (TASKS, KINDS, ATTENTIONS, CELLS, PROBES)]
    yield
    for registry, before in known:
        registry.clear()
        registry.update(before)
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def run_unchanged(name):
    return runpy.run_path(str(DOCS / "examples" / name), run_name="__main__")


def model_for(task, **settings):
    torch.manual_seed(0)
    settings = EncoderDecoderSettings(**{"units": 8} | settings)
    return EncoderDecoder(settings, len(task.source_vocabulary), len(task.target_vocabulary))


def test_the_pages_show_every_file_as_it_is():
    assert dict(re.findall(r'```python title="examples/(\w+\.py)"\n(.*?)```', PAGES, re.DOTALL)) == FILES


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_has_fewer_than_60_lines(name):
    assert len(FILES[name].splitlines()) < 60


@pytest.mark.parametrize("name", ["doubling.py", "cosine.py", "spread.py"])
def test_every_file_runs_unchanged(name, capsys):
    run_unchanged(name)
    assert capsys.readouterr().out


# The task ---------------------------------------------------------------------------------------------------------


def test_doubling_repeats_every_letter_and_its_gold_attention_points_at_it():
    batch = import_module("doubling").Doubling(max_length=3).training_batch(seed=0, step=0, size=20)
    for source, mask, target, there in zip(
        batch.source, batch.source_mask, batch.target, batch.target_mask, strict=True
    ):
        *letters, end = source[mask].tolist()
        assert target[there].tolist() == [letter for letter in letters for _ in range(2)] + [end]
        assert min(letters) >= len(SPECIALS)
    pointed_at = batch.source.gather(1, batch.gold_attention.clamp(min=0))
    assert torch.equal(pointed_at[batch.target_mask], batch.target[batch.target_mask])


def test_a_stored_run_of_the_task_is_found_again(tmp_path):
    task = import_module("doubling").Doubling(test_size=10, max_length=2)
    settings = EncoderDecoderSettings(units=4)
    experiment = Experiment(task, settings, TrainingSettings(steps=1, batch_size=2))
    train(experiment, Store(tmp_path))
    assert find_run(experiment.key, Store(tmp_path)).task == task


def test_a_setting_of_the_task_that_cannot_work_is_refused():
    with pytest.raises(BadSetting, match="max_length is 0"):
        import_module("doubling").Doubling(max_length=0)


# The attention ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["concatenate", "sum", "mean"])
def test_cosine_attention_keeps_the_contract(combine):
    import_module("cosine")
    task = OneToOne(min_length=1, max_length=4, test_size=6)
    check_adapter(model_for(task, attention="cosine", heads=2, combine=combine).eval(), task.batches())


def test_cosine_attention_starts_from_five_times_the_cosine():
    import_module("cosine")
    task = OneToOne(min_length=3, max_length=3, test_size=4)
    trace = model_for(task, attention="cosine")(next(task.batches()))
    cosine = torch.cosine_similarity(trace.decoder[:, :, None], trace.encoder[:, None], dim=-1)
    torch.testing.assert_close(trace.scores[:, 0], 5 * cosine)


def test_cosine_attention_refuses_states_of_two_sizes():
    import_module("cosine")
    with pytest.raises(BadSetting, match="states of one size, not 8 and 16"):
        model_for(OneToOne(), attention="cosine", bidirectional=True)


# The probe --------------------------------------------------------------------------------------------------------


def test_uniform_attention_is_spread_over_all_source_words():
    task = OneToOne(min_length=1, max_length=5, test_size=10)
    batch = next(task.batches())
    found = import_module("spread").spread(model_for(task)(batch, attention=uniform))
    torch.testing.assert_close(found, batch.source_mask.sum(1, keepdim=True).float().expand_as(found))


def test_the_spread_of_a_batch_is_that_of_its_sentences():
    spread = import_module("spread").spread
    task = OneToOne(min_length=1, max_length=5, test_size=10)
    batch, model = next(task.batches()), model_for(task)
    for row, found in enumerate(spread(model(batch))):
        alone = spread(model(batch.rows(slice(row, row + 1))))[0]
        torch.testing.assert_close(found[: len(alone)], alone)


def test_computing_the_spread_leaves_the_model_unchanged():
    task = OneToOne(min_length=1, max_length=5, test_size=120)  # three batches, of different widths perhaps
    import_module("spread")
    model = model_for(task).train()
    before = state_of(model)
    answer = PROBES["spread"](model, task)
    assert not list(state_changes(before, state_of(model), "asking"))
    assert answer.table()["words"].between(1, 6).all()
    assert answer.plot().lines


def test_a_position_without_sentences_is_left_out_of_the_spread(monkeypatch):
    """As the last one is, where the end does not count."""
    module, task = import_module("spread"), OneToOne(min_length=1, max_length=5, test_size=20)
    asked = [
        (batch, replace(trace, target_mask=trace.target_mask & (trace.target != END)))
        for batch, trace in traces(model_for(task), task.batches())
    ]
    monkeypatch.setattr(module, "traces", lambda model, batches: asked)
    words = module.spread_of(model_for(task), task).table()["words"]
    assert len(words) == 5
    assert words.between(1, 6).all()


# The study --------------------------------------------------------------------------------------------------------


def test_the_study_runs_as_it_stands_in_a_worker_process(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(engines, "LocalEngine", partial(engines.LocalEngine, 1))
    run_unchanged("guided.py")
    assert capsys.readouterr().out.count("holds: ") == 2
    assert verify(tmp_path / "runs" / "results") == []
    result = Result.read(tmp_path / "runs" / "results" / "guided" / "on_gold.json")
    assert studies.study("guided").finding("on_gold").draw(result.figure).axes
    assert [result.finding for result in load_results(tmp_path / "runs")] == ["on_gold"]


@pytest.mark.parametrize("name", ["guide", "spread", "guided.py", "../guided", "", "no.such.module"])
def test_an_unknown_study_reports_where_it_was_searched_for(name):
    with pytest.raises(BadSetting, match=re.escape(f"there is no study {name!r}; choose one of aitken2021, ")):
        studies.study(name)


def test_a_study_has_the_name_of_its_module(tmp_path, monkeypatch):
    (tmp_path / "renamed.py").write_text("from guided import STUDY")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadSetting, match="the study in the module renamed is named 'guided'"):
        studies.study("renamed")


def test_errors_inside_a_study_are_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text("import no_such_module_at_all")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadSetting, match="no_such_module_at_all") as raised:
        studies.study("wrong")
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


# All of them by name ----------------------------------------------------------------------------------------------


def test_a_custom_command_line_lists_everything(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mine.py", "list"])
    with pytest.raises(SystemExit) as left:
        run_unchanged("mine.py")
    assert not left.value.code
    shown = capsys.readouterr().out
    for name in ("study guided", "on_gold", "doubling", "cosine", "spread"):
        assert name in shown


# The cell ---------------------------------------------------------------------------------------------------------


def test_figure_2_with_a_cell_of_ones_own_trains_that_cell():
    (finding,) = studies.study("fig2_rnn").findings
    (experiment,) = finding.experiments(QUICK).values()
    model = experiment.new_model().eval()
    check_adapter(model, experiment.task.batches("test", 4))
    cell, inputs = model.decoder.ahead[0], torch.randn(3, 5, model.decoder.ahead[0].inputs)
    first = torch.randn(3, cell.units)
    reference = torch.nn.RNN(cell.inputs, cell.units, batch_first=True)
    reference.load_state_dict({f"{name}_l0": value for name, value in cell.rnn.state_dict().items()})
    torch.testing.assert_close(cell(inputs, (first,)), reference(inputs, first[None])[0])


# The adapter ------------------------------------------------------------------------------------------------------


def test_the_adapter_keeps_the_contract_and_reads_texts():
    model = attnscope.load(import_module("adapter").model())
    check_adapter(model.module, [model.read(["a fine film", "dull"], ["yes", "no"]).batch])
    assert model.trace(["a fine film"]).source_tokens == (("a", "fine", "film"),)
