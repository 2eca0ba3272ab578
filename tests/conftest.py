"""Shapes are checked at run time in tests: every annotated function of the package runs under beartype."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

install_import_hook("attnscope", "checking.checked")

import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def corpus() -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a corpus file below the folder that ATTNSCOPE_DATA names."""
    folder = os.environ.get("ATTNSCOPE_DATA")
    if not folder:
        pytest.skip("ATTNSCOPE_DATA does not name a folder of corpora")

    def rows(name: str) -> list[dict[str, Any]]:
        with gzip.open(Path(folder) / name, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    return rows
