"""Shapes are checked at run time in tests: every annotated function of the package runs under beartype."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

install_import_hook("attnscope", "checking.checked")

import torch  # noqa: E402

torch.set_num_threads(1)

CHROMIUM_ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-sync", "--no-first-run", "--metrics-recording-only",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """The distribution's Chromium, driven by Playwright; without it the test is skipped.

    Playwright keeps an event loop running in this thread until the browser is closed, and no second one can be
    started meanwhile: so each module closes its own.
    """
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine, so no test in a browser")
    library = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with library.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield started
        started.close()


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
