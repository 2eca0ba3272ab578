"""Are saliency and erasure equal to those of captum 0.9 and ferret-xai 0.4.1, and how fast are they beside them?

    python -m benchmarks.peers            equality on a tiny and a real-sized model, then speed on the real-sized one
    python -m benchmarks.peers equality   equality alone (about six processor minutes)
    python -m benchmarks.peers speed      speed alone (about three)

A DistilBERT with random weights reads made-up texts through a tokenizer that is built here. Equality is that of the
largest absolute difference over all tokens or texts, in double precision, so that the order of sums does not decide
ties. Speed is measured in single precision, in processor seconds on one thread, in turns. captum is given the texts as
one padded batch, and, in a second row, one text after the other without any padding; its `perturbations_per_eval` and
`internal_batch_size` are the best of those in TRIED. ferret takes one text at a time.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from attnscope.models import adapters
from attnscope.models.inference import with_predicted_target
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.erasure import PRESETS, leave_one_out_tau, probability_drops
from attnscope.probes.saliency import (
    Saliency,
    gradient_norm,
    gradient_times_input,
    integrated_gradients,
    leave_one_out,
)
from attnscope.probes.scores import attention_scores
from attnscope.tasks.batch import SPECIALS, Batch

SIZES = {
    "tiny": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    "real-sized": {},  # 6 layers of 768, as DistilBERT was published
}
LENGTHS = (3, 5, 8, 10, 13, 16, 18, 20)  # words of the texts
STEPS = 32  # of integrated gradients
TRIED = (1, 4)  # perturbations per evaluation of 8 texts; as many times 8 texts are the internal batch size
ROUNDS = 1
TOLERANCE = 1e-5
GOALS = {"leave-one-out": 2.0, "integrated gradients": 2.0, "gradient × input": 1.0, "ferret": 3.0}


def tokenizer() -> Any:
    """A WordPiece tokenizer of made-up syllables."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    syllables = [a + b for a in "bdfglmnprst" for b in ("a", "e", "i", "o", "u", "an", "el")]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *syllables, *(f"##{piece}" for piece in syllables)]
    built = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    built.normalizer, built.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece(cleanup=False)
    built.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=built, model_max_length=512, **names)


def texts() -> list[str]:
    """Texts of mixed length, most words of one piece, some of two."""
    chance, pieces = random.Random(0), [a + b for a in "bdfglmnprst" for b in "aeiou"]
    return [" ".join("".join(chance.choices(pieces, k=chance.choice((1, 1, 2)))) for _ in range(n)) for n in LENGTHS]


def classifier(size: dict[str, int]) -> adapters.HFClassifier:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    reads = tokenizer()
    torch.manual_seed(0)
    model = DistilBertForSequenceClassification(DistilBertConfig(vocab_size=len(reads), num_labels=3, **size))
    with torch.no_grad():  # weights large enough for words to matter
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 2 / parameter.shape[1] ** 0.5)
    adapted = adapters.adapt(model.eval(), reads)
    assert isinstance(adapted, adapters.HFClassifier)
    return adapted


# captum


class Captum:
    """captum's attributions of the log-probability of the label, with respect to word embeddings."""

    def __init__(self, model: adapters.HFClassifier, batch: Batch):
        self.model, self.batch = model.model, batch
        self.embedded = model.source_inputs(batch.source).detach()
        self.given = (batch.source_mask.long(), batch.target[:, 0] - len(SPECIALS))

    def output(self, embedded: Tensor, mask: Tensor, label: Tensor) -> Tensor:
        logits = self.model(inputs_embeds=embedded, attention_mask=mask).logits
        return logits.log_softmax(-1).gather(-1, label[:, None])[:, 0]

    def gradient(self) -> Tensor:
        from captum.attr import Saliency

        found: Tensor = Saliency(self.output).attribute(self.embedded, abs=False, additional_forward_args=self.given)
        return found.norm(dim=-1)

    def gradient_times_input(self) -> Tensor:
        from captum.attr import InputXGradient

        found: Tensor = InputXGradient(self.output).attribute(self.embedded, additional_forward_args=self.given)
        return found.sum(-1).detach()

    def integrated_gradients(self, at_once: int = 4) -> Tensor:
        from captum.attr import IntegratedGradients

        found: Tensor = IntegratedGradients(self.output).attribute(
            self.embedded, additional_forward_args=self.given, n_steps=STEPS, method="gausslegendre",
            internal_batch_size=at_once * len(self.batch),
        )  # fmt: skip
        return found.sum(-1).detach()

    @torch.no_grad()
    def leave_one_out(self, at_once: int = 4) -> Tensor:
        from captum.attr import FeatureAblation

        features = torch.arange(self.embedded.shape[1])[None, :, None].expand(1, -1, self.embedded.shape[2])
        found: Tensor = FeatureAblation(self.output).attribute(
            self.embedded, additional_forward_args=self.given, feature_mask=features, perturbations_per_eval=at_once
        )
        return found[..., 0]


def captum_equality(model: adapters.HFClassifier, batch: Batch) -> dict[str, dict[str, float]]:
    """Return the largest difference of each score from captum's."""
    theirs, mask = Captum(model, batch), batch.source_mask
    pairs: dict[str, tuple[Saliency, Tensor]] = {
        "gradient norm": (gradient_norm(model, batch), theirs.gradient()),
        "gradient × input": (gradient_times_input(model, batch), theirs.gradient_times_input()),
        "integrated gradients": (integrated_gradients(model, batch, points=STEPS), theirs.integrated_gradients()),
        "leave-one-out": (leave_one_out(model, batch, how="zero"), theirs.leave_one_out()),
    }
    return {
        name: largest(ours.values[:, 0][mask], other[mask]) for name, (ours, other) in pairs.items()
    }  # fmt: skip


def largest(ours: Tensor, theirs: Tensor) -> dict[str, float]:
    """Return the largest difference, and the largest value, beside which it should be seen."""
    return {"difference": float((ours - theirs).abs().max()), "of up to": float(theirs.abs().max())}


# ferret


def ferret_measures(model: adapters.HFClassifier, batch: Batch, scores: Iterable[Tensor]) -> Tensor:
    """Return ferret's comprehensiveness, sufficiency and τ: scores x texts x 3."""
    from ferret.evaluators import faithfulness_measures as measures
    from ferret.explainers.explanation import Explanation
    from ferret.model_utils import ModelHelper

    helper = ModelHelper(model.model, model.reader.tokenizer)
    kinds = ("AOPC_Comprehensiveness_Evaluation", "AOPC_Sufficiency_Evaluation", "TauLOO_Evaluation")
    evaluators = [getattr(measures, kind)(model.model, model.reader.tokenizer) for kind in kinds]
    labels = (batch.target[:, 0] - len(SPECIALS)).tolist()
    found = []
    for score in scores:
        for text, values, mask, label in zip(texts(), score, batch.source_mask, labels, strict=True):
            explanation = Explanation(text, helper.get_tokens(text), values[mask].numpy(), "given", label)
            found.append([one.compute_evaluation(explanation, label).score for one in evaluators])
    return torch.tensor(found).view(-1, len(batch), len(evaluators))


def our_measures(model: adapters.HFClassifier, batch: Batch, scores: Iterable[Tensor]) -> Tensor:
    """Return the same by the preset `ferret`."""
    reading, given = CounterfactualAttention.of_classifier(model, batch), {str(i): s for i, s in enumerate(scores)}
    preset = PRESETS["ferret"]
    drops = [probability_drops(model, batch, s, preset.removal, preset, reading=reading) for s in given.values()]
    taus = leave_one_out_tau(model, batch, given, preset.removal, reading).values()
    rows = [
        torch.stack([drop.comprehensiveness[:, 0].nanmean(1), drop.sufficiency[:, 0].nanmean(1), tau], 1)
        for drop, tau in zip(drops, taus, strict=True)
    ]
    return torch.stack(rows)


def scores_of(model: adapters.HFClassifier, batch: Batch) -> list[Tensor]:
    """Attention, gradient × input and integrated gradients, the first one positive, the others of both signs."""
    with torch.no_grad():
        attention = attention_scores(model(batch)).values[:, 0]
    others = (gradient_times_input(model, batch), integrated_gradients(model, batch, points=4))
    return [attention.nan_to_num(), *(other.values[:, 0].nan_to_num() for other in others)]


def ferret_equality(model: adapters.HFClassifier, batch: Batch) -> dict[str, dict[str, float]]:
    """Return the largest difference of each measure from ferret's, over three scores."""
    scores = scores_of(model, batch)
    ours, theirs = our_measures(model, batch, scores), ferret_measures(model, batch, scores)
    names = ("comprehensiveness", "sufficiency", "τ")
    return {name: largest(ours[..., i], theirs[..., i]) for i, name in enumerate(names)}


# Speed


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def compare(ours: Callable[[], object], theirs: dict[str, Callable[[], object]], goal: float) -> dict[str, Any]:
    """Return the best time of each side, and the ratio to the peer at its best."""
    times = [[seconds(ours), *(seconds(call) for call in theirs.values())] for _ in range(ROUNDS)]
    mine, *others = (min(column) for column in zip(*times, strict=True))
    best = min(zip(others, theirs, strict=True))
    return {
        "ours, s": round(mine, 2), "peer, s": round(best[0], 2), "peer's best setting": best[1],
        "times faster": round(best[0] / mine, 2), "goal": goal, "goal met": best[0] / mine >= goal,
    }  # fmt: skip


def speed(model: adapters.HFClassifier, batch: Batch) -> dict[str, dict[str, Any]]:
    padded = Captum(model, batch)
    alone = [Captum(model, batch.rows(slice(i, i + 1))) for i in range(len(batch))]
    ours: dict[str, Callable[[], object]] = {
        "leave-one-out": lambda: leave_one_out(model, batch, how="zero"),
        "integrated gradients": lambda: integrated_gradients(model, batch, points=STEPS),
        "gradient × input": lambda: gradient_times_input(model, batch),
    }
    methods = {"leave-one-out": Captum.leave_one_out, "integrated gradients": Captum.integrated_gradients}
    found = {}
    for name, mine in ours.items():
        if name in methods:
            call = methods[name]
            in_batch = {str(n): lambda n=n, call=call: call(padded, n) for n in TRIED}
            one_by_one = {str(8 * n): lambda n=n, call=call: [call(one, 8 * n) for one in alone] for n in TRIED}
        else:
            in_batch = {"-": padded.gradient_times_input}
            one_by_one = {"-": lambda: [one.gradient_times_input() for one in alone]}
        for peer, calls in {"on a padded batch": in_batch, "text by text": one_by_one}.items():
            found[f"{name}, captum {peer}"] = compare(mine, calls, GOALS[name])
            print(name, peer, found[f"{name}, captum {peer}"], flush=True)
    scores = scores_of(model, batch)
    for count in (1, 3):
        some = scores[:count]
        found[f"ferret's measures of {count} score(s)"] = compare(
            lambda some=some: our_measures(model, batch, some),
            {"-": lambda some=some: ferret_measures(model, batch, some)},
            GOALS["ferret"],
        )
    return found


def main(what: str = "all") -> dict[str, Any]:
    missing = [name for name in ("captum", "ferret") if find_spec(name) is None]
    if missing:
        return {"left out": f"{' and '.join(missing)} not installed; benchmarks/README.md says how"}
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for name, size in SIZES.items() if what != "speed" else ():
        model = classifier(size).double()
        batch = with_predicted_target(model, model.reader.read(texts()).batch)
        differences = captum_equality(model, batch) | ferret_equality(model, batch)
        worst = max(one["difference"] for one in differences.values())
        result[f"{name} model"] = {**differences, "equal": worst <= TOLERANCE}
        print(json.dumps(result, indent=2, ensure_ascii=False), flush=True)
    if what != "equality":
        model = classifier(SIZES["real-sized"])
        batch = with_predicted_target(model, model.reader.read(texts()).batch)
        result["speed, real-sized"] = speed(model, batch)
    return result


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:]), indent=2, ensure_ascii=False))
