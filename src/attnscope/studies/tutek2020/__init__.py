"""Tutek and Šnajder 2020, Staying True to Your Word: (How) Can Attention Become Explanation?"""

from math import log

from attnscope.studies.claims import COSINE, COUNT, UNIT
from attnscope.studies.finding import Study
from attnscope.studies.tutek2020.ablation import ABLATION
from attnscope.studies.tutek2020.deceptive import DECEPTION
from attnscope.studies.tutek2020.decisions import APPENDIX_C, TABLE1, TABLE6
from attnscope.studies.tutek2020.experiments import PROFILES
from attnscope.studies.tutek2020.fig1 import FIG1
from attnscope.studies.tutek2020.jain_wallace import JAIN_WALLACE
from attnscope.studies.tutek2020.plausible import PLAUSIBLE
from attnscope.studies.tutek2020.reduction import LEAPING, REDUCTION, REDUCTION_IMDB
from attnscope.studies.tutek2020.states import FIG2, TABLE2, TABLE3
from attnscope.studies.tutek2020.table5 import TABLE5

STUDY = Study(
    name="tutek2020",
    findings=(
        TABLE1, TABLE2, FIG1, FIG2, TABLE3, TABLE5, TABLE6, APPENDIX_C, ABLATION, REDUCTION, REDUCTION_IMDB, LEAPING,
        PLAUSIBLE, JAIN_WALLACE, DECEPTION,
    ),
    profiles=PROFILES,
    ranges={
        **dict.fromkeys(("f1", "validation_f1", "validation_accuracy"), (0.0, 100.0)),
        **dict.fromkeys(("macro_f1", "accuracy", "auc", "changed_*"), (0.0, 100.0)),
        **dict.fromkeys(("gradient*", "leave_one_out"), COSINE),
        **dict.fromkeys(("entropy", "probability", "*_leakage", "leakage", "mass", "*average_precision"), UNIT),
        **dict.fromkeys(("moved_*", "highest", "*_feasible", "*_token_f1", "*_iou_f1", "*_mass"), UNIT),
        **dict.fromkeys(("correct", "decision"), UNIT),
        "*_sd": COUNT,
        **dict.fromkeys(("farthest", "searched", "jsd"), (0.0, log(2))),
    },
    sanity=("*agrees with people more than chance*",),
)  # fmt: skip
