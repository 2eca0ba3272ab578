"""The explorer's server: one page and one WebSocket, on this machine only unless another address is configured.

A random token is part of the address. Requests for another host (DNS rebinding), from pages of other origins and
without the token are refused. Messages are bounded in size, and answered one at a time.
"""

import asyncio
import json
import secrets
import socket
import struct
import warnings
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from attnscope.errors import AttnscopeError, BadSetting, describe_error, environment_error, require
from attnscope.explorer.pages import as_json, page
from attnscope.explorer.session import Answer, Session

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket

LOOPBACK, ANY = ("127.0.0.1", "localhost", "::1"), ("0.0.0.0", "::")
MAX_MESSAGE = 1 << 20  # bytes
MAX_CONNECTIONS = 16
FORBIDDEN = 1008  # WebSocket close code: policy violation
HEADERS = {
    "cache-control": "no-store", "referrer-policy": "no-referrer", "x-content-type-options": "nosniff",
    "x-frame-options": "DENY", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


def pack(content: Mapping[str, object], buffers: Sequence[bytes] = ()) -> bytes:
    """Return a message: the length of the JSON (32 bits, little-endian), the JSON, then the buffers."""
    header = as_json({**content, "buffers": [len(buffer) for buffer in buffers]}).encode(errors="replace")  # surrogates
    return b"".join([struct.pack("<I", len(header)), header, *buffers])


def unpack(message: bytes) -> tuple[dict[str, object], list[bytes]]:
    """Return the JSON object and the buffers of a message.

    >>> unpack(pack({"kind": "view"}, [b"ab", b"c"]))
    ({'kind': 'view'}, [b'ab', b'c'])
    """
    try:
        (length,) = struct.unpack_from("<I", message)
        content = json.loads(message[4 : 4 + length])
        sizes = content.pop("buffers")
        if not all(type(size) is int and size >= 0 for size in sizes) or len(message) != 4 + length + sum(sizes):
            raise ValueError("the lengths of the buffers do not fit")
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadSetting(f"this is not a message of the explorer: {error}") from error
    buffers, place = list[bytes](), 4 + length
    for size in sizes:
        buffers.append(message[place : place + size])
        place += size
    return content, buffers


@dataclass
class Server:
    """Serves a session.

    Attributes:
        session: Answers the requests.
        host: The address to bind to.
        port: The port; 0: any free one.
        token: Part of the address; requests without it are refused.
    """

    session: Session
    host: str = "127.0.0.1"
    port: int = 0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    connections: int = 0

    def __post_init__(self) -> None:
        for library in ("starlette", "uvicorn", "websockets"):
            try:
                import_module(library)
            except ImportError as error:
                raise AttnscopeError(f"the explorer needs {library}: pip install 'attnscope[explore]'") from error
        require(bool(self.host.strip()), "the explorer needs an address to listen on, such as 127.0.0.1, not ''")
        if self.host not in LOOPBACK:
            warnings.warn(
                f"the explorer listens on {self.host}: whoever reaches this machine and knows the address of the page "
                "can use the model and read its texts; nothing is encrypted",
                stacklevel=3,
            )
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((self.host, self.port))
            self.socket.listen()
        except OSError as error:
            self.socket.close()
            raise AttnscopeError(f"the explorer cannot listen on {self.host}:{self.port}: {error.strerror}") from error
        self.port = self.socket.getsockname()[1]

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """The address to open in a browser, with the token."""
        return f"http://{self.authority}/?token={self.token}"

    def run(self, open_browser: bool = False) -> None:
        """Serve until interrupted."""
        import uvicorn

        settings = uvicorn.Config(
            self.application(), log_level="warning", access_log=False, ws="websockets-sansio", ws_max_size=MAX_MESSAGE,
            server_header=False, date_header=False, timeout_graceful_shutdown=2,
        )  # fmt: skip
        if open_browser:
            webbrowser.open(self.address)
        self.running = uvicorn.Server(settings)
        with self.socket, suppress(KeyboardInterrupt):  # Ctrl-C: uvicorn has closed its connections
            self.running.run(sockets=[self.socket])

    def stop(self) -> None:
        """End `run` in another thread."""
        self.running.should_exit = True

    def application(self) -> "Starlette":
        from starlette.applications import Starlette
        from starlette.routing import Route, WebSocketRoute

        return Starlette(routes=[Route("/", self.page), WebSocketRoute("/ws", self.converse)])

    def refusal(self, connection: "HTTPConnection") -> str | None:
        """Return the reason to refuse a request, or None."""
        own = ("127.0.0.1", "localhost") if self.host in LOOPBACK else ()
        names = {self.authority, *(f"{name}:{self.port}" for name in own)}
        host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
        if self.host not in ANY and host not in names:
            return "this host name is not served"
        if origin is not None and origin != f"http://{host}":
            return "pages of other origins are not served"
        if connection.scope["type"] == "websocket" and origin is None:
            return "a connection needs an origin"
        token = connection.query_params.get("token", "")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return "the token is missing or wrong: open the address that attnscope explore prints"
        return None

    async def page(self, request: "Request") -> "Response":
        from starlette.responses import HTMLResponse, PlainTextResponse

        refused = self.refusal(request)
        if refused is not None:
            return PlainTextResponse(refused, 403, HEADERS)
        host = request.headers["host"]
        return HTMLResponse(page({"host": "server"}, connect=f"ws://{host}"), headers=HEADERS)

    async def converse(self, ws: "WebSocket") -> None:
        """Answer the messages of one page, one after the other."""
        from starlette.websockets import WebSocketDisconnect

        if self.refusal(ws) is not None or self.connections >= MAX_CONNECTIONS:
            await ws.close(FORBIDDEN)
            return
        await ws.accept()
        self.connections += 1
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                content, buffers = unpack(await ws.receive_bytes())
                answering = asyncio.create_task(self.reply(ws, content, buffers))
                tasks.add(answering)
                answering.add_done_callback(tasks.discard)
                if content.get("kind") != "audit":  # while an audit runs, other requests are answered
                    await answering
        except (WebSocketDisconnect, RuntimeError, BadSetting, KeyError):  # closed, or not a message of the explorer
            pass
        finally:
            self.connections -= 1

    async def reply(self, ws: "WebSocket", content: Mapping[str, object], buffers: Sequence[bytes]) -> None:
        loop, identity = asyncio.get_running_loop(), content.get("id")

        def progress(done: int, total: int, title: str) -> None:
            message = pack({"id": identity, "progress": [done, total, title]})
            asyncio.run_coroutine_threadsafe(send(ws, message), loop).result()

        try:
            answer = await asyncio.to_thread(partial(self.session.answer, content, buffers, progress))
        except Exception as error:  # the page shows it, and the next request is answered
            message = environment_error(error) or f"this is a bug of attnscope: {describe_error(error)}"
            answer = Answer({"error": message})
        await send(ws, pack({**answer.described(), "id": identity}, answer.buffers()))


async def send(ws: "WebSocket", message: bytes) -> None:
    """Send a message, unless the page is closed."""
    from starlette.websockets import WebSocketDisconnect

    try:
        await ws.send_bytes(message)
    except (WebSocketDisconnect, RuntimeError):
        return
