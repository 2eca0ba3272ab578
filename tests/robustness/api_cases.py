"""Cases of Python calls."""

from collections.abc import Callable, Iterator

from robustness.trial import Case, Place

Call = Callable[[Place], object]


def loaded(place: Place):
    import attnscope

    return attnscope.load(place.home / "bert")


def translator(place: Place):
    import attnscope

    return attnscope.load(place.home / "marian")


def run_model(place: Place):
    import attnscope

    return attnscope.load(place.aed, store=place.home / "runs")


def load_calls() -> tuple[dict[str, Call], dict[str, Call]]:
    import torch

    from attnscope import load
    from models.adapter_examples import foreign, tokenizer_for

    bad: dict[str, Call] = {
        "load(None)": lambda p: load(None),
        "load(3)": lambda p: load(3),
        "load([])": lambda p: load([]),
        "load(bytes)": lambda p: load(b"bert"),
        "load('')": lambda p: load(""),
        "load(NUL)": lambda p: load("a\0b"),
        "load(object)": lambda p: load(object()),
        "load(class)": lambda p: load(torch.nn.Linear),
        "load(Linear)": lambda p: load(torch.nn.Linear(1, 1)),
        "load(dict)": lambda p: load({"model": "bert"}),
        "load(device=tpu)": lambda p: load("bert", device="tpu"),
        "load(device=3)": lambda p: load("bert", device=3),
        "load(device='')": lambda p: load("bert", device=""),
        "load(device=[])": lambda p: load("bert", device=[]),
        "load(device=meta)": lambda p: load("bert", device="meta"),
        "load(device=torch meta)": lambda p: load("bert", device=torch.device("meta")),
        "load(dtype=float99)": lambda p: load("bert", dtype="float99"),
        "load(dtype=int64)": lambda p: load("bert", dtype="int64"),
        "load(dtype=3)": lambda p: load("bert", dtype=3),
        "load(dtype=bool)": lambda p: load("bert", dtype=torch.bool),
        "load(dtype=Tensor)": lambda p: load("bert", dtype="Tensor"),
        "load(dtype=complex)": lambda p: load("bert", dtype="complex64"),
        "load(checkpoint of a folder)": lambda p: load("bert", checkpoint=3),
        "load(checkpoint='a')": lambda p: load(p.aed, checkpoint="a"),
        "load(checkpoint=-1)": lambda p: load(p.aed, checkpoint=-1),
        "load(store=3)": lambda p: load(p.aed, store=3),
        "load(store=nowhere)": lambda p: load(p.aed, store="nowhere"),
        "load(tokenizer=3)": lambda p: load(foreign("bert"), tokenizer=3),
        "load(no tokenizer)": lambda p: load(foreign("bert")),
        "load(tokenizer=str)": lambda p: load(foreign("bert"), tokenizer="bert"),
        "load(tokenizer of another)": lambda p: load(foreign("bert"), tokenizer=lambda text: text),
        "load(unknown language)": lambda p: load("nllb", source_language="xx_XX"),
        "load(unknown target language)": lambda p: load("nllb", target_language="klingon"),
        "load(language of one-language tokenizer)": lambda p: load("bert", source_language="de"),
        "load(language=3)": lambda p: load("nllb", source_language=3),
        "load(nan model in memory)": lambda p: load(spoiled(foreign("bert")), tokenizer=tokenizer_for("bert")),
        "load(equal class names in memory)": lambda p: load(
            foreign("bert", id2label={0: "a", 1: "a", 2: "b"}), tokenizer=tokenizer_for("bert")
        ),
    }
    good: dict[str, Call] = {
        "load(path)": lambda p: load(p.home / "bert"),
        "load(device=cpu)": lambda p: load("bert", device="cpu"),
        "load(torch device)": lambda p: load("bert", device=torch.device("cpu")),
        "load(dtype=float64)": lambda p: load("bert", dtype="float64"),
        "load(dtype=torch)": lambda p: load("bert", dtype=torch.bfloat16),
        "load(model in memory)": lambda p: load(foreign("bert"), tokenizer=tokenizer_for("bert")),
        "load(loaded)": lambda p: load(loaded(p)),
        "load(language)": lambda p: load("nllb", source_language="deu_Latn"),
        "load(run)": lambda p: load(p.aed[:10]),
    }
    return bad, good


def spoiled(model):
    import torch

    with torch.no_grad():
        next(model.parameters()).view(-1)[5] = float("nan")
    return model


def model_calls() -> tuple[dict[str, Call], dict[str, Call]]:
    """Calls of a loaded model."""
    import numpy as np

    bad: dict[str, Call] = {}
    for name, texts in {
        "a string": "a dog",
        "empty": [],
        "None": None,
        "a number": 3,
        "numbers": [3],
        "None inside": [None],
        "bytes": [b"a"],
        "numbers as words": [[1, 2]],
        "mixed": ["a dog", 3],
        "words with spaces": [["a dog", "b"]],
        "a surrogate": ["a \ud800"],
        "a dict": {"text": "a"},
        "an array": np.zeros(3),
        "nested": [[["a"]]],
        "a set of words": [{"a"}],
    }.items():
        bad[f"trace({name})"] = lambda p, texts=texts: loaded(p).trace(texts)
        if name not in ("empty", "a set of words"):
            bad[f"predict({name})"] = lambda p, texts=texts: loaded(p).predict(texts)
    for name, targets in {
        "too few": [1],
        "unknown": [1, 9],
        "negative": [1, -1],
        "float": [1, 0.5],
        "None": [1, None],
        "string": "12",
        "empty": [],
        "nested": [[1], [2]],
        "superscript": [1, "²"],
        "huge": [1, "9" * 5000],
        "truth value": [1, True],
    }.items():
        bad[f"trace(targets {name})"] = lambda p, targets=targets: loaded(p).trace(["a dog", "dogs"], targets)
    for name, attention in {"a string": "uniform", "a number": 3, "a wrong layer": {9: None}, "a list": [0.5]}.items():
        bad[f"trace(attention {name})"] = lambda p, attention=attention: loaded(p).trace(["a dog"], attention=attention)
    bad |= {
        "trace(decoding=beam)": lambda p: loaded(p).trace(["a dog"], decoding="beam"),
        "to(tpu)": lambda p: loaded(p).to("tpu"),
        "to(3)": lambda p: loaded(p).to(3),
        "marian trace(targets 3.5)": lambda p: translator(p).trace(["a dog"], [3.5]),
        "marian trace(targets None)": lambda p: translator(p).trace(["a dog"], [None]),
        "run trace(unknown word)": lambda p: run_model(p).trace(["A Z"]),
        "run trace(empty text)": lambda p: run_model(p).trace([]),
        "run trace(numbers)": lambda p: run_model(p).trace([3]),
    }
    import attnscope

    good: dict[str, Call] = {
        "trace(texts)": lambda p: loaded(p).trace(["a dog", "dogs"]),
        "trace(words)": lambda p: loaded(p).trace([["a", "dog"]]),
        "trace(tuple)": lambda p: loaded(p).trace(("a dog",)),
        "trace(targets by name)": lambda p: loaded(p).trace(["a"], ["LABEL_1"]),
        "trace(targets by index)": lambda p: loaded(p).trace(["a", "b"], [0, 2]),
        "predict": lambda p: loaded(p).predict(["a dog"]),
        "trace(uniform)": lambda p: loaded(p).trace(["a dog"], attention=attnscope.uniform),
        "marian trace": lambda p: translator(p).trace(["a dog"], ["ein hund"]),
        "marian predict": lambda p: translator(p).predict(["a dog"]),
        "run trace": lambda p: run_model(p).trace(["A B"]),
        "to(cpu)": lambda p: loaded(p).to("cpu"),
    }
    return bad, good


def data_calls() -> tuple[dict[str, Call], dict[str, Call]]:
    """Data that probes and audits are given."""
    import numpy as np
    import pandas as pd

    import attnscope

    table = pd.DataFrame({"text": ["a dog", "dogs"], "label": [1, 0]})
    datasets: dict[str, object] = {
        "a number": 3,
        "truth": True,
        "empty list": [],
        "empty tuple": (),
        "empty string": "",
        "object": object(),
        "None inside": [None, None],
        "numbers": [1, 2],
        "arrays": [np.zeros(2)],
        "empty table": table[:0],
        "table without text": table.drop(columns="text"),
        "table of numbers": pd.DataFrame({"text": [1, 2], "label": [1, 0]}),
        "table with other labels": table.assign(label=[7, 8]),
        "table with float labels": table.assign(label=[0.5, 1.0]),
        "table with missing text": table.assign(text=["a dog", None]),
        "a dict": {"text": ["a"]},
        "an empty dict": {},
        "dict of numbers": {"test": 3},
        "triples": [("a", 1, 2), ("b", 0, 1)],
        "pairs the wrong way": [(1, "a"), (0, "b")],
        "unknown label": [("a dog", 9), ("dogs", 0)],
        "label names of another": [("a dog", "pos"), ("dogs", "neg")],
        "half labelled": [("a dog", 1), "dogs"],
        "a generator of numbers": (i for i in range(3)),
        "function of nothing": lambda: None,
        "function that needs": lambda x: x,
        "dicts of nothing": [{}, {}],
        "words with None": [["a", None]],
        "nested words": [[["a"], "b"]],
        "bytes": b"a dog",
        "list of bytes": [b"a"],
        "NaN rationale": [{"text": "a dog", "label": 1, "rationale": [float("nan"), 1]}],
        "short rationale": [{"text": "a dog", "label": 1, "rationale": [1]}],
        "batches and texts": "mixed",
    }
    bad: dict[str, Call] = {}
    for name, data in datasets.items():
        if name == "batches and texts":
            bad[name] = lambda p: attnscope.entropy(loaded(p), [loaded(p).read(["a"]).batch, "a dog"])
            continue
        bad[f"entropy({name})"] = lambda p, data=data: attnscope.entropy(loaded(p), data)
        if name in ("a number", "empty list", "table without text", "unknown label", "table with float labels"):
            bad[f"audit({name})"] = lambda p, data=data: attnscope.audit(loaded(p), data, quick=True)
    batch = lambda p: loaded(p).read(["a dog", "dogs"], [1, 0]).batch  # noqa: E731
    bad |= {
        "evaluate(no batches)": lambda p: attnscope.evaluate(loaded(p), []),
        "evaluate(strings)": lambda p: attnscope.evaluate(loaded(p), ["a dog"]),
        "evaluate(string)": lambda p: attnscope.evaluate(loaded(p), "a dog"),
        "evaluate(None)": lambda p: attnscope.evaluate(run_model(p), 3),
        "evaluate(decoding)": lambda p: attnscope.evaluate(loaded(p), [batch(p)], decoding="beam"),
        "evaluate(no model)": lambda p: attnscope.evaluate("bert", [batch(p)]),
        "saliency(string model)": lambda p: attnscope.saliency("bert", ["a dog"]),
        "fragility(None model)": lambda p: attnscope.fragility(None, ["a dog"]),
        "run_probe(nothing)": lambda p: attnscope.run_probe("nothing", loaded(p), ["a dog"]),
        "run_probe(3)": lambda p: attnscope.run_probe(3, loaded(p), ["a dog"]),
        "run_probe(option)": lambda p: attnscope.run_probe("entropy", loaded(p), ["a dog"], nothing=3),
        "explain(3)": lambda p: attnscope.explain(loaded(p), 3),
        "explain(None)": lambda p: attnscope.explain(loaded(p), None),
        "explain(target 9)": lambda p: attnscope.explain(loaded(p), "a dog", target=9),
        "explain(target list)": lambda p: attnscope.explain(loaded(p), "a dog", target=[3]),
        "audit(device=tpu)": lambda p: attnscope.audit("bert", p.texts, device="tpu"),
        "audit(budget=inf)": lambda p: attnscope.audit("bert", p.texts, budget=float("inf")),
        "audit(budget=nan)": lambda p: attnscope.audit("bert", p.texts, budget=float("nan")),
        "audit(budget=str)": lambda p: attnscope.audit("bert", p.texts, budget="five"),
        "audit(seed=-1)": lambda p: attnscope.audit("bert", p.texts, seed=-1),
        "audit(seed=2**64)": lambda p: attnscope.audit("bert", p.texts, seed=2**64),
        "audit(seed=0.5)": lambda p: attnscope.audit("bert", p.texts, seed=0.5),
        "audit(batch_size=0)": lambda p: attnscope.audit("bert", p.texts, batch_size=0),
        "audit(batch_size=1.5)": lambda p: attnscope.audit("bert", p.texts, batch_size=1.5),
        "audit(max_texts=1)": lambda p: attnscope.audit("bert", p.texts, max_texts=1),
        "audit(max_texts=str)": lambda p: attnscope.audit("bert", p.texts, max_texts="all"),
        "audit(split)": lambda p: attnscope.audit("bert", "texts.jsonl", split="nothing"),
        "audit(against translator)": lambda p: attnscope.audit("bert", p.texts, against="marian"),
        "audit(out=file)": lambda p: attnscope.audit("bert", p.texts, quick=True, out="texts.jsonl"),
        "audit(one text)": lambda p: attnscope.audit("bert", p.texts[:1]),
        "audit(text= of no column)": lambda p: attnscope.audit("bert", p.texts, text="nothing"),
        "audit(label= of no column)": lambda p: attnscope.audit("bert", p.texts, label="nothing"),
        "audit(pair= of no column)": lambda p: attnscope.audit("bert", p.texts, pair="nothing"),
        "reproduce(nothing)": lambda p: attnscope.reproduce("nothing"),
        "reproduce(seeds=0)": lambda p: attnscope.reproduce("aitken2021", "fig2-aed", seeds=0, store="none"),
        "reproduce(seeds=1.5)": lambda p: attnscope.reproduce("aitken2021", "fig2-aed", seeds=1.5, store="none"),
        "reproduce(seeds='a')": lambda p: attnscope.reproduce("aitken2021", "fig2-aed", seeds="a", store="none"),
        "reproduce(first_seed=-1)": lambda p: attnscope.reproduce(
            "aitken2021", "fig2-aed", first_seed=-1, store="none"
        ),
        "reproduce(workers=-1)": lambda p: attnscope.reproduce("aitken2021", "fig2-aed", workers=-1, store="none"),
        "reproduce(workers='a')": lambda p: attnscope.reproduce("aitken2021", "fig2-aed", workers="a", store="none"),
        "reproduce(device=tpu)": lambda p: attnscope.reproduce("aitken2021", "fig2-aed", device="tpu", store="none"),
        "study(nothing)": lambda p: attnscope.study("nothing"),
        "build(3)": lambda p: attnscope.build(3, 4, 4),
        "build(no words)": lambda p: attnscope.build(attnscope.MODELS["aed"], 0, 4),
        "build(negative words)": lambda p: attnscope.build(attnscope.MODELS["aed"], 4, -1),
        "build(words as string)": lambda p: attnscope.build(attnscope.MODELS["aed"], "a", 4),
        "WordReader(empty)": lambda p: attnscope.WordReader(()),
        "WordReader(no targets)": lambda p: attnscope.WordReader(("a",)),
        "WordReader(equal classes)": lambda p: attnscope.WordReader(("a",), classes=("x", "x")),
        "WordReader(empty class)": lambda p: attnscope.WordReader(("a",), classes=("x", "")),
        "WordReader(equal words)": lambda p: attnscope.WordReader(("a", "a"), classes=("x", "y")),
        "WordReader(end)": lambda p: attnscope.WordReader(("a",), classes=("x", "y"), end="</s>"),
        "WordReader(unknown word)": lambda p: attnscope.WordReader(("a",), classes=("x", "y")).read(["b"]),
        "TrainingSettings(checkpoints)": lambda p: attnscope.TrainingSettings(checkpoints=[1.5]),
        "TrainingSettings(betas)": lambda p: attnscope.TrainingSettings(betas=(0.9,)),
        "TrainingSettings(steps)": lambda p: attnscope.TrainingSettings(steps="a"),
        "TrainingSettings(nan)": lambda p: attnscope.TrainingSettings(learning_rate=float("nan")),
        "fit(model=None)": lambda p: attnscope.fit(None, attnscope.TASKS["one_to_one"]()),
        "fit(task=None)": lambda p: attnscope.fit(attnscope.build(attnscope.MODELS["aed"], 6, 6), None),
        "check_adapter(Linear)": lambda p: attnscope.check_adapter(__import__("torch").nn.Linear(1, 1), [batch(p)]),
        "check_adapter(no batches)": lambda p: attnscope.check_adapter(loaded(p), []),
        "bleu of a classifier": lambda p: attnscope.bleu(loaded(p), 3),
    }
    good: dict[str, Call] = {
        "entropy(list)": lambda p: attnscope.entropy(loaded(p), ["a dog", "dogs"]),
        "entropy(pairs)": lambda p: attnscope.entropy(loaded(p), [("a dog", 1)]),
        "entropy(table)": lambda p: attnscope.entropy(loaded(p), table),
        "entropy(batch)": lambda p: attnscope.entropy(loaded(p), batch(p)),
        "entropy(table with whole float labels)": lambda p: attnscope.entropy(
            loaded(p), table.assign(label=[1.0, 0.0])
        ),
        "entropy(table with pairs)": lambda p: attnscope.entropy(
            loaded(p), table.assign(text_pair=["the house", "old"])
        ),
        "entropy(list with text pairs)": lambda p: attnscope.entropy(
            loaded(p), [{"premise": "a dog", "hypothesis": "dogs"}]
        ),
        "entropy(series of a table)": lambda p: attnscope.entropy(loaded(p), table["text"]),
        "evaluate": lambda p: attnscope.evaluate(loaded(p), [batch(p)]),
        "explain": lambda p: attnscope.explain(loaded(p), "a dog", target="LABEL_0"),
        "audit(columns)": lambda p: attnscope.audit(
            loaded(p), table.rename(columns={"text": "q", "label": "gold"}), quick=True, text="q", label="gold"
        ),
        "build": lambda p: attnscope.build(attnscope.MODELS["aed"], 6, 6),
        "TrainingSettings": lambda p: attnscope.TrainingSettings(checkpoints=(1, 2)),
        "WordReader": lambda p: attnscope.WordReader(("a", "b"), classes=("x", "y")).read(["a b"], ["y"]),
        "study": lambda p: attnscope.study("snell2021"),
    }
    return bad, good


def cases() -> Iterator[Case]:
    for calls in (load_calls, model_calls, data_calls):
        bad, good = calls()
        yield from (Case(f"api: {name}", True, call) for name, call in bad.items())
        yield from (Case(f"api: {name}", False, call) for name, call in good.items())
