"""What does an audit say? Tests with their answers, and the verdict that follows from them.

An audit is a JSON file: `model`, `data`, `made`, `verdict`, and `parts`, the evidence by its name. A part holds, as far
as they mean anything to it: `texts` (how many it was measured on), `seconds`, `sentences` (in plain words), `table`
(rows with the same columns) and `tests`. The page is drawn from this file alone.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

ANSWERS = ("yes", "partly", "no", "unclear")
Part = dict[str, Any]


@dataclass(frozen=True)
class Test:
    """One question about faithfulness, asked of the attention that would be shown."""

    __test__ = False  # no test of ours, whatever pytest thinks of the name

    name: str  # "decisions depend on it"
    question: str
    answer: str  # one of ANSWERS
    sentence: str  # the answer in plain words, with its numbers
    value: float
    low: float
    high: float
    bounds: tuple[float, float]  # no up to the first, yes from the second
    chance: float | None = None  # what random attention gets
    best: float | None = None  # what the best other score gets

    @classmethod
    def read(cls, content: dict[str, Any]) -> "Test":
        """From JSON, where null stands for what is no finite number."""
        unknown = {name: float("nan") for name in ("value", "low", "high") if content[name] is None}
        return cls(**content | unknown | {"bounds": tuple(content["bounds"])})


@dataclass(frozen=True)
class Verdict:
    """May this attention be read as an explanation?"""

    answer: str  # one of ANSWERS
    headline: str
    paragraphs: tuple[str, ...]  # for what, how sure, why
    tests: tuple[Test, ...]


def plain(content: Any) -> Any:
    """As JSON has it: dataclasses are dictionaries, and what is no finite number is null."""
    if isinstance(content, dict):
        return {str(name): plain(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    if isinstance(content, Test | Verdict):
        return plain(asdict(content))
    if isinstance(content, np.ndarray):
        return plain(content.tolist())
    if isinstance(content, float | np.floating):
        return float(content) if np.isfinite(content) else None
    return int(content) if isinstance(content, np.integer) else content
