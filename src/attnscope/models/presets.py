"""The papers' own networks as settings by name; how to build them, and how to start them with given weights."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from attnscope.errors import BadSetting, require
from attnscope.files import Malformed, read_json
from attnscope.models.bag_of_words import BagOfWords, BagOfWordsSettings
from attnscope.models.classifier import Classifier, ClassifierSettings
from attnscope.models.encoder_decoder import EncoderDecoder, EncoderDecoderSettings, Positions
from attnscope.models.initialise import Pretrained
from attnscope.models.transformer import (
    Transformer,
    TransformerClassifier,
    TransformerClassifierSettings,
    TransformerDecoder,
    TransformerDecoderSettings,
    TransformerLayer,
    TransformerSettings,
)
from attnscope.tasks import SPECIALS, Copying, RepeatedSequences, Task, Vocabulary
from attnscope.tasks.text import BERT_NAMES
from attnscope.tasks.text.rows import read_lines

# snell2021 A.8 and author's code: one embedding of size 256; W with a bias; a linear layer on the context.
COPYING = EncoderDecoderSettings(
    cell="lstm", units=256, first_state="zero", attention="bilinear", inputs="learned", input_size=256,
    shared_inputs=True, context_layer=True, hidden=256, activation="tanh", readout_bias=True, initialisation="torch",
)  # fmt: skip
# baan2019, author's code ("pre-rnn", "mlp", "full_focus"); guided or not, the network is the same.
LOOKUP_TABLES = EncoderDecoderSettings(
    cell="gru", units=512, first_state="zero", attention="mlp", inputs="learned", input_size=16, target_input_size=512,
    context="input", focus=True, readout="state", readout_bias=True, initialisation="uniform_008",
)  # fmt: skip
TRANSLATION = replace(COPYING, layers=2, bidirectional=True, dropout=0.5, activation="relu")

PRESETS: dict[str, EncoderDecoderSettings] = {
    # aitken2021 §2: no attention; attention and recurrence; attention only. Sizes and positions: author's code.
    "ved": EncoderDecoderSettings(attention="none", readout="state"),
    "aed": EncoderDecoderSettings(),
    "ao": EncoderDecoderSettings(cell="feedforward", readout="context", input_size=50, positions=Positions()),
    # snell2021 §3.3; §2.1; A.1: W(c + d) in place of N
    "copying": COPYING,
    "translation": TRANSLATION,
    "translation_linear": replace(TRANSLATION, readout="sum", hidden=None),
    "lookup_tables": LOOKUP_TABLES,
}

ModelSettings = (
    EncoderDecoderSettings | ClassifierSettings | BagOfWordsSettings
    | TransformerSettings | TransformerDecoderSettings | TransformerClassifierSettings
)  # fmt: skip
Model = EncoderDecoder | Classifier | BagOfWords | Transformer | TransformerDecoder | TransformerClassifier

# Every network that can be trained by name; "classifier" and "bag_of_words" are those of snell2021 §2.4 and §2.3.
MODELS: dict[str, ModelSettings] = {
    **PRESETS,
    "classifier": ClassifierSettings(),
    "bag_of_words": BagOfWordsSettings(),
    "transformer": TransformerSettings(),
    "transformer_decoder": TransformerDecoderSettings(),
    "transformer_classifier": TransformerClassifierSettings(),
}
NETWORKS: dict[type, type[Model]] = {
    EncoderDecoderSettings: EncoderDecoder,
    ClassifierSettings: Classifier,
    BagOfWordsSettings: BagOfWords,
    TransformerSettings: Transformer,
    TransformerDecoderSettings: TransformerDecoder,
    TransformerClassifierSettings: TransformerClassifier,
}


def build(settings: ModelSettings, source_words: int, target_words: int) -> Model:
    """Return the network that these settings describe, with new weights.

    Args:
        settings: Such as MODELS["aed"], or a changed copy of it (`dataclasses.replace`).
        source_words: Size of the source vocabulary, special tokens included.
        target_words: Size of the target vocabulary, or 3 + the number of classes.
    """
    possible = ", ".join(kind.__name__ for kind in NETWORKS)
    require(
        type(settings) in NETWORKS,
        f"a model is built from settings, one of {possible}, such as MODELS['aed'], not from {settings!r}",
    )
    for words in (source_words, target_words):
        require(isinstance(words, int) and words > 0, f"a vocabulary has a number of words above 0, not {words!r}")
    return NETWORKS[type(settings)](settings, source_words, target_words)  # type: ignore[arg-type]


COPYING_SEED = 1


@torch.no_grad()
def start_copying(model: nn.Module, task: Task, how: str) -> None:
    """Initialise the last attention and the output layer such that the attended token is predicted.

    That attention is the self-attention of a language model or the cross-attention of an encoder-decoder. Values are
    multiplied by a random rotation, and each row of the output is the embedding of its token under the same rotation:
    so the logits depend on the attended token, and not on the query. With "scrambled" the outputs are permuted, so that
    weights of the same size translate every token wrongly.

    Args:
        model: A Transformer or a TransformerDecoder.
        task: A task whose lexical map is known: copying or repeated sequences.
        how: "random" (no change), "given" or "scrambled".
    """
    if how == "random":
        return
    if isinstance(model, TransformerDecoder) and isinstance(task, RepeatedSequences):
        outputs = torch.from_numpy(task.output_ids)
    elif isinstance(model, Transformer) and isinstance(task, Copying):
        outputs = torch.arange(len(SPECIALS) + task.num_words)
    else:
        raise BadSetting(
            "start.copying needs a task whose lexical map is known: repeated sequences for a language model, copying "
            "for an encoder-decoder Transformer"
        )
    table, generator = model.source_inputs.get_parameter("table"), torch.Generator().manual_seed(COPYING_SEED)
    size = table.shape[1]
    rotation = torch.linalg.qr(torch.randn(size, size, generator=generator)).Q
    layer = model.stack.layers[-1]
    assert isinstance(layer, TransformerLayer)
    last = layer.attend if layer.cross is None else layer.cross
    last.value.weight.copy_(torch.eye(size))
    last.output.weight.copy_(rotation)
    if how == "scrambled":
        words = torch.randperm(task.num_words, generator=generator)
        outputs = torch.cat([outputs[: len(SPECIALS)], outputs[len(SPECIALS) :][words]])
    model.output.weight[outputs] = table @ rotation.mT / size**0.5


CONFIG = {  # our settings, by their names in BERT's config.json
    "hidden_size": "units", "num_hidden_layers": "layers", "num_attention_heads": "heads",
    "intermediate_size": "hidden", "max_position_embeddings": "max_length", "hidden_act": "activation",
    "layer_norm_eps": "norm_epsilon",
}  # fmt: skip
LAYER = {  # modules of a layer, and their names in BERT
    "attend.query": "attention.self.query", "attend.key": "attention.self.key", "attend.value": "attention.self.value",
    "attend.output": "attention.output.dense", "norms.0": "attention.output.LayerNorm",
    "feed_forward.0": "intermediate.dense", "feed_forward.2": "output.dense", "norms.1": "output.LayerNorm",
}  # fmt: skip


def start_pretrained(model: nn.Module, vocabulary: Vocabulary, pretrained: Pretrained | None) -> None:
    """Initialise a Transformer classifier from a BERT model, all but its output layer.

    The embedding of the first token type, which every token of a single text has, is added to those of positions.

    Args:
        model: A classifier of the same architecture: post-norm, with a layer norm of embeddings.
        vocabulary: The source vocabulary, of WordPieces.
        pretrained: The file of weights; None: the model stays as it is.
    """
    if pretrained is None:
        return
    if not isinstance(model, TransformerClassifier):
        raise BadSetting("start.pretrained needs a Transformer classifier (model=transformer_classifier)")
    path = pretrained.path
    check_architecture(model.settings, path.with_name("config.json"))
    rows = {line: number - 1 for number, line in read_lines(path.with_name("vocab.txt"))}
    pieces = [BERT_NAMES.get(token, token) for token in vocabulary.tokens]
    missing = next((piece for piece in pieces if piece not in rows), None)
    require(missing is None, f"start.pretrained needs a vocabulary of WordPieces: vocab.txt lacks {missing!r}")
    try:
        bert = {name.removeprefix("bert."): tensor for name, tensor in load_file(path).items()}
        positions, types = (bert[f"embeddings.{name}_embeddings.weight"] for name in ("position", "token_type"))
        words = bert["embeddings.word_embeddings.weight"][torch.tensor([rows[piece] for piece in pieces])]
        weights = {"source_inputs.table": words, "stack.positions": positions + types[0]}
        modules = {"embedding_norm": "embeddings.LayerNorm"}
        for i in range(model.settings.layers):
            modules |= {f"layers.{i}.{own}": f"encoder.layer.{i}.{name}" for own, name in LAYER.items()}
        for own, name in modules.items():
            weights |= {f"stack.{own}.{part}": bert[f"{name}.{part}"] for part in ("weight", "bias")}
        model.load_state_dict(weights, strict=False)
    except (SafetensorError, KeyError, RuntimeError, IndexError) as error:
        raise Malformed(f"{path} does not hold the weights of this model: {error}") from error


def check_architecture(settings: TransformerSettings, path: Path) -> None:
    """Raise an error unless the settings are those of BERT's config.json."""
    config = read_json(path)
    own = {name: getattr(settings, setting) for name, setting in CONFIG.items()}
    wrong = [f"{CONFIG[name]}={config.get(name)}" for name, value in own.items() if config.get(name) != value]
    fixed = {"positions": "learned", "norm_first": False, "norm_embeddings": True}
    wrong += [f"{setting}={value}" for setting, value in fixed.items() if getattr(settings, setting) != value]
    require(not wrong, f"the model in {path.parent} has other settings: {', '.join(wrong)}")
