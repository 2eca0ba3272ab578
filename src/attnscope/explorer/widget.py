"""The explorer as a widget for notebooks (JupyterLab; VS Code and marimo follow the same interface)."""

from collections.abc import Mapping, Sequence

import anywidget
import traitlets

from attnscope.explorer.pages import MODULE
from attnscope.explorer.session import Session
from attnscope.faithfulness.records import to_json


class ExplorerWidget(anywidget.AnyWidget):
    """Hosts the module in a notebook; `state` is what the page shows, and can be set."""

    _esm = MODULE
    state = traitlets.Dict().tag(sync=True)
    host = traitlets.Unicode("notebook").tag(sync=True)

    def __init__(self, session: Session):
        super().__init__()
        self.session = session
        self.on_msg(self.receive)

    def receive(self, widget: object, content: Mapping[str, object], buffers: Sequence[memoryview | bytes]) -> None:
        """Answer one request."""
        identity = content.get("id")

        def progress(done: int, total: int, title: str) -> None:
            self.send({"id": identity, "progress": [done, total, title]})

        answer = self.session.answer(content, [bytes(buffer) for buffer in buffers], progress)
        self.send({**dict(to_json(answer.described())), "id": identity}, answer.buffers())  # type: ignore[call-overload]
