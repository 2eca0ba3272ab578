"""Cases of model folders: configurations, tokenizers and weights that are broken, and valid ones beside them."""

import json
import struct
from collections.abc import Callable, Iterator

from robustness.trial import Case, Place, expect_success

DEEP = '{"a":' * 50_000
CONFIGS = (
    "",
    "{",
    "null",
    "3",
    '"bert"',
    "[]",
    "[1]",
    "true",
    DEEP,
    "[" * 100_000,
    b"\xff\xfe\x00",
    '{"a": 1',
    "{}",
    "\x00",
)
FIELDS: dict[str, tuple[object, ...]] = {
    "model_type": (None, 3, "", "gpt2", "nonsense", [], "marian", "deberta"),
    "architectures": (
        None,
        [],
        "BertForSequenceClassification",
        ["X"],
        [3],
        {},
        ["BertForTokenClassification"],
        ["BertForMaskedLM"],
        ["BertForQuestionAnswering"],
        ["BertForMultipleChoice"],
        ["BertModel"],
        ["GPT2LMHeadModel"],
        [None],
    ),
    "num_attention_heads": (0, -1, 3, "two", None, 2.5, [2], 10**9),
    "hidden_size": (0, -16, 32, "x", None, 16.5, [16]),
    "num_hidden_layers": (0, -1, 1, 3, "two", None, 1.5),
    "intermediate_size": (0, -3, 8, "x", None),
    "vocab_size": (0, -5, 10, "x", None, 10**12, 1.5),
    "pad_token_id": (-5, 10**6, "x", 1.5, [0]),
    "max_position_embeddings": (0, -1, 10, "x", None),
    "type_vocab_size": (0, -1, "x"),
    "id2label": (
        {"0": "a", "2": "b"},
        {"0": "a", "1": "a", "2": "b"},
        {"0": "", "1": "a", "2": "b"},
        {"a": "x", "b": "y"},
        ["a", "b", "c"],
        3,
        {"0": None, "1": "a", "2": "b"},
        {"0": "a", "1": "b"},
        {"-1": "a", "0": "b", "1": "c"},
        {"0": "a"},
        {},
        {"0": " ", "1": "a", "2": "b"},
        {"0": ["a"], "1": "b", "2": "c"},
    ),
    "problem_type": ("regression", "multi_label_classification", "nonsense", 3),
    "hidden_act": ("nonsense", 3, None, ["gelu"]),
    "layer_norm_eps": ("x", None, float("nan"), -1.0),
    "hidden_dropout_prob": ("x", 2.0, -1.0, None),
    "attention_probs_dropout_prob": ("x", 3.0),
    "quantization_config": ({"quant_method": "nonsense"}, 3),
}
MARIAN_FIELDS: dict[str, tuple[object, ...]] = {
    "decoder_start_token_id": (None, -1, 10**6, "x"),
    "decoder_layers": (0, 1, 5, "x"),
    "encoder_attention_heads": (0, 3, None),
    "pad_token_id": (10**6, "x"),
    "eos_token_id": (10**6, "x"),
    "d_model": (0, 8, "x"),
    "architectures": (["MarianForCausalLM"], ["MarianModel"]),
}
TOKENIZERS = ("", "null", "3", "[]", "{}", '"x"', DEEP, b"\xff\xfe", '{"version": "1.0", "model": null}', "{", "\x00")
TOKENIZER_CONFIGS = ("null", "3", "[]", "{", '"x"', DEEP, b"\xff", "")
TOKENIZER_FIELDS: dict[str, tuple[object, ...]] = {
    "model_max_length": (0, 1, 2, -1, "x", [40], float("nan"), True),
    "tokenizer_class": (3, [], "GPT2LMHeadModel"),
    "pad_token": (3, [], {"a": 1}),
    "cls_token": (3, []),
}
CORRECT: dict[str, tuple[object, ...]] = {
    "id2label": (
        {"0": "bad", "1": "so so", "2": "good"},
        {"0": "0", "1": "1", "2": "2"},
        {"2": "c", "0": "a", "1": "b"},
    ),
    "problem_type": ("single_label_classification", None),
    "hidden_dropout_prob": (0.0, 0.5),
    "layer_norm_eps": (1e-5,),
    "unknown_field": (3,),
    "torch_dtype": ("float16",),
}


def load_case(name: str, bad: bool, make: Callable[[Place], str], data: str = "texts.jsonl") -> Case:
    """An audit with a folder that is broken, or a probe with a valid one."""

    def run(place: Place) -> None:
        folder = make(place)
        if bad:
            expect_success(["audit", folder, data, "--quick", "--out", str(place.path("audit"))])
        else:
            expect_success(["probe", folder, "entropy", data])

    return Case(f"folder: {name}", bad, run)


def short(value: object) -> str:
    return (value if isinstance(value, str) else repr(value))[:60]


def configurations() -> Iterator[Case]:
    for content in CONFIGS:
        yield load_case(f"config.json {short(content)}", True, lambda place, c=content: place.variant("bert", config=c))
    for field, values in FIELDS.items():
        for value in values:
            change = {field: value}
            yield load_case(f"config {change}", True, lambda place, c=change: place.variant("bert", config=c))
    for field, values in MARIAN_FIELDS.items():
        for value in values:
            change = {field: value}
            yield load_case(
                f"marian config {change}",
                True,
                lambda place, c=change: place.variant("marian", config=c),
                "pairs.jsonl",
            )
    for field, values in CORRECT.items():
        for value in values:
            change = {field: value}
            yield load_case(f"config {change}", False, lambda place, c=change: place.variant("bert", config=c))


def tokenizers() -> Iterator[Case]:
    for content in TOKENIZERS:
        yield load_case(
            f"tokenizer {short(content)}", True, lambda place, c=content: place.variant("bert", tokenizer=c)
        )
    for content in TOKENIZER_CONFIGS:
        yield load_case(
            f"tokenizer_config {short(content)}",
            True,
            lambda place, c=content: place.variant("bert", tokenizer_config=c),
        )
    for field, values in TOKENIZER_FIELDS.items():
        for value in values:
            change = {field: value}
            yield load_case(
                f"tokenizer_config {change}", True, lambda place, c=change: place.variant("bert", tokenizer_config=c)
            )
    yield load_case("no tokenizer", True, lambda p: p.variant("bert", ("tokenizer.json", "tokenizer_config.json")))
    yield load_case("no tokenizer.json", True, lambda place: place.variant("bert", ("tokenizer.json",)))
    yield load_case("a foreign tokenizer", True, foreign_tokenizer)
    yield load_case("a tokenizer with more words than the model, which no text has", False, larger_tokenizer)
    yield load_case("no tokenizer_config.json", False, lambda place: place.variant("bert", ("tokenizer_config.json",)))
    yield load_case(
        "model_max_length 5", False, lambda place: place.variant("bert", tokenizer_config={"model_max_length": 5})
    )


def foreign_tokenizer(place: Place) -> str:
    """A tokenizer whose ids lie beyond the model's embedding."""
    content = json.loads((place.home / "bert" / "tokenizer.json").read_text())
    content["model"]["vocab"] = {
        word: i if word.startswith("[") else i + 10_000 for word, i in content["model"]["vocab"].items()
    }
    return place.variant("bert", tokenizer=json.dumps(content))


def larger_tokenizer(place: Place) -> str:
    content = json.loads((place.home / "bert" / "tokenizer.json").read_text())
    content["model"]["vocab"] |= {f"word{i}": 100 + i for i in range(50)}
    return place.variant("bert", tokenizer=json.dumps(content))


def filled(value: float, part: str = "") -> "Callable[[Place], str]":
    """A folder in which one number of each tensor whose name holds `part` is this one."""

    def change(tensors: dict) -> dict:
        for name, tensor in tensors.items():
            if part in name:
                tensor.view(-1)[0] = value
        return tensors

    return lambda place: place.reweighted(change)


def weights() -> Iterator[Case]:
    import torch

    nan, infinity = float("nan"), float("inf")
    for part in ("word_embeddings", "classifier.weight", "layer.0.attention.self.query.weight", "LayerNorm.bias", ""):
        yield load_case(f"nan in {part or 'all'}", True, filled(nan, part))
        yield load_case(f"infinity in {part or 'all'}", True, filled(infinity, part))
    yield load_case("minus infinity", True, filled(-infinity, "pooler"))
    changes: dict[str, Callable[[dict], dict]] = {
        "all zero": lambda tensors: {name: tensor * 0 for name, tensor in tensors.items()},
        "integers": lambda tensors: {name: tensor.int() for name, tensor in tensors.items()},
        "8-bit integers": lambda tensors: {name: tensor.to(torch.int8) for name, tensor in tensors.items()},
        "truth values": lambda tensors: {name: tensor.bool() for name, tensor in tensors.items()},
        "complex numbers": lambda tensors: {name: tensor.to(torch.complex64) for name, tensor in tensors.items()},
        "none": lambda tensors: {},
        "one only": lambda tensors: dict(list(tensors.items())[:1]),
        "no classifier": lambda tensors: {name: t for name, t in tensors.items() if "classifier" not in name},
        "no layer 1": lambda tensors: {name: t for name, t in tensors.items() if "layer.1" not in name},
        "other names": lambda tensors: {f"x.{name}": tensor for name, tensor in tensors.items()},
        "transposed": lambda tensors: {name: t.T.contiguous() if t.dim() == 2 else t for name, t in tensors.items()},
        "one more layer": lambda tensors: (
            tensors
            | {name.replace("layer.1", "layer.2"): t.clone() for name, t in tensors.items() if "layer.1" in name}
        ),
        "an empty tensor": lambda tensors: tensors | {"classifier.weight": torch.zeros(0, 16)},
        "another number of classes": lambda tensors: tensors | {"classifier.weight": torch.ones(5, 16)},
        "a scalar": lambda tensors: tensors | {"classifier.bias": torch.tensor(1.0)},
    }
    for name, change in changes.items():
        yield load_case(f"weights: {name}", True, lambda place, c=change: place.reweighted(c))
    header = json.dumps({"classifier.weight": {"dtype": "F32", "shape": [3, 16], "data_offsets": [0, 10**12]}}).encode()
    for name, content in {
        "empty": b"",
        "garbage": b"nothing",
        "huge header": struct.pack("<Q", 2**62),
        "no JSON": struct.pack("<Q", 3) + b"abc",
        "offsets beyond the file": struct.pack("<Q", len(header)) + header,
        "a pickle": b"\x80\x04K\x03.",
        "null header": struct.pack("<Q", 4) + b"null",
    }.items():
        yield load_case(f"weights file: {name}", True, lambda place, c=content: place.variant("bert", weights=c))
    yield load_case("weights file cut", True, lambda p: p.variant("bert", weights=weights_of(p)[:-1000]))
    yield load_case("no weights file", True, lambda place: place.variant("bert", ("model.safetensors",)))
    index = "model.safetensors.index"
    for name, content in {
        "null": "null",
        "open": "{",
        "list": "[]",
        "missing shard": json.dumps({"weight_map": {"a": "b.safetensors"}}),
        "a map of numbers": json.dumps({"metadata": {}, "weight_map": {"a": 3}}),
        "a path out of the folder": json.dumps({"metadata": {}, "weight_map": {"a": "../../bert/model.safetensors"}}),
    }.items():
        yield load_case(
            f"index: {name}", True, lambda place, c=content: place.variant("bert", ("model.safetensors",), **{index: c})
        )
    yield load_case("a folder in place of config.json", True, folder_for_file)
    yield load_case("half precision", False, lambda p: p.reweighted(lambda t: {n: x.half() for n, x in t.items()}))
    yield load_case("bfloat16", False, lambda p: p.reweighted(lambda t: {n: x.bfloat16() for n, x in t.items()}))
    yield load_case("double", False, lambda p: p.reweighted(lambda t: {n: x.double() for n, x in t.items()}))
    yield load_case("one zero tensor", False, lambda p: p.reweighted(lambda t: t | {"classifier.bias": torch.zeros(3)}))


def folder_for_file(place: Place) -> str:
    folder = place.variant("bert", ("config.json",))
    (place.home / folder / "config.json").mkdir()
    return folder


def weights_of(place: Place) -> bytes:
    return (place.home / "bert" / "model.safetensors").read_bytes()


def runs() -> Iterator[Case]:
    """Folders of runs that are copied out of their store and damaged."""

    def copied(place: Place, name: str, content: "str | bytes | None") -> str:
        import shutil

        folder = place.path("copied")
        shutil.copytree(place.home / "runs" / "runs" / place.aed, folder)
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(folder)

    for name, contents in {
        "config.json": ("", "null", "[]", "{}", "{", '{"task": 3}', DEEP, None),
        "summary.json": ("", "null", None),
        "weights.safetensors": (b"", b"nothing", None),
    }.items():
        for content in contents:

            def run(place: Place, name: str = name, content: "str | bytes | None" = content) -> None:
                expect_success(["probe", copied(place, name, content), "entropy"])

            bad = name != "summary.json" or content is None  # a probe does not read the summary
            if bad:
                yield Case(f"folder: run with {name} {short(content)}", True, run)


def cases() -> Iterator[Case]:
    yield from configurations()
    yield from tokenizers()
    yield from weights()
    yield from runs()
