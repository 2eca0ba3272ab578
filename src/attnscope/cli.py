"""The command line: list, reproduce, report, site, verify, train, probe, explain, audit, explore, calibrate."""

import os
import shutil
import signal
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from attnscope.display import DataFrame
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
    typer.Option("--set", help="Change a setting, such as model.units=64; may be repeated."),
]
DataOption = Annotated[Path | None, typer.Option(help="Folder of corpora; by default that of ATTNSCOPE_DATA.")]
TextOption = Annotated[str | None, typer.Option(help="Column of the texts, if its name is not a usual one.")]
LabelOption = Annotated[str | None, typer.Option(help="Column of the labels or translations.")]
PairOption = Annotated[str | None, typer.Option(help="Column of the second texts, for models that read pairs.")]
RationaleOption = Annotated[
    str | None, typer.Option(help="Column of human rationales: one number from 0 to 1 per word.")
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or mps.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Random seed.")]
ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A folder of save_pretrained, hf:owner/name, a run (key, prefix of a key, or folder), module:function or "
        "file.py:function."
    ),
]


MAX_PRINTED_ROWS = 60  # of a table
BAD_INPUT, BUG, INTERRUPTED = 2, 70, 130  # exit codes; 70 is EX_SOFTWARE of sysexits.h


class Interrupted(BaseException):
    """Ctrl-C, as an exception that typer does not catch."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command `attnscope`.

    A mistake in the input is one line on the error stream and exit code 2. Any other exception is a bug of attnscope:
    one line as well, the traceback in a log file, and exit code 70.

    Args:
        argv: The words of the command line; None: those of this process.
    """
    from attnscope.errors import AttnscopeError, environment_error

    signal.signal(signal.SIGINT, _interrupt)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            app(args=argv, prog_name="attnscope")
        except AttnscopeError as error:
            _exit(str(error), BAD_INPUT)
        except Interrupted:
            _exit("interrupted; the same command resumes from here, and reuses finished runs", INTERRUPTED)
        except Exception as error:
            message = environment_error(error)
            _exit(message or _bug(error), BUG if message is None else BAD_INPUT)


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted


def _exit(message: str, code: int) -> NoReturn:
    typer.echo(f"attnscope: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _bug(error: Exception) -> str:
    """Write the traceback of an unexpected exception to a log file, and return a message that names the file."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="attnscope-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as log:
        log.write("".join(traceback.format_exception(error)))
    return (
        f"this is a bug, please report it with {log.name}, which holds the traceback ({type(error).__name__}: "
        f"{error!s:.200}); finished runs and parts of audits are kept"
    )


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: object = None,
) -> None:
    """Print a warning as one line; those of libraries, with their origin."""
    origin = "" if category.__module__.startswith("attnscope") else f" ({category.__name__}, {filename}:{lineno})"
    typer.echo(f"attnscope: warning: {' '.join(str(message).split())}{origin}", err=True)


def _print_version(show: bool | None) -> None:
    if show:
        from attnscope import __version__

        typer.echo(f"attnscope {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Options of the command itself."""


@app.command("list")
def list_() -> None:
    """List studies and their findings, each with its file; tasks, models and probes."""
    from attnscope.models import ATTENTIONS, CELLS, MODELS
    from attnscope.probes import PROBES
    from attnscope.studies import STUDIES, study
    from attnscope.tasks import CORPORA, TASKS

    for name in STUDIES:
        typer.echo(f"study {name}")
        for finding in study(name).findings:
            _entry(finding.name, f"{finding.title} ({finding.section})", finding.file)
    registries: dict[str, Iterable[str]] = {
        "tasks": TASKS,
        "corpora": CORPORA,
        "models": MODELS,
        "cells": CELLS,
        "attentions": ("none", *ATTENTIONS),
        "probes": PROBES,
    }
    typer.echo("names")
    for kind, names in registries.items():
        _entry(kind, ", ".join(names))


def _entry(name: str, *paragraphs: str) -> None:
    """Print a name and paragraphs beside it, wrapped to the width of the terminal."""
    width = shutil.get_terminal_size().columns
    lines = [line for text in paragraphs for line in textwrap.wrap(text, max(width - 17, 40), break_on_hyphens=False)]
    for beginning, line in zip_longest([name], lines, fillvalue=""):
        typer.echo(f"  {beginning:<14} {line}")


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(help="Such as aitken2021, or all; `attnscope list` names them.")],
    only: Annotated[list[str] | None, typer.Option(help="A single finding, such as fig5a; may be repeated.")] = None,
    profile: Annotated[str, typer.Option(help="quick (two cores, minutes) or paper (published sizes).")] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; by default that of the profile.")] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="First seed; by default that of the finding.")] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes of the local engine; by default one per core.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; without one, Ray starts its own.")
    ] = None,
    device: DeviceOption = "cpu",
    data: DataOption = None,
    store: StoreOption = Path("runs"),
    stored_only: Annotated[
        bool, typer.Option("--stored-only", help="Judge what the store has measured on any device; run nothing.")
    ] = False,
) -> None:
    """Reproduce a study, some of its findings, or all studies; then write the report of the store."""
    from attnscope import reproduce as reproduce_study
    from attnscope.progress import run_progress
    from attnscope.studies.result import load_results

    _use(data)
    with run_progress(f"{study}, {profile}") as progress:
        results = reproduce_study(
            study, *(only or ()), profile=profile, seeds=seeds, store=store, engine=engine, workers=workers,
            address=address, device=device, progress=progress, first_seed=first_seed, stored_only=stored_only,
        )  # fmt: skip
    _show(results)
    typer.echo(f"report: {_report(load_results(store), store / 'report.html')}")
    if failed := [f"{result.study}/{result.finding}" for result in results if result.failed]:
        typer.echo(f"runs failed of {', '.join(failed)}", err=True)
        raise typer.Exit(1)


@app.command()
def report(
    store: Annotated[
        Path,
        typer.Argument(
            help="A store, any folder of results (<study>/<finding>.json), the CSV of AttentionMonitor, or a folder of "
            "several (<model>/curves.csv)."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="A .html or .md file, or .png, .svg or .pdf for figures; by default report.html in STORE."),
    ] = None,
    headlines: Annotated[
        bool, typer.Option("--headlines", help="The papers' headline claims (.md), and a plot.")
    ] = False,
) -> None:
    """Write the report of stored results as a page (.html), Markdown (.md) or figures; or plot training curves."""
    from attnscope import monitoring, plots
    from attnscope.errors import require

    if curves := monitoring.read_all_curves(store):
        typer.echo(_format_table(monitoring.halfway_steps(curves)))
        path = store.with_suffix(".png") if store.suffix == ".csv" else store / "curves.png"
        typer.echo(f"figure: {plots.save(monitoring.draw_curves(curves), out or path)}")
        return
    from attnscope.report import write_headlines
    from attnscope.studies.result import load_results

    results = load_results(store)
    if headlines:
        typer.echo(f"report: {write_headlines(results, out or store / 'headlines.md')}")
        return
    if out is not None and out.suffix in (".png", ".svg", ".pdf"):
        figures = [(result.finding, figure) for result in results for figure in result.figures()]
        require(bool(figures), f"there is no figure in {store}")
        for number, (finding, figure) in enumerate(figures, 1):
            name = out.stem if len(figures) == 1 else f"{out.stem}-{number}-{finding}"
            typer.echo(f"figure: {plots.save(figure, out.with_stem(name))}")
        return
    typer.echo(f"report: {_report(results, out or store / 'report.html')}")


@app.command()
def site(
    store: Annotated[Path, typer.Argument(help="A store, or any folder of results (<study>/<finding>.json).")],
    out: Annotated[Path, typer.Option(help="Folder for index.html and its pages.")] = Path("site"),
    home: Annotated[str | None, typer.Option(help="Address of the documentation, relative to --out.")] = None,
) -> None:
    """Write all studies as a folder of static pages: figures, claims, published numbers beside ours."""
    from attnscope.report.site import write_site
    from attnscope.studies.result import load_results

    typer.echo(f"site: {write_site(load_results(store), out, store / 'audits', home)}")


@app.command()
def verify(folder: Annotated[Path, typer.Argument(help="A folder of results, such as results/.")]) -> None:
    """Recompute every result file from its seeds, and the answer of every audit; exit code 1 if anything differs."""
    from attnscope.auditing.report import verify_audits
    from attnscope.studies.result import not_recomputable, result_files
    from attnscope.studies.result import verify as problems_under

    audits, wrong = verify_audits(folder)
    files = result_files(folder)
    problems = [*(problems_under(folder) if files or not audits else []), *wrong]  # a folder may hold audits only
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)
    old = not_recomputable(folder)
    if files:
        typer.echo(f"{len(files)} result files are well formed; {len(files) - len(old)} agree with their seeds")
    if audits:
        typer.echo(f"{audits} audits agree with their tests")
    if old:
        typer.echo(f"{len(old)} not recomputable, of an earlier schema, until they are re-run: {', '.join(old)}")


@app.command()
def train(
    task: Annotated[str, typer.Argument(help="A task or corpus, such as one_to_one or sst.")],
    model: Annotated[str, typer.Argument(help="Such as aed or classifier.")],
    change: SetOption = None,
    data: DataOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """Train one model on one task; --set task.…, model.… and training.… change settings."""
    from attnscope.errors import choose
    from attnscope.lab.configuration import override
    from attnscope.lab.experiment import Experiment
    from attnscope.lab.experiment import train as train_experiment
    from attnscope.lab.store import Store
    from attnscope.models import MODELS
    from attnscope.progress import training_progress
    from attnscope.tasks import CORPORA, TASKS
    from attnscope.training import TrainingSettings

    choose("task", task, [*TASKS, *CORPORA])
    choose("model", model, MODELS)
    _use(data)
    task_settings = TASKS[task]() if task in TASKS else CORPORA[task]
    experiment = Experiment(task_settings, MODELS[model], TrainingSettings(), seed=seed, device=device)
    experiment = override(experiment, change or [])
    with training_progress(f"{model} on {task}") as report:
        run = train_experiment(experiment, Store(store), report)
    for name, value in run.summary.items():
        typer.echo(f"{name}: {value:.4g}")
    typer.echo(f"run: {experiment.key}")


@app.command()
def probe(
    model: ModelArgument,
    name: Annotated[
        str, typer.Argument(metavar="PROBE", help="Such as fragility; `attnscope list` names all.")
    ] = "decompose",
    data: Annotated[
        str | None,
        typer.Argument(help="Texts as JSON lines, JSON, CSV, TSV, Parquet; by default the test set of a run."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the probe, such as method=influence; may be repeated."),
    ] = None,
    text: TextOption = None,
    label: LabelOption = None,
    pair: PairOption = None,
    rationale: RationaleOption = None,
    checkpoint: Annotated[int | None, typer.Option(help="Of a run, the weights after this training step.")] = None,
    out: Annotated[Path | None, typer.Option(help="Save the figure here (.png, .svg or .pdf).")] = None,
    csv: Annotated[Path | None, typer.Option(help="Save the table here.")] = None,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """Run one probe on a model: prints its table, and saves its figure."""
    from attnscope import load, plots
    from attnscope.errors import choose
    from attnscope.files import write_atomically
    from attnscope.models.examples import Columns
    from attnscope.models.inputs import Inputs
    from attnscope.probes import PROBES, run_probe

    choose("probe", name, PROBES, "PROBES")
    if out is not None:
        plots.figure_format(out)
    loaded = load(model, device=device, store=store, checkpoint=checkpoint)
    columns = Columns(text, label, pair, rationale)
    texts = data if columns == Columns() else Inputs.of(loaded, data, columns=columns)
    answer = run_probe(name, loaded, texts, **_options(change or []))
    table = answer.table()
    typer.echo(_format_table(table))
    if csv is not None:
        write_atomically(csv, table.to_csv().encode())
        typer.echo(f"table: {csv}")
    if out is not None:
        figure, (ax,) = plots.panels(1, 1, size=(6.4, 4.0))
        answer.plot(ax)
        typer.echo(f"figure: {plots.save(figure, out)}")


@app.command()
def explain(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="One text.")],
    pair: Annotated[str | None, typer.Option(help="A second text, for models that read pairs.")] = None,
    target: Annotated[str | None, typer.Option(help="Its class or translation; by default the prediction.")] = None,
    audited: Annotated[Path, typer.Option("--audit", help="Folder of an audit of this model.")] = Path("audit"),
    out: Annotated[Path | None, typer.Option(help="Save the figure here (.png, .svg or .pdf).")] = None,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """Explain one prediction: tokens with attention, leave-one-out, gradient and β, and the audit's verdict."""
    from rich.console import Console

    from attnscope import explain as explain_text
    from attnscope import load, plots
    from attnscope.models.adapters.readers import TextPair

    if out is not None:
        plots.figure_format(out)
    loaded = load(model, device=device, store=store)
    source = text if pair is None else TextPair(text, pair)
    explanation = explain_text(loaded, source, target=target, audit=audited)
    console = Console()
    console.print(_rich_table(explanation.table()))
    for sentence in explanation.sentences():
        console.print(sentence, markup=False, highlight=False)
    if out is not None:
        typer.echo(f"figure: {plots.save(explanation.figure(), out)}")


@app.command()
def audit(
    model: ModelArgument,
    data: Annotated[
        str | None,
        typer.Argument(help="Texts as JSON lines, JSON, CSV, TSV, Parquet; by default the test set of a run."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for audit.html and audit.json.")] = Path("audit"),
    quick: Annotated[bool, typer.Option("--quick", help="A sample of the texts: minutes on two cores.")] = False,
    budget: Annotated[float | None, typer.Option(help="Time limit in minutes; tests use fewer texts.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per batch: changes speed, never a result.")] = 32,
    texts: Annotated[int, typer.Option(min=2, help="Maximum number of texts, sampled where there are more.")] = 5000,
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; by default test, if there is one.")
    ] = None,
    text: TextOption = None,
    label: LabelOption = None,
    pair: PairOption = None,
    rationale: RationaleOption = None,
    against: Annotated[str | None, typer.Option(help="The same model from another seed, to compare with.")] = None,
    seed: SeedOption = 0,
    examples: Annotated[bool, typer.Option(help="Whether the page shows some of the texts.")] = True,
    tokens: Annotated[bool, typer.Option("--tokens", help="Delete single tokens, rather than whole words.")] = False,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """May this model's attention be shown as a reason? Writes a page with the answer and the evidence."""
    from attnscope.auditing import Settings
    from attnscope.auditing import audit as audit_model
    from attnscope.models.inference import check_device
    from attnscope.progress import text_progress

    check_device(device)
    settings = Settings(quick, budget, batch_size, texts, seed, examples, tokens)
    with text_progress("audit") as progress:
        report = audit_model(
            model, data, out, settings, split=split, against=against, device=device, store=store, progress=progress,
            text=text, label=label, pair=pair, rationale=rationale,
        )  # fmt: skip
    typer.echo(f"{report.verdict.answer}: {report.headline}")
    for test in report.tests:
        typer.echo(f"  {test.answer:<14} {test.sentence}")
    typer.echo(f"page: {out / 'audit.html'}")


@app.command()
def explore(
    model: ModelArgument,
    data: Annotated[
        str | None,
        typer.Argument(help="Texts as JSON lines, JSON, CSV, TSV, Parquet; by default the test set of a run."),
    ] = None,
    against: Annotated[str | None, typer.Option(help="A second model to compare with, on the same texts.")] = None,
    audited: Annotated[Path, typer.Option("--audit", help="Folder of an audit of this model.")] = Path("audit"),
    static: Annotated[Path | None, typer.Option(help="Write one self-contained .html file instead of serving.")] = None,
    texts: Annotated[int, typer.Option(min=1, help="Number of texts in a static file.")] = 8,
    host: Annotated[str, typer.Option(help="Address to bind to; by default this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Whether to open the page in a browser.")] = True,
    device: DeviceOption = "cpu",
    store: StoreOption = Path("runs"),
) -> None:
    """Edit a model's attention on a page and watch its output, with the audit's verdict beside it."""
    from attnscope import explore as explore_model

    explorer = explore_model(model, data, against=against, audit=audited, store=store, device=device)
    if static is not None:
        typer.echo(f"page: {explorer.save(static, texts)}")
    else:
        with suppress(Interrupted):
            explorer.serve(host, port, browser)
        typer.echo("explorer: ended")


@app.command()
def calibrate(
    out: Annotated[Path, typer.Option(help="Folder for calibration.html, .json and .csv; continues what is there.")] = (
        Path("calibration")
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer models and factors: minutes on two cores.")] = False,
) -> None:
    """How often is the audit wrong? Runs its rule on models with known answers and writes a page of error rates."""
    from attnscope.auditing.calibration import calibrate as calibrate_rule
    from attnscope.auditing.calibration import summary
    from attnscope.errors import require
    from attnscope.progress import text_progress

    for path in (out, *out.parents):
        require(not path.is_file(), f"{path} is a file, so that no calibration can be written into it")
    with text_progress("calibrate") as progress:
        content = calibrate_rule(out, quick, progress)
    for name, value in summary(content).items():
        typer.echo(f"{name}: {value}")
    typer.echo(f"page: {out / 'calibration.html'}")


def _options(changes: Iterable[str]) -> dict[str, object]:
    """Return the options of `--set name=value`, values as JSON where they are.

    >>> _options(["method=influence", "draws=3"])
    {'method': 'influence', 'draws': 3}
    """
    import json

    from attnscope.errors import BadSetting

    options: dict[str, object] = {}
    for change in changes:
        name, sign, value = change.partition("=")
        if not sign:
            raise BadSetting(f"--set takes name=value, such as method=influence, not {change!r}")
        try:
            options[name] = json.loads(value)
        except (ValueError, RecursionError):
            options[name] = value
    return options


def _rich_table(table: "DataFrame") -> "Table":
    """Return a table of numbers for the terminal."""
    from rich.table import Table
    from rich.text import Text

    from attnscope.display import format_number

    rich_table = Table()
    for name in table.index.names:
        rich_table.add_column(str(name))
    for name in table.columns:
        rich_table.add_column(str(name), justify="right")
    for index, *values in table.itertuples():
        names = index if isinstance(index, tuple) else (index,)
        rich_table.add_row(*(Text(str(name)) for name in names), *map(format_number, values))
    return rich_table


def _format_table(table: "DataFrame") -> str:
    """Return a table as text, transposed if it has few rows and many columns, truncated if it is long."""
    from attnscope.display import UPRIGHT, WIDE

    if len(table) <= UPRIGHT and len(table.columns) > WIDE:
        table = table.T
    rest = len(table) - MAX_PRINTED_ROWS
    text = table.head(MAX_PRINTED_ROWS).to_string()
    return text if rest <= 0 else f"{text}\n… {rest} more rows; --csv FILE saves all of them"


def _use(data: Path | None) -> None:
    """Set the folder of corpora, for this process and those that it starts."""
    from attnscope.tasks.text.rows import DATA

    if data is not None:
        os.environ[DATA] = str(data.resolve())


def _report(results: "list[Result]", path: Path) -> Path:
    from attnscope.errors import require
    from attnscope.report import write_markdown, write_report
    from attnscope.studies.result import Result

    require(path.suffix in (".html", ".htm", ".md"), f"a report is .html, .md, .png, .svg or .pdf, not {path.name}")
    require(not path.parent.is_file(), f"{path.parent} is a file, so that no report can be written into it")
    if path.suffix == ".md":
        return write_markdown(results, path)
    return write_report(results, Result.figures, path)


def _show(results: "list[Result]") -> None:
    from rich.console import Console

    from attnscope.report import claims_table
    from attnscope.studies.result import KEPT, NOT_MEASURED, RUNS_FAILED

    console = Console()
    for result in results:
        console.print(claims_table(result))
        for note in result.notes:
            if note.startswith((RUNS_FAILED, NOT_MEASURED, KEPT)):
                console.print(_shortened(note), markup=False, highlight=False)


def _shortened(note: str, max_length: int = 600) -> str:
    """Return a long note without its middle: the runs come first, and the reason last."""
    return note if len(note) <= max_length else f"{note[: max_length // 3]} … {note[-max_length * 2 // 3 :]}"
