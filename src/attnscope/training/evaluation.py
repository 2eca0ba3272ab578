"""How good are a model's predictions?

Accuracy of tokens and sequences; F1, accuracy and area under the curve of a classifier (tutek2020 §4); BLEU of greedy
translations (snell2021 tables 4, 6 and 8).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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
    """Return the loss per token, and the accuracy of tokens, whole sequences and last words.

    Args:
        model: A model that gives Traces.
        data: Batches.
        attention: Weights in place of the model's own, as in a forward pass, such as `uniform`.
        decoding: "teacher_forced" or "greedy"; None: the model's own `decoding`.
        teacher_forcing: The probability of the gold token as the decoder's input, in place of `decoding`.

    Returns:
        `loss`, `word_accuracy`, `sentence_accuracy`, and `final_accuracy`: the fraction of sequences whose last token,
        the end token not counted, is right.
    """
    if teacher_forcing is None:
        teacher_forcing = TEACHER_FORCING[decoding or decoding_of(model)]
    if isinstance(data, Sequence) and any(isinstance(item, str) for item in data):
        raise BadSetting("texts are evaluated with their labels or translations: give (text, label) pairs, or Batches")
    total_loss, module = CrossEntropy(total=True), module_of(model)
    words = sentences = 0
    loss = correct_words = correct_sentences = correct_final = 0.0
    for batch, trace in traces(model, data, attention=attention, teacher_forcing=teacher_forcing):
        mask = batch.target_mask
        correct = trace.predictions == batch.target
        loss += total_loss(module, batch, trace).item()
        correct_words += correct[mask].sum().item()
        correct_sentences += (correct | ~mask).all(1).sum().item()
        correct_final += correct.gather(1, last_words(batch)[:, None]).sum().item()
        words, sentences = words + int(mask.sum()), sentences + len(batch)
    require(words > 0, "there is nothing to evaluate on: the data hold no batch")
    return {
        "loss": loss / words,
        "word_accuracy": correct_words / words,
        "sentence_accuracy": correct_sentences / sentences,
        "final_accuracy": correct_final / sentences,
    }


def decoding_of(model: Model) -> Decoding:
    """Return the decoding that a model declares; "greedy" where it declares none."""
    module = module_of(model)
    return module.decoding if isinstance(module, GivesTrace) else "greedy"


def last_words(batch: Batch) -> Int[Tensor, " batch"]:
    """Return the position of the last word of each target, the end token not counted unless there is no other."""
    mask = batch.target_mask
    has_end = batch.target.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0] == END
    return (mask.sum(1) - 1 - has_end.long()).clamp(min=0)


@dataclass(frozen=True)
class Decisions:
    """The probability of every class for each text, and its gold class."""

    probabilities: Float[np.ndarray, "texts classes"]
    gold: Int[np.ndarray, " texts"]

    @cached_property
    def chosen(self) -> Int[np.ndarray, " texts"]:
        """The predicted classes."""
        return np.asarray(self.probabilities.argmax(1))

    @property
    def accuracy(self) -> float:
        return float((self.chosen == self.gold).mean())

    @property
    def f1(self) -> float:
        """F1 of the positive class, the second of two; of more classes, the mean over classes."""
        return float(self.f1_by_class[1]) if self.probabilities.shape[1] == 2 else self.macro_f1

    @property
    def macro_f1(self) -> float:
        return float(self.f1_by_class.mean())

    @property
    def f1_by_class(self) -> Float[np.ndarray, " classes"]:
        """F1 of every class; 0 where a class is neither gold nor predicted, as in scikit-learn."""
        groups = self.chosen[self.chosen == self.gold], self.chosen, self.gold[self.gold >= 0]  # END is no class
        correct, predicted, gold = (np.bincount(group, minlength=self.probabilities.shape[1]) for group in groups)
        return np.asarray(2 * correct / np.maximum(predicted + gold, 1))

    @property
    def auc(self) -> float:
        """Area under the ROC curve; of more than two classes, the mean over classes, each against the rest.

        Ties count half. NaN where there is only one class.
        """
        classes = [1] if self.probabilities.shape[1] == 2 else range(self.probabilities.shape[1])
        return float(np.mean([self.auc_of(number) for number in classes]))

    def auc_of(self, number: int) -> float:
        positive = self.gold == number
        pairs = positive.sum() * (~positive).sum()
        _, inverse, count = np.unique(self.probabilities[:, number], return_inverse=True, return_counts=True)
        ranks = (count.cumsum() - (count - 1) / 2)[inverse]
        above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        return float(above / pairs) if pairs else float("nan")

    def scores(self) -> dict[str, float]:
        return {"f1": self.f1, "macro_f1": self.macro_f1, "accuracy": self.accuracy, "auc": self.auc}


def decide(model: Model, data: Iterable[Batch], *, attention: Interventions | None = None) -> Decisions:
    """Return a classifier's decisions.

    Args:
        model: A classifier.
        data: Batches, or other data that probes take.
        attention: Weights in place of the model's own, such as `uniform`.
    """
    probabilities, gold = [], []
    for batch, trace in traces(model, data, attention=attention):
        logits = trace.logits[:, 0, len(SPECIALS) :]
        probabilities.append(logits.double().softmax(-1).cpu().numpy())
        gold.append(batch.target[:, 0].cpu().numpy() - len(SPECIALS))
    return Decisions(np.concatenate(probabilities), np.concatenate(gold))


@dataclass(frozen=True)
class Bleu:
    """BLEU from 0 to 100, with its signature; only scores with the same signature are comparable."""

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

    Where the task is in lower case, so is the comparison. Words outside the vocabulary count as wrong.

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
    indices = sample_sentences(part, max_sentences)
    translations = list(translate(model, task, part, indices, batch_size))
    # force: sacrebleu would warn of the spaces before full stops in tokenised text.
    metric = library.BLEU(lowercase=task.preparation.lower, force=True)
    score = metric.corpus_score(translations, [[part.references[i] for i in indices]]).score
    return Bleu(float(score), str(metric.get_signature()), len(indices))


def sample_sentences(part: Part, max_sentences: int | None) -> Int[np.ndarray, " sample"]:
    """Return the indices of all sentences of a split or of a sample of them, the shortest first."""
    if max_sentences is None:
        return part.order
    sample = np.random.default_rng(SAMPLE_SEED).permutation(len(part))[:max_sentences]
    return np.asarray(sample[by_length(part.lengths[sample])])


def translate(
    model: Generates, task: Translation, part: Part, indices: Int[np.ndarray, " sample"], batch_size: int
) -> Iterator[str]:
    """Yield the translations of these sentences as text."""
    device = device_of(model)
    with evaluating(model):
        for start in range(0, len(indices), batch_size):
            batch = part.batch(indices[start : start + batch_size]).to(device)
            ids = model.generate(batch.source, batch.source_mask, 2 * batch.source.shape[1] + SPARE_LENGTH)
            yield from map(task.sentence, ids.tolist())
