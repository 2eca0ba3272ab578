"""Aitken et al. 2021, Understanding How Encoder-Decoder Architectures Attend: how attention is formed."""

from attnscope.studies.aitken2021.average import AVERAGE
from attnscope.studies.aitken2021.beyond import OPTIMISER
from attnscope.studies.aitken2021.cells import CELLS_AND_ATTENTIONS
from attnscope.studies.aitken2021.discrepancies import DISCREPANCIES
from attnscope.studies.aitken2021.experiments import PROFILES
from attnscope.studies.aitken2021.fig2 import FIG2_AED, FIG2_AO, FIG2_VED, FIG2G, FIG2H
from attnscope.studies.aitken2021.fig3_4 import FIG3, FIG4
from attnscope.studies.aitken2021.fig5 import FIG5A, FIG5B, FIG5C, FIG5D
from attnscope.studies.aitken2021.fig6 import FIG6
from attnscope.studies.claims import COSINE, UNIT
from attnscope.studies.finding import Study

STUDY = Study(
    name="aitken2021",
    findings=(
        FIG2_AED, FIG2_AO, FIG2_VED, FIG2G, FIG2H, FIG3, FIG4, FIG5A, FIG5B, FIG5C, FIG5D, FIG6, AVERAGE,
        CELLS_AND_ATTENTIONS, OPTIMISER, *DISCREPANCIES,
    ),
    profiles=PROFILES,
    ranges={
        **dict.fromkeys(
            ("*_accuracy", "*_share", "*_share_held_out", "temporal", "temporal_query", "largest", "predictability"),
            UNIT,
        ),
        **dict.fromkeys(("peak_at_own_step", "*_principal", "adjacent", "orthogonality", "*·*"), UNIT),
        **dict.fromkeys(("temporal_held_out", "temporal_query_held_out", "temporal_common"), UNIT),
        **dict.fromkeys(("temporal_early", "temporal_late", "dictionary", "diagonal_first", "diagonal_last"), UNIT),
        **dict.fromkeys(("split_by_verb", "falls_on_word_before"), UNIT),
        **dict.fromkeys(("matching", "direction"), COSINE),
    },
    sanity=("*learns the task*", "*learns the reversed task*", "*learns to sort*"),
)  # fmt: skip
