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
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits
from torch import Tensor

from attnscope.errors import require
from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier, Trace
from attnscope.models.logistic import logistic_regression
from attnscope.probes.adversary import SearchSettings, exact_adversaries, search_adversaries
from attnscope.probes.agreement import kendall
from attnscope.probes.counterfactual import class_probabilities, trace_and_mask
from attnscope.probes.erasure import ComprehensivenessAccumulator, FlipAccumulator
from attnscope.probes.fragility import Fragility, fragility
from attnscope.probes.information import information
from attnscope.probes.removal import keep_tokens
from attnscope.probes.saliency import influence, leave_one_out
from attnscope.studies.finding import Case, Measurement, TrainedCase, case_unless_missing
from attnscope.studies.tutek2020.decided import grounded, moved
from attnscope.studies.tutek2020.experiments import Sizes
from attnscope.tasks import SPECIALS, Batch, Classification
from attnscope.tasks.task import trimmed
from attnscope.tasks.text import UNKNOWN
from attnscope.training.decisions import decide

SAMPLE_SEED = 0  # the seed of the texts that are tested: the same for all seeds of training
TOGETHER = {"cpu": 128, "cuda": 1024}  # texts in a batch: to a GPU one more costs nothing, to a CPU padding does
SEARCH = SearchSettings()  # five starts of 500 steps, ε = 0.01, as in the code of Jain and Wallace
EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of a text's highest weight: Jain and Wallace 2019, figure 6


@dataclass(frozen=True)
class Asked:
    """How much is tested."""

    texts: int
    draws: int  # of permuted attention
    telling: float  # share of the running words
    words: int  # of mutual information, as the two below
    clusters: int
    vectors: int


def case(sizes: Sizes, make: Callable[[], Experiment]) -> Case:
    """A model to be tested; where its corpus is missing, that is reported."""
    asked = Asked(sizes.texts, sizes.draws, sizes.telling, sizes.words, sizes.clusters, sizes.vectors)
    return case_unless_missing(lambda: Case({"model": make()}, asked))


def measure(subject: TrainedCase) -> Measurement:
    run, asked = subject.runs["model"], subject.settings
    model, task = run.model(), run.task
    assert isinstance(model, Classifier)
    assert isinstance(task, Classification)
    texts = sample(task, asked.texts, subject.device)
    return {
        **hidden(model, task, telling_words(task.resolved(), asked.telling)),
        **correlated(model, texts),
        **attacked(model, texts),
        **perturbed(fragility(model, texts, asked.draws)),
        **erased(model, texts),
        **retained(model, subject),
    }


def sample(task: Classification, count: int, device: str) -> list[Batch]:
    """Some texts of the test split, in batches of similar lengths."""
    drawn = task.draw("test", count, SAMPLE_SEED)
    order = drawn.source_mask.sum(1).argsort(stable=True)
    ordered = replace(drawn, **{name: value[order] for name, value in drawn.tensors().items()})
    size = TOGETHER[device]
    return [trimmed(ordered, slice(start, start + size)).to(device) for start in range(0, len(ordered), size)]


def whole_test(model: Classifier, task: Classification) -> list[Batch]:
    return [batch.to(model.output.weight.device) for batch in task.batches("test")]


# Words that tell the class -------------------------------------------------------------------------------------------


def hidden(model: Classifier, task: Classification, words: Sequence[int]) -> dict[str, float]:
    """F1 with and without the telling words, in percent; of texts that have one, how much attention is on them."""
    batches = whole_test(model, task)
    masses, shares = [], []
    for batch in batches:
        trace, attended = trace_and_mask(model, batch)
        told = telling(batch, words) & attended
        has = told.any(1)
        masses.append((trace.attention[:, 0, 0] * told).sum(1)[has])
        shares.append((told.sum(1) / attended.sum(1))[has])
    f1, without = (100 * decide(model, texts).f1 for texts in (batches, [blunted(batch, words) for batch in batches]))
    return {
        "f1": f1,
        "f1_lost": f1 - without,
        "mass": torch.cat(masses).double().mean().item(),
        "mass_uniform": torch.cat(shares).double().mean().item(),
        "having": len(torch.cat(masses)) / sum(map(len, batches)),
    }


def telling(batch: Batch, words: Sequence[int]) -> Tensor:
    return torch.isin(batch.source, torch.tensor(words, device=batch.source.device)) & batch.source_mask


def blunted(batch: Batch, words: Sequence[int]) -> Batch:
    """The same texts without their telling words; of a text that has no others, start and end are left."""
    rows = torch.arange(len(batch), device=batch.source.device)
    return keep_tokens(batch, rows, batch.source_mask & ~telling(batch, words))


# Importance of words (Jain and Wallace 2019 §4.1) --------------------------------------------------------------------


def correlated(model: Classifier, texts: Sequence[Batch]) -> dict[str, float]:
    """Kendall's τ-b of attention and the importance of words: the mean over texts, and the deviation."""
    found: dict[str, list[Tensor]] = {}
    for batch in texts:
        trace, attended = trace_and_mask(model, batch)
        attention = trace.attention[:, 0, 0].double()
        for name, scores in importance(model, batch, trace).items():
            found.setdefault(name, []).append(kendall(attention, scores.double(), attended))
    taus = {name: torch.cat(values) for name, values in found.items()}
    known = {name: values[~values.isnan()] for name, values in taus.items()}  # a text of one word has no order
    return {name: values.mean().item() for name, values in known.items()} | {
        f"{name}_sd": values.std().item() for name, values in known.items()
    }


def importance(model: Classifier, batch: Batch, trace: Trace) -> dict[str, Float[Tensor, "batch source"]]:
    """By gradient times embedding, as they have it: its size, while attention is held; and by leaving the word out.

    The log-odds rank the words as the probability does, but do not saturate.
    """
    held = influence(model, batch, log_odds, attention=detached).values[:, 0]
    through = influence(model, batch, log_odds).values[:, 0]
    without = leave_one_out(model, batch, probability).values[:, 0]
    return {
        "gradient": held.abs(),
        "gradient_signed": held * log_odds(trace).sign(),  # positive where the word speaks for the decision
        "gradient_through": through.abs(),
        "leave_one_out": without.abs(),  # of two classes, the total variation distance
    }


def detached(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.detach()


def log_odds(trace: Trace) -> Float[Tensor, "batch 1"]:
    """Of the second of two classes."""
    return trace.logits[..., len(SPECIALS) + 1] - trace.logits[..., len(SPECIALS)]


def probability(trace: Trace) -> Float[Tensor, "batch 1"]:
    return class_probabilities(trace.logits)[:, 1:]


# Other attention -----------------------------------------------------------------------------------------------------


def attacked(model: Classifier, texts: Sequence[Batch]) -> dict[str, float]:
    """How far from its own is the farthest attention that keeps the output within ε, and the one that is searched?"""
    exact, met = (
        exact_adversaries(model, texts, SEARCH.epsilon).summary(),
        search_adversaries(model, texts, SEARCH).summary(),
    )
    return {
        "farthest": exact["jsd"],
        "farthest_feasible": exact["feasible"],
        "searched": met["jsd"],
        "searched_feasible": met["feasible"],
    }


def perturbed(found: Fragility) -> dict[str, object]:
    """How far does shuffled or uniform attention move the output? Of shuffles, the median for each text."""
    changes = found.median_changes
    return {
        "permuted": float(changes.mean()),
        "uniform": float(moved(found.uniform.probabilities, found.own).mean()),
        "by_highest": by_range(found.highest, changes),
    }


def by_range(highest: Float[np.ndarray, " texts"], changes: Float[np.ndarray, " texts"]) -> dict[str, list[float]]:
    """The mean change, and how many texts there are, for each range of the highest weight; NaN where there is none."""
    place = np.digitize(highest, EDGES[1:-1])
    groups = [changes[place == number] for number in range(len(EDGES) - 1)]
    means = [float(group.mean()) if len(group) else float("nan") for group in groups]
    return {"change": means, "texts": [len(group) for group in groups]}


# Fewer words (Serrano and Smith 2019; DeYoung et al. 2020) -----------------------------------------------------------


def erased(model: Classifier, texts: Sequence[Batch]) -> dict[str, float]:
    """What is lost without the words of most attention, beyond what is lost at random; how often they decide first."""
    comprehend, by_text, by_attention = (
        ComprehensivenessAccumulator(),
        FlipAccumulator("text"),
        FlipAccumulator("attention"),
    )
    for batch in texts:
        comprehend.update(model, batch)
        by_text.update(model, batch)
        by_attention.update(model, batch)
    lost = {score: numbers.astype(float).to_dict() for score, numbers in comprehend.result().table().iterrows()}
    own, chance = lost["attention"], lost["random"]
    return {
        "comprehensiveness": own["comprehensiveness"],
        "comprehensiveness_gain": own["comprehensiveness"] - chance["comprehensiveness"],
        "sufficiency": own["sufficiency"],
        "sufficiency_gain": chance["sufficiency"] - own["sufficiency"],
        "earlier_text": float(by_text.result().table()["earlier"]["attention"]),
        "earlier_attention": float(by_attention.result().table()["earlier"]["attention"]),
    }


# What is left of a word in its state (tutek2020 tables 2 and 3) ------------------------------------------------------


def retained(model: Classifier, subject: TrainedCase) -> dict[str, float]:
    """Mutual information of frequent words and states, in nats; the probability of the decision by each word alone."""
    task, asked = subject.runs["model"].task, subject.settings
    assert isinstance(task, Classification)
    found = information(
        model, partial(task.batches, "training"), "frequent", asked.words, asked.vectors, asked.clusters,
        seed=subject.seed, without=(UNKNOWN,),
    )  # fmt: skip
    return {"information": found.embedding.nats, "per_token": grounded(model, whole_test(model, task)).probability}


@lru_cache(maxsize=16)
def telling_words(task: Classification, share: float) -> tuple[int, ...]:
    """The numbers of the words with the largest weights in a bag-of-words regression on the training split.

    As many as make up this share of its running words: so a text is left with others to attend to.
    """
    words, classes = len(task.source_vocabulary), len(task.classes)
    with threadpool_limits(1):  # vectors are too short to share among cores
        found = logistic_regression(counted(task, "training"), counted(task, "validation"), words, classes)
    running = np.bincount(np.concatenate(task.part("training").source), minlength=words)
    running[: UNKNOWN + 1] = 0  # special tokens and the unknown one are no words
    return heaviest(np.ptp(found.word_weights.double().numpy(), axis=1), running, share)


def counted(task: Classification, split: str) -> Iterator[Batch]:
    """Batches whose targets are classes counted from zero, without the special words before them."""
    for batch in task.batches(split, size=512):
        yield replace(batch, target=batch.target - len(SPECIALS))


def heaviest(weights: Float[np.ndarray, " words"], running: Int[np.ndarray, " words"], share: float) -> tuple[int, ...]:
    """Words in the order of their weights, until the next one would make them more than this share; at least one.

    >>> heaviest(np.array([0.1, 3.0, 2.0, 1.0]), np.array([5, 1, 2, 2]), share=0.4)
    (1, 2)
    """
    require(0 < share < 1, f"words to hide are a share of all between 0 and 1, not {share}")
    order = np.argsort(-weights, kind="stable")
    order = order[running[order] > 0]
    within = np.cumsum(running[order]) <= share * running.sum()
    return tuple(sorted(order[: max(1, int(within.sum()))].tolist()))
