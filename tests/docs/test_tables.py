"""Tables of the documentation that are generated from results (`make tables`) agree with the files."""

import json
import re
import runpy
from pathlib import Path

import pytest

from attnscope.auditing.report import audit_tests, audited_models, error_rates
from attnscope.studies.naming import audit_name

ROOT = Path(__file__).parent.parent.parent
WRITER = runpy.run_path(str(ROOT / "docs" / "tables.py"))


@pytest.mark.parametrize(("page", "name"), WRITER["TABLES"])
def test_every_table_agrees_with_its_files(page, name):
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == WRITER["with_table"](page, name)


def test_reproduction_reports_agree_with_the_result_files():
    reports = WRITER["reports"]()
    assert {f"reproduction/{path.name}" for path in (ROOT / "docs" / "reproduction").glob("*.md")} == set(reports)
    for page, text in reports.items():
        assert (ROOT / "docs" / page).read_text(encoding="utf-8") == text


def test_every_audit_has_a_row_with_its_answer(tmp_path):
    for name, answer in (("first", "no"), ("second", "yes")):
        tests = [
            {"name": "route", "value": 0.25, "low": 0.2, "high": 0.3, "texts": 120},
            {"name": "agreement", "value": None},
            {"name": "uniqueness, lower bound", "value": 0.6, "texts": 32},
        ]
        audit = {
            "version": 3,
            "model": {"architecture": "BertForSequenceClassification", "layers": 6, "heads": 12},
            "data": {"name": "folder/texts.jsonl", "texts": 300},
            "verdict": {"answer": answer, "tests": tests},
            "parts": {"quality": {"table": [{"accuracy": 0.9, "commonest class": 0.501}]}},
            "provenance": {"date": "2026-11-16", "attnscope": "0.2.0"},
        }
        (tmp_path / name).mkdir()
        (tmp_path / name / "audit.json").write_text(json.dumps(audit))
    (tmp_path / "first" / "name.json").write_text('{"model": "MiniLM, fine-tuned", "texts": "SST"}')
    first, second = audited_models(tmp_path, "../results/audits").strip().split("\n")[2:]
    assert first.startswith("| [MiniLM, fine-tuned](../results/audits/first/audit.html) | 300 of SST | 90.0 % (50.1 %)")
    assert first.endswith("| **no** | 0.25 (0.20 to 0.30) | – | 120 | 6 × 12 | 2026-11-16, 0.2.0 |")
    assert "[second](../results/audits/second/audit.html)" in second
    assert "300 of texts.jsonl" in second
    assert f"[second]({tmp_path.as_posix()}/second/audit.html)" in audited_models(tmp_path)
    names, _, first, _ = audit_tests(tmp_path).strip().split("\n")
    assert names == "| model | route | agreement | uniqueness |"
    assert first == "| MiniLM, fine-tuned | 0.25 (120) | – | ≥ 0.60 (32) |"


def test_every_audit_has_a_distinct_name_in_all_tables():
    audits = [path.parent for path in sorted((ROOT / "results" / "audits").glob("*/audit.json"))]
    names = [audit_name(folder).model for folder in audits]
    assert len(set(names)) == len(names)
    assert not {folder.name for folder in audits} & set(names)
    shown = {folder: name for folder, name in zip(audits, names, strict=True) if folder.name in WRITER["SHOWN"]}
    assert len(shown) == len(WRITER["SHOWN"])
    for page, listed in (("audited-models", names), ("audits", names), ("../README", shown.values())):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert all(f"| {name} |" in text or f"[{name}](" in text for name in listed), page


def test_error_rates_are_those_of_the_calibration():
    stored = json.loads((ROOT / "results" / "calibration" / "calibration.json").read_text())
    rows = error_rates(ROOT / "results" / "calibration" / "calibration.json").strip().split("\n")[2:]
    assert len(rows) == len(stored["overall"])
    assert all(each["false"] in row for each, row in zip(stored["overall"], rows, strict=True))


def test_what_does_not_reproduce_has_a_tested_reason_or_is_open():
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    lists = [part.partition("\n\n**")[0] for text in pages for part in text.split("**What does not.**")[1:]]
    assert len(lists) >= 4  # one per paper
    for bullet in (" ".join(each.split()) for part in lists for each in part.split("\n- ")[1:]):
        reason = re.search(r"\b[Rr]eason\b.*`[\w.-]+`", bullet)  # with the finding that tested it
        assert reason or re.search(r"\b[Oo]pen\b", bullet), bullet
    assert not re.search(r"(?i)\b(suppos|probabl[ye]|perhaps|presumabl|may be because)", "".join(lists))
