"""A Transformer classifier that starts from BERT's weights and reads BERT's word pieces."""

import shutil
from dataclasses import replace

import pytest
import torch
import transformers

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.lab.experiment import Experiment
from attnscope.models import Pretrained, Start, TransformerSettings
from attnscope.tasks import SPECIALS, Classification, MissingCorpus, Preparation, Splits, Words
from attnscope.tasks.text import ChangedCorpus, WordPieces
from attnscope.testing import check_adapter
from attnscope.training import CrossEntropy, MaskedWords, TrainingSettings, Tying
from attnscope.training.fit import TrainingRun, run_to_end
from attnscope.training.replicas import fit_together
from models.bert_like import PIECES, SETTINGS, save_bert
from tasks.small_corpora import write_jsonl

TEXTS = (
    "It's good!", "The  déjà-vu\tdidn't\n word012 words", "bad中word\u200b ﬁ Öde [CLS] <end>", "W0RD " + "a" * 101,
    "", "...", "naïve\x00\ufffd", "a\u2028the\u00a0good\x0cbad",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bert")


@pytest.fixture(scope="module")
def bert(folder):
    return save_bert(folder)


@pytest.fixture
def experiment(bert, folder, tmp_path):
    splits = ["train"] * 24 + ["dev", "test"] * 8
    rows = [
        {"text": f"the good word{i % 3} {'bad ' * (i % 4)}.", "label": i % 2, "split": split}
        for i, split in enumerate(splits)
    ]
    task = Classification(
        write_jsonl(tmp_path / "a.jsonl", rows), special="both", vocabulary=WordPieces(str(folder / "vocab.txt")),
        splits=Splits(("train",), ("dev",), ("test",)), preparation=Preparation("whitespace", lower=False),
    )  # fmt: skip
    training = TrainingSettings(steps=4, batch_size=4, learning_rate=1e-3, evaluate_every=10, epsilon=1e-3)
    start = Start(pretrained=Pretrained(str(folder / "model.safetensors")))
    return Experiment(task, SETTINGS, training, start=start)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_those_of_berts_tokenizer(text, bert, folder):
    coder = WordPieces(str(folder / "vocab.txt")).coder([])
    (ids,) = coder.encode([[text]])
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    expected = tokenizer.tokenize(text.replace("[CLS]", "[ CLS ]"))  # in a text, our tokenizer knows no special tokens
    assert [token.replace("<unknown>", "[UNK]") for token in coder.vocabulary.decode(ids.tolist())] == expected


def test_texts_are_cut_to_a_number_of_pieces_and_read_back(bert, folder):
    coder = WordPieces(str(folder / "vocab.txt"), max_length=4).coder([])
    (ids,) = coder.encode([["Words", "didn't", "word"]])
    assert coder.vocabulary.decode(ids.tolist()) == ["word", "##s", "did", "##n"]
    assert coder.text(ids.tolist()) == "words didn"
    assert len(coder.vocabulary) == len(PIECES)


@torch.no_grad()
def test_states_and_attention_are_those_of_bert(bert, experiment):
    model, batch = experiment.new_model().eval(), next(experiment.task.batches("test"))
    names = {"<pad>": "[PAD]", "<end>": "[SEP]", "<start>": "[CLS]", "<unknown>": "[UNK]"}
    tokens = [experiment.task.source_vocabulary.decode(row) for row in batch.source.tolist()]
    ids = torch.tensor([[PIECES.index(names.get(token, token)) for token in row] for row in tokens])
    assert [row[0] for row in tokens] == ["<start>"] * len(batch)
    bert.set_attn_implementation("eager")
    expected = bert(input_ids=ids, attention_mask=batch.source_mask.long(), output_attentions=True)
    trace, real = model(batch), batch.source_mask
    torch.testing.assert_close(trace.encoder[real], expected.last_hidden_state[real], rtol=0, atol=1e-5)
    for layer, weights in zip(trace.layers, expected.attentions, strict=True):
        torch.testing.assert_close(layer.weights[:, :, 0], weights[:, :, 0], rtol=0, atol=1e-5)
    check_adapter(model, [batch])


def test_each_seed_learns_what_it_learns_alone(experiment):
    pieces = replace(experiment.task.vocabulary, max_length=4)  # of one length: padding would be given random numbers
    experiment = replace(experiment, task=replace(experiment.task, vocabulary=pieces))

    def runs():
        for seed in range(3):
            model = replace(experiment, seed=seed).new_model()
            objective = CrossEntropy() + Tying(0.1, per_dimension=True) + MaskedWords(0.1, p=0.5)
            yield TrainingRun(model, experiment.task, objective, experiment.training, seed, None, {})

    before = experiment.new_model().source_inputs.table
    alone, together = [run_to_end(run) for run in runs()], list(runs())
    fit_together(together)
    for one, other in zip(alone, together, strict=True):
        assert not torch.equal(one.model.source_inputs.table, before)
        for (name, mine), theirs in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-5, msg=name)


def test_checksums_of_weights_and_vocabulary_are_part_of_the_key(experiment, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "other")
    (copy / "vocab.txt").write_text("\n".join([*PIECES[:-1], "other"]) + "\n", encoding="utf-8")
    other = replace(experiment.task, vocabulary=WordPieces(str(folder / "vocab.txt"), fingerprint="0"))
    with pytest.raises(ChangedCorpus, match=r"vocab\.txt has changed"):
        other.resolved()
    resolved = replace(experiment.task, vocabulary=WordPieces(str(copy / "vocab.txt"))).resolved()
    assert resolved.vocabulary.fingerprint != experiment.task.resolved().vocabulary.fingerprint
    assert Experiment.of(experiment.config()) == replace(
        experiment, task=experiment.task.resolved(), start=experiment.start.resolved()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 2}, "has other settings: heads=4"),
        ({"norm_first": True}, "has other settings: norm_first=False"),
        ({"activation": "relu", "norm_epsilon": 1e-5}, "activation=gelu, norm_epsilon=1e-12"),
    ],
)
def test_another_architecture_is_refused(experiment, changes, message):
    with pytest.raises(BadSetting, match=message):
        replace(experiment, model=replace(SETTINGS, **changes)).new_model()


def test_what_is_not_bert_is_refused(experiment, bert, folder, tmp_path):
    with pytest.raises(BadSetting, match="needs a Transformer classifier"):
        replace(experiment, model=TransformerSettings()).new_model()
    words = replace(experiment.task, vocabulary=Words(min_count=1))
    with pytest.raises(BadSetting, match=r"vocab\.txt lacks 'word0'"):
        replace(experiment, task=words).new_model()
    with pytest.raises(MissingCorpus, match=r"Expected is the model\.safetensors of a BERT model"):
        Start(pretrained=Pretrained("nowhere/model.safetensors")).resolved()
    copy = shutil.copytree(folder, tmp_path / "damaged")
    (copy / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(Malformed, match="does not hold the weights"):
        replace(experiment, start=Start(pretrained=Pretrained(str(copy / "model.safetensors")))).new_model()
    (copy / "vocab.txt").write_text("\n".join(SPECIALS) + "\n", encoding="utf-8")
    with pytest.raises(Malformed, match=r"no vocabulary of BERT: it lacks \[PAD\]"):
        WordPieces(str(copy / "vocab.txt")).coder([])
    with pytest.raises(BadSetting, match="max_length must be positive"):
        WordPieces("vocab.txt", max_length=0)
