"""The server: the model answers; nothing is answered without the token, to another host name or to other pages."""

import asyncio
import http.client
import json
import os
import signal
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import attnscope
from attnscope.cli import app
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.explorer.server import MAX_MESSAGE, Server, pack, unpack
from attnscope.explorer.session import ExploredModel, Request, Session
from attnscope.probes.language import HeadKinds
from explorer.conftest import drag, network, outputs_of, pull, serving, settle, texts, weights_of
from explorer.test_static_page import floats
from models.adapter_examples import LABELS, SOURCES, foreign, tokenizer_for
from models.language_examples import language_model

for library in ("starlette", "uvicorn"):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'attnscope[explore]'")
websockets = pytest.importorskip("websockets", reason="websockets is not installed")


@pytest.fixture(scope="module")
def bert():
    return attnscope.load(foreign("bert"), tokenizer=tokenizer_for("bert"))


@pytest.fixture(scope="module")
def server(bert):
    with serving(attnscope.explore(bert, list(zip(SOURCES, LABELS, strict=True)))) as running:
        yield running


@pytest.fixture(scope="module")
def small_server():
    """One network of one head, without a verdict."""
    with serving(attnscope.explore(network(honest=True), texts(), audit=None)) as running:
        yield running


def status(server, path=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest("GET", path or f"/?token={server.token}", skip_host=True)
    for name, value in ({"host": server.authority} | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    headers = answer.headers
    connection.close()
    return answer.status, headers


# The browser


def test_a_dragged_bar_gives_the_probabilities_of_the_same_intervention_in_python(visit, server, bert):
    page = visit(server.address)
    drag(page, 3, 40)
    weights = floats(weights_of(page)["0"]["1//0"])
    trace = bert.trace([SOURCES[0]], attention={1: weights.expand(1, 2, 1, -1)})
    expected = trace.logits[0, 0, 3:].double().softmax(-1).tolist()
    own = bert.trace([SOURCES[0]]).logits[0, 0, 3:].double().softmax(-1).tolist()
    assert outputs_of(page) == pytest.approx(expected, abs=1e-5)
    assert expected != pytest.approx(own, abs=1e-3)


def test_one_head_of_an_earlier_layer_can_be_edited(visit, server, bert):
    page = visit(server.address)
    page.get_by_label("Layer").select_option("0")
    page.get_by_label("Head").select_option("1")
    page.get_by_role("button", name="Uniform", exact=True).click()
    page.wait_for_selector(".decision.stay, .decision.flip")
    settle(page)
    trace = bert.trace([SOURCES[0]], attention={(0, 1): attnscope.uniform})
    assert outputs_of(page) == pytest.approx(trace.logits[0, 0, 3:].double().softmax(-1).tolist(), abs=1e-5)


def sentence(page):
    """The text on display, its subwords joined."""
    return " ".join(page.locator(".label").all_inner_texts()[1:-1]).replace(" ##", "")


def test_an_edit_undone_before_the_answer_stays_undone(visit, server):
    page = visit(server.address)
    own = outputs_of(page)
    with server.session.lock:  # the model answers when this is left
        page.get_by_role("button", name="Uniform", exact=True).click()
        page.get_by_role("button", name="Undo").click()
    assert outputs_of(page) == own
    assert page.locator(".decision").inner_text().startswith("Decision:")


def test_a_text_is_edited_only_when_it_is_on_display(visit, server):
    page = visit(server.address)
    with server.session.lock:
        page.locator(".texts li button").nth(1).click()
        page.wait_for_selector(".editor[aria-busy=true]")
        pull(page, 3, 60)
    assert weights_of(page) == {"0": {}}
    assert sentence(page) == SOURCES[1]
    drag(page, 3, 60)
    page.get_by_role("button", name="Undo").click()
    assert weights_of(page) == {"0": {}}


def test_the_last_of_several_texts_is_shown(visit, server):
    page = visit(server.address)
    with server.session.lock:
        for text in (1, 2, 1, 2):
            page.locator(".texts li button").nth(text).click()
    settle(page)
    assert sentence(page) == SOURCES[2]


def test_a_text_typed_by_the_user_is_read(visit, server):
    page = visit(server.address)
    page.get_by_label("A text of your own").fill("a dog sees <b>old</b> films")
    page.get_by_role("button", name="Read this text").click()
    page.wait_for_function("() => document.querySelectorAll('.token')[1]?.textContent.includes('a')")
    assert page.locator(".label b").count() == 0


def test_the_quick_audit_gives_the_verdict(visit, small_server):
    page = visit(small_server.address)
    assert "Not audited" in page.locator(".verdict").inner_text()
    page.get_by_role("button", name="Run the quick audit").click()
    page.wait_for_selector(".verdict .answer", timeout=120_000)
    assert page.locator(".verdict .answer").inner_text() in ("yes", "with care", "no", "undecided")


# What is refused


def test_the_page_is_served_with_its_policy_and_without_cors(server):
    code, headers = status(server)
    assert code == 200
    assert headers["access-control-allow-origin"] is None
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/?token=wrong", {}),
        (None, {"host": "attacker.example"}),
        (None, {"host": "attacker.example:80", "origin": "http://attacker.example:80"}),
        (None, {"origin": "http://attacker.example"}),
        (None, {"origin": "null"}),
    ],
)
def test_wrong_tokens_foreign_hosts_and_origins_are_refused(server, path, headers):
    assert status(server, path, **headers)[0] == 403


def connect(server, token=None, origin=True, message=None):
    """Open a WebSocket, send a message if there is one, and return the answer."""

    async def talk():
        value = server.token if token is None else token
        address = f"ws://127.0.0.1:{server.port}/ws?token={value}"
        named = f"http://{server.authority}" if origin is True else origin
        async with websockets.connect(address, origin=named, max_size=None) as socket:
            await socket.send(pack({"kind": "overview", "id": 1}) if message is None else message)
            return unpack(await asyncio.wait_for(socket.recv(), 60))

    # Playwright keeps a loop running in this thread, so this one needs a thread of its own.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, talk()).result()


def test_the_socket_answers_the_page(server):
    content, _ = connect(server)
    assert content["id"] == 1
    assert content["models"][0]["kind"] == "classifier"


@pytest.mark.parametrize(
    "given", [{"token": "wrong"}, {"token": ""}, {"origin": "http://attacker.example"}, {"origin": None}]
)
def test_the_socket_refuses_wrong_tokens_and_foreign_origins(server, given):
    with pytest.raises(websockets.InvalidStatus):
        connect(server, **given)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x00", struct.pack("<I", 1 << 31) + b"{}", struct.pack("<I", 2) + b"[]", "text",
        struct.pack("<I", 18) + b'{"buffers":[1,-1]}', b"\x00" * (MAX_MESSAGE + 1),
        struct.pack("<I", 17) + b'{"buffers":[1.0]}' + b"a",
    ],
)  # fmt: skip
def test_a_malformed_or_large_message_ends_the_connection_and_nothing_else(server, message):
    with pytest.raises(websockets.ConnectionClosed):
        connect(server, message=message)
    assert connect(server)[0]["id"] == 1


def test_a_message_id_with_a_lone_surrogate_is_answered(server):
    message = rb'{"kind":"overview","id":"\ud800","buffers":[]}'
    assert connect(server, message=struct.pack("<I", len(message)) + message)[0]["models"]


def test_an_internal_error_is_shown_on_the_page_and_the_server_continues(server, monkeypatch, capfd):
    monkeypatch.setattr(Session, "answer", lambda *_: 1 / 0)
    assert "this is a bug of attnscope: ZeroDivisionError" in connect(server)[0]["error"]
    monkeypatch.undo()
    assert connect(server)[0]["id"] == 1
    assert "Traceback" not in capfd.readouterr().err


REFUSED = [
    {}, {"kind": "nothing"}, {"kind": 3}, {"kind": "view", "text": 99}, {"kind": "view", "text": -1},
    {"kind": "view", "text": ""}, {"kind": "view", "text": "x" * 20_001}, {"kind": "view", "model": 2},
    {"kind": "view", "step": 5}, {"kind": "scores", "names": ["magic"]}, {"kind": "scores", "names": "β"},
    {"kind": "intervene", "edits": [[0, 0]]}, {"kind": "intervene", "edits": [[9, None, 0]]},
    {"kind": "intervene", "edits": [[0, None, 0]] * 5000}, {"kind": "intervene", "edits": [], "row": 4},
    {"kind": "farthest", "row": "first"}, {"kind": "training"},
]  # fmt: skip


@pytest.mark.parametrize("request_", REFUSED, ids=lambda given: json.dumps(given)[:40])
def test_an_invalid_request_gets_an_error_message(request_):
    session = Session([ExploredModel(network(honest=True), texts())])
    source = session.answer({"kind": "view"}).content["attended"]
    buffer = torch.full((len(request_.get("edits", [])), len(source)), 1 / len(source)).numpy().tobytes()
    assert session.answer(request_, [buffer]).content["error"]
    assert "error" not in session.answer({"kind": "view"}).content


@pytest.mark.parametrize("weights", [[2.0, 0.0, 0.0], [-0.1, 1.0, 0.1], [float("nan"), 1.0, 0.0], [0.5, 0.5], b"odd"])
def test_invalid_weights_are_refused(weights):
    session = Session([ExploredModel(network(honest=True), texts())])
    buffer = weights if isinstance(weights, bytes) else torch.tensor(weights).numpy().tobytes()
    answer = session.answer({"kind": "intervene", "edits": [[0, None, 0]]}, [buffer])
    assert "weights" in answer.content["error"]


def test_kinds_of_heads_are_marked_where_ablation_confirms_them(monkeypatch):
    loaded = language_model("gpt2")
    rows = pd.DataFrame(
        [("induction", 1, 0, True), ("sink", 0, 1, False), ("sink", 1, 0, True)],
        columns=["kind", "layer", "head", "confirmed"],
    )
    monkeypatch.setattr("attnscope.explorer.session.head_kinds", lambda model: HeadKinds(rows, {}))
    explored = ExploredModel(loaded, ["the old dog sees a small cat"])
    kinds = Session([explored]).answer({"kind": "heads"}).content["kinds"]
    assert {i: kind for i, kind in enumerate(kinds) if kind.endswith("✓")} == {loaded.module.heads: "induction ✓"}
    monkeypatch.setattr("attnscope.explorer.session.MAX_CONFIRMED", 0)  # a large model: by rule alone
    by_rule = Session([explored]).answer({"kind": "heads"}).content["kinds"]
    assert len(by_rule) == len(kinds) == loaded.module.depth * loaded.module.heads
    assert not any(kind.endswith("✓") for kind in by_rule)


def test_each_token_of_a_language_model_attends_to_itself_and_those_before_it():
    loaded, text = language_model("gpt2"), "the old dog sees a small cat"
    session = Session([ExploredModel(loaded, [text])])
    view = session.answer({"kind": "view"}).content
    size, row = len(view["tokens"]), 3
    assert view["attended"] == [True] * size
    assert sorted(view["shuffle"]) == list(range(size))
    assert session.passage(Request({}, [], print)).attended.equal(torch.ones(size, size).tril().bool())
    heads = session.answer({"kind": "heads"})
    assert heads.tensors[0].isfinite().all()
    farthest = session.answer({"kind": "farthest", "row": row})
    assert farthest.content["jsd"] > 0
    assert (farthest.tensors[0][:, 1 : row + 1] > 0).any()
    assert not farthest.tensors[0][:, row + 1 :].any()


def test_weights_on_later_tokens_of_a_language_model_are_refused():
    session = Session([ExploredModel(language_model("gpt2"), ["the old dog sees a small cat"])])
    size = len(session.answer({"kind": "view"}).content["tokens"])
    rows = torch.eye(size)[[2, 5]].numpy()
    for layer in (0, 1, None):
        request = {"kind": "intervene", "edits": [[layer, None, 3]], "row": 3}
        assert "error" not in session.answer(request, [rows[0].tobytes()]).content
        assert "cannot attend to later tokens" in session.answer(request, [rows[1].tobytes()]).content["error"]


def test_binding_to_another_address_warns():
    session = Session([ExploredModel(network(honest=True), texts())])
    with pytest.warns(UserWarning, match="whoever reaches this machine"):
        Server(session, "0.0.0.0").socket.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_one = Server(session)
        assert open_one.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(AttnscopeError, match="cannot listen"):
        Server(session, "127.0.0.1", open_one.port)
    open_one.socket.close()


def test_the_command_writes_a_static_page(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    adapter = Path(__file__).parent.parent.parent / "docs" / "examples" / "adapter.py"
    (tmp_path / "texts.jsonl").write_text('{"text": "a fine film", "label": 1}\n{"text": "a dull film", "label": 0}\n')
    command = ["explore", f"{adapter}:model", tmp_path / "texts.jsonl", "--static", tmp_path / "page.html"]
    answer = CliRunner().invoke(app, list(map(str, command)))
    sys.modules.pop("adapter", None)
    assert answer.exit_code == 0, answer.output
    assert "a fine film" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_command_ends_at_ctrl_c_while_a_page_is_open(visit, tmp_path):
    adapter = Path(__file__).parent.parent.parent / "docs" / "examples" / "adapter.py"
    (tmp_path / "texts.jsonl").write_text('{"text": "a fine film", "label": 1}\n')
    command = [sys.executable, "-m", "attnscope", "explore", f"{adapter}:model", "texts.jsonl", "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": str(Path(attnscope.__file__).parent.parent)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        address = process.stdout.readline().removeprefix("explorer: ").strip()
        page = visit(address)
        process.send_signal(signal.SIGINT)
        page.get_by_role("alert").wait_for()  # the page says that the server has stopped
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert output.endswith("explorer: ended\n")
    assert errors == ""


def test_a_message_is_read_as_it_was_packed():
    assert unpack(pack({"kind": "view", "β": 1}, [b"abc", b""])) == ({"kind": "view", "β": 1}, [b"abc", b""])
    with pytest.raises(BadSetting, match="not a message of the explorer"):
        unpack(b"....")
