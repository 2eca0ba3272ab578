"""What the paper states in numbers."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _everything() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))


def published(task: str, quantity: str) -> dict[str, Any]:
    """The published value of a row of a table, with the words around it; nothing where the paper gives no number."""
    stated = _everything().get(task, {}).get(quantity)
    return {"published": stated["value"], "published_text": stated["text"]} if stated else {}
