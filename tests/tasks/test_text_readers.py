import gzip
import json
from pathlib import Path

import pytest
from small_corpora import reviews, write_jsonl

from attnscope.errors import AttnscopeError
from attnscope.files import Malformed
from attnscope.tasks import Classification, MissingCorpus, Splits
from attnscope.tasks.text import PARTS
from attnscope.tasks.text.rows import read_corpus, read_rows, read_saved_dataset

ROWS = [{"text": 'She said "no", then\tleft', "label": "0"}, {"text": "grün", "label": "1"}]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = 'text,label\n"She said ""no"", then\tleft",0\ngrün,1\n'
TSV = 'text\tlabel\nShe said "no", then left\t0\ngrün\t1\n'


def fields(rows):
    return [row.fields for row in rows]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("ending", "content"), [("jsonl", JSONL), ("csv", CSV), ("tsv", TSV)])
def test_the_same_rows_come_from_every_format(tmp_path, ending, content, packed):
    path = tmp_path / f"data.{ending}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    expected = [{**ROWS[0], "text": ROWS[0]["text"].replace("\t", " ")}, ROWS[1]] if ending == "tsv" else ROWS
    assert fields(read_rows(path)) == expected


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_text(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    assert fields(read_rows(path)) == ROWS


def test_unusual_line_separators_end_no_line(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("a\tb\none\u2028two\x0bthree\tx\n", encoding="utf-8")
    assert fields(read_rows(path)) == [{"a": "one\u2028two\x0bthree", "b": "x"}]


def test_a_quoted_cell_may_hold_a_line_end(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('text,label\n"two\nlines",1\nnext,0\n')
    rows = read_rows(path)
    assert [row.fields["text"] for row in rows] == ["two\nlines", "next"]
    assert rows[1].line == 4


def test_a_table_without_a_heading_takes_the_names_that_are_given(tmp_path):
    path = tmp_path / "news.tsv"
    path.write_text("Good day\tBom dia\n\t\n\nThanks\tObrigado\n")  # empty rows separate documents
    assert fields(read_rows(path, ("source", "target"))) == [
        {"source": "Good day", "target": "Bom dia"},
        {"source": "Thanks", "target": "Obrigado"},
    ]


def test_in_a_folder_a_file_is_a_split(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", [{"text": "a"}, {"text": "b", "split": "extra"}])
    write_jsonl(tmp_path / "test.jsonl.gz", [{"text": "c"}])
    (tmp_path / "readme.md").write_text("no corpus")
    assert {(row.fields["text"], row.split("split")) for row in read_rows(tmp_path)} == {
        ("a", "train"), ("b", "extra"), ("c", "test"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            b'{"text": "x"}\n{"text": \n',
            "a.jsonl, line 2: not JSON .*expected one JSON object per line",
        ),
        ("a.jsonl", b'["x", "y"]\n', 'line 1: expected a JSON object with named fields, not ."x"'),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n', "line 2: byte 0xff at position 11 is not UTF-8"),
        ("a.jsonl", b"", "a.jsonl is empty"),
        ("a.jsonl", b"\n\n", "a.jsonl has no rows"),
        ("a.csv", b"text,label\n", "a.csv has no rows"),
        ("a.csv", b"text,label\nx,1\ny\n", r"line 3: expected 2 cells \(text, label\), not 1"),
        ("a.csv", b'text,label\n"x,1\n', "line 2: not a row of CSV"),
        ("a.csv", b"text,text\nx,1\n", "line 1: the first line must name each column once"),
        ("a.tsv", b"text\tlabel\nx\t1\t2\n", r"line 2: expected 2 cells \(text, label\), not 3"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "x"}\n' * 999, mtime=0)[:-20],
            "not a complete gzip file: it ends after line",
        ),
        ("a.jsonl.gz", b'{"text": "x"}\n', "not a complete gzip file"),
        ("a.xlsx", b"x", r"an unknown format; its name must end in .jsonl, .json, .csv, .tsv"),
    ],
)
def test_a_malformed_file_is_named_with_its_line_and_what_was_expected(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Malformed, match=message):
        read_rows(tmp_path / name)


def test_a_folder_without_a_corpus_lists_the_expected_files(tmp_path):
    with pytest.raises(Malformed, match=r"holds no corpus: no file there ends in .jsonl, .json, .csv, .tsv"):
        read_rows(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": 1}, "line 3: there is no field 'text'; this line has label"),
        ({"text": "x"}, "line 3: there is no field 'label'; this line has text"),
        ({"text": 7, "label": 1}, "line 3: 'text' must be a string or a list of strings, not 7"),
        ({"text": ["x", None], "label": 1}, "line 3: 'text' must be a string or a list of strings"),
        ({"text": "x", "label": 0.5}, "line 3: 'label' must be a word or a whole number, not 0.5"),
        ({"text": "x", "label": ""}, "line 3: 'label' must be a word or a whole number"),
        ({"text": "x", "label": None}, "line 3: there is no class 'null'; the classes are 0, 1"),
        ({"text": "x", "label": 2}, "line 3: there is no class '2'; the classes are 0, 1"),
    ],
)
def test_a_row_with_a_wrong_field_is_named_with_its_line(tmp_path, row, message):
    file = write_jsonl(tmp_path / "a.jsonl", [*reviews(2), row])
    with pytest.raises(Malformed, match=message):
        _ = Classification(file, labels=("0", "1")).corpus


def test_a_missing_corpus_says_which_file_is_looked_for_where_and_in_which_format(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    with pytest.raises(MissingCorpus) as error:
        _ = Classification("imdb/imdb.jsonl.gz").corpus
    for part in (str(tmp_path / "imdb/imdb.jsonl.gz"), "JSON lines packed with gzip", "'text', 'label', 'split'"):
        assert part in str(error.value)
    monkeypatch.delenv("ATTNSCOPE_DATA")
    with pytest.raises(MissingCorpus, match="ATTNSCOPE_DATA names no folder"):
        _ = Classification("imdb/imdb.jsonl.gz").corpus


def test_a_corpus_is_found_below_the_folder_that_the_environment_names(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    write_jsonl(tmp_path / "mine" / "a.jsonl", reviews())
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    assert len(Classification("mine/a.jsonl").part("training")) > 0


@pytest.fixture
def datasets():
    library = pytest.importorskip("datasets")
    library.disable_progress_bars()
    return library


def test_a_folder_of_the_datasets_library_gives_its_rows_and_splits(tmp_path, datasets):
    parts = {name: datasets.Dataset.from_list(list(reviews(20, seed))) for seed, name in enumerate(("train", "test"))}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    task = Classification(str(tmp_path / "saved"), splits=Splits(("train",), (), ("test",)))
    assert len(task.part("test")) == 20
    assert len(task.part("training")) + len(task.part("validation")) == 20
    assert task.classes == ("0", "1")


def test_a_folder_of_one_data_set_has_no_splits(tmp_path, datasets):
    datasets.Dataset.from_list(list(reviews(10))).save_to_disk(str(tmp_path / "saved"))
    assert [row.split("split") for row in read_corpus(str(tmp_path / "saved"), (), "")] == ["all"] * 10


def test_a_broken_folder_of_the_datasets_library_is_one_sentence(tmp_path, datasets):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(AttnscopeError, match="the datasets library cannot read"):
        read_saved_dataset(Path(tmp_path))


def test_a_data_set_is_loaded_by_its_name_and_configuration(monkeypatch, datasets):
    requests = []

    def load_dataset(*name):
        requests.append(name)
        return datasets.DatasetDict(train=datasets.Dataset.from_list(list(reviews(40))))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = Classification("hf:someone/reviews:small", splits=Splits(("train",)))
    assert sum(len(task.part(part)) for part in PARTS) == 40
    assert requests == [("someone/reviews", "small")]  # once, for its fingerprint and for its rows
    assert task.resolved().fingerprint


def test_an_unknown_data_set_is_one_sentence(monkeypatch, datasets):
    def load_dataset(*name):
        raise FileNotFoundError("no such data set")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(MissingCorpus, match="cannot load 'nobody/nothing': no such data set"):
        _ = Classification("hf:nobody/nothing").corpus


def test_a_missing_library_is_asked_for_by_the_name_of_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(AttnscopeError, match=r"needs the library datasets: pip install 'attnscope\[text\]'"):
        read_saved_dataset(Path(tmp_path))
