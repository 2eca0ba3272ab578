"""How does an answer show itself in a notebook? As one piece of HTML that needs no script and no network."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from inspect import getdoc
from typing import TYPE_CHECKING, Any, SupportsFloat, get_args

from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
else:  # pandas and matplotlib are loaded when something is shown
    Figure = DataFrame = Any

__all__ = ["DataFrame", "Displayed", "Figure"]

ROWS, COLUMNS = 30, 12  # of a table that are shown
UPRIGHT, WIDE = 3, 4  # so few rows of more columns than that are easier to read when rows are columns
SIDE_BY_SIDE = "display: flex; flex-wrap: wrap; gap: 1.5em; align-items: flex-start"


class Displayed:
    """Shown by a notebook as its table and its picture; without either, as the names and shapes of what it holds."""

    def _repr_html_(self) -> str:
        name, said = self.shown_name()
        sentences = "".join(f"<br>{escape(line)}" for line in self.shown_words())
        tables = "".join(table_html(table) for table in self.shown_tables())
        try:
            figure = self.shown_figure()
            picture = "" if figure is None else picture_html(figure, f"picture of {name}; its numbers are in the table")
        except AttnscopeError as error:  # what has a table but, as it is, no picture
            picture = f"<p>no picture: {escape(str(error))}</p>"
        return (
            f"<div><p><b>{escape(name)}</b> {escape(said)}{sentences}</p>"
            f'<div style="{SIDE_BY_SIDE}">{tables}{picture}</div></div>'
        )

    def shown_name(self) -> tuple[str, str]:
        """What this is: its name, and a sentence."""
        return type(self).__name__, " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    def shown_words(self) -> Sequence[str]:
        """Sentences above the tables."""
        return ()

    def shown_tables(self) -> Sequence[DataFrame]:
        table = getattr(self, "table", None)
        return [contents(self) if table is None else table()]

    def shown_figure(self) -> Figure | None:
        plot = getattr(self, "plot", None)
        if plot is None:
            return None
        from attnscope import plots

        figure, (ax,) = plots.panels()
        plot(ax=ax)
        return figure


def table_html(table: DataFrame) -> str:
    """The first rows and columns of a table, every word as it is, and a note of how many there are.

    >>> import pandas
    >>> "&lt;b&gt;" in table_html(pandas.DataFrame({"word": ["<b>"]}))
    True
    """
    import pandas as pd

    if len(table) <= UPRIGHT and len(table.columns) > WIDE:
        table = table.T
    index, header = (not (isinstance(names, pd.RangeIndex) and names.name is None) for names in table.axes)
    with pd.option_context("display.max_colwidth", None):  # no word is cut
        shown = table.iloc[:ROWS, :COLUMNS].to_html(
            index=index, header=header, float_format=brief, na_rep="–", border=0
        )
    notes = "".join(f"<p>{note}</p>" for note in cut(*table.shape))
    return f'<div style="max-width: 100%; overflow-x: auto">{shown}{notes}</div>'


def brief(number: SupportsFloat) -> str:
    """Four digits; one of a number that is next to nothing.

    >>> brief(0.123456), brief(12345.6), brief(3.217e-8), brief(0.0)
    ('0.1235', '1.235e+04', '3e-08', '0')
    """
    value = float(number)
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.0e}"


def cut(rows: int, columns: int) -> Iterator[str]:
    """What is left out of a table of this size.

    >>> list(cut(300, 5))
    ['the first 30 of 300 rows']
    """
    for there, most, what in ((rows, ROWS, "rows"), (columns, COLUMNS, "columns")):
        if there > most:
            yield f"the first {most} of {there} {what}"


def picture_html(figure: Figure, said: str) -> str:
    """A figure as an image inside the page, so that the names within two of them do not meet."""
    from attnscope.plots import svg

    source = b64encode(svg(figure).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{source}" alt="{escape(said)}" style="max-width: 100%">'


def contents(holder: object) -> DataFrame:
    """What a dataclass holds: the name, the axes as they were declared, and the shape of each array."""
    import pandas as pd

    return pd.DataFrame(list(held(holder)), columns=["holds", "axes", "shape"]).set_index("holds")


def held(holder: object, before: str = "") -> Iterator[tuple[str, str, str]]:
    for field in fields(holder) if is_dataclass(holder) else ():
        yield from described(before + field.name, getattr(holder, field.name), axes_of(field.type))


def described(name: str, value: Any, axes: str) -> Iterator[tuple[str, str, str]]:
    """An array in one line; of several parts alike, such as layers, the last one stands for all."""
    if hasattr(value, "shape"):
        yield name, axes, " × ".join(map(str, value.shape))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from described(f"{name}[{key!r}]", inner, axes)
    elif isinstance(value, tuple):
        yield name, {0: "none", 1: "one"}.get(len(value), f"{len(value)} alike"), ""
        yield from held(value[-1], f"{name}[-1].") if value else ()
    elif value is not None:
        yield name, "", str(value)


def axes_of(declared: Any) -> str:
    """The names in a declaration such as Float[Tensor, "batch source"]; none where there are none."""
    either = (declared, *get_args(declared))
    return next((" × ".join(one.dim_str.split()) for one in either if hasattr(one, "dim_str")), "")
