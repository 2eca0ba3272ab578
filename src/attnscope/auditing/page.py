"""How is an audit read? As one HTML file that needs nothing else: first the answer, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pandas import DataFrame

from attnscope.auditing import drawing
from attnscope.auditing.drawing import (
    LEVELS,
    WIDTH,
    Column,
    Pair,
    Scale,
    Text,
    columns_of,
    in_words,
    pair_of,
    said,
    scale_of,
    text_of,
)
from attnscope.faithfulness.records import ANSWERS
from attnscope.faithfulness.subject import TRANSLATOR
from attnscope.files import write_atomically
from attnscope.report import wording
from attnscope.report.html import HERE as REPORT
from attnscope.report.html import Picture, environment

HERE = Path(__file__).parent
WORDS = {"yes": "Yes", "partly": "With care", "no": "No", "unclear": "Unclear"}
ICONS = {"yes": "✓", "partly": "~", "no": "✗", "unclear": "?"}
TITLES = {
    "quality": "How good the model is", "formed": "How attention is formed", "heads": "Which heads to believe",
    "dependence": "Do decisions depend on it?", "adversary": "Would another attention do?",
    "erasure": "Are the words it points at those that decide?", "correlation": "Does it agree with other scores?",
    "tokens": "What would each word say alone?", "information": "Does a state still tell its word?",
    "between": "Would another seed attend alike?", "plausibility": "Does it look plausible to people?",
    "examples": "Examples",
}  # fmt: skip
ALONE = ("quality", "formed", "heads", "plausibility", "examples")  # all other parts are about faithfulness


@dataclass(frozen=True)
class Asked:
    """A test as it is shown; `anchor` is its place among the tests of the verdict."""

    name: str
    question: str
    answer: str
    sentence: str
    said: str
    measured: bool
    chance: str | None
    best: str | None
    scale: Scale | None
    anchor: str | None


@dataclass(frozen=True)
class Evidence:
    """A part as it is shown."""

    name: str
    title: str
    asks: str
    failed: str | None
    sentences: Sequence[str]
    table: Sequence[Column]
    tests: Sequence[Asked]
    took: str
    figures: Sequence[Sequence[Picture]] = ()  # pictures that belong together
    heads: Sequence[Column] = ()
    meanings: dict[str, str] = field(default_factory=dict)
    examples: Sequence[Text | Pair] = ()


def write_page(audit: dict[str, Any], path: Path) -> Path:
    """Write the page of an audit; it is drawn from the audit's JSON alone."""
    verdict, model, tests = audit.get("verdict") or {}, audit.get("model") or {}, asked_in(audit)
    parts = {name: evidence(name, part, audit, tests) for name, part in (audit.get("parts") or {}).items()}
    page = environment(HERE, REPORT).get_template("page.html.jinja").render(
        name=model.get("name") or "this model", classifier=model.get("kind") != TRANSLATOR,
        answer=answer_of(verdict), headline=verdict.get("headline"), paragraphs=verdict.get("paragraphs") or [],
        tests=tests, parts=parts, faithful=[part for name, part in parts.items() if name not in ALONE],
        facts=list(facts(audit)), settings=settings(audit), quick=("quick", "true") in settings(audit),
        words=WORDS, icons=ICONS, levels=LEVELS, width=WIDTH, columns_of=columns_of,
    )  # fmt: skip
    write_atomically(Path(path), page.encode(errors="replace"))  # a text may hold half of a character
    return Path(path)


def asked_in(audit: dict[str, Any]) -> list[Asked]:
    """The tests that the verdict follows from."""
    tests = (audit.get("verdict") or {}).get("tests") or []
    return [asked(test, f"test-{i}") for i, test in enumerate(tests, 1)]


def asked(test: dict[str, Any], anchor: str | None) -> Asked:
    chance, best = (None if test.get(name) is None else wording.number(test[name]) for name in ("chance", "best"))
    name, question, sentence = (test.get(key) or "" for key in ("name", "question", "sentence"))
    return Asked(
        name, question, answer_of(test), sentence, said(test), test.get("value") is not None, chance, best,
        scale_of(test), anchor,
    )  # fmt: skip


def answer_of(content: dict[str, Any]) -> str:
    return content["answer"] if content.get("answer") in ANSWERS else "unclear"


def evidence(name: str, part: dict[str, Any], audit: dict[str, Any], tests: Sequence[Asked]) -> Evidence:
    anchors = {test.name: test.anchor for test in tests}
    return Evidence(
        name, part.get("title") or TITLES.get(name, name), part.get("asks") or "", part.get("failed"),
        part.get("sentences") or [], columns_of(part.get("table") or []),
        [asked(test, anchors.get(test.get("name") or "")) for test in part.get("tests") or []],
        took(part), **extras(name, part, audit),
    )  # fmt: skip


def took(part: dict[str, Any]) -> str:
    texts, seconds = part.get("texts"), part.get("seconds")
    measured = [] if texts is None else [f"Measured on {texts:,} text{'' if texts == 1 else 's'}"]
    if seconds is not None:
        measured.append(f"{wording.duration(round(seconds, 1)) if seconds >= 1 else 'under 1 s'} of computing")
    return " · ".join(measured)


def extras(name: str, part: dict[str, Any], audit: dict[str, Any]) -> dict[str, Any]:
    """What some parts have besides sentences and tables."""
    if name == "formed":
        heads = drawing.heads_of(part)
        return of_heads(heads, drawing.formed_columns(heads), None)
    if name == "heads":
        heads = drawing.heads_of(part)
        return of_heads(heads, drawing.ranked_columns(heads), drawing.agreement(part))
    if name == "adversary":
        return {"figures": shown([drawing.adversaries(part)])}
    if name == "examples":
        return {"examples": examples_of(part, audit)}
    return {}


def of_heads(heads: DataFrame, columns: list[str], further: Picture | None) -> dict[str, Any]:
    """One head is a table; many are pictures, and where they are ranked the table names the first."""
    found: dict[str, Any] = {
        "figures": shown(drawing.small_multiples(heads, columns), [further]),
        "meanings": {name: drawing.MEANINGS[name] for name in columns if name in drawing.MEANINGS},
    }
    ranked = any(str(name).startswith("rank by ") for name in heads.columns)
    return found | ({"heads": columns_of(drawing.believed(heads, columns))} if ranked or len(heads) == 1 else {})


def shown(*groups: Sequence[Picture | None]) -> list[list[Picture]]:
    """The groups in which there is anything to see."""
    drawn = [[picture for picture in group if picture is not None] for group in groups]
    return [group for group in drawn if group]


def examples_of(part: dict[str, Any], audit: dict[str, Any]) -> list[Text | Pair]:
    model = audit.get("model") or {}
    if model.get("kind") == TRANSLATOR:
        return [pair_of(example) for example in part.get("examples") or []]
    return [text_of(example, len(model.get("classes") or [])) for example in part.get("examples") or []]


def facts(audit: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What was audited, on what, when and how."""
    model, data, made = (audit.get(name) or {} for name in ("model", "data", "made"))
    yield "Model", named(model.get("name"), model.get("what"))
    yield "Size", f"{counted(model.get('layers'), 'layer')} of {counted(model.get('heads'), 'head')}"
    if model.get("classes"):
        yield "Classes", in_words(model["classes"])
    yield "Texts", texts_of(data)
    yield "Run", " · ".join(run_of(made))
    if made.get("machine"):
        yield "Machine", made["machine"]
    versions = [f"{name} {made[name]}" for name in ("attnscope", "torch", "transformers") if made.get(name)]
    yield "Versions", " · ".join(versions)


def named(name: Any, what: Any) -> str:
    return f"{name} ({what})" if name and what else str(name or what or "unknown")


def counted(n: int | None, thing: str) -> str:
    """
    >>> counted(1, "head"), counted(6, "layer"), counted(None, "head")
    ('1 head', '6 layers', 'unknown heads')
    """
    return f"{'unknown' if n is None else n} {thing}{'' if n == 1 else 's'}"


def texts_of(data: dict[str, Any]) -> str:
    """How many, from where, and what people said about them."""
    texts, of = data.get("texts"), data.get("of")
    many = "unknown" if texts is None else f"{texts:,}" + (f" of {of:,}" if of and of != texts else "")
    parts = [f"{many} from {data.get('name')}" + (f" ({data['split']})" if data.get("split") else "")]
    parts += [f"{data['cut']:,} cut short"] if data.get("cut") else []
    parts += ["with what people marked"] if data.get("rationales") else []
    return " · ".join(parts + (["with gold links"] if data.get("links") else []))


def run_of(made: dict[str, Any]) -> Iterator[str]:
    if made.get("date"):
        yield str(made["date"])
    if made.get("seconds") is not None:
        yield wording.duration(made["seconds"])


def settings(audit: dict[str, Any]) -> list[tuple[str, str]]:
    return list(wording.flat((audit.get("made") or {}).get("settings") or {}))
