"""What is said of translation where the corpus is missing, so that nothing was trained?"""

from collections.abc import Callable

from attnscope.studies.claims import Verdict, untested
from attnscope.studies.finding import Measured

WHY = "no network was trained: its corpus is not on this machine (ATTNSCOPE_DATA names the folder of corpora)"

NOTE = (
    "English to French: sentences of Tatoeba stand in for ParaCrawl, of which the paper took over 30 million. They "
    "are shorter and simpler; the 150,000 to train on have 13,000 English and 22,000 French words. Sizes, optimiser "
    "and gold words for the decoder, in training and in measuring, are our choice. Without the corpus there are no "
    "rows of translation."
)


def claims_about(
    labels: tuple[str, ...], claims: Callable[[Measured], list[Verdict]], measured: Measured
) -> list[Verdict]:
    """The claims judged, or, where networks of these labels were not trained, named as not tested."""
    verdicts = claims(Measured({**dict.fromkeys(labels, ()), **measured.by_label}))
    trained = all(label in measured for label in labels)
    return verdicts if trained else [untested(verdict.text, WHY) for verdict in verdicts]
