"""Every notebook runs from its first cell to its last and shows the results that its text states."""

import ast
import re
from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

FOLDER = Path(__file__).parent.parent.parent / "notebooks"


def cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [code for kind, code in zip(parts[::2], parts[1::2], strict=True) if "[markdown]" not in kind]


def run_cell_code(code: str, names: dict) -> object:
    """What a notebook would show of this cell: the value of its last line."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs a notebook and gives the names that it leaves behind."""
    monkeypatch.chdir(tmp_path)

    def run_it(name: str) -> dict:
        names = {"__name__": "__main__"}
        shown = [run_cell_code(code, names) for code in cells(FOLDER / f"{name}.py")]
        assert sum(isinstance(value, Axes) or hasattr(value, "_repr_html_") for value in shown) >= 3
        for value in shown:
            if hasattr(value, "_repr_html_"):
                assert "<table" in value._repr_html_()
        assert not list(tmp_path.iterdir())
        return names

    yield run_it
    pyplot.close("all")


def test_a_first_model_needs_its_attention(run):
    found = run("first_model")
    assert found["attnscope"].evaluate(found["model"], found["task"].batches("test"))["word_accuracy"] > 0.95
    assert found["without"]["word_accuracy"] < 0.7
    assert found["formed"].table()["temporal share"].iloc[0] > 0.5


def test_time_decides_most_of_attention_and_less_so_backwards(run):
    found = run("aitken2021")
    forwards, backwards = found["formed"].table().iloc[0], found["formed_backwards"].table().iloc[0]
    assert forwards["temporal share"] > 0.5
    assert forwards["predictability"] > backwards["predictability"]
    assert found["formed"].mean_attention.table().to_numpy().argmax(1).tolist() == list(range(10))


def test_attention_is_learned_where_words_can_be_known_without_it(run):
    found = run("snell2021")
    assert found["curves"]["sampled"].iloc[-1] > 0.9 > 2 * found["curves"]["permutations"].iloc[-1]
    assert found["knows"]["sampled"] > 2 * found["knows"]["permutations"]


def test_guidance_helps_with_new_compositions_and_shows_inside(run):
    found = run("baan2019")
    new = found["accuracies"].loc["pairs never seen together"]
    assert found["accuracies"].loc["sentences of training"].min() > 0.9
    assert new["guided"] > new["baseline"] + 0.2
    assert found["readings"]["guided"].accuracy > found["readings"]["baseline"].accuracy + 0.2


def test_tying_makes_a_classifier_need_its_attention(run):
    found = run("tutek2020")
    changed = {name: found[name].table()["changed"]["permuted"] for name in ("of_base", "of_tied")}
    assert changed["of_base"] < 0.2 < 0.3 < changed["of_tied"]


def test_a_transformer_attends_sooner_where_it_can_translate_words(run):
    found = run("transformers")
    learned = found["curves"].ge(0.99).idxmax()
    assert found["curves"].iloc[-1].min() > 0.99
    assert learned["given"] < learned["random"] < learned["scrambled"]
    assert found["formed"].table()["predictability"].iloc[0] > 0.9
    first = found["onset"].ge(0.5).idxmax()
    assert 0 < first["lexical probe"] < first["induction head"]


def test_the_list_of_notebooks_names_each():
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in listed for path in FOLDER.glob("*.py"))
