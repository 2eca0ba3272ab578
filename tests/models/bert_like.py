"""A small BERT model with random weights, saved as published ones are, and our settings of the same architecture."""

import torch
import transformers

from attnscope.models import TransformerClassifierSettings

WORDS = [
    "good", "bad", "word", "a", "the", "##0", "##1", "##2", "##s", "it", "did", "##n", "t", "'", "-", ".", "!", "de",
    "##ja", "vu", "中", "fi",
]  # fmt: skip
PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SETTINGS = TransformerClassifierSettings(
    units=16, layers=2, heads=4, hidden=24, max_length=20, norm_first=False, activation="gelu", norm_embeddings=True,
    norm_epsilon=1e-12,
)  # fmt: skip


def save_bert(folder):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    config = transformers.BertConfig(
        vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        max_position_embeddings=20,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.BertModel(config).eval()
    for parameter in model.parameters():  # norms and biases, too, and larger than BERT's own initial weights
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    return model
