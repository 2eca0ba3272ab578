"""How a person asks: list, reproduce, report, site, verify, train, probe, audit."""

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attnscope.studies.result import Result

app = typer.Typer(
    help="How does a model attend, how did it learn to, and may its attention be read as an explanation?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StoreOption = Annotated[Path, typer.Option(help="Folder of finished runs and results.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, such as model.units=64; may be given again."),
]
DataOption = Annotated[Path | None, typer.Option(help="Folder of corpora; by default that of ATTNSCOPE_DATA.")]
DeviceOption = Annotated[str, typer.Option(help="cpu or cuda.")]


class Interrupted(BaseException):
    """Ctrl-C, by a name that typer does not swallow."""


def main() -> None:
    """The command `attnscope`: a mistake in the input is one line on the error stream and exit code 2."""
    from attnscope.errors import AttnscopeError

    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except AttnscopeError as error:
        typer.echo(f"attnscope: {error}", err=True)
        sys.exit(2)
    except Interrupted:
        typer.echo("attnscope: interrupted; finished runs are kept, and the same command goes on from there", err=True)
        sys.exit(130)


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted


@app.command("list")
def list_() -> None:
    """Studies and their findings, with the file that each is written in; tasks, models and probes."""
    from attnscope.models import ATTENTIONS, CELLS, MODELS
    from attnscope.probes import PROBES
    from attnscope.studies import STUDIES, study
    from attnscope.tasks import CORPORA, TASKS

    for name in STUDIES:
        typer.echo(f"study {name}")
        for finding in study(name).findings:
            _entry(finding.name, f"{finding.title} ({finding.section})", finding.file)
    named: dict[str, Iterable[str]] = {
        "tasks": TASKS,
        "corpora": CORPORA,
        "models": MODELS,
        "cells": CELLS,
        "attentions": ("none", *ATTENTIONS),
        "probes": PROBES,
    }
    typer.echo("known by name")
    for kind, names in named.items():
        _entry(kind, ", ".join(names))


def _entry(name: str, *paragraphs: str) -> None:
    """A name, and what is said of it beside; as wide as the terminal."""
    width = shutil.get_terminal_size().columns
    lines = [line for text in paragraphs for line in textwrap.wrap(text, max(width - 17, 40), break_on_hyphens=False)]
    for beginning, line in zip_longest([name], lines, fillvalue=""):
        typer.echo(f"  {beginning:<14} {line}")


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(help="Such as aitken2021; `attnscope list` shows all.")],
    only: Annotated[list[str] | None, typer.Option(help="A single finding, such as fig5a; may be given again.")] = None,
    profile: Annotated[str, typer.Option(help="quick (two cores, minutes) or paper (published sizes).")] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; by default those of the profile.")] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes of the local engine; by default one a core.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; without one, Ray starts its own.")
    ] = None,
    device: DeviceOption = "cpu",
    data: DataOption = None,
    store: StoreOption = Path("runs"),
) -> None:
    """Train, measure and judge a whole study or some of its findings; the report shows all that the store has."""
    from attnscope import reproduce as carry_out
    from attnscope.progress import counting

    _use(data)
    with counting(f"{study}, {profile}") as progress:
        results = carry_out(
            study, *(only or ()), profile=profile, seeds=seeds, store=store, engine=engine, workers=workers,
            address=address, device=device, progress=progress,
        )  # fmt: skip
    _show(results)
    typer.echo(f"report: {_report(_results(store), store / 'report.html')}")


@app.command()
def report(
    store: Annotated[Path, typer.Argument(help="A store, or any folder of results (<study>/<finding>.json).")],
    out: Annotated[Path | None, typer.Option(help="The .html or .md file; by default report.html there.")] = None,
) -> None:
    """Write the report again, from the results that are stored: a page to look at, or tables in Markdown."""
    results = _results(store)
    typer.echo(f"report: {_report(results, out or store / 'report.html')}")


@app.command()
def site(
    store: Annotated[Path, typer.Argument(help="A store, or any folder of results (<study>/<finding>.json).")],
    out: Annotated[Path, typer.Option(help="Folder for index.html and all that it leads to.")] = Path("site"),
    project: Annotated[Path | None, typer.Option(help="Folder of README.md and docs/, to be part of it.")] = None,
) -> None:
    """Write all studies as a folder of pages that need no network: figures, claims, published numbers beside ours."""
    from attnscope.report.site import write_site

    typer.echo(f"site: {write_site(_results(store), out, store / 'audits', project)}")


@app.command()
def verify(folder: Annotated[Path, typer.Argument(help="A folder of results, such as results/.")]) -> None:
    """Check that every result file is well formed; exit code 1 if one is not."""
    from attnscope.studies.result import verify as problems_under

    problems = problems_under(folder)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{len(list(folder.rglob('*.json')))} result files are well formed")


@app.command()
def train(
    task: Annotated[str, typer.Argument(help="A task or corpus, such as one_to_one or sst.")],
    model: Annotated[str, typer.Argument(help="Such as aed or classifier.")],
    change: SetOption = None,
    data: DataOption = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """Train one model on one task; settings are changed by --set task.…, model.… and training.…"""
    from attnscope.errors import choose
    from attnscope.lab.experiment import Experiment
    from attnscope.lab.experiment import train as carry_out
    from attnscope.lab.overrides import overridden
    from attnscope.lab.store import Store
    from attnscope.models import MODELS
    from attnscope.progress import training
    from attnscope.tasks import CORPORA, TASKS
    from attnscope.training import TrainingSettings

    choose("task", task, [*TASKS, *CORPORA])
    choose("model", model, MODELS)
    _use(data)
    chosen = TASKS[task]() if task in TASKS else CORPORA[task]
    experiment = Experiment(chosen, MODELS[model], TrainingSettings(), seed=seed, device=device)
    experiment = overridden(experiment, change or [])
    with training(f"{model} on {task}") as report:
        run = carry_out(experiment, Store(store), report)
    for name, value in run.summary.items():
        typer.echo(f"{name}: {value:.4g}")
    typer.echo(f"run: {experiment.key}")


@app.command()
def probe(
    run: Annotated[str, typer.Argument(help="The key of a run, as `attnscope train` printed it, or its beginning.")],
    name: Annotated[str, typer.Argument(metavar="PROBE", help="Such as decomposition.")] = "decomposition",
    checkpoint: Annotated[int | None, typer.Option(help="Ask the weights kept after this step.")] = None,
    out: Annotated[Path | None, typer.Option(help="Save the figure here (.png, .svg or .pdf).")] = None,
    store: StoreOption = Path("runs"),
) -> None:
    """Ask a finished run a question: prints a table, and draws its figure."""
    from attnscope import plots
    from attnscope.lab.experiment import find
    from attnscope.lab.store import Store
    from attnscope.probes import probe as probe_named

    ask = probe_named(name)
    found = find(run, Store(store))
    answer = ask(found.model(checkpoint), found.task)
    typer.echo(answer.table().T.to_string())
    if out is not None:
        figure, (ax,) = plots.panels(1, 1, size=(6.4, 4.0))
        answer.plot(ax)
        typer.echo(f"figure: {plots.save(figure, out)}")


@app.command()
def audit(
    model: Annotated[
        str,
        typer.Argument(help="A folder of save_pretrained, hf:owner/name, a run or its key, or module:function."),
    ],
    data: Annotated[
        str | None, typer.Argument(help="Texts as JSON lines, CSV or TSV; a run is asked about its own test set.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for audit.html and audit.json.")] = Path("audit"),
    quick: Annotated[bool, typer.Option("--quick", help="A sample: minutes on two cores.")] = False,
    budget: Annotated[
        float | None, typer.Option(help="Minutes; questions are asked about fewer texts to keep to them.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time: changes the speed, never a result.")] = 32,
    texts: Annotated[int, typer.Option(min=2, help="How many texts, drawn at random where there are more.")] = 5000,
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; by default test, if there is one.")
    ] = None,
    against: Annotated[str | None, typer.Option(help="The same model from another seed, to compare with.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    examples: Annotated[bool, typer.Option(help="Whether some of the texts are shown.")] = True,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """May this model's attention be shown as a reason? Writes a page with the answer and the evidence."""
    from attnscope.auditing import Settings
    from attnscope.auditing import audit as carry_out
    from attnscope.lab.experiment import check_device
    from attnscope.progress import asking

    check_device(device)
    settings = Settings(quick, budget, batch_size, texts, seed, examples)
    with asking("audit") as seen:
        found = carry_out(
            _run(model, store),
            data,
            out,
            settings,
            split,
            None if against is None else _run(against, store),
            device,
            seen,
        )
    typer.echo(f"{found['verdict']['answer']}: {found['verdict']['headline']}")
    for test in found["verdict"]["tests"]:
        typer.echo(f"  {test['answer']:<8} {test['sentence']}")
    typer.echo(f"page: {out / 'audit.html'}")


def _run(model: str, store: Path) -> str:
    """The folder of a run that is named by its key; anything else as it is."""
    from attnscope.lab.experiment import find
    from attnscope.lab.store import Store

    known = set() if Path(model).exists() or not store.is_dir() else set(Store(store).keys())
    return str(find(model, Store(store)).folder) if any(key.startswith(model) for key in known) else model


def _use(data: Path | None) -> None:
    """Corpora are looked for here, by this process and those that it starts."""
    from attnscope.tasks.text.places import DATA

    if data is not None:
        os.environ[DATA] = str(data.resolve())


def _results(folder: Path) -> "list[Result]":
    """In the order in which the studies give their findings."""
    from attnscope.errors import AttnscopeError
    from attnscope.studies import STUDIES, study
    from attnscope.studies.result import Result

    root = folder / "results" if (folder / "results").is_dir() else folder
    order = {(name, f.name): place for name in STUDIES for place, f in enumerate(study(name).findings)}
    paths = [path for name in STUDIES for path in (root / name).glob("*.json")]
    if not paths:
        raise AttnscopeError(f"there are no results (<study>/<finding>.json) in {folder}")
    return sorted((Result.read(path) for path in paths), key=lambda r: (r.study, order.get((r.study, r.finding), 0)))


def _report(results: "list[Result]", path: Path) -> Path:
    from attnscope.report import write_markdown, write_report
    from attnscope.studies.result import Result

    return write_markdown(results, path) if path.suffix == ".md" else write_report(results, Result.display_figure, path)


def _show(results: "list[Result]") -> None:
    from rich.console import Console

    from attnscope.report import claims_table
    from attnscope.studies.judging import FAILED

    console = Console()
    for result in results:
        console.print(claims_table(result))
        for note in result.notes:
            if note.startswith(FAILED):
                console.print(_shortened(note), markup=False, highlight=False)


def _shortened(note: str, longest: int = 600) -> str:
    """Without its middle, if it is long: which runs come first, and the reason last."""
    return note if len(note) <= longest else f"{note[: longest // 3]} … {note[-longest * 2 // 3 :]}"
