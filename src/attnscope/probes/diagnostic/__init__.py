"""Can a linear classifier read a feature off these units, and off how few of them? (baan2019 §4.1, tables 2 and 3)

`read` fits classifiers to all units, `functional_group` finds the smallest group that does nearly as well, `overlap`
asks whether these are the strongest-connected units, and `control` whether the classifier learned things by heart.
"""

from attnscope.probes.diagnostic.classifier import PENALTIES, SPLITS, Linear, Samples, fitted
from attnscope.probes.diagnostic.decoding import (
    RELEASED,
    Control,
    DiagnosticSettings,
    Reading,
    control,
    last_words,
    read,
)
from attnscope.probes.diagnostic.functional_group import (
    RANKINGS,
    FunctionalGroup,
    Overlap,
    functional_group,
    overlap,
    ranked,
    shapley_values,
)

__all__ = [
    "PENALTIES", "RANKINGS", "RELEASED", "SPLITS", "Control", "DiagnosticSettings", "FunctionalGroup", "Linear",
    "Overlap", "Reading", "Samples", "control", "fitted", "functional_group", "last_words", "overlap", "ranked", "read",
    "shapley_values",
]  # fmt: skip
