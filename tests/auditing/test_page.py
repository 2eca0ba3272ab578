"""The page of an audit is one self-contained file that begins with the answer and accepts any text."""

import base64
import json
import re
from dataclasses import replace
from random import Random

import numpy as np
import pandas as pd
import pytest

from attnscope.auditing.drawing import MARGIN, MAX_SIDE, WIDTH, classifier_example, columns_of, gauge_of
from attnscope.auditing.page import write_page
from attnscope.auditing.report import Report, digest_of, verify_audits
from attnscope.errors import AttnscopeError
from attnscope.faithfulness.records import ScoredExample, Test, answer_of
from attnscope.faithfulness.verdict import decide
from auditing import made_up
from report.test_html import Page, words

AUDITS = {"transformer": made_up.transformer, "translator": made_up.translator, "recurrent": made_up.recurrent}


@pytest.fixture
def read(tmp_path):
    def write(audit):
        return Page(write_page(Report.from_dict(json.loads(json.dumps(audit))), tmp_path / "audit.html").read_text())

    return write


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The pages as they were written, each once."""
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: write_page(Report.from_dict(make()), folder / f"{name}.html").read_text() for name, make in AUDITS.items()
    }


@pytest.fixture(params=AUDITS)
def name(request):
    return request.param


@pytest.fixture
def page(texts, name):
    return Page(texts[name])


@pytest.fixture
def transformer(texts):
    return Page(texts["transformer"])


def test_the_page_loads_nothing_and_runs_no_script(page, texts, name):
    assert page.tags("script") == page.tags("link") == []
    embedded = ("data:image/svg+xml;base64,", "data:image/webp;base64,")
    assert all(image["src"].startswith(embedded) for image in page.tags("img"))
    assert all(link["href"].startswith("#") for link in page.tags("a"))
    assert "http:" not in texts[name]
    assert "https:" not in texts[name]
    css = re.search(r"<style>(.*)</style>", texts[name], re.DOTALL).group(1)
    assert "url(" not in css
    assert "@import" not in css


def test_a_script_in_a_text_is_escaped(transformer):
    assert transformer.tags("script") == []
    assert transformer.text.count(made_up.ODD) > 8  # in each strip of each example, and in a table


def test_every_link_has_a_target(page):
    anchors = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    assert {link["href"] for link in page.tags("a")} <= {f"#{anchor}" for anchor in anchors}


@pytest.mark.parametrize(
    ("answer", "word"), [("yes", "Yes"), ("partly", "With care"), ("no", "No"), ("unclear", "Undecided")]
)
def test_the_answer_comes_first(read, answer, word):
    text = words(read(made_up.audit("classifier", 1, 1, {}, answer)))
    question = text.rindex("may its attention be read as an explanation?")
    assert question < text.index(f" {word} Read it as a hint") < text.index("It was tested on 500 texts.")


def test_the_proper_name_stands_in_title_and_heading(read, tmp_path):
    (tmp_path / "name.json").write_text('{"model": "MiniLM, fine-tuned", "texts": "SST"}')
    text = words(read(made_up.transformer()))
    assert text.count("MiniLM, fine-tuned: may its attention be read as an explanation?") == 2


def test_every_test_of_the_verdict_is_shown_with_question_answer_sentence_and_scale(page):
    text = words(page)
    for test in made_up.TESTS:
        assert f"{answer_of(test['answer'])} {test['question']} {test['name']} {test['sentence']}" in text
    assert len([svg for svg in page.tags("svg") if svg["class"] == "gauge"]) == len(made_up.TESTS)


def test_parts_stand_in_the_order_of_the_questions(transformer):
    text = words(transformer)
    titles = [
        "How attention is formed", "Which heads to believe", "Is it faithful?", "Do decisions depend on it?",
        "Does another attention give the same output?", "Is attention plausible to people?", "Examples",
        "What this does not show", "How to remedy",
    ]  # fmt: skip
    places = [text.rindex(title) for title in titles]
    assert places == sorted(places)


def test_a_failed_part_shows_the_reason(transformer):
    assert "This could not be measured: the model does not tell" in words(transformer)


def test_model_data_and_run_are_named(transformer):
    text = words(transformer)
    for sentence in (
        "distil-sst (DistilBertForSequenceClassification)", "6 layers of 4 heads", "3 truncated",
        "500 of 1,821 from sst.jsonl.gz (test)",
        "1 min 23 s", "A processor, 2 cores", "torch 2.13 · transformers 5.22", "batch size 32",
    ):  # fmt: skip
        assert sentence in text


def test_heads_are_drawn_and_described_and_one_head_is_a_table(texts):
    many, one = Page(texts["transformer"]), Page(texts["recurrent"])
    alts = [image["alt"] for image in many.tags("img")]
    assert len(alts) == 5  # how formed in two rows, how ranked, how the rankings agree, adversaries
    assert "time: layer against head" in alts[0]
    images = [base64.b64decode(image["src"].split(",")[1]) for image in many.tags("img")]
    assert all(image.startswith(b"<svg") or image[8:12] == b"WEBP" for image in images)
    assert one.tags("img") == []
    assert "layer 0, head 0" in one.text


def test_the_head_with_the_best_mean_rank_is_named_first(read):
    audit = made_up.transformer()
    audit["parts"] = {"heads": audit["parts"]["heads"]}
    heads = audit["parts"]["heads"]["heads"]
    for name in ("ablation", "uniform", "saliency"):
        heads[f"rank by {name}"] = [24.0 - i for i in range(24)]  # the last head leads everywhere
    text = words(read(audit))
    assert text.index("layer 5, head 3 1 ") < text.index("layer 5, head 2 2 ")
    assert text.count(", head ") == 10


def test_a_page_with_ten_thousand_words_stays_small(read, tmp_path):
    words = (made_up.TEXT * 500)[:10_000]
    examples = [made_up.text(words, "long", "positive", Random(0))]
    page = read(made_up.audit("classifier", 1, 1, {"examples": {"examples": examples}}))
    assert (tmp_path / "audit.html").stat().st_size < 3e6
    assert page.text.count("gorgeous") == 4 * words.count("gorgeous")  # whole, for each of four scores
    assert all("style" not in mark for mark in page.tags("i"))


def test_a_long_translation_names_the_strongest_words_in_place_of_a_matrix(read):
    def shown(length):
        source = [f"s{i}" for i in range(length)]
        target = [f"t{i}" for i in range(length)]
        audit = made_up.translator()
        audit["parts"] = {"examples": {"examples": [made_up.pair(source, target, "long", Random(0))]}}
        return read(audit)

    matrices, table = shown(MAX_SIDE), shown(MAX_SIDE + 1)
    assert len([t for t in matrices.tags("table") if t.get("class") == "cells"]) == 3
    assert [t for t in table.tags("table") if t.get("class") == "cells"] == []
    assert re.search(r"t60 s60 1(\.\d+)?, s59 0\.\d+", words(table))


def without_numbers(content):
    """The same content, but no number was measured."""
    if isinstance(content, dict):
        return {name: without_numbers(value) for name, value in content.items() if name not in {"layer", "head"}} | {
            name: content[name] for name in ("layer", "head") if name in content
        }
    if isinstance(content, list):
        return [without_numbers(value) for value in content]
    return None if isinstance(content, int | float) and not isinstance(content, bool) else content


def test_missing_measurements_do_not_break_the_page(read, name):
    page = read(without_numbers(AUDITS[name]()))
    assert "not measured" in page.text
    assert "None" not in page.text.replace("is None", "").replace("get None", "")  # but for what the made-up say
    assert "nan" not in page.text.split()


def test_an_audit_without_parts_or_verdict_is_still_a_page(read):
    text = words(read({"version": 1}))
    assert "Undecided" in text
    assert "What this does not show" in text


def test_a_lone_surrogate_does_not_break_the_page(read):
    audit = made_up.audit("classifier", 1, 1, {})
    audit["verdict"]["headline"] = "half \ud83d of it"
    assert "half ? of it" in read(audit).text


@pytest.mark.parametrize("bounds", [[0.1, 0.5], [0.5, 0.1]])
def test_scales_run_from_no_to_yes_also_where_less_is_better(bounds):
    gauge = gauge_of(Test.from_json({"value": bounds[1], "low": 0.0, "high": 0.6, "bounds": bounds}))
    assert [name for name, _, _ in gauge.zones] == ["no", "with care", "yes"]
    assert gauge.bounds[0][0] < gauge.bounds[1][0] == gauge.value
    assert gauge.less_is_better == (bounds[0] > bounds[1])
    assert sum(wide for _, _, wide in gauge.zones) == pytest.approx(WIDTH - 2 * MARGIN)


def test_unknown_and_huge_intervals_keep_the_zones_of_a_scale_visible():
    unknown = gauge_of(Test.from_json({"value": 0.3, "low": None, "high": None, "bounds": [0.1, 0.5]}))
    assert unknown.interval == (MARGIN, WIDTH - MARGIN)
    huge = gauge_of(Test.from_json({"value": 0.3, "low": -1000.0, "high": 1000.0, "bounds": [0.1, 0.5]}))
    assert huge.zones[1][2] > 0.2 * WIDTH


def test_a_test_without_bounds_has_no_scale():
    assert gauge_of(Test.from_json({"value": 0.3, "bounds": [None, 0.5]})) is None
    assert gauge_of(Test.from_json({"value": 0.3})) is None


def test_words_are_shaded_relative_to_other_words_without_special_tokens():
    scores = {"attention": [0.7, 0.2, 0.1], "leave one out": [0.0, -0.5, 0.25]}
    example = {"source": ["[CLS]", "fine", "film"], "special": [True, False, False], "scores": scores}
    example |= {"gold": "yes", "said": "yes (0.91)"}
    text = classifier_example(ScoredExample.from_json(example), num_classes=2)
    attention, left_out = ([(word.word, word.colour) for word in row.chunks[0]] for row in text.rows)
    assert attention == [("[CLS]", "a12 s"), ("fine", "a12"), ("film", "a6")]
    assert left_out == [("[CLS]", "s"), ("fine", "m12"), ("film", "p6")]
    assert "70% on special tokens" in text.rows[0].legend
    assert text.correct
    assert text.num_words == 2


def test_the_probability_of_a_word_alone_is_compared_with_chance():
    example = {"source": ["a", "b", "c"], "scores": {"each word alone": [0.9, 0.1, None]}}
    (row,) = classifier_example(ScoredExample.from_json(example), num_classes=2).rows
    assert [word.colour for word in row.chunks[0]] == ["p12", "m12", "x"]


def test_rows_that_lack_a_column_have_a_dash_there():
    assert [column.cells for column in columns_of([{"a": 1}, {"b": "x"}])] == [["1", "–"], ["–", "x"]]
    assert [column.name for column in columns_of([{"a": 1, "reason": None}, {"a": 2, "reason": None}])] == ["a"]


def test_tables_are_saved_as_csv_and_stale_ones_go(tmp_path):
    report = Report.from_dict(made_up.transformer())
    assert {path.name for path in report.save_tables(tmp_path)} == {"tests.csv", "heads.csv", "texts.csv", "words.csv"}
    tests, heads, texts, words_of = (
        pd.read_csv(tmp_path / f"{name}.csv") for name in ("tests", "heads", "texts", "words")
    )
    assert list(tests["test"]) == [test.name for test in report.tests]
    assert not heads.duplicated(["layer", "head"]).any()
    examples = report.parts["examples"].examples
    assert len(texts) == len(examples)
    for number, example in enumerate(examples):
        rows = words_of[words_of["text"] == number]
        assert rows["word"].astype(str).tolist() == list(example.source)
        np.testing.assert_allclose(rows["attention"], np.array(example.scores["attention"], float))
    without = Report.from_dict({**made_up.transformer(), "parts": {}})
    assert {path.name for path in without.save_tables(tmp_path)} == {"tests.csv"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tests.csv"]


def test_words_of_translators_have_one_row_per_output_and_source_word():
    report = Report.from_dict(made_up.translator())
    table, example = report.tables()["words"], report.parts["examples"].examples[0]
    first = table[table["text"] == 0]
    weights = np.array(example.scores["attention"], float)
    assert len(first) == weights.size
    np.testing.assert_allclose(first["attention"].to_numpy().reshape(weights.shape), weights)


def test_scores_of_words_are_accessible_without_a_mouse(texts):
    shown = classifier_example(Report.from_dict(made_up.transformer()).parts["examples"].examples[0], 2)
    assert texts["transformer"].count("The scores as numbers") >= 1
    assert [row["word"] for row in shown.numbers] == list(
        Report.from_dict(made_up.transformer()).parts["examples"].examples[0].source
    )
    assert "Hover over a word" not in texts["transformer"]


def marked_example():
    scores = {"attention": [0.0, 0.4, 0.6]}
    return {
        "source": ["[CLS]", "fine", "film"],
        "special": [True, False, False],
        "scores": scores,
        "marks": [0, 1, 0.4],
    }


def test_what_people_marked_is_underlined_and_named(read):
    report = made_up.audit("classifier", 1, 1, {"examples": {"examples": [marked_example()]}})
    page = read(report)
    marked = [mark for mark in page.tags("i") if "u" in mark.get("class", "").split()]
    assert len(marked) == 2  # in the legend, and "fine", which more than half of the annotators marked
    assert "marked by at least half of the annotators" in words(page)
    assert Report.from_dict(report).tables()["words"]["marked"].tolist() == [0, 1, 0.4]
    without = {name: value for name, value in marked_example().items() if name != "marks"}
    page = read(made_up.audit("classifier", 1, 1, {"examples": {"examples": [without]}}))
    assert "annotators" not in words(page)


def test_all_texts_of_a_page_have_the_same_colour_scale_and_their_numbers_as_text(read):
    strong, weak = ({"source": ["a", "b"], "scores": {"attention": [x, 0.0]}} for x in (0.8, 0.2))
    page = read(made_up.audit("classifier", 1, 1, {"examples": {"examples": [strong, weak]}}))
    assert [mark.get("class") for mark in page.tags("i")][-4:] == ["a12", None, "a3", None]
    assert re.search(r"a 0\.8 b 0", words(page))


def test_an_audit_that_was_edited_is_found(tmp_path):
    report = Report.from_dict(made_up.transformer())
    report = replace(report, verdict=replace(report.verdict, former_rule=False, answer=decide(report.tests)))
    path = report.save(tmp_path / "audit.json")
    assert verify_audits(tmp_path) == (1, [])
    content = json.loads(path.read_text(encoding="utf-8"))
    content["verdict"]["answer"] = "yes"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert verify_audits(tmp_path) == (1, [f"{path}: the content does not match its digest"])
    with pytest.raises(AttnscopeError, match="was changed after the audit"):
        Report.load(path)
    del content["digest"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert verify_audits(tmp_path) == (1, [f"{path}: the content does not match its digest"])
    path.write_text(json.dumps({**content, "digest": digest_of(content)}), encoding="utf-8")
    assert verify_audits(tmp_path) == (1, [f"{path}: the answer is 'yes', but the tests give 'undecided'"])
