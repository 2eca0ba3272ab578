"""Can a linear classifier read a feature off these units, and off how few of them? (baan2019 §4.1, tables 2 and 3)

`fit_diagnostic` fits linear classifiers to all units; `functional_group` finds the smallest set of units from which the
feature can be decoded nearly as well; `overlap` compares it with the strongest-connected units; `control_task` measures
how much a classifier memorises (Hewitt and Liang 2019).
"""

from attnscope.probes.diagnostic.classifier import PENALTIES, SPLITS, LinearClassifier, Samples, fit_linear
from attnscope.probes.diagnostic.decoding import (
    RELEASED,
    ControlTask,
    DiagnosticResult,
    DiagnosticSettings,
    control_task,
    fit_diagnostic,
    last_tokens,
)
from attnscope.probes.diagnostic.functional_group import (
    RANKINGS,
    FunctionalGroup,
    Overlap,
    functional_group,
    overlap,
    rank_units,
    shapley_values,
)

__all__ = [
    "PENALTIES",
    "RANKINGS",
    "RELEASED",
    "SPLITS",
    "ControlTask",
    "DiagnosticResult",
    "DiagnosticSettings",
    "FunctionalGroup",
    "LinearClassifier",
    "Overlap",
    "Samples",
    "control_task",
    "fit_diagnostic",
    "fit_linear",
    "functional_group",
    "last_tokens",
    "overlap",
    "rank_units",
    "shapley_values",
]  # fmt: skip
