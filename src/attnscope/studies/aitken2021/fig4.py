"""How do AED and AO translate from English to French? (aitken2021 §4 and §4.1, figure 4)

Much as word by word: time meets time, and readouts face the words that they translate. But where to look depends more
and more on what was read, so that time says it clearly only at the beginning of a sentence.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.models import Trace
from attnscope.probes.decomposition.terms import FEW
from attnscope.studies.aitken2021.experiments import ATTENDING, translations
from attnscope.studies.aitken2021.look import ENDS, Look, look
from attnscope.studies.aitken2021.pictures import draw_matrix, draw_paths, draw_temporal_attention, matrix, paths
from attnscope.studies.aitken2021.translated import NOTE
from attnscope.studies.claims import ClaimVerdict, always, at_least, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements
from attnscope.tasks import END, Batch, Translation, Vocabulary
from attnscope.tasks.text import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCE = "the old man lives in a white house near the sea ."  # ours: adjectives on either side of their noun
LONGEST = 20  # words of its translation
COMMON = 20  # words of either language that are shown, the most frequent ones

ARTICLES = {"la": "the", "le": "the", "les": "the"}
PLAIN_WORDS = {
    **ARTICLES, "je": "i", "tu": "you", "vous": "you", "nous": "we", "elle": "she", "un": "a", "une": "a",
    "est": "is", "mon": "my", "dans": "in", "avec": "with", "et": "and",
}  # fmt: skip

QUANTITIES = {
    "word_accuracy": "word accuracy on gold words (validation)",
    "articles": "of la, le and les, how many face 'the' among the 20 most common words",
    "dictionary": "of 15 plain words, the share that face their translation among common words",
    "matching": "cosine of the two curves at s = t",
    "diagonal_first": "temporal attention within one position of t = s, first three steps",
    "diagonal_last": "the same, last three steps",
}


def measure(run: Run) -> Measurement:
    seen = look(run)
    near = seen.walks.near_the_diagonal
    return {
        "word_accuracy": run.log.sort_values("loss")["word_accuracy"].iloc[0],  # these weights were kept
        "articles": facing(seen, ARTICLES, most_common(seen.run.task.source_vocabulary)),
        "dictionary": facing(seen, PLAIN_WORDS, often_read(seen)) / len(PLAIN_WORDS),
        "matching": seen.walks.matching,
        "diagonal_first": float(near[:ENDS].mean()),
        "diagonal_last": float(near[-ENDS:].mean()),
        "picture": {"example": matrix(seen, translated(seen, SENTENCE)), **paths(seen), "dictionary": common(seen)},
    }


# The dictionary ----------------------------------------------------------------------------------------------------


def facing(seen: Look, dictionary: dict[str, str], inputs: Sequence[int]) -> int:
    """How many output words have a readout vector that, of all these inputs, is best aligned with its translation."""
    outputs = [number for word, number in numbers(seen.run.task.target_vocabulary).items() if word in dictionary]
    best = products(seen, outputs, inputs).argmax(1)
    pairs = [
        (seen.target_vocabulary[output], seen.source_vocabulary[inputs[i]])
        for output, i in zip(outputs, best, strict=True)
    ]
    return sum(dictionary[output] == word for output, word in pairs)


def products(seen: Look, outputs: Sequence[int], inputs: Sequence[int]) -> np.ndarray:
    """Readout · input component, of these words only: all of them together would be a billion numbers."""
    components = seen.encoder.input[0, list(inputs)]
    readout = seen.model.context_readout.detach()[list(outputs)].to(components)
    aligned: np.ndarray = (readout @ components.T).cpu().numpy()
    return aligned


def numbers(vocabulary: Vocabulary) -> dict[str, int]:
    """The known words by name, those with a letter, the most frequent first."""
    known = list(enumerate(vocabulary.tokens))[UNKNOWN + 1 :]
    return {word: number for number, word in known if any(map(str.isalpha, word))}


def most_common(vocabulary: Vocabulary) -> list[int]:
    return list(numbers(vocabulary).values())[:COMMON]


def often_read(seen: Look) -> list[int]:
    """The input words whose components are means over many states."""
    often = set((seen.encoder.word_counts >= FEW).nonzero().flatten().tolist())
    return [number for number in numbers(seen.run.task.source_vocabulary).values() if number in often]


def common(seen: Look) -> dict[str, Any]:
    """The most common words of either language, articles among them in any case."""
    words = numbers(seen.run.task.target_vocabulary)
    outputs = list(
        dict.fromkeys(
            [*most_common(seen.run.task.target_vocabulary), *(words[word] for word in ARTICLES if word in words)]
        )
    )
    inputs = most_common(seen.run.task.source_vocabulary)
    return {
        "values": products(seen, outputs, inputs),
        "outputs": [seen.target_vocabulary[number] for number in outputs],
        "inputs": [seen.source_vocabulary[number] for number in inputs],
    }


# A sentence --------------------------------------------------------------------------------------------------------


def translated(seen: Look, text: str) -> Trace:
    """What the network makes of a sentence, and where it looks while it says so."""
    task = seen.run.task
    assert isinstance(task, Translation)
    (words,) = task.corpus.source.encode([task.preparation.words(text)])
    source = torch.tensor([[*words.tolist(), END]], device=seen.run.experiment.device)
    read = torch.ones_like(source, dtype=torch.bool)
    said = seen.model.generate(source, read, LONGEST)
    said = said[:, : int((said != END).sum()) + 1]
    return seen.trace(Batch(source, read, said, torch.ones_like(said, dtype=torch.bool)))


# The finding -------------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for model in ATTENDING:
        articles = [count == len(ARTICLES) for count in measured.values(model, "articles")]
        first, last = measured.values(model, "diagonal_first"), measured.values(model, "diagonal_last")
        verdicts += [
            always(f"{model}: the readouts of la, le and les are closest to 'the', of the most common words", articles),
            at_least(
                f"{model}: temporal components of the two sides trace similar curves: cosine at s = t at least 0.5",
                measured.values(model, "matching"),
                0.5,
            ),
            more_than(f"{model}: the temporal attention is clearest on the diagonal early in a sentence", first, last),
        ]
    return verdicts


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(4, len(data), size=(5.6, 4.6))
    for column, (model, content) in enumerate(data.items()):
        example, walk, attention, dictionary = axes[column :: len(data)]
        draw_matrix(content["example"], example, f"{model}: attention of a sentence")
        draw_paths(content, walk, f"{model}: temporal components")
        draw_temporal_attention(content["temporal attention"], attention, f"{model}: softmax of μ(s) · μ(t)")
        cells, title = np.array(content["dictionary"]["values"]), f"{model}: readout · input component"
        outputs, inputs = content["dictionary"]["outputs"], content["dictionary"]["inputs"]
        plots.heatmap(cells, outputs, inputs, dictionary, title, diverging=True, xlabel="English", ylabel="French")
    return picture


FIG4 = Finding(
    name="fig4",
    title="How AED and AO translate from English to French",
    section="§4 and §4.1, figure 4",
    experiments=translations, measure=measure, table=lambda measured: measured.table(QUANTITIES),
    claims=claims, draw=draw,
    notes=(
        NOTE,
        "The figure of the paper is of AO; AED stands beside it. The sentence is ours, and so is its translation: the "
        "network's own words, greedily. Dot products are shown for the 20 most frequent words of each language that "
        "have a letter. Common words: those that the test set has ten times or more.",
        "What this does not show: that these dictionaries translate; an AO network knows its words and their order, "
        "but no word that depends on two. The pictures are of the first seed.",
    ),
)  # fmt: skip
