"""Results as self-contained HTML for notebooks, without scripts or network access."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from inspect import getdoc
from typing import TYPE_CHECKING, Protocol, SupportsFloat, get_args, runtime_checkable

from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame
else:  # pandas and matplotlib are imported when something is displayed
    Axes = Figure = DataFrame = object

__all__ = ["Axes", "DataFrame", "Displayed", "Figure"]

MAX_ROWS, MAX_COLUMNS = 30, 12  # of a table that are displayed
UPRIGHT, WIDE = 3, 4  # a table of so few rows and of more columns than that is transposed
SIDE_BY_SIDE = "display: flex; flex-wrap: wrap; gap: 1.5em; align-items: flex-start"


@runtime_checkable
class HasTable(Protocol):
    def table(self) -> DataFrame: ...


@runtime_checkable
class HasPlot(Protocol):
    @property
    def plot(self) -> "Callable[..., Axes]": ...


@runtime_checkable
class HasShape(Protocol):
    @property
    def shape(self) -> Sequence[int]: ...


class Displayed:
    """Displayed by a notebook as its table and its figure; without either, as the names and shapes of its fields."""

    def _repr_html_(self) -> str:
        name, summary = self.display_name()
        sentences = "".join(f"<br>{escape(line)}" for line in self.display_sentences())
        tables = "".join(table_html(table) for table in self.display_tables())
        try:
            figure = self.display_figure()
            image = "" if figure is None else figure_html(figure, f"figure of {name}; its numbers are in the table")
        except AttnscopeError as error:  # a result with a table that cannot be drawn
            image = f"<p>no figure: {escape(str(error))}</p>"
        return (
            f"<div><p><b>{escape(name)}</b> {escape(summary)}{sentences}</p>"
            f'<div style="{SIDE_BY_SIDE}">{tables}{image}</div></div>'
        )

    def display_name(self) -> tuple[str, str]:
        """Return the name of the class, and the first paragraph of its docstring."""
        return type(self).__name__, " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    def display_sentences(self) -> Sequence[str]:
        """Return sentences that stand above the tables."""
        return ()

    def display_tables(self) -> Sequence[DataFrame]:
        return [self.table() if isinstance(self, HasTable) else fields_table(self)]

    def display_figure(self) -> Figure | None:
        if not isinstance(self, HasPlot):
            return None
        from attnscope import plots

        figure, (ax,) = plots.panels()
        self.plot(ax=ax)
        return figure


def table_html(table: DataFrame) -> str:
    """Return the first rows and columns of a table, no cell shortened, and a note of how many there are.

    >>> import pandas
    >>> "&lt;b&gt;" in table_html(pandas.DataFrame({"word": ["<b>"]}))
    True
    """
    import pandas as pd

    if len(table) <= UPRIGHT and len(table.columns) > WIDE:
        table = table.T
    index, header = (not (isinstance(names, pd.RangeIndex) and names.name is None) for names in table.axes)
    with pd.option_context("display.max_colwidth", None):
        html = table.iloc[:MAX_ROWS, :MAX_COLUMNS].to_html(
            index=index, header=header, float_format=format_number, na_rep="–", border=0
        )
    notes = "".join(f"<p>{note}</p>" for note in truncation_notes(*table.shape))
    return f'<div style="max-width: 100%; overflow-x: auto">{html}{notes}</div>'


def format_number(number: SupportsFloat) -> str:
    """Return a number with four digits; with one if it is below a thousandth.

    >>> format_number(0.123456), format_number(12345.6), format_number(3.217e-8), format_number(0.0)
    ('0.1235', '1.235e+04', '3e-08', '0')
    """
    value = float(number)
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.0e}"


def truncation_notes(rows: int, columns: int) -> Iterator[str]:
    """Yield notes on what a truncated table of this size leaves out.

    >>> list(truncation_notes(300, 5))
    ['the first 30 of 300 rows']
    """
    for count, maximum, name in ((rows, MAX_ROWS, "rows"), (columns, MAX_COLUMNS, "columns")):
        if count > maximum:
            yield f"the first {maximum} of {count} {name}"


def figure_html(figure: Figure, description: str) -> str:
    """Return a figure as an image inside the page, so that ids within two figures do not clash."""
    from attnscope.plots import svg

    source = b64encode(svg(figure).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{source}" alt="{escape(description)}" style="max-width: 100%">'


def fields_table(holder: object) -> DataFrame:
    """Return the fields of a dataclass: name, axes as they are declared, and shape of each array."""
    import pandas as pd

    return pd.DataFrame(list(field_rows(holder)), columns=["holds", "axes", "shape"]).set_index("holds")


def field_rows(holder: object, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for field in fields(holder) if is_dataclass(holder) else ():
        yield from value_rows(prefix + field.name, getattr(holder, field.name), axes_of(field.type))


def value_rows(name: str, value: object, axes: str) -> Iterator[tuple[str, str, str]]:
    """Yield one row for an array; of a tuple of equal parts, such as layers, those of the last one."""
    if isinstance(value, HasShape):
        yield name, axes, " × ".join(map(str, value.shape))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from value_rows(f"{name}[{key!r}]", inner, axes)
    elif isinstance(value, tuple):
        yield name, {0: "none", 1: "one"}.get(len(value), f"{len(value)} alike"), ""
        yield from field_rows(value[-1], f"{name}[-1].") if value else ()
    elif value is not None:
        yield name, "", str(value)


def axes_of(declared: object) -> str:
    """Return the axes of a declaration such as Float[Tensor, "batch source"]; none where there are none."""
    axes = (getattr(one, "dim_str", None) for one in (declared, *get_args(declared)))
    return next((" × ".join(one.split()) for one in axes if one is not None), "")
