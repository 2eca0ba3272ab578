"""Transformers to audit, trained with the library transformers: a translator, classifiers, a fine-tuned encoder.

    python examples/train_transformers.py translator DATA/multi30k/en-de_tokenised_aligned.jsonl.gz models/marian
    (on two cores, about 90 minutes: add --bf16 --epochs 10 --batch 128 --warmup 600)
    python examples/train_transformers.py classifier DATA/sst/sst.jsonl.gz models/distilbert --epochs 3
    python examples/train_transformers.py classifier DATA/sst/sst.jsonl.gz models/electra --family electra
    python examples/train_transformers.py classifier DATA/sst/sst.jsonl.gz models/albert --family albert --epochs 6
    python examples/train_transformers.py classifier DATA/sst/sst.jsonl.gz models/modern --family modernbert --epochs 5
    python examples/train_transformers.py finetuned DATA/sst/sst.jsonl.gz models/minilm --start FOLDER --epochs 2

    python examples/train_transformers.py tested DATA/multi30k/en-de_tokenised_aligned.jsonl.gz models/marian

The translator is Marian's architecture at a quarter of its width, the DistilBERT at a third, the other families
smaller; all start from random weights and learn their own tokenizer. FOLDER holds a BERT-like encoder with its
tokenizer, such as MiniLM. Of the epochs, the one with the lowest loss on the validation split is kept (without such a
split, on every twentieth text). The models go to folders that `attnscope audit` takes. `tested` says how good such a
folder is on the test split: BLEU of greedy translations, or accuracy.
"""

import argparse
import gzip
import json
import math
import random
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

PIECES = 8000
VALIDATION, TEST = ("val", "dev"), ("test", "test2016")
Rows = list[dict[str, Any]]


# By name: the prefix of the library's classes, and the settings of a small network.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "distilbert": ("DistilBert", {"dim": 256, "hidden_dim": 1024, "n_layers": 6, "n_heads": 4, "dropout": 0.3}),
    "albert": ("Albert", {
        "embedding_size": 64, "hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 3,
        "num_attention_heads": 4, "hidden_dropout_prob": 0.1, "classifier_dropout_prob": 0.1,
    }),
    "electra": ("Electra", {
        "embedding_size": 128, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 4, "hidden_dropout_prob": 0.2,
    }),
    "modernbert": ("ModernBert", {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
        "global_attn_every_n_layers": 2, "local_attention": 16, "classifier_pooling": "mean", "mlp_dropout": 0.1,
        "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3,
    }),
}  # fmt: skip


def rows_of(path: str, *splits: str) -> Rows:
    """Rows of these splits with a translation or a class; of SST, with one of two classes."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["split"] in splits]
    return [row for row in rows if row.get("binary_label", "") is not None]


def text_of(row: dict[str, Any]) -> str:
    return row.get("text") or " ".join(row["tokens"])


def class_of(row: dict[str, Any]) -> str:
    return ("negative", "positive")[row["binary_label"]] if "binary_label" in row else row["label"]


def class_names(rows: Rows) -> dict[str, Any]:
    """Names of the classes, as the library's configurations want them."""
    names = sorted(set(map(class_of, rows)))
    return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


def translator(train: Rows) -> tuple[Any, Any]:
    specials = ["</s>", "<unk>", "<pad>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    texts = chain.from_iterable((row["source"], row["target"]) for row in train)
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=PIECES, special_tokens=specials, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    config = transformers.MarianConfig(
        vocab_size=PIECES, d_model=256, encoder_layers=6, decoder_layers=6, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, dropout=0.3, attention_dropout=0.1,
        activation_function="relu", max_position_embeddings=128, scale_embedding=True, pad_token_id=2, eos_token_id=0,
        decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=128
    )
    return transformers.MarianMTModel(config), fast


def classifier(train: Rows, family: str) -> tuple[Any, Any]:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = (
        pre_tokenizers.BertPreTokenizer() if "text" in train[0] else pre_tokenizers.WhitespaceSplit()
    )
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.train_from_iterator(
        map(text_of, train), trainers.WordPieceTrainer(vocab_size=PIECES, special_tokens=specials, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    prefix, sizes = FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=PIECES, max_position_embeddings=128, pad_token_id=0, **class_names(train), **sizes
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=128,
    )  # fmt: skip
    return getattr(transformers, f"{prefix}ForSequenceClassification")(config), fast


def finetuned(train: Rows, folder: str) -> tuple[Any, Any]:
    names = class_names(train)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(names["id2label"]), **names
    )
    return model, transformers.AutoTokenizer.from_pretrained(folder, model_max_length=128)


def given(model: Any, tokenizer: Any, rows: Rows, device: str) -> dict[str, Tensor]:
    """A batch as the library wants it."""
    options = {"padding": True, "truncation": True, "return_tensors": "pt"}
    if "target" in rows[0]:
        batch = tokenizer([row["source"] for row in rows], **options)
        labels = tokenizer(text_target=[row["target"] for row in rows], **options)["input_ids"]
        batch["labels"] = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    else:
        batch = tokenizer([text_of(row) for row in rows], **options)
        batch["labels"] = torch.tensor([model.config.label2id[class_of(row)] for row in rows])
    batch.pop("token_type_ids", None)
    return {name: value.to(device) for name, value in batch.items()}


def batches(rows: Rows, size: int, draw: random.Random) -> Iterator[Rows]:
    """In random order, with texts of like length together."""
    ordered = sorted(rows, key=lambda row: (len((row.get("source") or text_of(row)).split()), draw.random()))
    parts = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    draw.shuffle(parts)
    yield from parts


def loss_of(model: Any, batch: dict[str, Tensor], smoothing: float) -> Tensor:
    logits = model(**batch).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, -2).float(), batch["labels"].flatten(), label_smoothing=smoothing, ignore_index=-100
    )


def validated(model: Any, tokenizer: Any, rows: Rows, device: str) -> tuple[float, float]:
    """Loss, and share of the labels that are right."""
    losses, right, count = [], 0, 0
    model.eval()
    with torch.no_grad():
        for part in batches(rows, 128, random.Random(0)):
            batch = given(model, tokenizer, part, device)
            losses.append(float(loss_of(model, batch, 0.0)) * len(part))
            said, labels = model(**batch).logits.argmax(-1), batch["labels"]
            right, count = right + int((said == labels).sum()), count + int((labels >= 0).sum())
    model.train()
    return sum(losses) / len(rows), right / count


def train(model: Any, tokenizer: Any, parts: tuple[Rows, Rows], given_settings: argparse.Namespace) -> None:
    """Adam with warming up, then decay by the root of the step; the best epoch goes to the folder."""
    s, device = given_settings, "cuda" if torch.cuda.is_available() else "cpu"
    draw, best, begun = random.Random(s.seed), math.inf, time.time()
    model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=s.rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / s.warmup, (s.warmup / (step + 1)) ** 0.5)
    )
    for epoch in range(s.epochs):
        for part in batches(parts[0], s.batch, draw):
            with torch.autocast(device, torch.bfloat16, enabled=s.bf16 or device == "cuda"):
                loss = loss_of(model, given(model, tokenizer, part, device), s.smoothing)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        found, right = validated(model, tokenizer, parts[1], device)
        print(
            f"epoch {epoch + 1}: validation loss {found:.3f}, right {right:.3f}, {time.time() - begun:.0f} s",
            flush=True,
        )
        if found < best:
            best = found
            model.save_pretrained(s.folder)
            tokenizer.save_pretrained(s.folder)


def tested(folder: Path, rows: Rows) -> str:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if "target" not in rows[0]:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        return f"accuracy {100 * validated(model, tokenizer, rows, 'cpu')[1]:.1f} on {len(rows)} texts"
    import sacrebleu

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    said = [
        text for start in range(0, len(rows), 50) for text in translated(model, tokenizer, rows[start : start + 50])
    ]
    found = sacrebleu.corpus_bleu(said, [[row["target"] for row in rows]], tokenize="none", force=True)
    return f"BLEU {found.score:.1f} on {len(rows)} sentences (words as given, greedy)"


def translated(model: Any, tokenizer: Any, rows: Rows) -> list[str]:
    given = tokenizer([row["source"] for row in rows], padding=True, return_tensors="pt")
    said = model.generate(
        input_ids=given["input_ids"],
        attention_mask=given["attention_mask"],
        num_beams=1,
        do_sample=False,
        max_length=80,
    )
    return [str(text) for text in tokenizer.batch_decode(said, skip_special_tokens=True)]


SETTINGS = {  # rate, warmup, batch, epochs, smoothing
    "translator": (7e-4, 1500, 256, 40, 0.1),
    "classifier": (3e-4, 400, 32, 12, 0.0),
    "finetuned": (5e-5, 100, 32, 3, 0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*SETTINGS, "tested"])
    parser.add_argument("data")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", choices=FAMILIES, default="distilbert")
    parser.add_argument("--start")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int, help="texts per step")
    parser.add_argument("--warmup", type=int, help="steps until the learning rate is at its maximum")
    parser.add_argument("--bf16", action="store_true", help="mixed precision on a CPU too; on a GPU it is always used")
    parser.add_argument("--seed", type=int, default=0)
    s = parser.parse_args()
    if s.what == "tested":
        print(tested(s.folder, rows_of(s.data, *TEST)))
        return
    s.rate, warmup, batch, epochs, s.smoothing = SETTINGS[s.what]
    s.warmup, s.batch, s.epochs = s.warmup or warmup, s.batch or batch, s.epochs or epochs
    torch.manual_seed(s.seed)
    rows, held_out = rows_of(s.data, "train"), rows_of(s.data, *VALIDATION)
    if not held_out:
        rows, held_out = [row for i, row in enumerate(rows) if i % 20], rows[::20]
    makers = {"translator": lambda: translator(rows), "classifier": lambda: classifier(rows, s.family)}
    model, tokenizer = makers.get(s.what, lambda: finetuned(rows, s.start))()
    train(model, tokenizer, (rows, held_out), s)


if __name__ == "__main__":
    main()
