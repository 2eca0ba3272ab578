"""The page of the explorer: one HTML file with the module, the host and, in a static page, all answers."""

import base64
import hashlib
import json
import re
from pathlib import Path

from attnscope.explorer.session import Session, request_key, static_requests
from attnscope.faithfulness.records import to_json

HERE = Path(__file__).parent
MODULE = HERE / "explorer.js"
TITLE = "attnscope explorer"
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
body {{ margin: 0; background: #fafaf8; font: 15px/1.5 system-ui, sans-serif; }}
body > [role=navigation] {{ margin: 0 !important; padding: 8px 16px 0; }}
a {{ color: #0b5cad; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #15181c; color: #e6e8eb; }} a {{ color: #7fb8f5; }} }}
</style>
</head>
<body>
<main id="explorer"></main>
<script type="application/json" id="page">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def page(data: dict[str, object], connect: str = "'none'", title: str = TITLE) -> str:
    """Return the page as HTML; its content security policy allows its own script and nothing from elsewhere.

    Args:
        data: The data of the host, with `host`: "static" or "server".
        connect: The addresses that the page may connect to.
        title: Its title.
    """
    module = re.sub(r"^export (default explorer;)?", "", MODULE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    script = module + (HERE / "host.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    return PAGE.format(policy=policy, title=as_text(title), data=as_json(data), script=script)


def as_json(data: object) -> str:
    """Return JSON that is safe inside a script element.

    >>> as_json({"token": "</script>"})
    '{"token":"\\\\u003c/script>"}'
    """
    return json.dumps(to_json(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def as_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def static_page(session: Session, texts: int = 8, title: str = TITLE) -> str:
    """Return a page that needs no server.

    Where the output is a weighted sum of the tokens' contributions, the page computes it; elsewhere it stores the
    output for the attention of each button, for the last layer.

    Args:
        session: Models and texts.
        texts: The number of texts it shows.
        title: Its title.
    """
    answers = {}
    for request, buffers in static_requests(session, texts):
        answer = session.answer(request, buffers)
        encoded = [base64.b64encode(buffer).decode() for buffer in answer.buffers()]
        answers[request_key(request)] = {"content": answer.described(), "buffers": encoded}
    return page({"host": "static", "stored": texts, "answers": answers}, title=title)
