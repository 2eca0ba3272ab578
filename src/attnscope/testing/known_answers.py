"""Models of known faithfulness: each has a certificate that follows from its parameters, not from an audit.

Everything after attention is linear. With values u and bypassing values r of the tokens (in logits), attention α, a
mixing M of states (rows sum to one; the identity where states are embeddings) and a path β around attention,

    z_t = b + Σ_s α_ts Σ_j M_sj u_j + Σ_j β_tj r_j,

so the logit of the prediction, less the mean over classes and over texts, is exactly the sum of what tokens contribute:

    c_tj = own_tj + other_tj,    own_tj = α_tj M_jj (u_j - ū),
                                 other_tj = Σ_{s≠j} α_ts M_sj (u_j - ū) + β_tj (r_j - r̄),

where ū and r̄ are the means of each path's output over a balanced sample of texts. The certificate has, per predicted
class, the share of the output that tokens contribute through their own attention weights, and the rank agreement of
attention with the size of contributions, pairs weighted by how much the two contributions differ:

    share = Σ|own| / Σ(|own| + |other|),
    agreement = Σ_{i<j} (|c_i| - |c_j|) sign(α_i - α_j) / Σ_{i<j} ||c_i| - |c_j||.

Agreement is 1 if attention ranks tokens as contributions do, and 0 for constant or random attention.

States of contextual encoders (BiLSTM, Transformer) are not sums over tokens. There, with attention as it is for the
whole text, φ_sj is the Shapley value of token j for the value of state s: the mean, over all orders of the tokens, of
the change when its embedding replaces the mean embedding (of a balanced sample, weighted
by attention). It is exact: all subsets of the tokens are run, so texts have at most MAX_EXACT of them. Then

    own_tj = α_tj φ_jj,    other_tj = Σ_{s≠j} α_ts φ_sj,

which again sum to the logit, above that of mean embeddings. Where states are sums over tokens, both definitions agree,
except for the mean from which values are measured. Certificates do not use what the tests of an audit use: deletion of
words, masking in attention, ranking by effects. Label bounds are the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from math import comb
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, one_hot, pad

from attnscope.errors import choose, require
from attnscope.models.attention import masked_softmax
from attnscope.models.inference import evaluating
from attnscope.tasks.batch import END, SPECIALS, Batch
from attnscope.testing.known_models import (
    ContextualClassifier,
    CopyingTranslator,
    Encoder,
    InPlaceTranslator,
    KnownModel,
    PooledClassifier,
    Recurrent,
    RecurrentTranslator,
    ResidualStream,
    SelfAttention,
)
from attnscope.testing.known_texts import MARKERS, NEUTRAL, SHORT, TOPICS, TRANSLATED, WORDS, Texts, sentences

Label = Literal["faithful", "unfaithful", "grey"]
Family = Literal["classifier", "translator", "contextual"]
EncoderClass = Callable[[int, bool], Encoder]  # of size and `others`
# Bounds on the certificate, set before any audit was run on these models. What is in between is grey: not counted.
FAITHFUL_SHARE, FAITHFUL_AGREEMENT = 0.9, 0.7  # at least both, in every class
UNFAITHFUL_SHARE, UNFAITHFUL_AGREEMENT = 0.35, 0.2  # at most one of them, in every class
REFERENCE_TEXTS, REFERENCE_SEED = 400, 10_001  # on which certificates are computed: balanced, never audited
REFERENCE_SENTENCES = 100  # the same, of a translator
TRAINING_TEXTS, TRAINING_SEED, TRAINING_STEPS, TRAINING_BATCH = 1500, 20_001, 200, 64
MIN_TEXTS = 5  # a class that is predicted for fewer reference texts has no certificate
MAX_EXACT = 8  # tokens of a text: all of their subsets are run for an exact Shapley value
REFERENCE_SHORT = 200  # reference texts of contextual encoders
CONTEXT_SIZE, CONTEXT_RATE, RIDGE = 16, 0.01, 1e-3  # of contextual encoders: states, training, penalty
MIXING = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0)  # shares of the output from what encoders make of other tokens


@dataclass(frozen=True)
class Certificate:
    """Share through attention and rank agreement, one number per predicted class; a translator has one class."""

    share: tuple[float, ...]
    agreement: tuple[float, ...]

    @property
    def label(self) -> Label:
        """The label by the bounds above."""
        if min(self.share) >= FAITHFUL_SHARE and min(self.agreement) >= FAITHFUL_AGREEMENT:
            return "faithful"
        unfaithful = max(self.share) <= UNFAITHFUL_SHARE or max(self.agreement) <= UNFAITHFUL_AGREEMENT
        return "unfaithful" if unfaithful else "grey"


# Certificates


@dataclass(frozen=True)
class Contributions:
    """The contribution of each source token to each prediction, with its attention."""

    attention: Float[Tensor, "batch target source"]
    own: Float[Tensor, "batch target source"]
    other: Float[Tensor, "batch target source"]
    words: Bool[Tensor, "batch source"]
    predicted: Int[Tensor, "batch target"]  # index of the output
    outputs: Bool[Tensor, "batch target"]

    @property
    def total(self) -> Float[Tensor, "batch target source"]:
        return self.own + self.other


@torch.no_grad()
def contributions(model: KnownModel, batch: Batch) -> Contributions:
    """Return the exact contributions of tokens to the model's predictions on this batch."""
    mask = batch.source_mask
    identity = torch.eye(mask.shape[1], dtype=torch.float64).expand(len(mask), -1, -1)
    with evaluating(model):
        paths, mixing = model.paths(model.source_inputs(batch.source), batch), model.mix(identity, batch)
    attention = masked_softmax(paths.scores[:, None], mask)[:, 0].double()
    values, bypassing = paths.values.double(), paths.bypassing.double()
    through, around = attention @ mixing @ values, paths.bypass.double() @ bypassing  # batch x target x outputs
    predicted = (through + around + model.bias).argmax(-1)
    outputs = batch.target_mask & (batch.target != END)
    u, r = (towards(each, mean[outputs].mean(0), predicted) for each, mean in ((values, through), (bypassing, around)))
    direct = attention * mixing.diagonal(dim1=1, dim2=2)[:, None]
    own, other = direct * u, (attention @ mixing - direct) * u + paths.bypass.double() * r
    return Contributions(attention, own * mask[:, None], other * mask[:, None], mask, predicted, outputs)


@torch.no_grad()
def shapley_contributions(model: PooledClassifier, batch: Batch) -> Contributions:
    """Return the same for a classifier with any encoder and no path around attention, by exact Shapley values."""
    mask, embedded = batch.source_mask, model.source_inputs(batch.source)
    require(int(mask.sum(1).max()) <= MAX_EXACT, f"exact Shapley values need texts of at most {MAX_EXACT} words")
    with evaluating(model):
        paths = model.paths(embedded, batch)
        attention = masked_softmax(paths.scores[:, None], mask)[:, 0]  # batch x 1 x source
        predicted = (attention @ model.mix(paths.values, batch) + model.bias).argmax(-1)
        mean = (attention @ embedded).mean((0, 1))
        effects = torch.zeros(*mask.shape, mask.shape[1], dtype=torch.float64)  # batch x token x state
        for count in mask.sum(1).unique().tolist():
            keep, weights = subsets(count)
            rows = (mask.sum(1) == count).nonzero()[:, 0]
            texts = batch.keep(rows.repeat_interleave(len(keep)), mask[rows.repeat_interleave(len(keep))])
            replaced = torch.where(keep.repeat(len(rows), 1)[..., None], model.source_inputs(texts.source), mean)
            values = model.mix(model.paths(replaced, texts).values, texts).double()  # (batch subsets) x state x class
            values = towards(values, 0 * values[0, 0], predicted[rows].repeat_interleave(len(keep), 0))[:, 0]
            effects[rows, :count, :count] = weights @ values.unflatten(0, (len(rows), -1))
    weighted = attention.double() * effects  # batch x token x state
    own = weighted.diagonal(dim1=1, dim2=2)
    return Contributions(
        attention.double(), own[:, None], (weighted.sum(2) - own)[:, None], mask, predicted, batch.target_mask
    )


def subsets(count: int) -> tuple[Bool[Tensor, "subsets tokens"], Float[Tensor, "tokens subsets"]]:
    """Return all subsets of `count` tokens, and the weights with which their values sum to Shapley values."""
    keep = torch.tensor(list(product((False, True), repeat=count)))
    size = keep.sum(1, keepdim=True)
    with_it = torch.tensor([0.0, *(1 / (count * comb(count - 1, k - 1)) for k in range(1, count + 1))]).double()
    without = torch.tensor([*(-1 / (count * comb(count - 1, k)) for k in range(count)), 0.0]).double()
    return keep, torch.where(keep, with_it[size], without[size]).T


def towards(values: Tensor, mean: Tensor, predicted: Tensor) -> Float[Tensor, "batch target source"]:
    """Return values of the predicted output above their mean over texts, less the mean over all outputs."""
    above = values - mean
    above = above - above.mean(-1, keepdim=True)  # batch x source x outputs
    return above.gather(-1, predicted[:, None].expand(-1, above.shape[1], -1)).mT


def certificate(parts: Contributions, by_class: bool = True) -> Certificate:
    """Return share and agreement; of a translator (`by_class` false), over all its predictions together."""
    own, other = parts.own.abs().sum(-1), parts.other.abs().sum(-1)  # batch x target
    agreed, possible = concordance(parts.attention, parts.total.abs(), parts.words)
    groups = [parts.outputs & (parts.predicted == i) for i in parts.predicted[parts.outputs].unique()]
    groups = [group for group in groups if int(group.sum()) >= MIN_TEXTS] if by_class else [parts.outputs]
    return Certificate(
        tuple(float(own[group].sum() / (own + other)[group].sum()) for group in groups),
        tuple(float(agreed[group].sum() / possible[group].sum()) for group in groups),
    )


def concordance(attention: Tensor, sizes: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums over pairs of tokens that are divided for the agreement: batch x target each."""
    differ = sizes[..., :, None] - sizes[..., None, :]
    attended = attention[..., :, None] - attention[..., None, :]
    pairs = (words[:, :, None] & words[:, None])[:, None]
    sign = attended.sign() * (attended.abs() > 1e-9)
    return (differ * sign * pairs).sum((-1, -2)) / 2, (differ.abs() * pairs).sum((-1, -2)) / 2


# Kinds


@dataclass(frozen=True)
class Kind:
    """How models of one kind are built from random numbers and texts."""

    description: str
    build: Callable[[np.random.Generator, Texts], KnownModel]
    sealed: bool = False  # held out: no threshold is fitted on it
    family: Family = "classifier"


@dataclass(frozen=True)
class KnownAnswer:
    """A model with its certificate, and texts to audit it on."""

    kind: str
    seed: int
    model: KnownModel
    certificate: Certificate
    texts: Texts

    def batches(
        self, count: int, seed: int | Sequence[int], balance: float | None = None, size: int = 128
    ) -> Iterator[Batch]:
        """Yield `count` texts that are used neither for the certificate nor in training."""
        return read(self.model, replace(self.texts, balance=balance), count, seed, size)


def known_answer(kind: str, seed: int, texts: Texts | None = None) -> KnownAnswer:
    """Return one model of a kind with its certificate.

    Args:
        kind: One of KINDS.
        seed: Random seed of its parameters.
        texts: Classes and length of its texts; by default two classes and 19 words, of contextual encoders 6.
    """
    chosen = KINDS[choose("kind of model", kind, KINDS)]
    default = SHORT if chosen.family == "contextual" else Texts()
    texts = replace(texts or default, balance=None, markers=kind == "shortcut")
    model = chosen.build(np.random.default_rng([seed, *kind.encode()]), texts)
    counts = {"classifier": REFERENCE_TEXTS, "translator": REFERENCE_SENTENCES, "contextual": REFERENCE_SHORT}
    count = counts[chosen.family]
    reference = next(read(model, texts, count, REFERENCE_SEED, count))
    if isinstance(model, ContextualClassifier):
        parts = shapley_contributions(model, reference)
    else:
        parts = contributions(model, reference)
    return KnownAnswer(kind, seed, model, certificate(parts, by_class=chosen.family != "translator"), texts)


def read(model: KnownModel, texts: Texts, count: int, seed: int | Sequence[int], size: int) -> Iterator[Batch]:
    """Yield sampled texts as batches of this model."""
    if isinstance(model, CopyingTranslator):
        sources = sentences(count, seed)
        targets: list[tuple[str, ...]] | list[int] = [s[::-1] for s in sources] if model.backwards else list(sources)
    else:
        sources, targets = texts.sample(count, seed)
    return (texts.batch for texts in model.reader.batches(sources, targets, size))


@lru_cache(maxsize=16)
def pool(texts: Texts, count: int, seed: int) -> Batch:
    """Return balanced texts as one batch: those on which kinds are trained, and outputs standardised."""
    blank = PooledClassifier(torch.zeros(len(WORDS), 1 + 2 * texts.classes), torch.zeros(texts.classes))
    return next(read(blank, texts, count, seed, count))


def importance(random: np.random.Generator, texts: Texts) -> Float[np.ndarray, "words classes"]:
    """Return the value of each word for each class, centred over classes; near zero for neutral words."""
    classes = texts.classes
    worth = random.normal(0, 0.05, (len(WORDS), classes))
    for number, topic in enumerate(TOPICS):
        places = [WORDS.index(word) for word in topic]
        worth[places, number % classes] += random.lognormal(0, 0.5, len(topic))
    return np.asarray(worth - worth.mean(1, keepdims=True))


def size_of(worth: Float[np.ndarray, "words classes"]) -> Float[np.ndarray, "words 1"]:
    return np.asarray(np.abs(worth).max(1, keepdims=True))


def standardised(
    score: np.ndarray, value: np.ndarray, bypassing: np.ndarray, through: float, texts: Texts,
    random: np.random.Generator, pooled: Callable[[Tensor, Tensor], PooledClassifier] = PooledClassifier,
) -> PooledClassifier:  # fmt: skip
    """Return the classifier whose two paths have outputs of mean zero and of a chosen spread on a sample of texts.

    Args:
        score: One per word.
        value: One per word and class.
        bypassing: The same, of the path around attention.
        through: Share of attention's path in the spread of the output.
        texts: The distribution of texts.
        random: Random generator, of the spread of the logits (1.5 to 3).
        pooled: Function that builds the classifier from table and bias.
    """
    batch, classes = pool(texts, REFERENCE_TEXTS, TRAINING_SEED), texts.classes
    table = torch.from_numpy(np.hstack([score, value, bypassing])).float()
    model = pooled(table, torch.zeros(classes))
    paths = model.paths(embedding(batch.source, table), batch)
    weights = masked_softmax(paths.scores[:, None], batch.source_mask)[:, 0]
    outputs = ((weights @ model.mix(paths.values, batch))[:, 0], (paths.bypass @ paths.bypassing)[:, 0])
    spread = random.uniform(1.5, 3)
    gains = [share * spread / float(each.std(0).mean().clamp(min=1e-9))
             for share, each in zip((through, 1 - through), outputs, strict=True)]  # fmt: skip
    bias = -sum(gain * each.mean(0) for gain, each in zip(gains, outputs, strict=True))
    scale = torch.tensor([1.0] + [gains[0]] * classes + [gains[1]] * classes)
    return pooled(table * scale, torch.as_tensor(bias))


def by_importance(
    random: np.random.Generator, texts: Texts,
    pooled: Callable[[Tensor, Tensor], PooledClassifier] = PooledClassifier,
) -> PooledClassifier:  # fmt: skip
    worth = importance(random, texts)
    noise = random.normal(0, random.uniform(0, 0.5), (len(WORDS), 1))
    return standardised(random.uniform(1, 3) * size_of(worth) + noise, worth, 0 * worth, 1.0, texts, random, pooled)


def constant(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    worth = importance(random, texts)
    return standardised(0 * size_of(worth), worth, 0 * worth, 1.0, texts, random)


def compensated(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    worth = importance(random, texts)
    score = random.normal(0, random.uniform(0.8, 1.5), (len(WORDS), 1))
    return standardised(score, worth * np.exp(-score), 0 * worth, 1.0, texts, random)


def inverse(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    worth = importance(random, texts)
    score = -random.uniform(1, 2.5) * np.minimum(size_of(worth), 1.5)
    return standardised(score, worth * np.exp(-score), 0 * worth, 1.0, texts, random)


def skip(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    worth = importance(random, texts)
    score = random.uniform(1, 3) * size_of(worth)
    return standardised(score, worth, worth, random.uniform(0.02, 0.3), texts, random)


def shortcut(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    worth = importance(random, texts)
    score, marker = random.uniform(1, 3) * size_of(worth), np.zeros_like(worth)
    for number in range(texts.classes):
        marker[WORDS.index(MARKERS[number]), number] = 1.0
        score[WORDS.index(MARKERS[number])] = -8.0
    return standardised(score, worth, marker, random.uniform(0.05, 0.25), texts, random)


def mixed(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    elsewhere, decay = random.uniform(0.1, 0.95), random.choice([0.3, 0.6, 1.0])
    return by_importance(random, texts, partial(PooledClassifier, elsewhere=elsewhere, decay=float(decay)))


def shifted(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    return by_importance(random, texts, partial(PooledClassifier, shift=int(random.integers(1, 3))))


@torch.enable_grad()
def train(
    parameters: Sequence[Tensor], loss: Callable[[Batch], Tensor], texts: Texts, random: np.random.Generator,
    rate: float, steps: int,
) -> None:  # fmt: skip
    """Train parameters on balanced texts, with Adam."""
    batch, optimiser = pool(texts, TRAINING_TEXTS, TRAINING_SEED), torch.optim.Adam(parameters, lr=rate)
    for _ in range(steps):
        start = int(random.integers(0, len(batch) - TRAINING_BATCH))
        optimiser.zero_grad()
        loss(batch.rows(slice(start, start + TRAINING_BATCH))).backward()
        optimiser.step()


def trained(
    random: np.random.Generator, texts: Texts, size: int | None = None, hiding: float = 0.0, elsewhere: float = 0.0
) -> PooledClassifier:
    """Return a classifier trained on texts.

    Args:
        random: Random generator, of initial parameters and the order of texts.
        texts: The distribution of texts.
        size: Size of embeddings, from which a query vector computes scores and a linear layer values; None: both are
            free parameters.
        hiding: Weight of the loss that keeps attention off the words that are evidence for a class.
        elsewhere: Share of each state that comes from other tokens.
    """
    columns = 1 + texts.classes
    rows = [(len(WORDS), columns)] if size is None else [(len(WORDS), size), (size, columns)]
    factors = [torch.tensor(random.normal(0, 0.3, shape), dtype=torch.float32, requires_grad=True) for shape in rows]
    bias = torch.zeros(texts.classes, requires_grad=True)
    evidence = torch.tensor([word not in NEUTRAL for word in WORDS])
    model = PooledClassifier(torch.zeros(1, 1), torch.zeros(texts.classes), elsewhere)

    def table() -> Tensor:
        own = factors[0] if size is None else factors[0] @ factors[1]
        return pad(own, (0, texts.classes))

    def loss(some: Batch) -> Tensor:
        paths = model.paths(embedding(some.source, table()), some)
        weights = masked_softmax(paths.scores[:, None], some.source_mask)[:, 0]
        logits = (weights @ model.mix(paths.values, some))[:, 0] + bias
        wrong = cross_entropy(logits, some.target[:, 0] - len(SPECIALS))
        hidden = 1 - (weights[:, 0] * evidence[some.source]).sum(1)
        return wrong - hiding * hidden.clamp(min=1e-6).log().mean() if hiding else wrong

    train([*factors, bias], loss, texts, random, 0.05 if size is None else 0.02, TRAINING_STEPS)
    return PooledClassifier(table().detach(), bias.detach(), elsewhere)


def pooling(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    return trained(random, texts, size=16)


def hiding(random: np.random.Generator, texts: Texts) -> PooledClassifier:
    return trained(random, texts, hiding=random.uniform(0.5, 2), elsewhere=random.uniform(0.4, 0.8))


def encoder_of(
    encoder_class: EncoderClass, others: bool, classes: int, random: np.random.Generator
) -> tuple[Encoder, nn.Linear]:
    """Return an encoder and a head with random parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(random.integers(1 << 31)))
        return encoder_class(CONTEXT_SIZE, others), nn.Linear(CONTEXT_SIZE, 1 + classes)


def encoded(random: np.random.Generator, texts: Texts, encoder_class: EncoderClass) -> ContextualClassifier:
    """Return a trained classifier whose states are all the encoder's."""
    encoder, head = encoder_of(encoder_class, False, texts.classes, random)
    table = torch.from_numpy(random.normal(0, 1, (len(WORDS), CONTEXT_SIZE))).float()
    model = ContextualClassifier(pad(table, (1 + texts.classes, 0)), torch.zeros(texts.classes), encoder, head)
    used = torch.arange(CONTEXT_SIZE + 1 + texts.classes) > texts.classes
    words = model.get_parameter("source_inputs.weight")
    words.register_hook(lambda gradient: gradient * used)  # words have no values of their own

    def loss(some: Batch) -> Tensor:
        return cross_entropy(model(some).logits[:, 0, len(SPECIALS) :], some.target[:, 0] - len(SPECIALS))

    train(list(model.parameters()), loss, texts, random, CONTEXT_RATE, TRAINING_STEPS)
    return model.requires_grad_(False).eval()


@torch.no_grad()
def encoded_in_part(
    random: np.random.Generator, texts: Texts, encoder_class: EncoderClass, elsewhere: float
) -> ContextualClassifier:
    """Return a bag of embeddings whose states are, to a given share, an encoder's states of the other tokens.

    The encoder has random parameters and reads the values of words; its head is the ridge regression of a text's class
    on the states. The two parts of the values have 1 - s and s of the spread of the output.
    """
    batch, classes = pool(texts, TRAINING_TEXTS, TRAINING_SEED), texts.classes
    encoder, head = encoder_of(encoder_class, True, classes, random)
    worth = importance(random, texts)
    features = np.hstack([3 * worth, random.normal(0, 0.3, (len(WORDS), CONTEXT_SIZE - classes))])
    score = random.uniform(1, 3) * size_of(worth)
    table = torch.from_numpy(np.hstack([score, worth, features])).float()
    model = ContextualClassifier(table, torch.zeros(classes), encoder, head)

    embedded, mask = model.source_inputs(batch.source), batch.source_mask
    states = encoder(embedded[..., 1 + classes :], mask)
    gold = (
        one_hot(batch.target[:, 0] - len(SPECIALS), classes)
        .float()
        .sub(1 / classes)[:, None]
        .expand(-1, mask.shape[1], -1)
    )
    x = states[mask] - states[mask].mean(0)
    ridge = x.T @ x + len(x) * RIDGE * torch.eye(CONTEXT_SIZE)
    readout = torch.linalg.solve(ridge, x.T @ gold[mask])
    weights = masked_softmax(embedded[..., :1].mT[:, None], mask)[:, 0]
    own, other = (weights @ embedded[..., 1 : 1 + classes])[:, 0], (weights @ (states @ readout))[:, 0]
    spread = random.uniform(1.5, 3)
    gains = [share * spread / float(each.std(0).mean()) for share, each in ((1 - elsewhere, own), (elsewhere, other))]
    table[:, 1 : 1 + classes] *= gains[0]
    head.weight.copy_(pad(gains[1] * readout, (1, 0)).T)
    head.bias.zero_()
    return ContextualClassifier(table, -(gains[0] * own + gains[1] * other).mean(0), encoder, head).eval()


def copying(
    random: np.random.Generator, through: float = 1.0, shift: int = 0, backwards: bool = False,
    by_position: bool = False, translator: Callable[..., CopyingTranslator] = InPlaceTranslator,
) -> KnownModel:  # fmt: skip
    """Return a translator whose values are noisy one-hot vectors."""
    values = random.normal(0, 0.05, (len(TRANSLATED) + 1, len(TRANSLATED) + 1))
    values[np.arange(len(TRANSLATED)), np.arange(len(TRANSLATED)) + 1] += 1
    values[-1, 0] += 1
    sharpness = (random.uniform(5, 9), random.uniform(1.5, 4))
    table = torch.from_numpy(values * random.uniform(8, 14)).float()
    return translator(table, sharpness, through, shift, backwards, by_position)


def recurrent(random: np.random.Generator, through: float = 1.0, shift: int = 0) -> KnownModel:
    """Return a translator that copies by the positions that its recurrent encoder counts."""
    translator = partial(RecurrentTranslator, memory=random.uniform(0, 0.3))
    return copying(random, through, shift, by_position=True, translator=translator)


KINDS: dict[str, Kind] = {
    "importance": Kind("bag of embeddings, attention follows the size of contributions", by_importance),
    "learned": Kind("bag of embeddings, scores and values learned", trained),
    "pooling": Kind("attention pooling by a query vector, all else linear, learned", pooling, sealed=True),
    "constant": Kind("constant attention", constant),
    "hiding": Kind("trained to keep attention off the words that it uses", hiding),
    "skip": Kind("attention that looks right beside a mean of embeddings that decides", skip),
    "compensated": Kind("random attention, values compensate for it", compensated),
    "inverse": Kind("attention grows where the value shrinks", inverse, sealed=True),
    "shortcut": Kind("a marker of the class decides and gets no attention", shortcut, sealed=True),
    "displaced": Kind("attention and states displaced by one or two words", shifted, sealed=True),
    "mixed": Kind("states with a known share from other words", mixed),
    "translator": Kind(
        "copying translator, attention on the word copied", lambda r, _: copying(r), family="translator"
    ),
    "translator-skip": Kind(
        "the same, most of the output bypasses attention", lambda r, _: copying(r, r.uniform(0.02, 0.3)),
        family="translator",
    ),
    "translator-reversed": Kind(
        "translator that copies backwards, attention on the word copied", lambda r, _: copying(r, backwards=True),
        sealed=True, family="translator",
    ),
    "translator-permuted": Kind(
        "copying translator, attention and states permuted alike", lambda r, _: copying(r, shift=int(r.integers(1, 3))),
        sealed=True, family="translator",
    ),
    "translator-positional": Kind(
        "copying translator, attention on the source position of the same number",
        lambda r, _: copying(r, by_position=True), sealed=True, family="translator",
    ),
    "translator-positional-permuted": Kind(
        "the same, attention and states permuted alike",
        lambda r, _: copying(r, shift=int(r.integers(1, 3)), by_position=True), sealed=True, family="translator",
    ),
    "translator-recurrent": Kind(
        "copying translator with a recurrent encoder that counts positions, attention on that of the same number",
        lambda r, _: recurrent(r), sealed=True, family="translator",
    ),
    "translator-recurrent-permuted": Kind(
        "the same, attention and states permuted alike", lambda r, _: recurrent(r, shift=int(r.integers(1, 3))),
        sealed=True, family="translator",
    ),
    "translator-recurrent-skip": Kind(
        "the same, not permuted, most of the output bypasses attention",
        lambda r, _: recurrent(r, r.uniform(0.02, 0.3)), sealed=True, family="translator",
    ),
}  # fmt: skip
ENCODERS: dict[str, tuple[str, EncoderClass]] = {
    "bilstm": ("BiLSTM", Recurrent), "transformer": ("Transformer layer", SelfAttention)
}  # fmt: skip
LAYERED: dict[str, tuple[str, EncoderClass]] = {
    "layers": ("four Transformer layers and attention pooling, learned", ResidualStream),
    "layers-own": (
        "the same, each token attends only to itself in the four layers", partial(ResidualStream, mixes=False)
    ),
    "layers-own-unplaced": ("the same without positions", partial(ResidualStream, mixes=False, placed=False)),
}  # fmt: skip
for name, (what, encoder_class) in LAYERED.items():
    KINDS[name] = Kind(what, partial(encoded, encoder_class=encoder_class), sealed=True, family="contextual")
for name, (what, encoder_class) in ENCODERS.items():
    KINDS[name] = Kind(
        f"{what} and attention pooling, learned", partial(encoded, encoder_class=encoder_class),
        sealed=True, family="contextual",
    )  # fmt: skip
    for share in MIXING:
        KINDS[f"{name}-{round(100 * share)}"] = Kind(
            f"{share:.0%} of the output from what a {what} makes of other words, the rest from words themselves",
            partial(encoded_in_part, encoder_class=encoder_class, elsewhere=share), sealed=True, family="contextual",
        )  # fmt: skip
