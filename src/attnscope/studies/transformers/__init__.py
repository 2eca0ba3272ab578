"""Do the claims of the four papers, which are about recurrent networks, hold in Transformers? A study of our own."""

import math

from attnscope.studies.claims import COSINE, COUNT, UNIT
from attnscope.studies.finding import Study
from attnscope.studies.transformers.elimination import ELIMINATION
from attnscope.studies.transformers.experiments import PROFILES
from attnscope.studies.transformers.faithful import FAITHFUL
from attnscope.studies.transformers.finetuned import FINETUNED
from attnscope.studies.transformers.formed import FORMED, PERMUTATIONS
from attnscope.studies.transformers.guided import GUIDED
from attnscope.studies.transformers.hiding import HIDING
from attnscope.studies.transformers.induction import INDUCTION
from attnscope.studies.transformers.learned import LEARNED

STUDY = Study(
    name="transformers",
    findings=(FORMED, LEARNED, ELIMINATION, GUIDED, FAITHFUL, FINETUNED, INDUCTION, HIDING),
    profiles=PROFILES,
    ranges={
        **dict.fromkeys(("*accuracy", "*_share", "agreement_*", "xi_*", "peak_at_*"), UNIT),
        "through_*": (-math.inf, 1.0),  # masking words may change outputs more than removing them
        **dict.fromkeys(("route", "lexical", "lexical_first", "previous", "induction", "sink"), UNIT),
        **dict.fromkeys(("shown", "relayed", "eliminates", "alone", "without"), UNIT),
        **dict.fromkeys(("position", "words", "position_*", "words_*", "most_*"), (-1 / (PERMUTATIONS - 1), 1.0)),
        **dict.fromkeys(("learnt", "exceeded", "moved", "yes", "with_care", "no", "undecided"), UNIT),
        **dict.fromkeys(("*_size", "*_change", "steps_needed", "information*", "loss"), COUNT),
        **dict.fromkeys(("matching", "rank_correlation"), COSINE),
    },
    sanity=("*learns the task*", "*above chance*"),
)
