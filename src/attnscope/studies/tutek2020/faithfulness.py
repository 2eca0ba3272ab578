"""Tests of the faithfulness of a model's attention. (Jain and Wallace 2019, and later work)

One measurement per model: the findings `jain-wallace` and `deceptive` are read from it. Tests of single words use a
sample of test texts, the same for all models and seeds; the others use the whole test split, except for mutual
information, which is measured as in table 2.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits
from torch import Tensor

from attnscope.errors import require
from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier, Trace
from attnscope.models.bag_of_words import logistic_regression
from attnscope.probes.adversary import SearchSettings, exact_adversaries, search_adversaries
from attnscope.probes.agreement import kendall
from attnscope.probes.counterfactual import class_probabilities, trace_and_mask
from attnscope.probes.erasure import ComprehensivenessAccumulator, FlipAccumulator
from attnscope.probes.fragility import Fragility, fragility, total_variation
from attnscope.probes.information import information
from attnscope.probes.saliency import influence, leave_one_out
from attnscope.studies.finding import Case, Measurement, TrainedCase, case_unless_missing
from attnscope.studies.tutek2020.decisions import batches_on_device, token_grounding, trained_classifier
from attnscope.studies.tutek2020.experiments import Sizes
from attnscope.tasks import SPECIALS, Batch, Classification
from attnscope.tasks.text import UNKNOWN
from attnscope.training.evaluation import decide

SAMPLE_SEED = 0  # of the tested texts: the same for all seeds of training
BATCH_SIZE = {"cpu": 128, "cuda": 1024}  # large batches cost a GPU nothing, and a CPU their padding
SEARCH = SearchSettings()  # five starts of 500 steps, ε = 0.01, as in the code of Jain and Wallace
EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of a text's maximum weight: Jain and Wallace 2019, figure 6


@dataclass(frozen=True)
class FaithfulnessSettings:
    """Sizes of the tests."""

    max_texts: int
    num_permutations: int
    indicative_share: float  # of all tokens
    num_words: int  # for mutual information, as the two below
    num_clusters: int
    max_vectors: int


def case(sizes: Sizes, make: Callable[[], Experiment]) -> Case:
    """Return the case of one model, or one that is reported as failed where its corpus is missing."""
    settings = FaithfulnessSettings(
        sizes.max_texts, sizes.num_permutations, sizes.indicative_share, sizes.num_words, sizes.num_clusters,
        sizes.max_vectors,
    )  # fmt: skip
    return case_unless_missing(lambda: Case({"model": make()}, settings))


def measure(subject: TrainedCase[FaithfulnessSettings]) -> Measurement:
    model, task, settings = trained_classifier(subject), subject.runs["model"].task, subject.settings
    assert isinstance(task, Classification)
    texts, test = sample_texts(task, settings.max_texts, subject.device), batches_on_device(subject)
    numbers = {
        **use_of_words(model, test, indicative_words(task.resolved(), settings.indicative_share)),
        **rank_correlations(model, texts),
        **adversarial_distances(model, texts),
        **output_changes(fragility(model, texts, settings.num_permutations)),
        **erasure_scores(model, texts),
    }
    retained = information(
        model, partial(task.batches, "training"), "frequent", settings.num_words, settings.max_vectors,
        settings.num_clusters, seed=subject.seed, without=(UNKNOWN,),
    )  # fmt: skip
    numbers["information"] = retained.embedding.nats  # tutek2020 table 2
    numbers["per_token"] = token_grounding(model, test).probability  # tutek2020 table 3
    return numbers


def sample_texts(task: Classification, count: int, device: str) -> list[Batch]:
    """Return some texts of the test split, in batches of similar lengths."""
    sample = task.sample_batch("test", count, SAMPLE_SEED)
    order = sample.source_mask.sum(1).argsort(stable=True)
    ordered = replace(sample, **{name: value[order] for name, value in sample.tensors().items()})
    size = BATCH_SIZE["cpu" if device == "cpu" else "cuda"]
    return [ordered.rows(slice(start, start + size)).to(device) for start in range(0, len(ordered), size)]


# Indicative words ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def indicative_words(task: Classification, share: float) -> tuple[int, ...]:
    """Return the token ids with the largest weights in a bag-of-words regression on the training split.

    Args:
        task: A corpus with its checksum.
        share: Their share of all tokens, so that a text is left with others to attend to.
    """
    words, classes = len(task.source_vocabulary), len(task.classes)
    with threadpool_limits(1):  # vectors are too short to share among cores
        regression = logistic_regression(
            class_batches(task, "training"), class_batches(task, "validation"), words, classes
        )
    counts = np.bincount(np.concatenate(task.part("training").source), minlength=words)
    counts[: UNKNOWN + 1] = 0  # neither special tokens nor the unknown one
    return largest_weights(np.ptp(regression.word_weights.double().numpy(), axis=1), counts, share)


def class_batches(task: Classification, split: str) -> Iterator[Batch]:
    """Yield batches whose targets are classes from zero, in place of token ids."""
    for batch in task.batches(split, size=512):
        yield replace(batch, target=batch.target - len(SPECIALS))


def largest_weights(
    weights: Float[np.ndarray, " words"], counts: Int[np.ndarray, " words"], share: float
) -> tuple[int, ...]:
    """Return the words of largest weights whose counts are at most this share of all; at least one word.

    >>> largest_weights(np.array([0.1, 3.0, 2.0, 1.0]), np.array([5, 1, 2, 2]), share=0.4)
    (1, 2)
    """
    require(0 < share < 1, f"the share of indicative words is between 0 and 1, not {share}")
    order = np.argsort(-weights, kind="stable")
    order = order[counts[order] > 0]
    within = np.cumsum(counts[order]) <= share * counts.sum()
    return tuple(sorted(order[: max(1, int(within.sum()))].tolist()))


def use_of_words(model: Classifier, batches: Sequence[Batch], words: Sequence[int]) -> dict[str, float]:
    """Return F1 and its loss without these words, in percent; the attention on them, in texts that have one."""
    masses, shares = [], []
    for batch in batches:
        trace, attended = trace_and_mask(model, batch)
        indicative = mask_of_words(batch, words) & attended
        present = indicative.any(1)
        masses.append((trace.attention[:, 0, 0] * indicative).sum(1)[present])
        shares.append((indicative.sum(1) / attended.sum(1))[present])
    f1, without = (100 * decide(model, texts).f1 for texts in (batches, [remove_words(b, words) for b in batches]))
    return {
        "f1": f1,
        "f1_lost": f1 - without,
        "mass": torch.cat(masses).double().mean().item(),
        "mass_uniform": torch.cat(shares).double().mean().item(),
        "having": len(torch.cat(masses)) / sum(map(len, batches)),
    }


def mask_of_words(batch: Batch, words: Sequence[int]) -> Bool[Tensor, "batch source"]:
    """Return where these words stand."""
    return torch.isin(batch.source, torch.tensor(words, device=batch.source.device)) & batch.source_mask


def remove_words(batch: Batch, words: Sequence[int]) -> Batch:
    """Return the texts without these words; of a text that has no others, start and end tokens are left."""
    rows = torch.arange(len(batch), device=batch.source.device)
    return batch.keep(rows, batch.source_mask & ~mask_of_words(batch, words))


# Importance of words (Jain and Wallace 2019 §4.1) --------------------------------------------------------------------


def rank_correlations(model: Classifier, texts: Sequence[Batch]) -> dict[str, float]:
    """Return Kendall's τ-b of attention and the importance of words: the mean and the deviation over texts."""
    taus: dict[str, list[Tensor]] = {}
    for batch in texts:
        trace, attended = trace_and_mask(model, batch)
        attention = trace.attention[:, 0, 0].double()
        for name, scores in importance(model, batch, trace).items():
            taus.setdefault(name, []).append(kendall(attention, scores.double(), attended))
    by_score = {name: torch.cat(values) for name, values in taus.items()}
    by_score = {name: values[~values.isnan()] for name, values in by_score.items()}  # a text of one word has no order
    return {name: values.mean().item() for name, values in by_score.items()} | {
        f"{name}_sd": values.std().item() for name, values in by_score.items()
    }


def importance(model: Classifier, batch: Batch, trace: Trace) -> dict[str, Float[Tensor, "batch source"]]:
    """Return the importance of words: |gradient × embedding| with attention held, variants of it, and leave-one-out.

    Gradients are of the log-odds, which rank words as the probability does, but do not saturate.
    """
    fixed_attention = influence(model, batch, log_odds, attention=lambda weights, mask: weights.detach()).values[:, 0]
    through = influence(model, batch, log_odds).values[:, 0]
    without = leave_one_out(model, batch, lambda trace: class_probabilities(trace.logits)[:, 1:]).values[:, 0]
    return {
        "gradient": fixed_attention.abs(),
        "gradient_signed": fixed_attention * log_odds(trace).sign(),  # positive where the word supports the prediction
        "gradient_through": through.abs(),
        "leave_one_out": without.abs(),  # the total variation distance of two classes
    }


def log_odds(trace: Trace) -> Float[Tensor, "batch 1"]:
    """Return the log-odds of the second of two classes."""
    return trace.logits[..., len(SPECIALS) + 1] - trace.logits[..., len(SPECIALS)]


# Other attention -----------------------------------------------------------------------------------------------------


def adversarial_distances(model: Classifier, texts: Sequence[Batch]) -> dict[str, float]:
    """Return the distance of the farthest attention that keeps the output within ε: exactly, and by search."""
    exact = exact_adversaries(model, texts, SEARCH.epsilon).summary()
    searched = search_adversaries(model, texts, SEARCH).summary()
    return {
        "farthest": exact["jsd"],
        "farthest_feasible": exact["feasible"],
        "searched": searched["jsd"],
        "searched_feasible": searched["feasible"],
    }


def output_changes(robustness: Fragility) -> dict[str, object]:
    """Return how far permuted and uniform attention move the output; of permutations, the median per text."""
    changes = robustness.median_changes
    return {
        "permuted": float(changes.mean()),
        "uniform": float(total_variation(robustness.uniform.probabilities, robustness.own).mean()),
        "by_highest": changes_by_weight(robustness.highest, changes),
    }


def changes_by_weight(
    highest: Float[np.ndarray, " texts"], changes: Float[np.ndarray, " texts"]
) -> dict[str, list[float]]:
    """Return the mean change (NaN if there is none) and the number of texts per range of the maximum weight."""
    place = np.digitize(highest, EDGES[1:-1])
    groups = [changes[place == number] for number in range(len(EDGES) - 1)]
    means = [float(group.mean()) if len(group) else float("nan") for group in groups]
    return {"change": means, "texts": [len(group) for group in groups]}


def erasure_scores(model: Classifier, texts: Sequence[Batch]) -> dict[str, float]:
    """Return comprehensiveness and sufficiency beyond chance (DeYoung et al. 2020), and how often erasing by attention
    flips the decision earlier than a random order does (Serrano and Smith 2019)."""
    comprehensiveness = ComprehensivenessAccumulator()
    by_text, by_attention = FlipAccumulator("text"), FlipAccumulator("attention")
    for batch in texts:
        for accumulator in (comprehensiveness, by_text, by_attention):
            accumulator.update(model, batch)
    scores = comprehensiveness.result().table().astype(float)
    own, chance = (dict(scores.loc[order]) for order in ("attention", "random"))
    return {
        "comprehensiveness": own["comprehensiveness"],
        "comprehensiveness_gain": own["comprehensiveness"] - chance["comprehensiveness"],
        "sufficiency": own["sufficiency"],
        "sufficiency_gain": chance["sufficiency"] - own["sufficiency"],
        "earlier_text": float(by_text.result().table()["earlier"]["attention"]),
        "earlier_attention": float(by_attention.result().table()["earlier"]["attention"]),
    }
