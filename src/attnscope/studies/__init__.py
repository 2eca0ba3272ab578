"""The papers as studies: one folder per paper, one file per finding."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.errors import BadSetting, describe_error, require

if TYPE_CHECKING:
    from attnscope.studies.finding import Study

STUDIES = ["aitken2021", "snell2021", "baan2019", "tutek2020", "transformers"]  # listed and reported in this order


def study(name: str) -> "Study":
    """Return a study by name: a subpackage of this one, or any importable module with an attribute STUDY.

    Modules in the current folder are importable, too. The study is imported now, and listed from now on. Worker
    processes load it in the same way.

    Args:
        name: Such as "aitken2021", or the name of a module.
    """
    here = str(Path.cwd())
    if here not in sys.path and any(path.is_file() for path in (Path(f"{name}.py"), Path(name, "__init__.py"))):
        sys.path.insert(0, here)
    module = next((module for module in (f"{__name__}.{name}", name) if importable(module)), None)
    try:
        candidate: Study | None = None if module is None else getattr(import_module(module), "STUDY", None)
    except Exception as error:  # any error of the user's module
        raise BadSetting(f"the study {name} cannot be imported: {describe_error(error)}") from error
    if candidate is None:
        raise BadSetting(
            f"there is no study {name!r}; choose one of {', '.join(STUDIES)}, or name a module of yours, one that "
            "Python finds from here, that has a STUDY"
        )
    require(
        candidate.name == name, f"the study in the module {name} is named {candidate.name!r}; name it as its module"
    )
    if name not in STUDIES:
        STUDIES.append(name)
    return candidate


def importable(module: str) -> bool:
    """Return whether Python finds a module of this name."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a folder above it is missing, or this is no name at all
        return False
