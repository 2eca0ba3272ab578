"""Snell et al. 2021, Approximating How Single Head Attention Learns: how attention is learned."""

from attnscope.studies.claims import COSINE, COUNT, UNIT
from attnscope.studies.finding import Study
from attnscope.studies.snell2021.a1 import A1
from attnscope.studies.snell2021.aligners import ALIGNERS
from attnscope.studies.snell2021.count_tables import FIG1, FIG4, FIG5, FIG8
from attnscope.studies.snell2021.discrepancies import DISCREPANCIES
from attnscope.studies.snell2021.eq15 import EQ15
from attnscope.studies.snell2021.experiments import PROFILES
from attnscope.studies.snell2021.fig2 import FIG2
from attnscope.studies.snell2021.fig3 import FIG3, SEC6_2
from attnscope.studies.snell2021.fig6 import FIG6, FIG6_AUTHOR
from attnscope.studies.snell2021.fig7 import FIG7
from attnscope.studies.snell2021.table9 import TABLE9
from attnscope.studies.snell2021.tables import A9_SMS, TABLES

STUDY = Study(
    name="snell2021",
    findings=(
        *TABLES, FIG2, A9_SMS, TABLE9, FIG3, FIG6, FIG6_AUTHOR, FIG7, SEC6_2, EQ15, A1, FIG1, FIG4, FIG5, FIG8,
        ALIGNERS, *DISCREPANCIES,
    ),
    profiles=PROFILES,
    ranges={
        **dict.fromkeys(("*.bleu_*", "bleu", "bleu_*"), (0.0, 100.0)),
        "*.kendall.*": COSINE,
        **dict.fromkeys(("*.top.*", "*accuracy*", "learnt", "agreement", "chance"), UNIT),
        **dict.fromkeys(("learnt_*", "share_learnt", "good", "bad", "low"), UNIT),
        **dict.fromkeys(("never", "stands_out", "largest_class"), UNIT),
        **dict.fromkeys(("step_learnt", "steps_needed"), COUNT),
    },
    sanity=(
        "* is above chance", "* is above zero", "*more than the untrained network's", "*more than by chance",
        "*better than chance", "*more often than chance would", "*better than chance (the largest class)",
    ),
    substitutes={"iwslt14_de_en": "4,600 of 160,240 training pairs", "yelp": "other Yelp reviews"},
)  # fmt: skip
