"""The API reference: every public name, all of its parameters, and an example that runs."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import attnscope

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
DIRECTIVE = re.compile(r"(?:autofunction|autoclass|data):: attnscope\.(\w+)")
FENCE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
GROUP = re.compile(r"((?:```{eval-rst}\n(?:[^`]|`{1,2}(?!`))*```\n\n)+)```pycon")  # names that share an example


@pytest.fixture(scope="module")
def names() -> dict[str, object]:
    """What the first page of the reference defines for the examples of all pages."""
    names: dict[str, object] = {}
    (code,) = re.findall(r"```python\n(.*?)```", PAGES["index"], re.DOTALL)
    exec(compile(code, "docs/reference/index.md", "exec"), names)
    return names


@pytest.mark.parametrize("page", [name for name in PAGES if FENCE.search(PAGES[name])])
def test_the_examples_of_a_page_print_the_documented_output(page, names, capsys):
    source = "\n".join(FENCE.findall(PAGES[page]))
    example = doctest.DocTestParser().get_doctest(source, dict(names), page, f"docs/reference/{page}.md", 0)
    report: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(example, out=report.append)
    assert tried > 0
    assert failed == 0, "".join(report)


def test_every_public_name_stands_on_one_page_and_an_example_follows():
    found = [name for text in PAGES.values() for name in DIRECTIVE.findall(text)]
    followed = [name for text in PAGES.values() for group in GROUP.findall(text) for name in DIRECTIVE.findall(group)]
    assert sorted(found) == sorted(followed) == sorted(attnscope.__all__)


@pytest.mark.parametrize("name", attnscope.__all__)
def test_every_parameter_is_documented(name):
    thing = getattr(attnscope, name)
    if not callable(thing) or inspect.isabstract(thing):
        return
    documented = inspect.getdoc(thing) or ""
    parameters = [parameter.lstrip("*") for parameter in inspect.signature(thing).parameters]
    missing = [each for each in parameters if not re.search(rf"^ +{each}: ", documented, re.MULTILINE)]
    assert missing == []
