"""How good are the decisions of a classifier? F1, accuracy, area under the curve. (tutek2020 §4)"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from attnscope.models.inference import traces
from attnscope.tasks import SPECIALS, Batch


@dataclass(frozen=True)
class Decisions:
    """The probability of every class for each text, and the class that it has."""

    probabilities: Float[np.ndarray, "texts classes"]
    gold: Int[np.ndarray, " texts"]

    @property
    def chosen(self) -> Int[np.ndarray, " texts"]:
        return np.asarray(self.probabilities.argmax(1))

    @property
    def accuracy(self) -> float:
        return float((self.chosen == self.gold).mean())

    @property
    def f1(self) -> float:
        """Of the positive class, the second of two; of more classes, the mean over them."""
        return self.f1_of(1) if self.probabilities.shape[1] == 2 else self.macro_f1

    @property
    def macro_f1(self) -> float:
        return float(np.mean([self.f1_of(number) for number in range(self.probabilities.shape[1])]))

    def f1_of(self, number: int) -> float:
        """0 where the class is neither there nor chosen, as scikit-learn has it."""
        chosen, gold = self.chosen == number, self.gold == number
        both = chosen.sum() + gold.sum()
        return float(2 * (chosen & gold).sum() / both) if both else 0.0

    @property
    def auc(self) -> float:
        """The chance that a text of the positive class is given a higher probability than another; ties count half.

        Of more than two classes, the mean over classes, each against the rest. NaN where one class is all there is.
        """
        classes = [1] if self.probabilities.shape[1] == 2 else range(self.probabilities.shape[1])
        return float(np.mean([self.auc_of(number) for number in classes]))

    def auc_of(self, number: int) -> float:
        positive = self.gold == number
        pairs = positive.sum() * (~positive).sum()
        _, place, count = np.unique(self.probabilities[:, number], return_inverse=True, return_counts=True)
        ranks = (count.cumsum() - (count - 1) / 2)[place]
        above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        return float(above / pairs) if pairs else float("nan")

    def scores(self) -> dict[str, float]:
        return {"f1": self.f1, "macro_f1": self.macro_f1, "accuracy": self.accuracy, "auc": self.auc}


def decide(model: nn.Module, batches: Iterable[Batch], **forward: Any) -> Decisions:
    """A classifier's decisions. What else is given, such as attention=uniform, goes to the forward pass."""
    probabilities, gold = [], []
    for batch, trace in traces(model, batches, **forward):
        logits = trace.logits[:, 0, len(SPECIALS) :]
        probabilities.append(logits.double().softmax(-1).cpu().numpy())
        gold.append(batch.target[:, 0].cpu().numpy() - len(SPECIALS))
    return Decisions(np.concatenate(probabilities), np.concatenate(gold))
