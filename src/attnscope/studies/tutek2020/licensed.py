"""What of the texts that may not be handed on? Anemia and diabetes, from a user's own copy. (tutek2020 §3.5)

MIMIC needs credentials. Who has them puts JSON lines with the fields `text` (a string, or a list of its words), `label`
(0 or 1) and `split` (train, dev, test), as the code of Jain and Wallace 2019 makes them, into mimic/anemia.jsonl.gz and
mimic/diabetes.jsonl.gz below the folder that ATTNSCOPE_DATA names. Tables 1 and 5 of the profile paper then have them.
"""

from dataclasses import replace

from attnscope.studies.tutek2020.experiments import TEXTS, Sizes
from attnscope.tasks import Classification, MissingCorpus, Preparation, Splits, Words

FILES = {"anemia": "mimic/anemia.jsonl.gz", "diabetes": "mimic/diabetes.jsonl.gz"}
EPOCHS = 8  # Jain and Wallace 2019
NOTE = (
    "Anemia and diabetes need credentialed data (MIMIC), which we do not have. Put a copy of your own at "
    "mimic/anemia.jsonl.gz and mimic/diabetes.jsonl.gz below the folder of corpora, as JSON lines with text, label "
    "(0 or 1) and split (train, dev, test), and the profile paper has them too, with δ = 10 and η = 1."
)


def with_own_copies(sizes: Sizes) -> Sizes:
    """The profile paper with those of these corpora that are on this machine; any other as it is."""
    if sizes.name == "paper":
        for name, file in FILES.items():
            if is_here(task := discharge_summaries(file)):
                sizes = added(sizes, name, task)
    return sizes


def added(sizes: Sizes, name: str, task: Classification, epochs: int = EPOCHS) -> Sizes:
    """A profile with another corpus, which is among TEXTS from now on."""
    TEXTS[name] = task
    corpora = tuple(dict.fromkeys([*sizes.corpora, name]))
    return replace(sizes, corpora=corpora, epochs={**sizes.epochs, name: epochs})


def discharge_summaries(file: str) -> Classification:
    """Words as they come: the code that makes these files has cut them already."""
    return Classification(
        file,
        labels=("0", "1"),
        special="both",
        splits=Splits(("train",), ("dev",), ("test",)),
        preparation=Preparation("whitespace"),
        vocabulary=Words(least=1),
    )


def is_here(task: Classification) -> bool:
    try:
        task.resolved()
    except MissingCorpus:
        return False
    return True
