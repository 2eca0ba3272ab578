"""How do AED and AO solve extended SCAN, and translate from English to French? (aitken2021 §4, §4.1, figures 3 and 4)

As in one-to-one translation, attention is where the temporal components of both sides meet. On eSCAN, AED collects the
content of a sub-phrase at its end, so that its deltas matter; AO cannot, and attends to single words.

Translation works much as word by word: temporal components of both sides match, and readouts align with the words that
they translate. But the position to attend to depends more and more on the words read, so that the temporal attention is
clear only at the beginning of a sentence.
"""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.models import Trace
from attnscope.probes.decomposition.terms import MIN_COUNT
from attnscope.studies.aitken2021.analysis import (
    ENDS,
    NetworkAnalysis,
    analyse,
    cloud,
    draw_cloud,
    draw_matrix,
    draw_paths,
    draw_temporal_attention,
    matrix,
    paths,
)
from attnscope.studies.aitken2021.experiments import (
    ATTENDING,
    TRANSLATION_NOTE,
    escan_networks,
    published,
    translations,
)
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements
from attnscope.tasks import END, Batch, Translation, Vocabulary
from attnscope.tasks.text import UNKNOWN

# Figure 3: eSCAN -----------------------------------------------------------------------------------------------------

ESCAN_QUANTITIES = {
    "word_accuracy": "word accuracy",
    "sentence_accuracy": "sentences without an error",
    "encoder_delta": "encoder delta / input component",
}


def measure_escan(run: Run) -> Measurement:
    analysis = analyse(run)
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "sentence_accuracy": run.summary["sentence_accuracy"],
        "encoder_delta": analysis.delta_ratio,
        "picture": {"example": matrix(analysis, analysis.example), **paths(analysis), **cloud(analysis)},
    }


def claims_about_escan(measured: Measurements) -> list[ClaimVerdict]:
    accurate = "word accuracy at least 98 %"
    larger = "deltas are larger in AED, whose states carry sub-phrases, than in AO (relative to the input component)"
    return [
        *(measured.at_least(f"{model}: {accurate}", model, "word_accuracy", 0.98) for model in measured),
        measured.more_than(larger, "AED", "AO", "encoder_delta"),
    ]


def draw_escan(data: FigureData) -> Figure:
    picture, axes = plots.panels(4, 2, size=(5.2, 4.4))
    for (model, content), panels in zip(data.items(), (axes[::2], axes[1::2]), strict=True):
        example, walk, attention, words = panels
        draw_matrix(content["example"], example, f"{model}: attention of a sentence")
        draw_paths(content, walk, f"{model}: temporal components")
        draw_temporal_attention(content, attention, f"{model}: softmax of μ(s) · μ(t)")
        draw_cloud(content, words, f"{model}: input-delta components, readouts")
    return picture


FIG3 = Finding(
    name="fig3",
    title="How AED and AO solve extended SCAN",
    section="§4, figure 3",
    experiments=escan_networks, measure=measure_escan, table=ESCAN_QUANTITIES,
    published=lambda label, name: published("escan", name), claims=claims_about_escan, draw=draw_escan,
    notes=(
        "What this does not show: whether other networks of the same accuracy attend in the same way; the pictures are "
        "of the first seed.",
    ),
)  # fmt: skip


# Figure 4: translation -----------------------------------------------------------------------------------------------

SENTENCE = "the old man lives in a white house near the sea ."  # ours: adjectives on either side of their noun
MAX_WORDS = 20  # of its translation
COMMON = 20  # words per language that are shown, the most frequent ones

ARTICLES = {"la": "the", "le": "the", "les": "the"}
PLAIN_WORDS = {
    **ARTICLES, "je": "i", "tu": "you", "vous": "you", "nous": "we", "elle": "she", "un": "a", "une": "a",
    "est": "is", "mon": "my", "dans": "in", "avec": "with", "et": "and",
}  # fmt: skip

TRANSLATION_QUANTITIES = {
    "word_accuracy": "word accuracy with teacher forcing (validation)",
    "articles": "of la, le and les, how many are best aligned with 'the' among the 20 most common words",
    "dictionary": "of 15 plain words, the share best aligned with their translation among common words",
    "matching": "cosine of the two curves at s = t",
    "diagonal_first": "temporal attention within one position of t = s, first three steps",
    "diagonal_last": "the same, last three steps",
}


def measure_translation(run: Run) -> Measurement:
    analysis = analyse(run)
    near, vocabulary = analysis.trajectories.attention_near_diagonal, run.task.source_vocabulary
    return {
        "word_accuracy": run.log.sort_values("loss")["word_accuracy"].iloc[0],  # of the weights that were kept
        "articles": count_aligned(analysis, ARTICLES, most_common(vocabulary)),
        "dictionary": count_aligned(analysis, PLAIN_WORDS, frequent_in_test(analysis)) / len(PLAIN_WORDS),
        "matching": analysis.trajectories.matching,
        "diagonal_first": float(near[:ENDS].mean()),
        "diagonal_last": float(near[-ENDS:].mean()),
        "picture": {
            "example": matrix(analysis, translate(analysis, SENTENCE)),
            **paths(analysis),
            "dictionary": common_words(analysis),
        },
    }


# The dictionary ------------------------------------------------------------------------------------------------------


def count_aligned(analysis: NetworkAnalysis, dictionary: dict[str, str], inputs: Sequence[int]) -> int:
    """Return how many output words have a readout that, of these input ids, is best aligned with its translation."""
    outputs = [token for word, token in token_ids(analysis.run.task.target_vocabulary).items() if word in dictionary]
    best = readout_products(analysis, outputs, inputs).argmax(1)
    source, target = analysis.source_tokens, analysis.target_tokens
    pairs = [(target[output], source[inputs[i]]) for output, i in zip(outputs, best, strict=True)]
    return sum(dictionary[output] == word for output, word in pairs)


def readout_products(analysis: NetworkAnalysis, outputs: Sequence[int], inputs: Sequence[int]) -> np.ndarray:
    """Return readout · input component of these token ids (outputs x inputs): all pairs would be a billion numbers."""
    components = analysis.encoder.input[0, list(inputs)]
    readout = analysis.model.context_readout.detach()[list(outputs)].to(components)
    products: np.ndarray = (readout @ components.T).cpu().numpy()
    return products


def token_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Return the ids of known words that have a letter, the most frequent first."""
    words = list(enumerate(vocabulary.tokens))[UNKNOWN + 1 :]
    return {word: token for token, word in words if any(map(str.isalpha, word))}


def most_common(vocabulary: Vocabulary) -> list[int]:
    return list(token_ids(vocabulary).values())[:COMMON]


def frequent_in_test(analysis: NetworkAnalysis) -> list[int]:
    """Return the ids of input words whose components are means over many states."""
    frequent = set((analysis.encoder.word_counts >= MIN_COUNT).nonzero().flatten().tolist())
    return [token for token in token_ids(analysis.run.task.source_vocabulary).values() if token in frequent]


def common_words(analysis: NetworkAnalysis) -> dict[str, FigureData]:
    """Return readout · input component of each language's most common words and of the articles."""
    task = analysis.run.task
    ids = token_ids(task.target_vocabulary)
    articles = [ids[word] for word in ARTICLES if word in ids]
    outputs = list(dict.fromkeys([*most_common(task.target_vocabulary), *articles]))
    inputs = most_common(task.source_vocabulary)
    return {
        "values": readout_products(analysis, outputs, inputs),
        "outputs": [analysis.target_tokens[token] for token in outputs],
        "inputs": [analysis.source_tokens[token] for token in inputs],
    }


def translate(analysis: NetworkAnalysis, text: str) -> Trace:
    """Return the trace of a sentence with the network's own (greedy) translation as target."""
    task = analysis.run.task
    assert isinstance(task, Translation)
    (words,) = task.corpus.source.encode([task.preparation.words(text)])
    source = torch.tensor([[*words.tolist(), END]], device=analysis.run.experiment.device)
    mask = torch.ones_like(source, dtype=torch.bool)
    output = analysis.model.generate(source, mask, MAX_WORDS)
    output = output[:, : int((output != END).sum()) + 1]
    return analysis.trace(Batch(source, mask, output, torch.ones_like(output, dtype=torch.bool)))


# The finding ---------------------------------------------------------------------------------------------------------


def claims_about_translation(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for model in ATTENDING:
        articles = f"{model}: of the most common words, the readouts of la, le and les align best with 'the'"
        similar = f"{model}: temporal components of the two sides trace similar curves: cosine at s = t at least 0.5"
        early = f"{model}: the temporal attention is clearest on the diagonal early in a sentence"
        verdicts += [
            measured.proportion(articles, model, "articles", lambda count: count == len(ARTICLES)),
            measured.at_least(similar, model, "matching", 0.5),
            measured.greater(early, model, "diagonal_first", "diagonal_last"),
        ]
    return verdicts


def draw_translation(data: FigureData) -> Figure:
    picture, axes = plots.panels(4, len(data), size=(5.6, 4.6))
    for column, (model, content) in enumerate(data.items()):
        example, walk, attention, dictionary = axes[column :: len(data)]
        draw_matrix(content["example"], example, f"{model}: attention of a sentence")
        draw_paths(content, walk, f"{model}: temporal components")
        draw_temporal_attention(content, attention, f"{model}: softmax of μ(s) · μ(t)")
        products, title = np.array(content["dictionary"]["values"]), f"{model}: readout · input component"
        outputs, inputs = content["dictionary"]["outputs"], content["dictionary"]["inputs"]
        plots.heatmap(products, outputs, inputs, dictionary, title, diverging=True, xlabel="English", ylabel="French")
    return picture


FIG4 = Finding(
    name="fig4",
    title="How AED and AO translate from English to French",
    section="§4 and §4.1, figure 4",
    experiments=translations, measure=measure_translation, table=TRANSLATION_QUANTITIES,
    claims=claims_about_translation, draw=draw_translation,
    notes=(
        TRANSLATION_NOTE,
        "The figure of the paper is of AO; AED stands beside it. The sentence is ours; its translation is the "
        "network's, decoded greedily. Dot products are shown for the 20 most frequent words of each language that "
        "have a letter. Common words: those that the test set has ten times or more.",
        "What this does not show: that these dictionaries translate; an AO network knows its words and their order, "
        "but no word that depends on two. The pictures are of the first seed.",
    ),
)  # fmt: skip
