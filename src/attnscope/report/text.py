"""Reports as plain text: Markdown tables of claims and numbers, verdicts for the terminal, reproduction reports.

A reproduction report says of a study: infrastructure, run time, number of runs, parameters, validation beside test.
"""

from __future__ import annotations

import contextlib
import json
import operator
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from attnscope.files import write_atomically
from attnscope.report import wording
from attnscope.studies.naming import paper_of, proper
from attnscope.studies.result import Result, Row, labels_of
from attnscope.studies.summary import substitute

MARK = "<!-- What follows is written by `attnscope report`; do not edit it by hand. -->"
STYLES = {
    "holds": "bold green", "fails": "bold red", "equivalent": "bold cyan", "undecided": "bold yellow",
    "not testable": "bold yellow",
}  # fmt: skip


def write_markdown(results: Sequence[Result], path: Path) -> Path:
    """Write the tables of these results to a page, below its text above the mark, and return its path."""
    before = path.read_text(encoding="utf-8").partition(MARK)[0] if path.exists() else ""
    write_atomically(path, (before + MARK + "\n\n" + tables(results)).encode())
    return path


def tables(results: Sequence[Result]) -> str:
    """Return the claims, numbers and notes of these results as Markdown."""
    return "\n".join(line for result in results for line in _finding(result))


def _finding(result: Result) -> Iterator[str]:
    yield _escape(f"## {result.study} {result.finding}: {result.title}")
    yield ""
    yield _escape(f"{result.section}; profile {result.profile}, {len(result.seeds)} seeds, {result.machine}.")
    yield ""
    claims = [[_marked(result, claim.text), claim.verdict, claim.evidence] for claim in result.claims]
    yield from markdown_table(["claim", "verdict", "evidence"], claims)
    if result.table:
        labels = [[_marked(result, label) for label in labels_of(line).values()] for line in result.table]
        numbers = [[wording.published(line), wording.ours(line)] for line in result.table]
        head = [*labels_of(result.table[0]), "published", "ours ± sd"]
        yield from markdown_table(head, list(map(operator.add, labels, numbers)))
    yield from (f"- {_escape(note)}" for note in result.notes)
    yield ""


def _marked(result: Result, text: str) -> str:
    """Return a claim or a label, marked if its corpus stands in for the paper's."""
    what = substitute(result, text)
    return f"{text} [substitute: {what}]" if what else text


def markdown_table(head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(_escape(str(cell)).replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _escape(text: str) -> str:
    """Return the text with tags, entities and links that run code escaped, so that Markdown viewers ignore them.

    >>> _escape("<b>bold</b> &amp; t < s")
    '&lt;b>bold&lt;/b> &amp;amp; t < s'
    """
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", text))
    return re.sub(r"\]\((?=\s*(?:javascript|vbscript|data):)", r"]\(", text, flags=re.IGNORECASE)


def claims_table(result: Result) -> Table:
    """Return the verdicts of a finding, ready to print; brackets in texts are no markup."""
    profile = " (quick profile)" if result.profile == "quick" else ""
    title = Text(f"{result.study} {result.finding}: {result.title}{profile}", style="bold")
    table = Table(title=title, box=SIMPLE, title_justify="left", pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", ratio=3, overflow="fold")
    table.add_column("evidence", ratio=4, overflow="fold")
    for claim in result.claims:
        evidence = Text(claim.evidence)
        if claim.why:
            evidence.append(f"\n{claim.verdict}: {claim.why}", style="dim")
        verdict = Text(f"{wording.ICONS[claim.verdict]} {claim.verdict}", style=STYLES[claim.verdict])
        table.add_row(verdict, Text(claim.text), evidence)
    return table


# Reproduction report -------------------------------------------------------------------------------------------------


PARAMETERS = ("model.", "training.", "objective.")  # beginnings of the settings that are listed
UNLISTED = (".kind", ".evaluate_every", ".checkpoints")  # neither names nor what is measured when
OFF = frozenset({"null", "false", "[]", "none", "0", "0.0"})
MAX_LISTED = 6  # values of a setting
MAX_LENGTH = 60  # characters of a value
SOFTWARE = ("python", "attnscope", "torch")
VALIDATION = "validation"
SCORES = ("F1", "sequence accuracy", "word accuracy", "accuracy")


def reproduction_report(results: Sequence[Result], substitutions: str, search: str) -> str:
    """Return the report of one study in Markdown, from what its result files say about their runs.

    Args:
        results: The findings of the study.
        substitutions: What differs from the paper: corpora, epochs, seeds, precision.
        search: How parameters were chosen, and within which bounds.
    """
    study = results[0].study
    return "\n".join([
        f"# Reproduction report: {study}", "", paper_of(study).citation or paper_of(study).title, "",
        f"The manifest of each finding is `results/{study}/<finding>.json`: settings of every run, seeds, versions of "
        "all packages, machine, commit, and the numbers of each seed. `attnscope verify results` recomputes the "
        "statistics.", "",
        "## Substitutions", "", substitutions, "",
        "## Infrastructure", "", *_infrastructure(results),
        "## Runs", "", *_runs(results),
        "## Parameters", "",
        "Values over all settings that were trained, with the number of settings in brackets; what is off everywhere "
        "is not listed. Where each comes from: [papers.md](../papers.md).", "", *_parameters(results),
        "## Search", "", search, "",
        "## Validation beside test", "", *_validation(results),
    ])  # fmt: skip


def _infrastructure(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for machine in dict.fromkeys(result.machine for result in results):
        own = [result for result in results if result.machine == machine]
        versions = [
            ", ".join(f"{name} {result.versions[name]}" for name in SOFTWARE if name in result.versions)
            for result in own
        ]
        rows.append([machine, str(len(own)), "; ".join(dict.fromkeys(versions))])
    yield from markdown_table(["machine", "findings", "software"], rows)
    unknown = [f"`{result.finding}`" for result in results if _software_of_another_machine(result)]
    if unknown:
        yield (
            f"The software of {', '.join(unknown)} is that of the machine that wrote the file: a build of torch for "
            "CPUs uses no GPU. With which build these networks were trained was not recorded."
        )
        yield ""


def _software_of_another_machine(result: Result) -> bool:
    """Return whether a result names a GPU and a torch that cannot have used it; `by_seed` names the torch of each."""
    return "NVIDIA" in result.machine and result.versions.get("torch", "").endswith("+cpu") and result.by_seed is None


def _runs(results: Sequence[Result]) -> Iterator[str]:
    rows = [
        [
            f"`{result.finding}`", result.section, result.profile, wording.seeds(result.seeds),
            str(len(_experiments(result)) * len(result.seeds)), wording.duration(result.seconds),
        ]
        for result in results
    ]  # fmt: skip
    yield from markdown_table(["finding", "section", "profile", "seeds", "runs", "run time"], rows)
    yield (
        "A run is one setting trained with one seed; 0: a finding about counts, corpora or a first update. Run times "
        "are the sum over jobs, which run side by side; findings that share networks count them again. The number of "
        "parameters and the energy used were not recorded."
    )
    yield ""


def _experiments(result: Result) -> list[Mapping[str, object]]:
    """Return the different configurations that were trained; measurements without a network have none."""
    experiments = (result.settings.get("experiments") or {}).values()
    trained = [run for experiment in experiments for run in experiment.get("runs", {"": experiment}).values()]
    return list({json.dumps(run, sort_keys=True): run for run in trained}.values())


def _parameters(results: Sequence[Result]) -> Iterator[str]:
    values: dict[str, Counter[str]] = {}
    for experiment in (each for result in results for each in _experiments(result)):
        for name, value in wording.flat(_parts_by_kind(experiment)):
            if value and name.startswith(PARAMETERS) and not name.endswith(UNLISTED):
                values.setdefault(name, Counter())[value] += 1
    rows = [[f"`{name}`", _summary(values[name])] for name in sorted(values) if not OFF.issuperset(values[name])]
    yield from markdown_table(["setting", "values"], rows)


def _parts_by_kind(experiment: Mapping[str, Any]) -> Mapping[str, object]:
    """Return an experiment with the parts of its objective as settings that are named after their kind."""
    objective = dict(experiment.get("objective") or {})
    parts = {part["kind"]: {**part, "kind": ""} for part in objective.pop("parts", [])}
    return {**experiment, "objective": objective | parts}


def _summary(values: Counter[str]) -> str:
    """Return the values of a setting, only the range of many numbers, and no long lists.

    >>> _summary(Counter({"64": 3, "32": 1})), _summary(Counter(map(str, range(9))))
    ('64 (3), 32 (1)', '9 values, 0 to 8')
    """
    if len(values) > MAX_LISTED:
        with contextlib.suppress(ValueError):
            numbers = sorted(values, key=float)
            return f"{len(values)} values, {numbers[0]} to {numbers[-1]}"
    if len(values) > MAX_LISTED or any(len(value) > MAX_LENGTH for value in values):
        return "long, see the manifests"
    return ", ".join(f"{value} ({n})" for value, n in values.most_common())


def _validation(results: Sequence[Result]) -> Iterator[str]:
    rows = [row for result in results if not result.section.startswith("beyond") for row in _compared(result)]
    if rows:
        yield "Mean ± standard deviation over seeds. Of several networks, their mean, the lowest and the highest."
        yield ""
        yield from markdown_table(["finding", "on", "score", "networks", "validation", "test"], rows)
    else:
        yield "No finding of this study stores a score on validation data beside the same score on test data."
        yield ""


def _compared(result: Result) -> Iterator[list[str]]:
    """Yield the scores on validation and on test data, summarised over the networks that share their first label."""
    groups: dict[tuple[str, str], list[tuple[Row, Row]]] = {}
    for network, score, pair in _pairs(result):
        groups.setdefault((network.partition(" · ")[0], score), []).append(pair)
    for (label, score), pairs in groups.items():
        scores = map(_over_networks, zip(*pairs, strict=True))
        yield [f"`{result.finding}`", proper(label), score, str(len(pairs)), *scores]


def _over_networks(rows: Sequence[Row]) -> str:
    if len(rows) == 1:
        return wording.ours(rows[0])
    means = [row["mean"] for row in rows if row["mean"] is not None]
    return f"{wording.number(sum(means) / len(means))} ({wording.number(min(means))} to {wording.number(max(means))})"


def _pairs(result: Result) -> Iterator[tuple[str, str, tuple[Row, Row]]]:
    """Yield the first score of each network that is stored for validation and for test data."""
    networks = set()
    for row in result.table:
        network, quantity = _split(row)
        score = next((score for score in SCORES if quantity.startswith(score)), None)
        if score is None or VALIDATION not in quantity or network in networks:
            continue
        same = [other for other in result.table if _split(other)[0] == network]
        test = next((o for o in same if _split(o)[1].startswith(score) and VALIDATION not in _split(o)[1]), None)
        if test is not None:
            networks.add(network)
            yield network, _split(test)[1], (row, test)


def _split(row: Row) -> tuple[str, str]:
    labels = labels_of(row)
    return " · ".join(value for name, value in labels.items() if name != "quantity"), labels.get("quantity", "")
