"""Parts of an audit that test faithfulness, the same for classifiers and translators.

The attention judged is that of the last layer, the mean over its heads; of a network with one layer and one head it is
all there is. A classifier has one output word, its decision. Numbers are means over the output words of a text first,
and then over texts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.faithfulness.assessment import MOVED, assess_sentences
from attnscope.faithfulness.criteria import SINGLE_TOKEN, TOKEN_IDENTITY, UNIQUENESS, UNIQUENESS_SEARCH, Interval
from attnscope.faithfulness.interventions import SHARES, Removal
from attnscope.faithfulness.records import Part, Row, Test
from attnscope.faithfulness.subject import PairScores, PerText, PerWord, Reading, Sample, Subject
from attnscope.models.adapters.readers import ClassReader
from attnscope.models.capabilities import ReadsOut
from attnscope.models.inference import evaluating
from attnscope.models.loaded import TRANSLATOR
from attnscope.probes.adversary import (
    BatchAdversaries,
    SearchSettings,
    exact_adversaries_in_batch,
    search_adversaries_in_batch,
    search_token_adversaries,
)
from attnscope.probes.agreement import ONE_IN, chance_agreement, top_agreement
from attnscope.probes.counterfactual import MAX_ELEMENTS, read_out_rows, rows_at_a_time
from attnscope.probes.grounding import MARGIN, token_probabilities
from attnscope.probes.heads.sentences import Sentences
from attnscope.probes.lexical import log_odds
from attnscope.probes.occurrences import most_frequent_words, word_counts

MAX_WORDS, MAX_TOKENS = 500, 50_000  # classes of the decoder, the most frequent words, and their occurrences
PENALTY = 1e-2  # of the decoder, relative to the mean square of its inputs
TOP, CHANCE, LEAKAGE, ALONE, OWN = "top", "chance", "leakage", "alone", "own"
EMBEDDING, STATE, CONTROL = "embedding (ceiling)", "state", "state of a random token (control)"
GROUP = 16  # sentences per search, whatever the batch size, because descent magnifies rounding
UNITS = {
    "words": "Words are deleted, masked and compared whole, all of their tokens together; special tokens stay.",
    "tokens": "Tokens, not words, are deleted, masked and compared; special tokens stay.",
}
REMOVALS: dict[Removal, str] = {
    "masked": "Deleted words leave a gap: the encoder does not read them, and those behind them keep their positions.",
    "replaced": "In place of a deleted word, the encoder reads the mean embedding of the remaining words, and those "
    "behind it keep their positions. For route, its position has no attention.",
    "deleted": MOVED,
}  # of a translator


def words(subject: Subject, sample: Sample) -> Part:
    """Return the tests by deletion of words, those of the verdict among them, for each predicted class."""
    data = (Sentences(texts.batch, texts.source, texts.target) for texts in sample.texts())
    classes = subject.loaded.classes
    assessment = assess_sentences(subject.model, data, classes, sample.seed, sample.quick, sample.whole_words)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    sentences = [
        f"{UNITS[assessment.unit]} The top {shares} are deleted; the most influential ones are ranked by leave-one-out "
        f"or by random subsets, whichever changes the output more. Output changes are {output_unit(subject)}.",
        *[f"{assessment.left_out} of {assessment.texts} texts have fewer than two {assessment.unit} and are left out."]
        * bool(assessment.left_out),
        *[REMOVALS[assessment.removal]] * (subject.loaded.kind == TRANSLATOR),
    ]
    return Part(sentences, list(class_rows(assessment.tests)), assessment.tests)


def output_unit(subject: Subject) -> str:
    """Return what output changes are measured in."""
    reader = subject.loaded.reader
    if isinstance(reader, ClassReader) and reader.outputs.regression:
        unit = 1 / (2 * reader.outputs.SPAN)
        return f"absolute, where {unit:g} is one standard deviation of the model's output ({reader.outputs.sd:.3g})"
    return "total variation distances (TVD)"


def class_rows(tests: Sequence[Test]) -> Iterator[Row]:
    """Yield one row per test and predicted class."""
    for test in tests:
        for name, value in test.classes.items():
            yield {
                "class": name, "test": test.name, "value": value.value, "from": value.low, "to": value.high,
                "texts": value.texts, "not judged because": value.reason or None,
            }  # fmt: skip


@dataclass(frozen=True)
class TokenStates:
    """Tokens and their texts, with embeddings and states; as a control, the same states in random order."""

    tokens: Int[np.ndarray, " tokens"]
    texts: Int[np.ndarray, " tokens"]
    vectors: Mapping[str, Float[np.ndarray, "tokens units"]]

    @classmethod
    def of(cls, sample: Sample) -> "TokenStates":
        """Return the most frequent words of a sample, with their states."""
        chosen = torch.from_numpy(most_frequent_words(word_counts(sample.batches()), MAX_WORDS))
        tokens, texts, embedded, states = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        first = 0
        for reading in sample.readings():
            source, trace = reading.batch.source, reading.trace
            rows, places = (reading.words & torch.isin(source, chosen.to(source.device))).nonzero().unbind(1)
            tokens.append(source[rows, places].cpu())
            texts.append(rows.cpu() + first)
            embedded.append(trace.embedded[rows, places].detach().double().cpu())
            states.append(trace.encoder[rows, places].detach().double().cpu())
            first += len(source)
            if sum(map(len, tokens)) >= MAX_TOKENS:
                break
        state = torch.cat(states).numpy()
        control = np.random.default_rng(sample.seed).permutation(state)
        vectors = {EMBEDDING: torch.cat(embedded).numpy(), STATE: state, CONTROL: control}
        return cls(torch.cat(tokens).numpy(), torch.cat(texts).numpy(), vectors)

    def identified(self, name: str) -> Float[np.ndarray, " texts"]:
        """Return how many tokens of each text are identified by a decoder fitted to the other half of the texts."""
        correct = np.zeros(int(self.texts.max()) + 1)
        for half in (self.texts % 2 == 0, self.texts % 2 == 1):
            if half.any() and not half.all():
                predicted = nearest_mean(self.vectors[name][half], self.tokens[half], self.vectors[name][~half])
                np.add.at(correct, self.texts[~half], predicted == self.tokens[~half])
        return correct


def nearest_mean(
    vectors: Float[np.ndarray, "tokens units"],
    labels: Int[np.ndarray, " tokens"],
    others: Float[np.ndarray, "others units"],
) -> Int[np.ndarray, " others"]:
    """Return the label whose mean is nearest to each other vector, relative to the covariance of all (linear).

    Vectors that are the same for all tokens with a label, such as embeddings, are the means themselves.
    """
    centre, scale = vectors.mean(0), vectors.std(0) + 1e-9
    vectors, others = (vectors - centre) / scale, (others - centre) / scale
    classes, index = np.unique(labels, return_inverse=True)
    means = np.zeros((len(classes), vectors.shape[1]))
    np.add.at(means, index, vectors)
    means /= np.bincount(index)[:, None]
    weights = np.linalg.solve(vectors.T @ vectors / len(index) + PENALTY * np.eye(len(centre)), means.T)
    return np.asarray(classes[(others @ weights - (means * weights.T).sum(1) / 2).argmax(1)])


def token_identity(subject: Subject, sample: Sample) -> Part:
    """Return how well the token at a position is decoded from its state, by a linear decoder on held-out texts.

    The control, states in random order, scores 0; the ceiling, the embedding of the token itself, scores 1.
    """
    states = TokenStates.of(sample)
    right = {name: states.identified(name) for name in states.vectors}
    there = np.bincount(states.texts) > 0
    state, ceiling = ((right[name] - right[CONTROL])[there] for name in (STATE, EMBEDDING))
    share, count = Interval.ratio(state, ceiling, (-1.0, 1.0)), len(states.tokens)
    accuracies = {name: float(counts.sum() / count) for name, counts in right.items()}
    sentence = (
        f"A linear decoder identifies the token in {accuracies[STATE]:.0%} of held-out states, in "
        f"{accuracies[EMBEDDING]:.0%} of embeddings (the ceiling), and in {accuracies[CONTROL]:.0%} of states in "
        f"random order (the control): {share.value:.0%} of the distance. Attention to a state is attention to its "
        "token only as far as the state still identifies it."
    )
    test = TOKEN_IDENTITY.judge(sentence, share)
    table: list[Row] = [
        {"decoded from": name, "accuracy": value, "tokens": count} for name, value in accuracies.items()
    ]
    return Part([test.sentence], table, [test])


def adversary(subject: Subject, sample: Sample) -> Part:
    """Return how far attention can move while the output stays (Jain and Wallace 2019): exactly, or by a search."""
    classifier = subject.is_classifier
    settings = classifier_search(subject, sample) if classifier else translator_search(sample)
    measures, exact = PerText(), True
    for reading in sample.readings(None if classifier else GROUP):
        adversaries, exact = batch_adversaries(reading, settings)
        measures.add("feasible", reading.by_row(adversaries.feasible.double()))
        for name, values in (("jsd", adversaries.jsd), ("tvd", adversaries.tvd)):
            measures.add(name, reading.by_row(values.double().masked_fill(~adversaries.feasible, torch.nan)))
    feasible = Interval.of(measures["feasible"], (0.0, 1.0))
    share = Interval.of(measures["jsd"] / math.log(2), (0.0, 1.0))
    unit = "texts" if classifier else "output words"
    how = "exactly" if exact else "by a search, which gives a lower bound; where it finds nothing, nothing is known"
    sentence = (
        f"For {feasible.value:.0%} of the {unit} there is another attention that changes the output by at most "
        f"{settings.epsilon:.2f} (TVD); on average it is {share.value:.0%} as far away (JSD) as an attention can be. "
        f"This is computed {how}. It says how many attentions fit the output, not whether this one is faithful."
    )
    row: Row = {
        "share of the maximal JSD": share.value, **share.limits, f"{unit} with one": feasible.value,
        "output change (TVD)": Interval.of(measures["tvd"]).value, "computed": "exactly" if exact else "lower bound",
    }  # fmt: skip
    criterion = UNIQUENESS if exact else UNIQUENESS_SEARCH
    return Part([sentence], [row], [criterion.judge(sentence, share)], histogram=measures["jsd"].round(4).tolist())


def batch_adversaries(reading: Reading, settings: SearchSettings) -> tuple[BatchAdversaries, bool]:
    """Return one adversary per output word, and whether they are exact: for two classes with a linear readout."""
    model, batch = reading.model, reading.texts.batch
    if not reading.subject.is_classifier:
        return search_token_adversaries(model, reading.batch, reading.outputs, settings), False
    if len(reading.subject.loaded.classes) == 2 and reading.counterfactual.contributions is not None:
        return exact_adversaries_in_batch(model, batch), True
    return search_adversaries_in_batch(model, batch, settings), False


def classifier_search(subject: Subject, sample: Sample) -> SearchSettings:
    """Return fewer restarts and steps in a quick audit, and where every step is a whole pass."""
    quick = SearchSettings(seed=sample.seed, restarts=2, steps=200)
    return quick if sample.quick or not isinstance(subject.model, ReadsOut) else SearchSettings(seed=sample.seed)


def translator_search(sample: Sample) -> SearchSettings:
    """Return settings with few long steps along the border of what is feasible: each is a readout per output word.

    Tried on a tiny Marian with three scales of its readout: the quick search gets 93 to 114 % as far as five starts of
    500 steps with a fixed penalty of 500. The result is a lower bound either way.
    """
    restarts, steps = (2, 100) if sample.quick else (3, 250)
    return SearchSettings(restarts=restarts, steps=steps, learning_rate=0.2, penalty=10.0, growth=1.1, seed=sample.seed)


def single_tokens(subject: Subject, sample: Sample) -> Part:
    """Return the share of tokens that lead to the same output alone: leakage (tutek2020 §5, table 3)."""
    model = subject.model
    if not isinstance(model, ReadsOut):
        test = SINGLE_TOKEN.judge("", Interval(reason="it needs a model with `context_of` and `readout`"))
        return Part([test.sentence], tests=[test])
    measures, measure = PerText(), decision_measures if subject.is_classifier else word_measures
    for reading in sample.readings():
        for name, values in measure(model, reading).items():
            measures.add(name, reading.by_text(values))
    means = measures.means()
    leakage = Interval.of(measures[LEAKAGE], (0.0, 1.0))
    sentence = (
        f"{leakage.value:.0%} of the tokens lead to the same output alone, nearly as surely (within {MARGIN}), when "
        "they get all the attention of the last layer."
    )
    sentences = [sentence]
    if TOP in means:
        sentences.append(
            f"The token attended to most is among the {1 / ONE_IN:.0%} that alone make the gold word likeliest for "
            f"{means[TOP].value:.0%} of the words; a random token is for {means[CHANCE].value:.0%}."
        )
    return Part(sentences, single_token_rows(means), [SINGLE_TOKEN.judge(sentence, leakage)])


def single_token_rows(means: dict[str, Interval]) -> list[Row]:
    names = {
        LEAKAGE: "tokens that suffice alone",
        OWN: "probability of the predicted output",
        ALONE: "... given one token alone",
        TOP: f"agreement of attention with β (top {1 / ONE_IN:.0%})",
        CHANCE: "... by chance",
    }
    return [
        {"measure": name, "mean": means[key].value, **means[key].limits} for key, name in names.items() if key in means
    ]


def decision_measures(model: ReadsOut, reading: Reading) -> dict[str, PerWord]:
    """Return leakage and probabilities of each decision of a classifier."""
    with evaluating(model):
        alone = token_probabilities(model, reading.trace)
    return {LEAKAGE: alone.leakage()[:, None], ALONE: alone.mean[:, None], OWN: alone.decision[:, None]}


def word_measures(model: ReadsOut, reading: Reading) -> dict[str, PerWord]:
    """Return leakage, probabilities, and the agreement of attention with β, of each output word of a translator."""
    alone = probabilities_alone(model, reading)
    words = reading.words[:, None].expand_as(alone.gold)
    own = reading.trace.logits.detach().softmax(-1).amax(-1)
    sufficient = alone.likeliest & (alone.predicted >= own[..., None] - MARGIN)
    score = alone.gold.nan_to_num()
    return {
        TOP: top_agreement(reading.attention, score, words), CHANCE: chance_agreement(score, words),
        LEAKAGE: sufficient.sum(-1) / reading.words.sum(1)[:, None], ALONE: alone.predicted.nanmean(-1), OWN: own,
    }  # fmt: skip


@dataclass(frozen=True)
class AloneProbabilities:
    """What each source token alone predicts, per output word; NaN, and false, where there is no word."""

    gold: PairScores  # γ: log-odds of the gold word
    predicted: PairScores  # probability of the word that the model predicts
    likeliest: Bool[Tensor, "batch target source"]  # whether the prediction stays the same


def probabilities_alone(model: ReadsOut, reading: Reading, max_elements: int = MAX_ELEMENTS) -> AloneProbabilities:
    """Return the prediction of each output word with all attention on one source token (snell2021 §3.1)."""
    trace = reading.trace
    blank = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    gold, predicted, likeliest = blank, blank.clone(), torch.zeros_like(blank, dtype=torch.bool)
    pairs = (reading.outputs[:, :, None] & reading.words[:, None]).nonzero()
    with evaluating(model):
        for block in pairs.split(rows_at_a_time(trace, max_elements)):
            b, t, source = block.unbind(1)
            logits, output = read_out_rows(model, trace, trace.last.values[b, :, source], b, t), trace.predictions[b, t]
            gold[b, t, source] = log_odds(logits, trace.target[b, t])
            predicted[b, t, source] = log_odds(logits, output).sigmoid()
            likeliest[b, t, source] = logits.argmax(1) == output
    return AloneProbabilities(gold, predicted, likeliest)
