"""What a measurement depends on: the code and data of its module and of the modules that it imports."""

import importlib
import sys

import pytest

from attnscope.studies import jobs

FILES = {
    "own_study.py": (
        '"""A study."""\nfrom own_helper import double\n\n\n'
        'def measure(run):\n    """Measure."""\n    return double(1)\n'
    ),
    "own_helper.py": "def double(x):\n    return 2 * x\n",
    "own_other.py": "ANSWER = 42\n",
    "own.toml": "value = 1\n",
}


@pytest.fixture
def checksum(tmp_path, monkeypatch):
    """The checksum of a study in a folder of its own, after one of its files was written anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    importlib.import_module("own_study")

    def after(name="own_study.py", text=None):
        (tmp_path / name).write_text(FILES[name] if text is None else text, encoding="utf-8")
        jobs.code_checksum.cache_clear()
        jobs._code_and_imports.cache_clear()
        return jobs.code_checksum("own_study")

    yield after
    for name in ("own_study", "own_helper"):
        sys.modules.pop(name, None)
    jobs.code_checksum.cache_clear()
    jobs._code_and_imports.cache_clear()


def test_a_docstring_or_a_comment_changes_no_checksum(checksum):
    before = checksum()
    text = FILES["own_study.py"].replace("A study.", "Another text.").replace("Measure.", "Counts.\n\n    Twice.")
    assert checksum("own_study.py", text + "# a comment\n") == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("own_study.py", "double(1)", "double(2)"), ("own_helper.py", "2 * x", "x + x"), ("own.toml", "1", "2")],
)
def test_code_and_data_of_imported_modules_change_the_checksum(checksum, name, old, new):
    before = checksum()
    assert checksum(name, FILES[name].replace(old, new)) != before
    assert checksum(name) == before


def test_a_module_that_is_not_imported_changes_no_checksum(checksum):
    before = checksum()
    assert checksum("own_other.py", "ANSWER = 43\n") == before


def dependencies(module):
    """The files whose code counts."""
    actual, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        path = jobs._source_of(name, module)
        if path is not None and path not in actual and not name.startswith(jobs.NOT_MEASURING):
            actual.add(path)
            waiting += [jobs._definer(*pair, module) for pair in jobs._code_and_imports(path, name)[1]]
    return {path.relative_to(jobs.PACKAGE).as_posix() for path in actual}


def test_names_of_a_package_are_followed_to_where_they_are_defined():
    importlib.import_module("attnscope.studies.baan2019.fig3_4")
    files = dependencies("attnscope.studies.baan2019.fig3_4")
    assert {"probes/gates.py", "studies/baan2019/experiments.py", "models/encoder_decoder.py"} <= files
    assert "studies/baan2019/sec5.py" not in files
    assert not any(file.startswith(("plots/", "report/", "auditing/", "cli")) for file in files)
