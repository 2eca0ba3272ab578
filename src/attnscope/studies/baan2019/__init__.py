"""Baan et al. 2019, On the Realization of Compositionality in Neural Networks: what attentive guidance builds."""

from attnscope.studies.baan2019.beyond import DOSE, GUIDED_SCAN, SMALL_NETWORK
from attnscope.studies.baan2019.experiments import PROFILES
from attnscope.studies.baan2019.fig1_2 import FIG1, FIG2
from attnscope.studies.baan2019.fig3_4 import FIG3, FIG4
from attnscope.studies.baan2019.functional_groups import OVERLAP, TABLE2, TABLE3
from attnscope.studies.baan2019.matched import MATCHED
from attnscope.studies.baan2019.sec5 import SEC5_2, TABLE4
from attnscope.studies.baan2019.shapley import SHAPLEY
from attnscope.studies.baan2019.table5_6 import TABLE5_6
from attnscope.studies.claims import COSINE, COUNT, UNIT
from attnscope.studies.finding import Study

STUDY = Study(
    name="baan2019",
    findings=(
        TABLE5_6, FIG1, FIG2, FIG3, FIG4, TABLE2, TABLE3, OVERLAP, TABLE4, SEC5_2, SHAPLEY, MATCHED, SMALL_NETWORK,
        GUIDED_SCAN, DOSE,
    ),
    profiles=PROFILES,
    ranges={
        **dict.fromkeys(("heldout_*", "new_compositions", "longer_*", "train", "training", "validation", "test"), UNIT),
        **dict.fromkeys(("before", "donor", "operated", "retrained", "strongest_*", "random_*", "attention"), UNIT),
        **dict.fromkeys(("*_full", "*_group", "*_control", "overlap", "chance", "*_confirmed", "*_alike_*"), UNIT),
        **dict.fromkeys(("*_narrow", "*_wide", "*_one_sided", "*_closed", "*_open", "*_gathered", "*_strong"), UNIT),
        **dict.fromkeys(("*_covered", "*_from_axes", "*_concentration"), UNIT),
        **dict.fromkeys(("*_size", "size_*", "*_size_*", "*edges", "*highest"), COUNT),
        "*_polarity": COSINE,
    },
    sanity=("guided: more of it is than by chance",),
)  # fmt: skip
