"""Do two seeds attend to the same words of a short message? (snell2021 A.9)

The paper keeps the SMS set out of its tables: two seeds' attentions "did not correlate much". It gives no number, so
the other classification corpora are the yardstick.
"""

from typing import Any

from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import Case, Finding, Measurements
from attnscope.studies.result import Row
from attnscope.studies.snell2021.agreements import measure
from attnscope.studies.snell2021.caveats import ELSEWHERE
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.studies.snell2021.layouts import Layout, draw
from attnscope.studies.snell2021.text import cases

SMS = "sms"
TWO_SEEDS = ("attention_again",)
WORDS = ("attention_again_words",)
# 0: no table of the paper
LAYOUTS = (Layout(0, TWO_SEEDS, beside=WORDS), Layout(0, TWO_SEEDS, beside=WORDS, metric="kendall"))


def experiments(sizes: Sizes) -> dict[str, Case]:
    return cases(sizes.text, (*sizes.text.classification, SMS))


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        more_than(
            f"two seeds agree less on {SMS} than on {corpus}, by {layout.agreement(*TWO_SEEDS)}",
            layout.values(measured, corpus, *TWO_SEEDS),
            layout.values(measured, SMS, *TWO_SEEDS),
        )
        for layout in LAYOUTS
        for corpus in measured
        if corpus != SMS
    ]


def table(measured: Measurements) -> list[Row]:
    return [row for layout in LAYOUTS for row in layout.table(measured)]


def figure(measured: Measurements) -> Any:
    return {ylabel: panel for layout in LAYOUTS for ylabel, panel in layout.figure(measured).items()}


A9_SMS = Finding(
    name="a9-sms",
    title="On the SMS set, two seeds attend to different words",
    section="A.9",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "α is that of one seed at the checkpoint with the best validation accuracy, α̂(T) that of another when training "
        "ends. In short sentences chance agrees more often, which A(α, α̂(T)) does not take into account and Kendall's "
        "τ does.",
        "Most messages are no spam, and attention may then rest on the end token in both seeds, so the agreement among "
        "the words alone is given, too.",
        *ELSEWHERE,
        "What this does not show: why. Messages are short, few and of few words, as the paper says, all at once.",
    ),
)  # fmt: skip
