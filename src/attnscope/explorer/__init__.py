"""The explorer: edit a model's attention and watch its output, with the audit's verdict beside it.

attnscope.explore(model, texts)                     in a notebook
attnscope.explore(model, texts).save("page.html")   one file that needs no server
attnscope.explore(model, texts).serve()             a page on this machine, as `attnscope explore` does
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from attnscope.auditing.report import Report
from attnscope.errors import AttnscopeError, BadSetting, fits, require
from attnscope.explorer.pages import TITLE, static_page
from attnscope.explorer.session import ExploredModel, Session
from attnscope.files import write_atomically
from attnscope.lab.experiment import Run, find_run
from attnscope.lab.store import Store
from attnscope.loading import is_run, load
from attnscope.models.inputs import Data
from attnscope.models.loaded import LoadedModel

if TYPE_CHECKING:
    from attnscope.explorer.widget import ExplorerWidget

ModelLike = str | Path | nn.Module | Run | LoadedModel


@dataclass(frozen=True)
class Explorer:
    """The result of `attnscope.explore`: displayed in a notebook; elsewhere `save` or `serve` it.

    Attributes:
        session: The models and the texts.
        title: The title of the page.
    """

    session: Session
    title: str = TITLE

    def save(self, path: str | Path, texts: int = 8) -> Path:
        """Write one self-contained HTML file.

        Args:
            path: A .html file.
            texts: The number of texts it shows.
        """
        require(isinstance(path, str | Path), f"path is a .html file, not {path!r:.60}")
        require(fits(texts, int) and texts >= 1, f"texts is a number of texts, at least 1, not {texts!r:.60}")
        place = Path(path)
        if place.suffix != ".html":
            raise BadSetting(f"an explorer is saved as .html, not as {place.name!r}")
        write_atomically(place, static_page(self.session, texts, self.title).encode())
        return place

    def serve(self, host: str = "127.0.0.1", port: int = 0, open_browser: bool = True) -> None:
        """Serve the explorer until interrupted.

        Args:
            host: The address to bind to; warns about any but this machine's own.
            port: The port; 0: any free one.
            open_browser: Whether to open the page.
        """
        from attnscope.explorer.server import Server

        server = Server(self.session, host, port)
        print(f"explorer: {server.address}\nCtrl-C ends it.", flush=True)
        server.run(open_browser)

    @cached_property
    def widget(self) -> "ExplorerWidget":
        """The widget for notebooks, which needs the extra `notebook`."""
        try:
            from attnscope.explorer.widget import ExplorerWidget
        except ImportError as error:
            raise AttnscopeError(
                "the explorer in a notebook needs anywidget: pip install 'attnscope[notebook]'; "
                ".save('page.html') and .serve() do not"
            ) from error
        return ExplorerWidget(self.session)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> object:
        return self.widget._repr_mimebundle_()


def explore(
    model: ModelLike,
    texts: Data = None,
    *,
    against: ModelLike | None = None,
    audit: str | Path | Report | None = "audit",
    audit_against: str | Path | Report | None = None,
    names: Sequence[str] = (),
    store: str | Path = "runs",
    device: str | None = None,
) -> Explorer:
    """Return an explorer of a model, or of two on the same texts.

    Args:
        model: Anything that `attnscope.load` takes.
        texts: The texts to choose from, as for every probe; None: the test set of a run's own task.
        against: A second model to compare with.
        audit: An audit of the model, as a Report or its folder; ignored if it is about another model.
        audit_against: The same for the second model.
        names: The names of the models on the page.
        store: The folder of runs, to look up a key.
        device: Such as "cpu" or "cuda"; None: where the model is.
    """
    named = isinstance(names, Sequence) and not isinstance(names, str)
    require(named, f"names are a list of names, one per model, not {names!r:.60}")
    pairs = [(model, audit), *([] if against is None else [(against, audit_against)])]
    models = []
    for i, (source, report) in enumerate(pairs):
        loaded = load(source, device=device, store=store)
        name = names[i] if i < len(names) else ""
        models.append(ExploredModel(loaded, texts, run_of(source, store), report_of(report, loaded), name))
        require(len(models[-1].inputs) > 0, "there is no text to explore")
    return Explorer(Session(models), f"{TITLE}: {' and '.join(model.name or model.loaded.name for model in models)}")


def run_of(model: ModelLike, store: str | Path) -> Run | None:
    """Return the run that a model comes from, if it is one."""
    if isinstance(model, Run):
        return model
    if not isinstance(model, str | Path):
        return None
    if is_run(Path(model)):
        return Run.at(Path(model))
    is_key = Path(model).name == str(model) and set(str(model)) <= set("0123456789abcdef")
    return find_run(str(model), Store(store)) if is_key and not Path(model).is_dir() else None


def report_of(audit: str | Path | Report | None, loaded: LoadedModel) -> Report | None:
    """Return the audit of a model, if there is one and it is about this model."""
    if audit is None or isinstance(audit, Report):
        return audit
    require(isinstance(audit, str | Path), f"audit is a Report or the folder of one, not {audit!r:.60}")
    path = Path(audit) / "audit.json"
    report = Report.load(path) if path.is_file() else None
    return report if report is not None and report.model.name == loaded.name else None
