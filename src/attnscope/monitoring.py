"""Measuring attention while a model trains, with the transformers Trainer or in your own loop.

    monitor = AttentionMonitor(model, texts, "attention.csv", every=200, tokenizer=tokenizer)
    monitor.attach(trainer)                    before trainer.train(); its log gets the numbers too

    for step in range(1, steps + 1):           your own loop
        ...
        monitor.step(step)

`attnscope report attention.csv` draws the curves.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import nn

from attnscope import plots
from attnscope.display import Axes, Figure
from attnscope.errors import AttnscopeError, BadSetting, choose, fits, require
from attnscope.files import write_atomically
from attnscope.loading import load
from attnscope.models.inference import evaluating
from attnscope.models.inputs import Data
from attnscope.models.loaded import LANGUAGE_MODEL, LoadedModel
from attnscope.plots.style import name_axes
from attnscope.probes.agreement import agreement
from attnscope.probes.divergences import entropy
from attnscope.probes.fragility import fragility
from attnscope.probes.language import WITHOUT_SINK, head_statistics
from attnscope.probes.positions import position_shares

if TYPE_CHECKING:
    import transformers

Numbers = Mapping[str, float]
CURVES = "curves.csv"
VARIANTS = {" by chance": ":", WITHOUT_SINK: "--"}  # suffixes of variants of a number, and their line styles


def dependence(model: LoadedModel, data: Data) -> Numbers:
    """Return how far outputs move (TVD) and how many decisions change when attention is shuffled."""
    statistics = fragility(model, data, draws=5).table().loc["permuted"].astype(float).to_dict()
    return {"output change, shuffled": statistics["change"], "decisions changed, shuffled": statistics["changed"]}


def rank_correlation(model: LoadedModel, data: Data) -> Numbers:
    """Return Kendall's τ of attention and leave-one-out."""
    return {"τ with leave-one-out": agreement(model, data, "attention", "leave_one_out").kendall}


def relative_entropy(model: LoadedModel, data: Data) -> Numbers:
    """Return the entropy of the last layer's attention, relative to uniform attention: the mean over its heads."""
    return {"entropy": float(entropy(model, data).table()["mean"].mean())}


def lexical_agreement(model: LoadedModel, data: Data) -> Numbers:
    """Return A(α, β): how often the lexical probe ranks the most attended token at the top (snell2021)."""
    result = agreement(model, data, "attention", "lexical")
    numbers = {"A(α, β)": result.top, "A(α, β) by chance": result.chance}
    if model.kind == LANGUAGE_MODEL:
        numbers["A(α, β) without sink"] = agreement(model, data, "attention", "lexical", sink=False).top
    return numbers


def head_kinds(model: LoadedModel, data: Data) -> Numbers:
    """Return the largest score of any head of a language model, for each kind, and means over all heads.

    Previous-token, induction and duplicate-token heads are scored without the sink, on random tokens that are repeated;
    the sink is the weight on the first token of the texts.
    """
    repeated, texts = head_statistics(model).values, head_statistics(model, data).values
    largest = {
        f"largest {name}": float(np.nanmax(repeated[name + WITHOUT_SINK]))
        for name in ("previous", "induction", "duplicate")
    }
    sinks = {"largest sink": float(np.nanmax(texts["first"])), "mean sink": float(np.nanmean(texts["first"]))}
    means = {f"mean {name}": float(np.nanmean(texts[name])) for name in ("entropy", "entropy" + WITHOUT_SINK)}
    return largest | sinks | means


def position_share(model: LoadedModel, data: Data) -> Numbers:
    """Return the shares of position and of words in attention scores: the means over heads."""
    table = position_shares(model, data, permutations=8).table()
    return {f"share of {name}": float(table[name].mean()) for name in ("position", "words")}


MEASURES: dict[str, Callable[[LoadedModel, Data], Numbers]] = {
    "dependence": dependence,
    "rank_correlation": rank_correlation,
    "entropy": relative_entropy,
    "lexical_agreement": lexical_agreement,
    "head_kinds": head_kinds,
    "position_shares": position_share,
}


class AttentionMonitor:
    """Measures attention on a fixed sample during training, and writes the numbers to a CSV file.

    Args:
        model: A Hugging Face model in memory, an adapter, or a LoadedModel: what `attnscope.load` takes.
        data: The sample: texts, a path, a table or Batches. It is measured as a whole each time, so keep it small.
        path: The CSV file, one row per measured step. An existing file of earlier steps is continued.
        every: Measure at multiples of this step, and at step 0.
        measures: Names in MEASURES; None: all that the model supports.
        tokenizer: The tokenizer of a Hugging Face model.
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        data: Data,
        path: str | Path,
        every: int = 500,
        measures: Iterable[str] | None = None,
        tokenizer: object | None = None,
    ) -> None:
        require(fits(every, int) and every >= 1, f"every is a number of steps, at least 1, not {every!r}")
        names = None if measures is None else list(measures) if isinstance(measures, Iterable) else [measures]
        require(names != [] and not isinstance(measures, str), f"measures are a list of names, not {measures!r}")
        require(isinstance(path, str | Path), f"path is a file of numbers, such as 'attention.csv', not {path!r}")
        self.model, self.data, self.path, self.every = load(model, tokenizer=tokenizer), data, Path(path), every
        self.requested = None if names is None else [choose("measure", name, MEASURES) for name in names]
        self.measures = list(MEASURES) if self.requested is None else self.requested
        self.rows: list[dict[Any, Any]] = read_curves(self.path).to_dict("records") if self.path.exists() else []

    def step(self, step: int) -> Numbers | None:
        """Measure at multiples of `every`, and return the numbers; None at other steps.

        Args:
            step: The number of training steps so far.
        """
        check_step(step)
        return self.measure(step) if step % self.every == 0 else None

    def measure(self, step: int, **others: float) -> Numbers:
        """Return the numbers at this step, and write them. The model's mode and gradients stay as they were.

        Args:
            step: The number of training steps so far.
            others: Further numbers to write beside, such as a loss.
        """
        check_step(step)
        for name, value in others.items():
            require(fits(value, float), f"{name} is not a number but {value!r:.60}")
        numbers = dict(others)
        with evaluating(self.model.module, keep_gradients=True):
            for name in list(self.measures):
                numbers |= self.numbers_of(name)
        self.rows = [row for row in self.rows if row["step"] < step] + [{"step": step, **numbers}]
        write_atomically(self.path, pd.DataFrame(self.rows).to_csv(index=False).encode())
        return numbers

    def numbers_of(self, name: str) -> Numbers:
        """Return one measure. One that the model does not support is dropped, unless it was requested by name."""
        try:
            return MEASURES[name](self.model, self.data)
        except AttnscopeError as error:
            if self.requested is not None:
                raise
            self.measures.remove(name)
            warnings.warn(f"{name} is not measured: {error}", stacklevel=4)
            return {}

    def attach(self, trainer: "transformers.Trainer") -> None:
        """Measure during `trainer.train()`, and log the numbers with the prefix attention/.

        Args:
            trainer: A transformers Trainer, before training.
        """
        from transformers import TrainerCallback

        monitor = self

        class MonitorCallback(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                self.on_step_end(args, state, control)

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                numbers = monitor.step(state.global_step)
                if numbers is not None:
                    trainer.log({f"attention/{name}": value for name, value in numbers.items()})

        trainer.add_callback(MonitorCallback())


def check_step(step: int) -> None:
    require(fits(step, int) and step >= 0, f"a step is a whole number that is not negative, not {step!r:.60}")


def read_curves(path: str | Path) -> pd.DataFrame:
    """Return the numbers that a monitor has written, one row per step."""
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise BadSetting(f"{path} cannot be read as a CSV file: {error}") from error
    if "step" not in table or len(table.columns) < 2 or not all(map(pd.api.types.is_numeric_dtype, table.dtypes)):
        raise BadSetting(f"{path} is not a file of an AttentionMonitor: a column step, and numbers in all columns")
    steps = table["step"]
    whole = isinstance(table.index, pd.RangeIndex) and bool((steps >= 0).all() and (steps % 1 == 0).all())
    require(whole, f"{path} is damaged: a line has too many numbers, or a step that is no whole number")
    require(steps.is_monotonic_increasing and steps.is_unique, f"{path} is damaged: its steps do not increase")
    return table


def read_all_curves(path: Path) -> dict[str, pd.DataFrame]:
    """Return the curves of a file, or of all models in a folder, by the names of those that hold a curves.csv."""
    if path.suffix == ".csv":
        return {path.stem: read_curves(path)}
    return {file.parent.name: read_curves(file) for file in sorted(path.glob(f"*/{CURVES}"))}


def draw_curves(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Return one panel per number, over training steps, with one line per model; variants of a number share its panel.

    Args:
        tables: The curves of each model, by its name.
    """
    columns = dict.fromkeys(name for table in tables.values() for name in table.columns if name != "step")
    names = [name for name in columns if not name.endswith(tuple(VARIANTS)) or base_of(name) not in columns]
    count = min(4, len(names))
    picture, axes = plots.panels(-(-len(names) // count), count, size=(3.2, 2.3))
    for ax, name in zip(axes, names, strict=False):
        for ending, style in {"": "-", **VARIANTS}.items():
            for i, table in enumerate(tables.values()):
                if name + ending in table:
                    ax.plot(table["step"], table[name + ending], style, color=f"C{i}", marker="o", markersize=2)
            if ending and name + ending in columns:
                ax.plot([], [], style, color="0.4", label=ending.strip())
        if ax is axes[0] and len(tables) > 1:
            for i, model in enumerate(tables):
                ax.plot([], [], color=f"C{i}", label=model)
        scale_axes(ax, name, pd.concat(tables.values())["step"])
        if ax.get_legend_handles_labels()[1]:
            ax.legend(fontsize="x-small")
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    return picture


def scale_axes(ax: Axes, name: str, steps: pd.Series) -> None:
    """Set the title of a panel, and a logarithmic axis for steps that grow geometrically."""
    ax.set_title(name)
    later = np.unique(steps[steps > 0])
    if len(later) > 4 and later[-1] > 3 * np.median(later):
        ax.set_xscale("symlog", linthresh=float(later[0]))
    if "perplexity" in name:
        ax.set_yscale("log")
    name_axes(ax, "training step", None)


def base_of(name: str) -> str:
    return next((name.removesuffix(ending) for ending in VARIANTS if name.endswith(ending)), name)


def halfway_steps(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the step at which each number had half of its largest change; one row per number, one column per model.

    The change is the absolute difference from the first value.

    Args:
        tables: The curves of each model, by its name.
    """
    steps = {}
    for model, table in tables.items():
        numbers = table.set_index("step")
        change = (numbers - numbers.iloc[0]).abs()
        steps[model] = (change >= change.max() / 2).idxmax().where(change.max() > 0)
    return pd.DataFrame(steps).rename_axis("half of its way at step")
