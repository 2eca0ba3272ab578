"""The explorer's pages, opened in the browser of tests/conftest.py."""

import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

import attnscope
from attnscope.auditing.report import DataInfo, ModelInfo, Provenance, Report
from attnscope.explorer.server import Server
from attnscope.faithfulness.criteria import VERDICT
from attnscope.faithfulness.records import Answer, Test, Verdict
from attnscope.models.adapters import WordReader
from auditing.known_answers import WORDS, OneHead, marked_examples

EDIT = "#%7B%22view%22%3A%22edit%22%7D"  # the state of the page: one model
SCRIPT = "<script>alert(1)</script>"  # a word of the models' vocabulary
WIDE, NARROW = {"width": 1300, "height": 850}, {"width": 390, "height": 780}


@pytest.fixture
def visit(browser):
    """Opens a page; afterwards there must have been no error, and no request that left this machine."""
    problems, contexts = [], []

    def open_page(address, viewport=WIDE, scheme="light", allowed=()):
        context = browser.new_context(viewport=viewport, color_scheme=scheme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda asked: problems.extend(leaving(asked.url)))
        page.on("websocket", lambda socket: problems.extend(leaving(socket.url)))
        page.goto(address)
        settle(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


def settle(page):
    """Wait until every request of the page is answered, and what the answers change is on display."""
    page.wait_for_selector(".axp[data-waiting='0'] .token")
    page.wait_for_selector(".axp[data-waiting='0'] .texts li button")


def leaving(address):
    parts = urlsplit(address)
    local = parts.scheme in ("file", "data", "blob") or parts.hostname == "127.0.0.1"
    return [] if local else [f"a request leaves this machine: {address}"]


@contextmanager
def serving(explorer):
    server = Server(explorer.session)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def network(honest):
    """A network whose attention is the reason for its decisions, or hides it."""
    model = OneHead(honest)
    model.reader = WordReader((*WORDS[:-1], SCRIPT), classes=("negative", "positive"))
    return attnscope.load(model)


def texts():
    examples = [(" ".join(one.source).replace(WORDS[-1], SCRIPT), one.target) for one in marked_examples(12)]
    return [(f"{SCRIPT} good word1", "positive"), *examples]


def report(answer: Answer):
    tests = tuple(Test(one.name, one.question, answer, f"{one.name}, in words", 0.5, 0.4, 0.6) for one in VERDICT)
    verdict = Verdict(answer, "A headline.", (), tests)
    return Report(verdict, {}, ModelInfo(), DataInfo(texts=30), Provenance({"quick": True}))


@pytest.fixture(scope="package")
def two_models():
    """A network that hides what it uses and an honest one, both with a verdict."""
    models = [network(honest) for honest in (False, True)]
    reports = {"audit": report("no"), "audit_against": report("yes")}
    return attnscope.explore(models[0], texts(), against=models[1], names=("hiding", "honest"), **reports)


@pytest.fixture(scope="package")
def static_page(two_models, tmp_path_factory):
    path = two_models.save(tmp_path_factory.mktemp("explorer") / "page.html", texts=4)
    return path.as_uri() + EDIT


def drag(page, token, by, editor=0):
    """Drag the bar of a token upwards by so many pixels, and wait for the output."""
    settle(page)
    pull(page, token, by, editor)
    settle(page)


def pull(page, token, by, editor=0):
    """Drag the bar of a token, whatever the page is doing."""
    track = page.locator(".editor").nth(editor).locator(".token").nth(token).locator(".track")
    track.scroll_into_view_if_needed()
    box = track.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 3
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - by / 2)
    page.mouse.move(x, y - by)
    page.mouse.up()


def weights_of(page, editor=0):
    """The exact weights on display, from the state of the page."""
    settle(page)
    state = page.evaluate("() => JSON.parse(decodeURIComponent(location.hash.slice(1)))")
    return state["edits"]


def outputs_of(page, editor=0):
    settle(page)
    cells = page.locator(".editor").nth(editor).locator("td[data-output]")
    return [float(cells.nth(i).get_attribute("data-value")) for i in range(cells.count())]
