"""How is a study read in a browser, on paper, on a telephone, years from now? As one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from attnscope.errors import require
from attnscope.files import write_atomically
from attnscope.report import wording
from attnscope.report.papers import PAPERS, Paper
from attnscope.report.picture import Picture, picture
from attnscope.studies.result import Result, labels_of

HERE = Path(__file__).parent
Draw = Callable[[Result], Figure | None]


@dataclass(frozen=True)
class Section:
    """A finding as it is shown."""

    result: Result
    picture: Picture | None

    @property
    def anchor(self) -> str:
        return f"{self.result.study}-{self.result.finding}"

    @property
    def quick(self) -> bool:
        return self.result.profile == "quick"

    @property
    def columns(self) -> list[str]:
        return list(labels_of(self.result.table[0])) if self.result.table else []


@dataclass(frozen=True)
class Study:
    """A paper and the findings of it that were measured again."""

    name: str
    paper: Paper
    sections: Sequence[Section]


def write_report(results: Sequence[Result], draw: Draw, path: Path) -> Path:
    """Write the report of these results to one HTML file; `draw` gives the figure of a result, or None."""
    require(len(results) > 0, "there are no results to report")
    studies = [_study(name, results, draw) for name in dict.fromkeys(result.study for result in results)]
    page = environment(HERE).get_template("report.html.jinja").render(
        studies=studies, title=_title(studies), facts=_facts(results), wording=wording,
        counts=wording.tally([claim for result in results for claim in result.claims]),
        quick=any(section.quick for study in studies for section in study.sections),
    )  # fmt: skip
    write_atomically(Path(path), page.encode())
    return Path(path)


def environment(*folders: Path) -> Environment:
    """What reads the templates in these folders: it shows every word as it is, whatever brackets it holds."""
    return Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def _study(name: str, results: Sequence[Result], draw: Draw) -> Study:
    sections = [_section(result, draw(result)) for result in results if result.study == name]
    return Study(name, PAPERS.get(name, Paper(name, "")), sections)


def _section(result: Result, figure: Figure | None) -> Section:
    return Section(result, None if figure is None else picture(figure, result))


def _title(studies: Sequence[Study]) -> str:
    return studies[0].paper.title if len(studies) == 1 else f"{len(studies)} studies of attention"


def _facts(results: Sequence[Result]) -> dict[str, str]:
    """What all findings share; where they differ, each value once."""
    facts = {
        "Profile": [result.profile for result in results],
        "Seeds": [wording.seeds(result.seeds) for result in results],
        "Commit": [wording.commit(result.commit) for result in results],
        "Machine": [result.machine for result in results],
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in facts.items()}
