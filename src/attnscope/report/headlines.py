"""The headline claims of the papers: a page in Markdown and a forest plot, both made of the results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.files import write_atomically
from attnscope.plots.style import FAINT, INK, axes, line_legend, name_axes
from attnscope.report import wording
from attnscope.report.text import markdown_table
from attnscope.studies.claims import short
from attnscope.studies.result import Result, labels_of
from attnscope.studies.summary import DECIDED, HeadlineVerdict, count, interval, judge_headlines

MARK = "<!-- What follows is written by `attnscope report --headlines`; do not edit it by hand. -->"
FIGURE = "headlines.svg"
ALT = "Ours divided by the published number, with 95 % intervals, one line per headline claim; numbers are on the page."
GREEN, RED, AMBER = "#0b6e4f", "#b3261e", "#7a5a00"
PAINT = {"holds": GREEN, "equivalent": GREEN, "fails": RED, "undecided": AMBER, "not testable": AMBER}
WIDEST = 3.0  # of the axis: ours is that many times the published number


def write_headlines(results: Sequence[Result], path: Path) -> Path:
    """Write the page, below its text above the mark, and the forest plot beside it, and return the path of the page."""
    headlines = judge_headlines(results)
    before = path.read_text(encoding="utf-8").partition(MARK)[0] if path.exists() else "# Headline claims\n\n"
    write_atomically(path, (before + MARK + "\n\n" + headline_tables(results)).encode())
    if (figure := draw_headlines(headlines)) is not None:
        write_atomically(path.with_name(FIGURE), plots.svg(figure).encode())
    return path


def headline_tables(results: Sequence[Result]) -> str:
    """Return the counts and the headline claims of each paper as Markdown; studies without headlines do not count."""
    headlines = judge_headlines(results)
    papers = dict.fromkeys(each.headline.study for each in headlines)
    lines = [*_counts([result for result in results if result.study in papers]), _decided(headlines), ""]
    lines += [f"![{ALT}]({FIGURE})", ""]
    for study in papers:
        own = [each for each in headlines if each.headline.study == study]
        lines += [f"## {study}", "", *markdown_table(HEAD, [_cells(each) for each in own])]
    return "\n".join(lines)


HEAD = ["claim, in the paper's words", "verdict", "criterion", "published", "ours, 95 % interval", "reason or open"]


def _counts(results: Sequence[Result]) -> Iterator[str]:
    by_rank = count(results)
    words = list(by_rank["headline"].verdicts)
    rows = [
        [name, *(str(each.verdicts[word]) for word in words), short(each.by_chance, 2)]
        for name, each in by_rank.items()
    ]
    yield from markdown_table(["rank", *words, "decided by chance, expected, at most"], rows)


def _decided(headlines: Sequence[HeadlineVerdict]) -> str:
    decided = [each for each in headlines if each.verdict in DECIDED]
    corrected = sum(each.p is not None for each in decided)
    lost = sum(each.uncorrected in DECIDED and each.verdict not in DECIDED for each in headlines)
    return (
        f"Of {len(headlines)} headlines {len(decided)} are decided, {corrected} of them by corrected tests and the "
        f"others by the earlier rule. Without Holm's correction {lost} more would be."
    )


def _cells(each: HeadlineVerdict) -> list[str]:
    headline, line = each.headline, each.row
    rule = "" if each.p is not None else ", earlier rule"
    verdict = f"{wording.ICONS[each.verdict]} {each.verdict} ({each.held} of {len(each.claims)} claims hold{rule})"
    findings = ", ".join(f"`{finding}`" for finding in headline.tests)
    return [
        f"“{headline.quote}” ({headline.section})",
        verdict,
        f"{headline.criterion}; {findings}",
        "–" if line is None else f"{wording.published(line)} ({', '.join(filter(None, labels_of(line).values()))})",
        "–" if line is None else _ours(each),
        _reason(each),
    ]


def _reason(each: HeadlineVerdict) -> str:
    if each.verdict == "holds":
        return ""
    if each.verdict == "not testable":
        return "; ".join(dict.fromkeys(claim.why.removeprefix("not testable: ") for claim in each.claims))
    if each.verdict != each.uncorrected and each.p is not None:
        return f"{each.uncorrected} before Holm's correction (p = {short(each.p, 2)}): more seeds"
    return each.headline.reason or "open"


def _ours(each: HeadlineVerdict) -> str:
    assert each.row is not None
    if each.row["mean"] is None:
        return "no number"
    ends = interval(each.row, each.headline.within)
    inside = "" if ends is None else f", {wording.number(ends[0])} to {wording.number(ends[1])}"
    return f"{wording.number(each.row['mean'])}{inside} (n = {each.row['n']})"


def draw_headlines(headlines: Sequence[HeadlineVerdict]) -> Figure | None:
    """Draw our mean and interval over the published number, for headlines that have one; None if none has."""
    shown = [each for each in headlines if each.row and each.row["mean"] is not None and each.row["published"]]
    if not shown:
        return None
    with plots.style():
        picture, (ax,) = plots.panels(1, 1, size=(8.8, 0.9 + 0.46 * len(shown)))
        axes(ax).axvline(1.0, color=INK, linewidth=0.8)
        for place, each in enumerate(reversed(shown)):
            assert each.row is not None
            published, mean = each.row["published"], each.row["mean"]
            low, high = interval(each.row, each.headline.within) or (mean, mean)
            ax.plot([low / published, high / published], [place, place], color=PAINT[each.verdict], linewidth=1.6)
            ax.plot(mean / published, place, "o", color=PAINT[each.verdict], markersize=4.5)
            ax.plot(1.0, place, "|", color=INK, markersize=9)
            for end, beyond, arrow in ((0.0, low / published < 0, "<"), (WIDEST, high / published > WIDEST, ">")):
                if beyond:
                    ax.plot(end, place, arrow, color=PAINT[each.verdict], markersize=6, clip_on=False)
        several = len({each.headline.study for each in shown}) > 1
        names = [_name(each, several) for each in reversed(shown)]
        ax.set_yticks(range(len(shown)), names, fontsize=8)
        ax.set_xlim(0, WIDEST)
        ax.grid(axis="x", color=FAINT, linewidth=0.5)
        name_axes(ax, "ours ÷ published, 95 % interval (published: 1)", None)
        line_legend(ax, {"holds": {"color": GREEN}, "fails": {"color": RED}, "undecided": {"color": AMBER}})
    return picture


def _name(each: HeadlineVerdict, with_study: bool) -> str:
    """Return the beginning of a headline, and the published number above which ours is drawn."""
    assert each.row is not None
    quote = textwrap.shorten(each.headline.quote, 58, placeholder=" …")
    study = f"{each.headline.study}: " if with_study else ""
    return f"{study}{quote}\npublished {wording.published(each.row)}, ours {_ours(each)}"
