"""Would the same model, trained from another seed, attend alike?"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.auditing.record import Interval, Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.auditing.translator.passes import Pass, Scores, limits
from attnscope.errors import require
from attnscope.probes.adversary import jsd
from attnscope.probes.agreement import kendall
from attnscope.probes.fragility import shuffle
from attnscope.probes.reweighing import lots_by_step

SEED, SHUFFLED = "another seed", "its own, shuffled"


@torch.no_grad()
def between(subject: Subject, other: Subject, sample: Sample) -> Part:
    """The attention shown by two models, beside one model's own weights in another order."""
    taus: dict[str, list[np.ndarray]] = {SEED: [], SHUFFLED: []}
    apart: dict[str, list[np.ndarray]] = {SEED: [], SHUFFLED: []}
    for texts, same in zip(sample(), other.texts(sample.size, sample.most), strict=False):
        one, two = Pass.of(subject, texts), Pass.of(other, same)
        check_alike(one, two)
        for name, attention in {SEED: two.shown.to(one.shown), SHUFFLED: shuffled(one, sample.seed)}.items():
            taus[name].append(one.by_sentence(kendall(one.shown, attention, one.between_words)))
            apart[name].append(one.by_sentence(distance(one, attention)))
    tau, far = ({name: Interval.of(np.concatenate(each)) for name, each in found.items()} for found in (taus, apart))
    sentence = (
        f"The same model from another seed ranks source words with τ = {tau[SEED].value:.2f} to this one's attention, "
        f"and is {far[SEED].value:.0%} as far away (JSD) as attention can be; its own weights in another order get "
        f"{tau[SHUFFLED].value:.2f} and {far[SHUFFLED].value:.0%}."
    )
    table = [
        {"attention": name, "τ": tau[name].value, **limits(tau[name]), "JSD, share of the largest": far[name].value}
        for name in tau
    ]
    return {"sentences": [sentence], "table": table, "tests": []}


def distance(one: Pass, attention: Scores) -> Float[Tensor, "batch target"]:
    """JSD from the attention shown, as a share of the largest."""
    return jsd(one.shown.double(), attention.double()) / math.log(2)


def shuffled(one: Pass, seed: int) -> Scores:
    lots = lots_by_step(one.trace, range(1), seed)[:, :, 0]  # 1 x batch x target x source
    return shuffle(one.shown, one.attended, lots)[0]


def check_alike(one: Pass, two: Pass) -> None:
    """Both must have read the same positions."""
    alike = one.batch.source.shape == two.batch.source.shape and one.batch.target.shape == two.batch.target.shape
    alike = alike and bool((one.batch.source.cpu() == two.batch.source.cpu()).all())
    require(alike, "the two models cut the same texts into different pieces, so their attention cannot be compared")
