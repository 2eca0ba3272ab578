"""The page of an audit: one self-contained HTML file, with the answer first, then the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnscope.auditing import drawing
from attnscope.auditing.drawing import ClassifierExample, Column, TranslatorExample, cell_text, columns_of
from attnscope.auditing.report import DataInfo, Report
from attnscope.faithfulness.records import Answer, Part, Test
from attnscope.files import write_atomically
from attnscope.models.loaded import CLASSIFIER
from attnscope.report import wording
from attnscope.report.html import HERE as REPORT
from attnscope.report.html import Picture, environment
from attnscope.studies.naming import audit_name

HERE = Path(__file__).parent
ICONS: dict[Answer, str] = {
    "yes": "✓", "with care": "~", "no": "✗", "undecided": "?", "not measurable": "–", "information": "i"
}  # fmt: skip
TITLES = {  # of parts stored without a title
    "quality": "Model quality", "formation": "Formation of attention", "heads": "Ranking of heads",
    "dependence": "Does the output depend on attention?", "adversary": "Does another attention give the same output?",
    "erasure": "Does removing attended tokens change the output?",
    "correlation": "Does attention agree with other scores?",
    "single_tokens": "What does each token predict alone?",
    "information": "Do states identify their tokens?", "another_seed": "Does another seed attend alike?",
    "plausibility": "Is attention plausible to people?", "examples": "Examples",
}  # fmt: skip
NOT_ABOUT_FAITHFULNESS = ("quality", "formation", "heads", "plausibility", "examples")


@dataclass(frozen=True)
class Section:
    """A part as it is shown."""

    name: str
    part: Part
    table: Sequence[Column]
    figures: Sequence[Sequence[Picture]] = ()  # in groups
    heads: Sequence[Column] = ()
    meanings: dict[str, str] = field(default_factory=dict)
    examples: Sequence[ClassifierExample | TranslatorExample] = ()

    @property
    def title(self) -> str:
        return self.part.title or TITLES.get(self.name, self.name)

    @property
    def effort(self) -> str:
        """The number of texts and the computing time."""
        texts, seconds = self.part.texts, self.part.seconds
        measured = [] if texts is None else [f"Measured on {texts:,} text{'' if texts == 1 else 's'}"]
        if seconds is not None:
            measured.append(f"{wording.duration(round(seconds, 1)) if seconds >= 1 else 'under 1 s'} of computing")
        return " · ".join(measured)


def write_page(report: Report, path: Path) -> Path:
    """Write the page of an audit, and return its path; a file name.json beside it names the model."""
    sections = {name: section(name, part, report) for name, part in report.parts.items()}
    settings = list(wording.flat(report.provenance.settings))
    page = environment(HERE, REPORT).get_template("page.html.jinja").render(
        name=audit_name(path.parent, report.model.name or "This model").model, verdict=report.verdict,
        classifier=report.model.kind == CLASSIFIER, groups=test_groups(report.tests),
        anchors={test.name: f"test-{i}" for i, test in enumerate(report.tests, 1)}, sections=sections,
        faithfulness=[part for name, part in sections.items() if name not in NOT_ABOUT_FAITHFULNESS],
        facts=list(facts(report)), settings=settings, quick=("quick", "true") in settings, icons=ICONS,
        levels=drawing.LEVELS, width=drawing.WIDTH, columns_of=columns_of, gauge_of=drawing.gauge_of,
        value_text=drawing.value_text, number=wording.number,
    )  # fmt: skip
    write_atomically(path, page.encode(errors="replace"))  # a text may contain half of a surrogate pair
    return path


def test_groups(tests: Sequence[Test]) -> list[tuple[str, list[Test]]]:
    """Return the tests with bounds, and those that are information, under their titles."""
    behind = [test for test in tests if test.bounds is not None]
    return [("The tests behind it", behind), ("Information", [test for test in tests if test.bounds is None])]


def section(name: str, part: Part, report: Report) -> Section:
    """Return a part with its figures and examples."""
    table = columns_of(part.table)
    if name == "formation":
        return head_section(name, part, drawing.formation_columns(drawing.head_table(part)))
    if name == "heads":
        return head_section(name, part, drawing.ranking_columns(drawing.head_table(part)))
    if name == "adversary":
        return Section(name, part, table, figures=non_empty([drawing.adversary_figure(part)]))
    if name == "examples" and report.model.kind != CLASSIFIER:
        shared = drawing.matrix_scales(part.examples)
        return Section(name, part, table, examples=[drawing.translator_example(text, shared) for text in part.examples])
    classes = len(report.model.classes)
    shared = drawing.text_scales(part.examples, classes)
    examples = [drawing.classifier_example(text, classes, shared) for text in part.examples]
    return Section(name, part, table, examples=examples)


def head_section(name: str, part: Part, columns: list[str]) -> Section:
    """Return figures of many heads, or a table of one head; ranked heads have a table of the best, too."""
    heads = drawing.head_table(part)
    ranked = any(str(column).startswith("rank by ") for column in heads.columns)
    return Section(
        name, part, columns_of(part.table),
        figures=non_empty(drawing.small_multiples(heads, columns), [drawing.agreement_figure(part.agreement)]),
        heads=columns_of(drawing.best_heads(heads, columns)) if ranked or len(heads) == 1 else (),
        meanings={column: drawing.MEANINGS[column] for column in columns if column in drawing.MEANINGS},
    )  # fmt: skip


def non_empty(*groups: Sequence[Picture | None]) -> list[list[Picture]]:
    """Return the groups of pictures that hold any."""
    pictures = [[picture for picture in group if picture is not None] for group in groups]
    return [group for group in pictures if group]


def facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the model, the data, the date and the versions."""
    model, provenance = report.model, report.provenance
    architecture = f" ({model.architecture})" if model.name and model.architecture else model.architecture
    yield "Model", f"{model.name}{architecture}" or "unknown"
    yield "Size", f"{counted(model.layers, 'layer')} of {counted(model.heads, 'head')}"
    if model.classes:
        yield "Classes", cell_text(model.classes)
    yield "Texts", texts_fact(report.data)
    duration = "" if provenance.seconds is None else wording.duration(provenance.seconds)
    yield "Run", " · ".join(filter(None, (provenance.date, duration)))
    if provenance.machine:
        yield "Machine", provenance.machine
    versions = {"attnscope": provenance.attnscope, "torch": provenance.torch, "transformers": provenance.transformers}
    yield "Versions", " · ".join(f"{name} {version}" for name, version in versions.items() if version)


def counted(n: int | None, thing: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "head"), counted(6, "layer"), counted(None, "head")
    ('1 head', '6 layers', 'unknown heads')
    """
    return f"{'unknown' if n is None else n} {thing}{'' if n == 1 else 's'}"


def texts_fact(data: DataInfo) -> str:
    """Return how many texts there are, from where, and with which annotations."""
    sampled = f" of {data.available:,}" if data.available and data.available != data.texts else ""
    count = "unknown" if data.texts is None else f"{data.texts:,}{sampled}"
    parts = [f"{count} from {data.name or 'unknown'}" + (f" ({data.split})" if data.split else "")]
    parts += [f"{data.truncated:,} truncated"] if data.truncated else []
    parts += ["with rationales"] if data.rationales else []
    return " · ".join(parts + (["with gold word alignments"] if data.alignments else []))
