"""Cases of data: files and tables that are invalid for this model, and valid ones beside them."""

import gzip
import json
from collections.abc import Iterator

from robustness.trial import Case, Place, expect_success, json_lines

Rows = list[object]


def file_case(model: str, name: str, content: "str | bytes", bad: bool, *words: str, title: str = "") -> Case:
    """An audit of a bad file, or a quick probe of a valid one."""

    def run(place: Place) -> None:
        path = place.file(name, content)
        if bad:
            expect_success(["audit", model, path, "--quick", "--out", str(place.path("audit")), *words])
        else:
            expect_success(["probe", model, "entropy", path, *words])

    shown = title or (content[:70] if isinstance(content, str) else repr(content[:40]))
    return Case(f"data: {model} {name} {' '.join(words)} {shown!r}", bad, run)


def after_good_rows(place: Place, model: str, row: object) -> str:
    """Return JSON lines of which the last is in question."""
    rows = place.texts if model == "bert" else place.pairs
    return json_lines([*rows, row])


def row_case(model: str, row: object, bad: bool, *words: str) -> Case:
    def run(place: Place) -> None:
        path = place.file("rows.jsonl", after_good_rows(place, model, row))
        out = str(place.path("audit"))
        expect_success(["audit", model, path, "--quick", "--out", out] if bad else ["probe", model, "entropy", path])

    return Case(f"data: {model} row {json.dumps(row)[:100]}", bad, run)


def changed(**fields: object) -> dict[str, object]:
    return {"text": "a dog sleeps", "label": 1} | fields


def pair(**fields: object) -> dict[str, object]:
    return {"source": "a dog", "target": "ein hund", "alignment": "0-0"} | fields


BAD_ROWS: Rows = [
    3,
    None,
    [],
    "a dog",
    {},
    {"label": 1},
    {"texts": "a dog", "label": 1},
    changed(text=None),
    changed(text=3),
    changed(text=["a", 3]),
    changed(text=[["a"]]),
    changed(text={"a": 1}),
    changed(text=True),
    changed(text=["a b", "c"]),
    changed(text=["", "c"]),
    changed(text="a \ud800 dog"),
    changed(text="\udfff"),
    changed(text=["\ud800"]),
    changed(label=3),
    changed(label=-2),
    changed(label=1.5),
    changed(label="LABEL_3"),
    changed(label="label_1"),
    changed(label="²"),
    changed(label="٣"),
    changed(label="9" * 5000),
    changed(label=10**30),
    changed(label=[1]),
    changed(label={"a": 1}),
    changed(label=True),
    changed(label="1.5"),
    changed(label=" "),
    changed(label="\ud800"),
    changed(label="one"),
    changed(label="-2"),
    changed(label="1e0"),
]
BAD_RATIONALES: Rows = [
    [1, 0],
    [1, 0, 0, 1],
    [1, 0, 2],
    [1, 0, -1],
    [1, 0, "a"],
    [1, 0, None],
    [1, 0, float("nan")],
    "101",
    3,
    {"a": 1},
    [[1, 0, 0], [1, 0]],
    [[1, 0, 0], 3],
    [],
    [[]],
    True,
    [1, 0, float("inf")],
    "the dog",
    "1 0",
    "1 0 x",
    "1 0 nan",
]
BAD_ALIGNMENTS: Rows = [
    "0-9",
    "9-0",
    "2-0",
    "0-2",
    "0--1",
    "-1-0",
    "0-0.5",
    "0.5-0",
    "a-b",
    "0",
    "0-",
    "-0",
    "0-0-0",
    "0-0,1-1",
    "0:0",
    "0-0 x",
    "0p9",
    "9p0",
    "²-0",
    "0-" + "9" * 5000,
    3,
    True,
    {"a": 1},
    [3],
    [[0]],
    [[0, 0, 0]],
    [[0, 9]],
    [[9, 0]],
    [[-1, 0]],
    [[0, -1]],
    [[0.5, 0]],
    [["a", "b"]],
    [[None, 0]],
    [[0, 0], [1]],
    [[True, 0]],
    [[float("nan"), 0]],
    ["0-0"],
    [[[0, 0]]],
]
FILES: "dict[str, str | bytes]" = {
    "empty.jsonl": "",
    "blank.jsonl": "\n \n",
    "null.json": "null",
    "number.json": "3",
    "string.json": '"a dog"',
    "numbers.json": "[1, 2]",
    "strings.json": '["a", 3]',
    "none.json": "[]",
    "open.json": "[",
    "deep.json": "[" * 99999,
    "deep.jsonl": "[" * 99999,
    "empty.json": "",
    "columns.json": '{"text": ["a", "b"], "label": [1]}',
    "numbers2.json": '{"text": 3, "label": 1}',
    "latin.jsonl": b'{"text": "\xe9t\xe9", "label": 1}',
    "utf16.csv": "text,label\na,1\n".encode("utf-16"),
    "nul.csv": "text,label\na\0b,1\n",
    "short.csv": "text,label\na\n",
    "long.csv": "text,label\na,1,2\n",
    "open.csv": 'text,label\n"a,1\n',
    "nohead.csv": "a dog,1\nthe house,0\n",
    "headonly.csv": "text,label\n",
    "twice.csv": "text,text\na,b\n",
    "notext.csv": "id,label\n3,1\n4,0\n",
    "short.tsv": "text\tlabel\na\n",
    "empty.csv": "",
    "empty.tsv": "",
    "plain.jsonl.gz": '{"text": "a"}',
    "cut.jsonl.gz": gzip.compress(b'{"text": "a dog", "label": 1}\n' * 50)[:40],
    "zero.jsonl.gz": b"",
    "image.png": b"\x89PNG\r\n",
    "program.py": "x = 1",
    "archive.zip": b"PK\x03\x04",
    "text.txt": "a dog\n",
    "pickle.pkl": b"\x80\x04K\x03.",
    "nothing": "a dog",
    "bad.parquet": b"PAR1 no parquet PAR1",
    "empty.parquet": b"",
    "word.xlsx": b"PK",
    "float.csv": "text,label\na dog,0.5\nthe house,1.0\n",
    "wide.csv": "text,label\na dog,one\nb,two\n",
    "label.csv": "text,label\na dog,yes\nthe dog,no\n",
    "marks.csv": "text,label,rationale\na dog,1,1 0 1\nthe dog,0,1 0\n",
}
MISSING = (
    "nowhere.jsonl",
    "nowhere.csv",
    "nowhere.json",
    "nowhere",
    "",
    "/",
    "texts.jsonl/more.jsonl",
    "bert",
    "hf:no/data",
    "x" * 4000,
    "x" * 300 + ".jsonl",
    "a dog sleeps",
    "\udc80.jsonl",
    "runs",
    "mine.py",
)


def bad_cases() -> Iterator[Case]:
    yield from (row_case("bert", row, True) for row in BAD_ROWS)
    yield from (row_case("bert", changed(rationale=given), True) for given in BAD_RATIONALES)
    yield from (row_case("marian", pair(alignment=given), True) for given in BAD_ALIGNMENTS)
    yield row_case("marian", pair(alignment=[[0, 0]], possible=[[0, 9]]), True)
    yield row_case("marian", pair(alignment=[[0, 0]], possible="x"), True)
    for target in (None, 3.5, {}, [3], ["a b"], "\ud800", True):
        yield row_case("marian", pair(target=target), True)
    yield row_case("marian", {"text": "a dog", "label": 1}, True)
    yield row_case("marian", pair(source=None), True)
    for name, content in FILES.items():
        yield file_case("bert", name, content, True)
    for name in MISSING:
        words = ["audit", "bert", name, "--quick", "--out", "none"]
        yield Case(
            f"data: no file {name[:40]!r}, {len(name)} characters",
            True,
            lambda place, words=words: expect_success(words),
        )
    labels = "text,label\n" + "".join(f"a dog,{label}\n" for label in (0, 1, 2, 0))
    yield file_case("stars", "stars.csv", labels, True, title="classes '1' to '3', labels 0 to 2")
    yield file_case("stars", "ambiguous.csv", labels.replace(",0", ",1"), True, title="labels 1 and 2 of '1' to '3'")
    columns = "id,premise,hypothesis,gold\n0,a dog,the dog,1\n1,dogs,house,0\n"
    for words in (
        ("--text", "nothing"),
        ("--label", "nothing"),
        ("--pair", "nothing"),
        ("--rationale", "nothing"),
        ("--text", ""),
        ("--text", "premise", "--pair", "premise"),
        ("--label", "premise"),
    ):
        yield file_case("bert", "columns.csv", columns, True, *words)
    yield file_case("marian", "columns.csv", columns, True, "--text", "premise", "--pair", "hypothesis")
    one = '{"text": "a dog", "label": 1}'
    yield file_case("bert", "one.jsonl", one, True, title="one text")
    yield file_case("bert", "split.jsonl", one.replace("{", '{"split": "train", ') * 1, True, "--split", "test")
    some = '{"text": "a dog", "label": 1}\n{"text": "dogs"}\n'
    yield file_case("bert", "some.jsonl", some, True, title="labels of some rows only")


def good_cases() -> Iterator[Case]:
    for row in (
        changed(label="1"),
        changed(label="LABEL_2"),
        changed(label=0),
        changed(text=["a", "dog"]),
        changed(text="é ß 狗 🐕"),
        changed(text="<b>&amp;</b>"),
        changed(text="dog " * 300),
        changed(extra={"a": [1]}),
        changed(id=7),
        changed(rationale=[0, 1, 0.5]),
        changed(rationale=[[0, 1, 0], [1, 1, 0]]),
        changed(rationale=[True, False, True]),
        changed(label=2.0),
        changed(label=-1),
        changed(label=None),
        changed(label=""),
        changed(rationale=None),
    ):
        yield row_case("bert", row, False)
    for row in (
        pair(alignment="0-0 1p1"),
        pair(alignment=""),
        pair(alignment=[]),
        pair(alignment=[[0, 0], [1, 1]]),
        pair(alignment=[[0, 0]], possible=[[1, 1]]),
        pair(target=["ein", "hund"]),
        pair(source="x " * 90),
    ):
        yield row_case("marian", row, False)
    rows = [{"text": "a dog", "label": 1}, {"text": "the house", "label": 0}]
    csv = "text,label\na dog,1\nthe house,0\n"
    for name, content in {
        "a.json": json.dumps(rows),
        "b.json": json.dumps({"text": ["a", "dog"], "label": [1, 0]}),
        "c.json": json_lines(list(rows)),
        "d.json": json.dumps({"data": rows}),
        "e.json.gz": gzip.compress(json.dumps(rows).encode()),
        "f.csv": csv,
        "g.csv.gz": gzip.compress(csv.encode()),
        "h.tsv": csv.replace(",", "\t"),
        "i.csv": ",text,label\n0,a dog,1\n1,the house,0\n",
        "j.csv": "Unnamed: 0,text,label\n0,a dog,1\n1,dogs,0\n",
        "k.csv": csv.replace(",1", ",1.0").replace(",0", ",0.0"),
        "l.csv": csv + "dogs,\n",
        "m.csv": "text\na dog\ndogs\n",
        "n.csv": csv.replace("text", "sentence"),
        "o.csv": "\ufeff" + csv,
        "p.csv": csv.replace("\n", "\r\n"),
        "q.csv": "sentence1,sentence2,label\na dog,dogs,1\nthe,house,0\n",
        "r.csv": csv + "dogs,-1\n",
        "s.csv": 'text,label,rationale\na dog,1,"[0, 1]"\nthe house,0,"[1, 0]"\n',
        "t.csv": "text,label,rationale\na dog,1,0 1\nthe house,0,1 0.5\n",
        "u.jsonl": '{"premise": "a", "hypothesis": "dogs", "label": 1}\n{"premise": "", "hypothesis": "b", "label": 0}',
        "v.jsonl": '{"question": "a", "sentence": "dogs", "label": 1}\n{"question": "a", "sentence": "b", "label": 0}',
        "both.csv": "text,sentence1,sentence2,label\na,b,c,1\nd,e,f,0\n",
        "negative.csv": "text,label\na dog,-1\nthe house,-1\n",
        "w.jsonl": '{"text": "a dog", "text_pair": "dogs", "label": 1}\n{"text": "a", "text_pair": "b", "label": 0}',
    }.items():
        yield file_case("bert", name, content, False)
    columns = "id,premise,hypothesis,gold,marks\n0,a dog,the dog,1,1 0\n1,dogs,house,0,1\n"
    yield file_case("bert", "columns.csv", columns, False, "--text", "hypothesis", "--label", "gold")
    yield file_case(
        "bert", "columns.csv", columns, False, "--text", "premise", "--pair", "hypothesis", "--label", "gold"
    )
    yield file_case(
        "bert", "columns.csv", columns, False, "--text", "premise", "--label", "gold", "--rationale", "marks"
    )
    stars = "text,label\n" + "".join(f"a dog,{label}\n" for label in (1, 2, 3, 1))
    yield file_case("stars", "stars.csv", stars, False, title="names '1' to '3'")
    yield Case("data: audit without labels", False, audit_without_labels)
    yield Case("data: parquet", False, parquet)
    yield Case("data: datasets folder", False, saved_dataset)


def audit_without_labels(place: Place) -> None:
    path = place.file("texts.csv", "text\n" + "a dog\nthe old house\n" * 2)
    expect_success(["audit", "bert", path, "--quick", "--out", str(place.path("audit"))])


def parquet(place: Place) -> None:
    import pandas as pd

    path = place.path("texts.parquet")
    path.parent.mkdir()
    pd.DataFrame(place.texts).to_parquet(path)
    expect_success(["probe", "bert", "entropy", str(path)])


def saved_dataset(place: Place) -> None:
    import datasets

    path = str(place.path("data"))
    datasets.disable_progress_bars()
    datasets.DatasetDict(test=datasets.Dataset.from_list(place.texts)).save_to_disk(path)
    expect_success(["probe", "bert", "entropy", path])


def cases() -> Iterator[Case]:
    yield from bad_cases()
    yield from good_cases()
