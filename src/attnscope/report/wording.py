"""Verdicts, numbers and durations as text, for reports and templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attnscope.studies.claims import ClaimVerdict, Number, short, with_spread
from attnscope.studies.result import Result, Row, counts

ICONS = {"holds": "✓", "fails": "✗", "equivalent": "≈", "undecided": "?", "not testable": "–"}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LIMIT = "what this does not show"  # begins a note about the limits of a finding


def tally(claims: Sequence[ClaimVerdict]) -> dict[str, int]:
    """Return how many claims got each verdict."""
    return counts(claim.verdict for claim in claims)


def counted(word: str, n: int) -> str:
    """Return a number of verdicts.

    >>> counted("holds", 1), counted("holds", 2), counted("undecided", 2)
    ('1 holds', '2 hold', '2 undecided')
    """
    return f"{n} {plural(word) if n != 1 else word}"


def plural(word: str) -> str:
    """Return the verdict of several claims: they hold, fail, are equivalent, undecided or not testable."""
    return word.removesuffix("s")


def ours(line: Row) -> str:
    """Return our mean and standard deviation.

    >>> ours({"mean": 0.8123, "sd": 0.0211, "n": 5}), ours({"mean": 0.8, "sd": None, "n": 1}), ours({"mean": None})
    ('0.812 ± 0.021', '0.8', 'no number')
    """
    if line["mean"] is None:
        return "no number"
    return _minus(with_spread(line["mean"], line["sd"]))


def published(line: Row) -> str:
    """Return the published number, or the text that states it."""
    return line.get("published_text") or ("–" if line["published"] is None else _minus(short(line["published"])))


def difference(line: Row) -> str:
    """Return our number less the published one, with its sign.

    >>> difference({"mean": 0.75, "published": 0.77}), difference({"mean": 0.75, "published": None})
    ('−0.02', '–')
    """
    if line["mean"] is None or line["published"] is None:
        return "–"
    gap = line["mean"] - line["published"]
    return ("+" if gap > 0 else "") + _minus(short(gap, digits=2))


def number(value: Number, digits: int = 3) -> str:
    """Return a few digits, with a typographic minus sign and powers of ten.

    >>> number(-0.51239), number(0.0), number(8.6e-5)
    ('−0.512', '0', '8.6 × 10⁻⁵')
    """
    return typeset(short(value, digits))


def _minus(text: str) -> str:
    return text.replace("-", "−")


def typeset(text: str) -> str:
    """Return a sentence with minus signs and powers of ten, and with per cent signs that stay beside their numbers.

    >>> typeset("τ = -0.03, -2% of 5 %, 1e-05, a t-test") == "τ = −0.03, −2\u202f% of 5\u202f%, 1 × 10⁻⁵, a t-test"
    True
    """
    text = re.sub(r"(?<=\d)e[-−]0*(\d+)", lambda match: f" × 10⁻{match[1].translate(SUPERSCRIPTS)}", text)
    return re.sub(r"(?<=\d) ?%", "\u202f%", re.sub(r"(?<![\w)\]])-(?=\.?\d)", "−", text))


def duration(seconds: Number) -> str:
    """Return a duration in two units.

    >>> duration(0.42), duration(75), duration(3 * 3600 + 120)
    ('0.42 s', '1 min 15 s', '3 h 2 min')
    """
    if seconds < 60:
        return f"{short(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def seeds(numbers: Sequence[int]) -> str:
    """Return how many seeds there are, and which.

    >>> seeds([0, 1, 2, 3, 4]), seeds([7]), seeds([1, 5, 9])
    ('5 (0 to 4)', '1 (7)', '3 (1, 5, 9)')
    """
    consecutive = len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{len(numbers)} ({f'{numbers[0]} to {numbers[-1]}' if consecutive else ', '.join(map(str, numbers))})"


def commit(name: str | None) -> str:
    """Return the first letters of a commit.

    >>> commit("0123456789abcdef+changes"), commit(None)
    ('0123456789 with changes', 'unknown')
    """
    if name is None:
        return "unknown"
    head, changed, _ = name.partition("+")
    return head[:10] + (" with changes" if changed else "")


def limits(result: Result) -> list[str]:
    """Return the notes on what a finding does not show, without these words."""
    return [note[len(LIMIT) :].lstrip(" :.,") for note in result.notes if note.lower().startswith(LIMIT)]


def remarks(result: Result) -> list[str]:
    """Return the other notes."""
    return [note for note in result.notes if not note.lower().startswith(LIMIT)]


def settings(all_settings: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Yield titles and lines of settings; a run lists only what differs from the run before it.

    >>> list(settings({"experiments": {"a": {"cell": "gru", "units": 8}, "b": {"cell": "lstm", "units": 8}}}))
    [('', []), ('a', ['cell gru', 'units 8']), ('b', ['cell lstm'])]
    """
    experiments = all_settings.get("experiments")
    before: dict[str, str] = {}
    yield (
        "",
        [" ".join(line) for line in flat({name: all_settings[name] for name in all_settings if name != "experiments"})],
    )
    for title, run in runs_in(experiments) if isinstance(experiments, Mapping) else ():
        own = dict(flat(run))
        changed = [name for name in before | own if own.get(name) != before.get(name)]
        yield title, [f"{name} {own.get(name, '–')}" for name in changed]
        before = own


def runs_in(experiments: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the configuration of each run; runs that are measured together share the settings of the measurement."""
    for label, config in experiments.items():
        if not config.get("runs"):
            yield label, config
        for role, run in config.get("runs", {}).items():
            yield f"{label}, {role}", {**run, "settings": config.get("settings")}


def flat(settings: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """Return nested settings as one list of dotted names.

    >>> list(flat({"model": {"cell": "gru", "layers": [1, 2]}}))
    [('model.cell', 'gru'), ('model.layers', '[1, 2]')]
    """
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
