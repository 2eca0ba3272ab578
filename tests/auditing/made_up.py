"""Synthetic audits, as large, as odd and as incomplete as real ones."""

import math
from random import Random

ODD = "<script>alert(1)</script>"
TEXT = (
    f"[CLS] a gorgeous , witty , seductive movie , never quite as {ODD} as it wants to be , & yet … 映画 [SEP]".split()
)
SOURCE = ["zwei", "Männer", "stehen", "am", "Herd", "und", "kochen", "etwas", ".", "</s>"]
TARGET = ["two", "men", "are", "at", "the", "stove", "preparing", "<b>", "food", ".", "</s>"]


def record(name, answer, value, bounds, chance=None, best=None, wide=0.05):
    return {
        "name": name, "question": f"Is it so that {name}, and how far does it go?", "answer": answer,
        "sentence": f"Of the decisions that rest on it, the share is {value}; random attention would get {chance}.",
        "value": value, "low": None if value is None else value - wide, "high": None if value is None else value + wide,
        "bounds": bounds, "chance": chance, "best": best,
    }  # fmt: skip


TESTS = [
    record("decisions depend on it", "yes", 0.31, [0.05, 0.2], chance=0.0),
    record("no other attention would do", "partly", 0.3, [0.5, 0.1]),
    record("points at what decides", "no", 0.04, [0.1, 0.5], chance=0.0, best=1.0),
    record("ranks words as their removal does", "unclear", 0.3, [0.1, 0.5], chance=0.01, best=1.0, wide=0.4),
    record("words alone do not decide", "unclear", None, [0.5, 0.2]),
]


def heads(layers, per_layer, names, rng):
    places = [(layer, head) for layer in range(layers) for head in range(per_layer)]
    table = {"layer": [layer for layer, _ in places], "head": [head for _, head in places]}
    return table | {name: [round(rng.random() - 0.2, 4) for _ in places] for name in names}


def formed(layers, per_layer, rng):
    names = ["time", "word", "rest", "entropy", "offset", "spread", "on specials", "time, common words"]
    return {
        "title": "How attention is formed", "asks": "What makes each head look where it looks?", "texts": 500,
        "seconds": 11.2, "sentences": ["Most heads look at special tokens: 61 % of all weight lies there."],
        "heads": heads(layers, per_layer, names, rng),
    }  # fmt: skip


def ranked(layers, per_layer, rng, alignment=False):
    names = ["alignment error"] * alignment + [
        f"{what} if {how}" for how in ("ablated", "uniform") for what in ("loss", "±", "changed")
    ]
    rankings = ["alignment"] * alignment + ["ablation", "uniform", "saliency"]
    table = heads(layers, per_layer, [*names, "τ with saliency"], rng)
    for name in rankings:
        table[f"rank by {name}"] = [
            float(rank) for rank in rng.sample(range(1, layers * per_layer + 1), layers * per_layer)
        ]
    table["loss if ablated"][0] = None
    one = layers * per_layer == 1
    values = [[None if one else 1.0 if a == b else -0.23 for b in rankings] for a in rankings]
    return {
        "title": "Which heads to believe", "asks": "Do the ways to rank heads agree?", "texts": 100, "seconds": 64.0,
        "sentences": ["The rankings hardly agree: τ is 0.12 on average."], "heads": table,
        "between": {"names": rankings, "values": values},
    }  # fmt: skip


def scored(words, rng, alone=True):
    weights = [rng.expovariate(1) ** 2 for _ in words]
    weights[0] = sum(weights)
    scores = {
        "attention": [weight / sum(weights) for weight in weights],
        "leave one out": [rng.gauss(0, 0.1) for _ in words],
        "gradient": [rng.expovariate(3) for _ in words],
    }
    return scores | ({"each word alone": [None, *(rng.random() for _ in words[2:]), None]} if alone else {})


def text(words, why, said, rng):
    special = [word in ("[CLS]", "[SEP]") for word in words]
    return {
        "why": why,
        "source": words,
        "special": special,
        "gold": "positive",
        "said": said,
        "scores": scored(words, rng),
    }


def pair(source, target, why, rng):
    def matrix(draw):
        return [[draw(s, t) for s in range(len(source))] for t in range(len(target))]

    scores = {
        "attention": matrix(lambda s, t: math.exp(-abs(s - t)) + 0.1 * rng.random()),
        "leave one out": matrix(lambda s, t: rng.gauss(0, 0.05) + math.exp(-2 * abs(s - t))),
        "each word alone": matrix(lambda s, t: None if s == len(source) - 1 else rng.random() ** 4),
    }
    special = [word == "</s>" for word in source]
    return {
        "why": why,
        "source": source,
        "special": special,
        "target": target,
        "said": [*target[:-1], "x"],
        "scores": scores,
    }


def dependence(rng):
    names = ("its own", "uniform", "shuffled", "uniform in all layers")
    return {
        "title": "Do decisions depend on it?", "asks": "What happens if the weights are shuffled?", "tests": TESTS[:1],
        "table": [{"attention": name, "accuracy": rng.random(), "changed": rng.random() ** 6} for name in names],
    }  # fmt: skip


def erasure(rng):
    def row(name):
        measured = {f"comprehensiveness at {k} %": rng.random() for k in (1, 5, 10, 20, 50)}
        return {"score": name, **measured, "flips": 12, "never": None}

    return {"table": [row(name) for name in ("attention", "gradient", ODD)], "tests": TESTS[2:3]}


def evidence(rng):
    part = {"texts": 500, "seconds": 4.0, "sentences": ["A sentence about what was found, with its number, 0.31."]}
    taus = [{"scores": "attention with gradient", "τ": 0.31, "from": None, "to": 1e-7}]
    far = [abs(rng.gauss(0.4, 0.2)) % math.log(2) for _ in range(300)]
    return {
        "dependence": part | dependence(rng),
        "adversary": part | {"tests": TESTS[1:2], "histogram": far},
        "erasure": part | erasure(rng),
        "correlation": part | {"table": taus, "tests": TESTS[3:4]},
        "tokens": {"title": "Words alone", "failed": "the model does not tell what it would say of one word alone"},
        "between": part | {"tests": [record("another seed agrees", "partly", 0.3, [0.1, 0.5])]},
    }


def audit(kind, layers, per_layer, parts, answer="partly"):
    return {
        "version": 1,
        "made": {
            "attnscope": "0.1.0", "torch": "2.13", "transformers": "5.22" if layers > 1 else None, "seconds": 83.1,
            "date": "2026-11-15", "machine": "A processor, 2 cores",
            "settings": {"quick": True, "seed": 0, "batch size": 32},
        },
        "model": {
            "name": "distil-sst", "kind": kind, "what": "DistilBertForSequenceClassification", "layers": layers,
            "heads": per_layer, "classes": ["negative", "positive"] if kind == "classifier" else [],
        },
        "data": {
            "name": "sst.jsonl.gz", "texts": 500, "of": 1821, "split": "test", "cut": 3, "rationales": True,
            "links": False,
        },
        "verdict": {
            "answer": answer,
            "headline": "Read it as a hint at words to look at, not as the reason for a decision.",
            "paragraphs": ["It was tested on 500 texts.", "Decisions depend on it; it does not point at what decides."],
            "tests": TESTS,
        },
        "parts": parts,
    }  # fmt: skip


def transformer():
    rng = Random(0)
    quality = {
        "title": "How good the model is", "texts": 500, "seconds": 2.0, "sentences": ["It decides 86.0 % rightly."],
        "table": [{"accuracy": 0.86, "macro F1": 0.859, "commonest class": 0.501}],
    }  # fmt: skip
    plausible = {"sentences": ["Chance would get 0.22."], "table": [{"score": "attention", "average precision": 0.41}]}
    examples = [text(TEXT, "typical", "positive", rng), text(TEXT * 6, "wrong", "negative", rng)]
    parts = {"quality": quality, "formed": formed(6, 4, rng), "heads": ranked(6, 4, rng), **evidence(rng)}
    return audit("classifier", 6, 4, parts | {"plausibility": plausible, "examples": {"examples": examples}})


def translator():
    rng = Random(1)
    pairs = [(SOURCE * n, TARGET * n, why) for n, why in ((1, "typical"), (3, "extreme"), (8, "long"))]
    examples = {"examples": [pair(source, target, why, rng) for source, target, why in pairs]}
    parts = {"formed": formed(6, 8, rng), "heads": ranked(6, 8, rng, alignment=True), **evidence(rng)}
    return audit("translator", 6, 8, parts | {"examples": examples}, "no")


def recurrent():
    rng = Random(2)
    examples = {"examples": [text(TEXT, "typical", "positive", rng)]}
    return audit(
        "classifier", 1, 1, {"formed": formed(1, 1, rng), "heads": ranked(1, 1, rng), "examples": examples}, "yes"
    )
