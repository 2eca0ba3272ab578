"""Which models were audited, and what was the answer? Their pages are taken as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnscope.files import read_json

PAGE = "audit.html"


@dataclass(frozen=True)
class Audited:
    """An audit as it is listed: `source` is its page as `attnscope audit` wrote it."""

    source: Path
    answer: str
    headline: str

    @property
    def name(self) -> str:
        """That of its folder: a model may be known by the key of its run only."""
        return self.source.parent.name

    @property
    def page(self) -> str:
        return f"results/audits/{self.name}/{PAGE}"


def audits_in(folder: Path) -> list[Audited]:
    """The audits in the folders below, by name; the answer is read from the JSON beside each page, if there is one."""
    return [_audited(page) for page in sorted(folder.glob(f"*/{PAGE}"))]


def _audited(page: Path) -> Audited:
    beside = page.with_suffix(".json")
    content: dict[str, Any] = read_json(beside) if beside.exists() else {}
    verdict = content.get("verdict") or {}
    return Audited(page, verdict.get("answer") or "unclear", verdict.get("headline") or "")
