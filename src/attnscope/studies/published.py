"""What a paper states in numbers: the files `*.toml` beside its findings."""

import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

Published = Callable[[str, str], dict[str, Any]]


@cache
def _everything(study: str) -> dict[str, Any]:
    folder = files(f"attnscope.studies.{study}")
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".toml")]
    return {section: rows for text in texts for section, rows in tomllib.loads(text).items()}


@cache
def stated_in(study: str, file: str) -> dict[str, Any]:
    """A file of a study's, as it is."""
    return tomllib.loads(files(f"attnscope.studies.{study}").joinpath(file).read_text(encoding="utf-8"))


def published_by(study: str) -> Published:
    """A function of section and quantity: the published value of a row of a table, with the words around it.

    It gives nothing where the paper gives no number.
    """

    def published(section: str, quantity: str) -> dict[str, Any]:
        stated = _everything(study).get(section, {}).get(quantity)
        return {"published": stated["value"], "published_text": stated["text"]} if stated else {}

    return published
