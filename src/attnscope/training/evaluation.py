"""How good are a model's predictions?

Accuracy of tokens and sequences; F1, accuracy and area under the curve of a classifier (tutek2020 §4); BLEU of greedy
translations (snell2021 tables 4, 6 and 8).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from attnscope.errors import BadSetting, import_optional, require
from attnscope.models.capabilities import TEACHER_FORCING, Decoding, Generates, GivesTrace
from attnscope.models.inference import Model, device_of, evaluating, module_of, traces
from attnscope.models.trace import Interventions
from attnscope.tasks import END, SPECIALS, Batch, Translation
from attnscope.tasks.task import by_length
from attnscope.tasks.text.preparation import Part
from attnscope.training.objectives import CrossEntropy

SAMPLE_SEED = 0  # of the sentences that BLEU is computed on
SPARE_LENGTH = 10  # a translation may be twice as long as the longest source, and this much longer


def evaluate(
    model: Model,
    data: Iterable[Batch],
    *,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
    teacher_forcing: float | None = None,
) -> dict[str, float]:
    """Return the loss per token, and how many tokens, whole sequences and last words are predicted right.

    Args:
        model: What gives Traces.
        data: Batches.
        attention: Weights in place of the model's own, as in a forward pass, such as `uniform`.
        decoding: "teacher_forced" or "greedy"; None: as the model's own `decoding` says.
        teacher_forcing: The probability that the decoder is given the gold token, in place of a decoding.

    Returns:
        `loss`, `word_accuracy`, `sentence_accuracy`, and `final_accuracy`: the fraction of sequences whose last token,
        the end token not counted, is right.
    """
    if teacher_forcing is None:
        teacher_forcing = TEACHER_FORCING[decoding or decoding_of(model)]
    if isinstance(data, Sequence) and any(isinstance(item, str) for item in data):
        raise BadSetting("texts are evaluated with their labels or translations: give (text, label) pairs, or Batches")
    price, module = CrossEntropy(total=True), module_of(model)
    words = sentences = 0
    loss = right = whole = final = 0.0
    for batch, trace in traces(model, data, attention=attention, teacher_forcing=teacher_forcing):
        mask = batch.target_mask
        hit = trace.predictions == batch.target
        loss += price(module, batch, trace).item()
        right += hit[mask].sum().item()
        whole += (hit | ~mask).all(1).sum().item()
        final += hit.gather(1, last_words(batch)[:, None]).sum().item()
        words, sentences = words + int(mask.sum()), sentences + len(batch)
    require(words > 0, "there is nothing to evaluate on: the data hold no batch")
    return {
        "loss": loss / words,
        "word_accuracy": right / words,
        "sentence_accuracy": whole / sentences,
        "final_accuracy": final / sentences,
    }


def decoding_of(model: Model) -> Decoding:
    """Return the decoding that a model declares; "greedy" where it declares none."""
    module = module_of(model)
    return module.decoding if isinstance(module, GivesTrace) else "greedy"


def last_words(batch: Batch) -> Int[Tensor, " batch"]:
    """Where each target ends: at its last word, the end token not counted, if there is any other."""
    mask = batch.target_mask
    ended = batch.target.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0] == END
    return (mask.sum(1) - 1 - ended.long()).clamp(min=0)


@dataclass(frozen=True)
class Decisions:
    """The probability of every class for each text, and the class that it has."""

    probabilities: Float[np.ndarray, "texts classes"]
    gold: Int[np.ndarray, " texts"]

    @property
    def chosen(self) -> Int[np.ndarray, " texts"]:
        return np.asarray(self.probabilities.argmax(1))

    @property
    def accuracy(self) -> float:
        return float((self.chosen == self.gold).mean())

    @property
    def f1(self) -> float:
        """Of the positive class, the second of two; of more classes, the mean over them."""
        return self.f1_of(1) if self.probabilities.shape[1] == 2 else self.macro_f1

    @property
    def macro_f1(self) -> float:
        return float(np.mean([self.f1_of(number) for number in range(self.probabilities.shape[1])]))

    def f1_of(self, number: int) -> float:
        """0 where the class is neither there nor chosen, as scikit-learn has it."""
        chosen, gold = self.chosen == number, self.gold == number
        both = chosen.sum() + gold.sum()
        return float(2 * (chosen & gold).sum() / both) if both else 0.0

    @property
    def auc(self) -> float:
        """The chance that a text of the positive class is given a higher probability than another; ties count half.

        Of more than two classes, the mean over classes, each against the rest. NaN where one class is all there is.
        """
        classes = [1] if self.probabilities.shape[1] == 2 else range(self.probabilities.shape[1])
        return float(np.mean([self.auc_of(number) for number in classes]))

    def auc_of(self, number: int) -> float:
        positive = self.gold == number
        pairs = positive.sum() * (~positive).sum()
        _, place, count = np.unique(self.probabilities[:, number], return_inverse=True, return_counts=True)
        ranks = (count.cumsum() - (count - 1) / 2)[place]
        above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        return float(above / pairs) if pairs else float("nan")

    def scores(self) -> dict[str, float]:
        return {"f1": self.f1, "macro_f1": self.macro_f1, "accuracy": self.accuracy, "auc": self.auc}


def decide(model: Model, data: Iterable[Batch], *, attention: Interventions | None = None) -> Decisions:
    """Return a classifier's decisions, optionally with other attention, such as `uniform`."""
    probabilities, gold = [], []
    for batch, trace in traces(model, data, attention=attention):
        logits = trace.logits[:, 0, len(SPECIALS) :]
        probabilities.append(logits.double().softmax(-1).cpu().numpy())
        gold.append(batch.target[:, 0].cpu().numpy() - len(SPECIALS))
    return Decisions(np.concatenate(probabilities), np.concatenate(gold))


@dataclass(frozen=True)
class Bleu:
    """A score from 0 to 100; the signature says how it was computed: scores are comparable under the same one only."""

    score: float
    signature: str
    sentences: int


def bleu(
    model: Generates,
    task: Translation,
    split: str = "validation",
    max_sentences: int | None = None,
    batch_size: int = 128,
) -> Bleu:
    """Return BLEU of a split against the targets as published.

    Where the task is in lower case, so is the comparison. Words that the vocabulary does not hold count as wrong.

    Args:
        model: Generates the translations.
        task: Holds the sentences and their references.
        split: The split that is translated.
        max_sentences: Translate a sample of this size; None: all sentences.
        batch_size: Sentences that are translated together.
    """
    require(max_sentences is None or max_sentences > 0, f"max_sentences must be positive or None, not {max_sentences}")
    require(isinstance(task, Translation), f"BLEU is of a Translation task, not of {task!r:.60}")
    library = import_optional("sacrebleu", "BLEU")
    part = task.part(split)
    chosen = sample_sentences(part, max_sentences)
    translations = list(translate(model, task, part, chosen, batch_size))
    # Forced: a text of words has spaces before its full stops, which sacrebleu would warn of.
    metric = library.BLEU(lowercase=task.preparation.lower, force=True)
    score = metric.corpus_score(translations, [[part.references[i] for i in chosen]]).score
    return Bleu(float(score), str(metric.get_signature()), len(chosen))


def sample_sentences(part: Part, max_sentences: int | None) -> Int[np.ndarray, " chosen"]:
    """Return the indices of all sentences of a split or of a sample of them, the shortest first."""
    if max_sentences is None:
        return part.order
    chosen = np.random.default_rng(SAMPLE_SEED).permutation(len(part))[:max_sentences]
    return np.asarray(chosen[by_length(part.lengths[chosen])])


def translate(
    model: Generates, task: Translation, part: Part, chosen: Int[np.ndarray, " chosen"], batch_size: int
) -> Iterator[str]:
    """Yield the translations of these sentences as text."""
    device = device_of(model)
    with evaluating(model):
        for start in range(0, len(chosen), batch_size):
            batch = part.batch(chosen[start : start + batch_size]).to(device)
            ids = model.generate(batch.source, batch.source_mask, 2 * batch.source.shape[1] + SPARE_LENGTH)
            yield from map(task.sentence, ids.tolist())
