"""Can a linear classifier read a feature off these units, and off how few of them? (baan2019 §4.1, tables 2 and 3)

`read` fits classifiers to all units, `functional_group` finds the smallest group that does nearly as well, `overlap`
asks whether these are the strongest-connected units, and `control` whether the classifier learned things by heart.
"""

from attnscope.probes.diagnostic.classifier import PENALTIES, Linear, fitted
from attnscope.probes.diagnostic.control import Control, control, last_words
from attnscope.probes.diagnostic.group import FunctionalGroup, functional_group
from attnscope.probes.diagnostic.overlap import Overlap, overlap
from attnscope.probes.diagnostic.ranking import RANKINGS, ranked, shapley_values
from attnscope.probes.diagnostic.reading import RELEASED, DiagnosticSettings, Reading, read
from attnscope.probes.diagnostic.samples import SPLITS, Samples

__all__ = [
    "PENALTIES", "RANKINGS", "RELEASED", "SPLITS", "Control", "DiagnosticSettings", "FunctionalGroup", "Linear",
    "Overlap", "Reading", "Samples", "control", "fitted", "functional_group", "last_words", "overlap", "ranked", "read",
    "shapley_values",
]  # fmt: skip
