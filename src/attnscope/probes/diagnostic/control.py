"""Is a feature in the states, or did the classifier learn it by heart? Control tasks (Hewitt and Liang 2019)

In a control task each kind of step gets a label of its own at random, drawn as often as the real labels occur; all
steps of a kind share it, in training and in what is held out. A classifier can only get it right by knowing kinds by
heart. Selectivity is the real accuracy less that of the control task.

What a kind is has to be chosen. Hewitt and Liang take the word. Where the feature is the word itself (the current
table), that would only rename its classes; there take the last two words (`last_words`), of which lookup tables have
128 that occur several times each.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.errors import BadSetting, require
from attnscope.probes.diagnostic.reading import Reading, accuracy_of, deviation
from attnscope.probes.drawing import Axes

DRAWS = 1000  # of labels, before a control task is given up that never has two labels to tell apart


@dataclass(frozen=True)
class Control(Displayed):
    """Real and control accuracies, a repeat each: on every repeat's split, with labels drawn anew."""

    real: tuple[float, ...]
    control: tuple[float, ...]
    kinds: int
    known: float  # the share of held-out steps whose kind was learned from; of the others nothing can be known

    @property
    def selectivities(self) -> tuple[float, ...]:
        return tuple(real - control for real, control in zip(self.real, self.control, strict=True))

    @property
    def selectivity(self) -> float:
        return float(np.mean(self.selectivities))

    def table(self) -> pd.DataFrame:
        row = {
            "accuracy": float(np.mean(self.real)), "control": float(np.mean(self.control)),
            "control_deviation": deviation(self.control), "selectivity": self.selectivity,
            "selectivity_deviation": deviation(self.selectivities), "kinds": self.kinds, "known": self.known,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        means = pd.DataFrame({"accuracy": [np.mean(self.real), np.mean(self.control)]}, ["feature", "control task"])
        errors = pd.DataFrame({"accuracy": [deviation(self.real), deviation(self.control)]}, means.index)
        return plots.bars(means, ax=ax, errors=errors, ylabel="accuracy on what was held out")


def control(reading: Reading, units: tuple[int, ...] | None = None) -> Control:
    """The control task on the reading's own splits; with `units`, both tasks on these alone."""
    samples, settings = reading.samples, reading.settings
    kinds = samples.kinds
    if kinds is None:
        raise BadSetting("a control task needs to know of what kind each step is: give kinds= to Samples.of")
    chosen = None if units is None else np.array(units)
    random = np.random.default_rng((settings.seed, 1))
    real, controls, known = list[float](), list[float](), list[float]()
    for split, accuracy in zip(reading.splits, reading.accuracies, strict=True):
        made = replace(samples, labels=control_labels(samples.labels, kinds, split.seen, random))
        controls.append(accuracy_of(made, split, settings, chosen))
        real.append(accuracy if units is None else accuracy_of(samples, split, settings, chosen))
        known.append(float(np.isin(kinds[split.unseen], kinds[split.seen]).mean()))
    return Control(tuple(real), tuple(controls), len(np.unique(kinds)), float(np.mean(known)))


def control_labels(
    labels: Int[np.ndarray, " steps"],
    kinds: Int[np.ndarray, " steps"],
    seen: Int[np.ndarray, " rows"],
    random: np.random.Generator,
) -> Int[np.ndarray, " steps"]:
    """A label for each kind, drawn from all steps' labels; at least two of them where something is learned from."""
    names, kind = np.unique(kinds, return_inverse=True)
    for _ in range(DRAWS):
        made = random.choice(labels, len(names))[kind]
        if len(np.unique(made[seen])) > 1:
            return np.asarray(made)
    raise BadSetting(f"with {len(names)} kinds of steps no control task of two labels can be drawn; give finer kinds")


def last_words(
    words: Int[Tensor, "batch steps"], mask: Bool[Tensor, "batch steps"], vocabulary: int, span: int = 2
) -> Int[Tensor, "batch steps"]:
    """A number for the last `span` words at each step, the same in every batch; before the sentence there is a word of
    its own. `vocabulary` is how many words there are.

    >>> import torch
    >>> last_words(torch.tensor([[5, 6, 5, 6]]), torch.ones(1, 4, dtype=torch.bool), vocabulary=7)
    tensor([[61, 46, 53, 46]])
    """
    require(span > 0, f"span must be positive, not {span}")
    highest = int(words.max())
    require(highest < vocabulary, f"there is a word of number {highest}, but the vocabulary has {vocabulary} words")
    kinds = words.new_zeros(words.shape)
    for back in range(span):
        before = words.new_full(words.shape, vocabulary)  # no word: the number after the last
        before[:, back:] = words[:, : words.shape[1] - back]
        kinds = kinds + before * (vocabulary + 1) ** back
    return kinds.masked_fill(~mask, -1)
