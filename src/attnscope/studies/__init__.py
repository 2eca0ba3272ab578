"""What the papers claim. A reader starts here: a folder a paper, a file a finding."""

from importlib import import_module
from typing import TYPE_CHECKING

from attnscope.errors import choose

if TYPE_CHECKING:
    from attnscope.studies.finding import Study

STUDIES = ("aitken2021", "snell2021", "baan2019", "tutek2020")


def study(name: str) -> "Study":
    """A study by name; its modules are loaded only now."""
    choose("study", name, STUDIES)
    found: Study = import_module(f"attnscope.studies.{name}").STUDY
    return found
