"""The explorer in JupyterLab: a bar is dragged, and the output is that of the same intervention in Python."""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

import attnscope
from attnscope.errors import AttnscopeError
from explorer.conftest import WIDE, drag, leaving, network, texts

TESTS = Path(__file__).parent.parent
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
CELL = """
import attnscope
from explorer.conftest import network, texts
attnscope.explore(network(honest=True), texts(), audit=None)
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def jupyterlab(folder):
    """JupyterLab on this machine, with settings and a notebook of its own."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": CELL}
    notebook = {"cells": [cell], "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "explorer.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    source = Path(attnscope.__file__).parent.parent
    own = {
        name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")
    }
    environment = {**os.environ, **own, "PYTHONPATH": f"{source}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    port, token = free_port(), secrets.token_hex(16)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}", "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/api?token={token}", process)
            yield f"http://127.0.0.1:{port}/doc/tree/explorer.ipynb?token={token}"
        finally:
            process.terminate()
            process.wait(30)


def wait_for(address, process, seconds=120):
    for _ in range(seconds):
        assert process.poll() is None, "JupyterLab has ended"
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    raise AssertionError("JupyterLab does not answer")


def run_cell(page):
    """Run the cell until JupyterLab takes it, which drops what is run before it is ready, and wait for its end."""
    from playwright.sync_api import expect

    prompt = page.locator(".jp-InputPrompt").first
    for _ in range(20):
        page.locator(".jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Control+Enter")
        with suppress(AssertionError):
            expect(prompt).to_have_text(re.compile(r"\[[*\d]+\]"), timeout=10_000)
            break
    expect(prompt).to_have_text(re.compile(r"\[\d+\]"), timeout=300_000)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", state="attached")


@pytest.mark.slow
def test_a_bar_is_dragged_in_jupyterlab(browser, tmp_path):
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    away = []
    with jupyterlab(tmp_path) as address:
        context = browser.new_context(viewport=WIDE, accept_downloads=True)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda asked: away.extend(leaving(asked.url)))
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", state="attached", timeout=300_000)
        run_cell(page)
        page.wait_for_selector(".axp .token, .jp-RenderedText[data-mime-type$=stderr]", timeout=300_000)
        assert page.locator(".axp").count() == 1, page.locator(".jp-OutputArea").inner_text()
        drag(page, 1, -20)
        with page.expect_download() as download:
            page.get_by_label("Export the view").select_option("json")
        shown = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))[0]
        context.close()
    assert not away
    weights = torch.tensor(shown["weights"])
    trace = network(honest=True).trace([texts()[0][0]], attention=weights[None, None, None])
    assert [after for _, _, after in shown["outputs"]] == pytest.approx(
        trace.logits[0, 0, 3:].double().softmax(-1).tolist(), abs=1e-5
    )
    assert shown["tvd"][0] > 0.001


def test_requests_of_a_widget_are_answered():
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    widget = attnscope.explore(network(honest=True), texts(), audit=None).widget
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    widget.receive(widget, {"kind": "view", "id": 7}, [])
    content, buffers = sent[0]
    assert content["id"] == 7
    assert content["live"]
    assert len(buffers) == 3
    json.dumps(content, allow_nan=False)


def test_texts_are_needed_before_anything_is_served():
    with pytest.raises(AttnscopeError, match="needs texts"):
        attnscope.explore(network(honest=True))


def test_a_page_is_html(tmp_path):
    with pytest.raises(AttnscopeError, match=r"saved as \.html"):
        attnscope.explore(network(honest=True), texts()).save(tmp_path / "page.pdf")
