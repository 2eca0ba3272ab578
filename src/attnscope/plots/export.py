"""Write figures as PNG, SVG or PDF: the same figure gives the same bytes, without dates."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from attnscope.errors import choose
from attnscope.files import write_atomically
from attnscope.plots.style import RC

DATELESS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix of the path, and return the path."""
    path = Path(path)
    write_atomically(path, _bytes(figure, choose("figure format", path.suffix.lstrip(".").lower(), DATELESS)))
    return path


def svg(figure: Figure) -> str:
    """Return the figure as one `<svg>` element that needs no font, no style sheet and no network."""
    text = _bytes(figure, "svg").decode()
    return text[text.index("<svg") :]


def _bytes(figure: Figure, kind: str) -> bytes:
    stream = io.BytesIO()
    with mpl.rc_context({**RC, "svg.fonttype": "path", "svg.hashsalt": "attnscope"}):
        figure.savefig(stream, format=kind, metadata=DATELESS[kind], bbox_inches="tight", pad_inches=0.05)
    return stream.getvalue()
