"""Does attention find the words that translate each other? Alignment error against gold links, where there are any."""

import torch

from attnscope.auditing.record import Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.auditing.translator.passes import passes
from attnscope.probes.alignment import Align
from attnscope.probes.heads.each import Heads
from attnscope.probes.heads.links import AlignHeads, Special, gold_reference, model_1_reference
from attnscope.probes.heads.stream import Sentences, weights_of


def plausibility(subject: Subject, sample: Sample) -> Part | None:
    """Of the attention shown, of the best head of any layer, and of IBM Model 1 fitted to the same sentences."""
    if subject.links is None:
        return None
    shown, heads = AlignHeads(gold_reference(subject.links)), AlignHeads(gold_reference(subject.links))
    seen: list[Sentences] = []
    for one in passes(subject, sample):
        sentences, special = Sentences(one.batch, one.texts.source, one.texts.target), Special.of(one.model, one.batch)
        heads.update(weights_of(one.trace), sentences, special)
        shown.update(one.shown[None, :, None], sentences, special)
        seen.append(sentences)
    error, single = float(shown.result()[0, 0]), heads.result()
    layer, head, least = best(single)
    counted = by_counts(subject, seen)
    several = (
        f"; the best of {single.numel()} heads, layer {layer}, head {head}, has {least:.2f}" * (single.numel() > 1)
    )  # fmt: skip
    sentence = (
        f"Words linked by the highest attention: an alignment error rate of {error:.2f} against gold links{several}, "
        f"and IBM Model 1, fitted to these {sum(map(len, seen)):,} sentences, {counted:.2f}. This says what people "
        "expect to see, not what the model does."
    )
    rows = {"attention shown": error, f"best head (layer {layer}, head {head})": least, "IBM Model 1": counted}
    table = [{"links by": name, "alignment error rate": value} for name, value in rows.items()]
    return {"sentences": [sentence], "table": table, "tests": []}


def best(errors: Heads) -> tuple[int, int, float]:
    """Layer, head and error rate of the head with the lowest."""
    place = int(errors.nan_to_num(nan=torch.inf).argmin())
    return place // errors.shape[1], place % errors.shape[1], float(errors.flatten()[place])


def by_counts(subject: Subject, seen: list[Sentences]) -> float:
    """The error rate of IBM Model 1."""
    assert subject.links is not None
    reference, gold, count = model_1_reference(subject.model, seen), gold_reference(subject.links), Align()
    for sentences in seen:
        for found, expected in zip(reference(sentences), gold(sentences), strict=True):
            count.update(found.sure, expected)
    return count.result().error_rate
