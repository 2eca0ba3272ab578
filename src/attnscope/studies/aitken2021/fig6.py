"""How are 'twice', 'left' and 'and' handled? (aitken2021 §4.2, figure 6)

AED remembers: its state at 'twice' is that of the verb before. AO cannot: there 'twice' shrinks away from the decoder's
time, so that attention falls back on the word before it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.probes.decomposition import Parts, terms
from attnscope.probes.decomposition.pictures import input_plane
from attnscope.studies.aitken2021.experiments import AED, AO, Sizes, escan
from attnscope.studies.aitken2021.look import Look, look
from attnscope.studies.claims import Verdict, always, at_least, at_most
from attnscope.studies.finding import Finding, Measured, Measurement
from attnscope.tasks.escan import VERBS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAME_LENGTH = "AO, T = S"
OFFSETS = range(-5, 6)
WORDS = ("run", "left", "and", "twice")


QUANTITIES = {
    "word_accuracy": "word accuracy",
    "split_by_verb": "variance of 'twice' between preceding verbs (η²)",
    "distance_to_own_verb": "distance of 'twice' to its verb / of two verbs",
    "falls_on_word_before": "attention at t = s − 1 where 'twice' is at t = s",
    "twice_at_s": "μ(s)·(χ + Δ) of 'twice' at t = s",
    "left_at_s": "μ(s)·(χ + Δ) of 'left' at t = s",
    "and_at_s": "μ(s)·(χ + Δ) of 'and' at t = s",
    "run_at_s": "μ(s)·(χ + Δ) of 'run' at t = s",
    "left_gain_temporal": "gain of 'left' per step ahead, μ(s)",
    "left_gain_full": "gain of 'left' per step ahead, full state",
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {"AED": escan(AED, sizes), "AO": escan(AO, sizes), SAME_LENGTH: escan(AO, sizes, same_length=True)}


def measure(run: Run) -> Measurement:
    seen = look(run)
    after = states_of_twice(seen)
    by_offset = {part: leaning(seen, part) for part in ("temporal", "full")}
    lookback = falls_back(seen)
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "split_by_verb": explained_by_group(after),
        "nearest_is_own_verb": nearest_is_own_verb(seen, after),
        "distance_to_own_verb": distance_to_own_verb(seen, after),
        **{f"{word}_at_s": by_offset["temporal"][word][-OFFSETS[0]] for word in by_offset["temporal"]},
        **{f"{word}_gain_{part}": gain(curves[word]) for part, curves in by_offset.items() for word in curves},
        **{f"{word}_largest_{part}": max(curves[word]) for part, curves in by_offset.items() for word in curves},
        "falls_on_word_before": lookback["share"],
        "picture": {"leaning": by_offset, "lookback": lookback, "twice": picture_of_twice(seen, after)},
    }


def sentences(seen: Look) -> Iterator[tuple[Tensor, Tensor, Tensor, Parts, Parts]]:
    """Source words, masks, and the parts of queries and keys, batch by batch."""
    for batch in seen.run.task.batches("test", 250):
        trace = seen.trace(batch)
        queries, keys = seen.parts(trace)
        yield trace.source, trace.source_mask, trace.target_mask, queries, keys


def number(seen: Look, word: str) -> int:
    return seen.source_words.index(word)


# (a) Does 'twice' know the verb before it? -------------------------------------------------------------------------


def states_of_twice(seen: Look) -> dict[str, np.ndarray]:
    """χ + Δ of every 'twice', by the verb that it follows."""
    found: dict[str, list[np.ndarray]] = {verb: [] for verb in VERBS}
    for source, _, _, _, keys in sentences(seen):
        here = source[:, 1:] == number(seen, "twice")
        for verb in VERBS:
            after = here & (source[:, :-1] == number(seen, verb))
            found[verb].append(keys.input_delta[:, 0, 1:][after].cpu().numpy())
    return {verb: np.concatenate(states) for verb, states in found.items()}


def explained_by_group(groups: dict[str, np.ndarray]) -> float:
    """The share of the variance that lies between the groups (η²)."""
    everything = np.concatenate(list(groups.values()))
    total = ((everything - everything.mean(0)) ** 2).sum()
    between = sum(len(g) * ((g.mean(0) - everything.mean(0)) ** 2).sum() for g in groups.values())
    return float(between / total) if total > 0 else 0.0


def nearest_is_own_verb(seen: Look, after: dict[str, np.ndarray]) -> bool:
    """Is the mean 'twice' after each verb nearest, of all input components, to that verb's?"""
    words = seen.word_components()
    return all(
        min((w for w in words if w != "twice"), key=lambda w: np.linalg.norm(words[w] - states.mean(0))) == verb
        for verb, states in after.items()
    )


def distance_to_own_verb(seen: Look, after: dict[str, np.ndarray]) -> float:
    """How far 'twice' after a verb is from that verb, over how far two verbs are apart."""
    words = seen.word_components()
    own = np.mean([np.linalg.norm(states.mean(0) - words[verb]) for verb, states in after.items()])
    apart = np.mean([np.linalg.norm(words[a] - words[b]) for a in VERBS for b in VERBS if a != b])
    return float(own / apart)


def picture_of_twice(seen: Look, after: dict[str, np.ndarray]) -> Any:
    plane = input_plane(seen.encoder)
    points = {f"{verb} twice": plane.project(torch.from_numpy(states[:80])) for verb, states in after.items()}
    words = {
        word: plane.project(torch.from_numpy(chi)) for word, chi in seen.word_components().items() if word != "twice"
    }
    return {
        "points": np.concatenate(list(points.values())),
        "labels": [label for label, group in points.items() for _ in group],
        "centres": words | {label: group.mean(0) for label, group in points.items()},
    }


# (b) With 'twice' at t = s, does attention fall on the word before? ------------------------------------------------


def falls_back(seen: Look) -> Any:
    """Where 'twice' is read at t = s: the alignment and its parts by offset, and how often t = s − 1 is the largest."""
    total = {name: np.zeros(len(OFFSETS)) for name in ("alignment", "μ·μ", "μ·(χ + Δ)", "rest")}
    steps = hits = 0
    for source, source_mask, target_mask, queries, keys in sentences(seen):
        nine = terms(queries, keys)[:, :, :, 0]  # 3 x 3 x batch x target x source
        whole = nine.sum((0, 1))
        largest = whole.masked_fill(~source_mask[:, None], -torch.inf).argmax(-1)
        for sentence, step in (source == number(seen, "twice")).nonzero().tolist():
            reach = range(step + OFFSETS[0], step + OFFSETS[-1] + 1)
            if reach[0] < 0 or reach[-1] >= int(source_mask[sentence].sum()) or not target_mask[sentence, step]:
                continue
            window = nine[:, :, sentence, step, reach[0] : reach[-1] + 1].cpu().numpy()
            total["alignment"] += window.sum((0, 1))
            total["μ·μ"] += window[0, 0]
            total["μ·(χ + Δ)"] += window[0, 1] + window[0, 2]
            total["rest"] += window[1:].sum((0, 1))
            steps, hits = steps + 1, hits + int(largest[sentence, step] == step - 1)
    return {"curves": {name: values / max(steps, 1) for name, values in total.items()}, "share": hits / max(steps, 1)}


# (c, d) Which words lean towards the decoder's time, and which away from it? ---------------------------------------


def leaning(seen: Look, part: str) -> dict[str, list[float]]:
    """For each word and offset, the mean dot product of χ + Δ with the decoder's temporal part, or its full state."""
    names = [word for word in WORDS if seen.encoder.counts[number(seen, word)].any()]
    sums = {word: np.zeros((len(OFFSETS), 2)) for word in names}
    for source, _, target_mask, queries, keys in sentences(seen):
        nine = terms(queries, keys)[:, 1:, :, 0].sum(1)  # 3 x batch x target x source: decoder part · (χ + Δ)
        dots = nine[0] if part == "temporal" else nine.sum(0)
        for place, offset in enumerate(OFFSETS):
            values, words = shifted(dots, source, target_mask, offset)
            for word in names:
                chosen = values[words == number(seen, word)]
                sums[word][place] += [chosen.sum().item(), len(chosen)]
    return {word: (total[:, 0] / np.maximum(total[:, 1], 1)).tolist() for word, total in sums.items()}


def shifted(dots: Tensor, source: Tensor, target_mask: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """All pairs with t = s + offset: their dot products, and the words at t."""
    steps, positions = dots.shape[1:]
    own = torch.arange(max(0, -offset), min(steps, positions - offset), device=dots.device)
    real = target_mask[:, own]
    return dots[:, own, own + offset][real], source[:, own + offset][real]


def gain(curve: list[float]) -> float:
    """The slope over offsets: how much a step ahead adds."""
    return float(np.polyfit(list(OFFSETS), curve, 1)[0])


def claims(measured: Measured) -> list[Verdict]:
    value = measured.values
    verdicts = [
        at_least("AED: 'twice' splits by the preceding verb (η² at least 0.5)", value("AED", "split_by_verb"), 0.5),
        always(
            "AED: 'twice' after a verb lies closest to that verb of all words",
            measured.flags("AED", "nearest_is_own_verb"),
        ),
        at_most(
            "AED: and close to it, at most half as far as two verbs are apart",
            value("AED", "distance_to_own_verb"),
            0.5,
        ),
        at_most("AO: 'twice' does not split by verb (η² at most 0.05)", value("AO", "split_by_verb"), 0.05),
        at_most("AO: 'twice' at t = s leans away from the decoder's time", value("AO", "twice_at_s"), 0.0),
        at_most(
            "AO, T = S: 'twice' at t = s leans away from the decoder's time", value(SAME_LENGTH, "twice_at_s"), 0.0
        ),
        at_least(
            "AO, T = S: where 'twice' is read at t = s, attention falls on t = s − 1 (at least 80 % of the cases)",
            value(SAME_LENGTH, "falls_on_word_before"),
            0.8,
        ),
        at_most("AO: 'left' is negative at t = s", value("AO", "left_at_s"), 0.0),
        at_most("AO: 'and' is negative at t = s", value("AO", "and_at_s"), 0.0),
    ]
    for part, text in (("temporal", "temporal part"), ("full", "full state")):
        gains = value("AO", f"left_gain_{part}")
        verdicts.append(at_least(f"AO: 'left' gains with offset (decoder's {text})", gains, 0.0))
        verdicts += [
            at_most(
                f"AO: '{word}' is negative at all offsets from −5 to 5 (decoder's {text})",
                value("AO", f"{word}_largest_{part}"),
                0.0,
            )
            for word in ("and", "twice")
        ]
    return verdicts


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(3, 2, size=(4.8, 3.7))
    for model, ax in (("AED", axes[0]), ("AO", axes[1])):
        content = data[model]["twice"]
        plots.clouds(np.array(content["points"]), content["labels"], content["centres"], {}, ax=ax)
        ax.set_title(f"{model}: 'twice' by the verb before it")
    for label, ax in (("AO", axes[2]), (SAME_LENGTH, axes[3])):
        curves = {name: np.array(values) for name, values in data[label]["lookback"]["curves"].items()}
        plots.profiles(np.array(OFFSETS), curves, ax=ax, xlabel="offset t − s", ylabel="alignment")
        ax.set_title(f"{label}: alignment with 'twice' at t = s")
    for part, ax in (("temporal", axes[4]), ("full", axes[5])):
        curves = {word: np.array(values) for word, values in data["AO"]["leaning"][part].items()}
        named = "μ(s)" if part == "temporal" else "h(s)"
        plots.profiles(np.array(OFFSETS), curves, ax=ax, xlabel="offset t − s", ylabel=f"{named} · (χ + Δ)")
        ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
        ax.set_title(f"AO: who leans towards {named}")
    return picture


FIG6 = Finding(
    name="fig6",
    title="How 'twice', 'left' and 'and' are handled",
    section="§4.2, figure 6",
    experiments=experiments, measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims,
    draw=draw,
    notes=(
        "A sentence is as long as its translation (T = S) only if it has no 'and', which nine tenths of the commands "
        "have. A network trained on all of eSCAN hardly ever saw such a sentence, so one trained on these alone stands "
        "beside it.",
        "What this does not show: dot products are averages over sentences; the curves are of the first seed.",
    ),
)  # fmt: skip
