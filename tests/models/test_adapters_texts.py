"""Texts as Batches: token ids of a tokenizer, its tokens as words, and the words of a user's own model."""

import pytest
import torch
from adapter_examples import CLASSIFIERS, ENCODER_DECODERS, SOURCES, TARGETS, adapter, texts
from torch import nn
from torch.nn.functional import pad

from attnscope.errors import BadSetting
from attnscope.models import Attention, Trace
from attnscope.models.adapters import Adapter, TargetIds, WordReader, Words, by_word
from attnscope.models.adapters.readers import NO_WORD, TokenizedText
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.capabilities import EmbedsSource, ReadsTexts
from attnscope.models.inference import with_predicted_target
from attnscope.tasks import END, SPECIALS
from attnscope.testing import check_adapter


@pytest.mark.parametrize(
    "specials", [(0, 4, 3), (1, 2, 0), (9, 0, None), (0, 1, None), (0, 1, 2), (None, None, None), (5, 5, 7)]
)
def test_target_ids_and_the_tokenizers_are_each_others_inverse_and_specials_come_first(specials):
    ids = TargetIds(10, *specials)
    assert ids.from_tokenizer(ids.to_tokenizer(torch.arange(3, len(ids)))).tolist() == list(range(3, len(ids)))
    assert sorted(ids.inverse.tolist()) == sorted(set(range(len(ids))) - missing(specials))
    for number, special in enumerate(specials):
        if special is not None and special not in specials[:number]:
            assert int(ids.from_tokenizer(torch.tensor(special))) == number


def missing(specials):
    """Numbers that stand for nothing."""
    return {i for i, special in enumerate(specials) if special is None or special in specials[:i]}


@pytest.mark.parametrize("specials", [(0, 4, 3), (9, 0, None), (0, 1, None), (0, 1, 2)])
def test_reordered_logits_are_looked_up_one_by_one(specials):
    ids, logits = TargetIds(10, *specials), torch.randn(2, 3, 10)
    result = ids.reorder(logits)
    for number, i in enumerate(ids.token_ids.tolist()):
        expected = torch.full((2, 3), -torch.inf) if i < 0 else logits[..., i]
        assert torch.equal(result[..., number], expected)
    assert result.shape[-1] == len(ids)


@pytest.mark.parametrize("kind", [*ENCODER_DECODERS, *CLASSIFIERS])
def test_source_ids_are_the_tokenizers_and_words_are_whole(kind):
    model = adapter(kind)
    read = texts(model)
    batch, tokenizer = read.batch, model.reader.tokenizer
    for row, mask, text in zip(batch.source, batch.source_mask, SOURCES, strict=True):
        assert row[mask].tolist() == tokenizer(text)["input_ids"]
        assert (row[~mask] == tokenizer.pad_token_id).all()
    starts = kind not in ("marian", "pegasus", "t5")
    assert ((batch.source_mask & batch.source_special).sum(1) == 1 + int(starts)).all()
    for i, text in enumerate(SOURCES):
        names = [name for name, real in zip(read.source.names[i], read.source.is_word[i], strict=False) if real]
        assert names == text.split()
    assert torch.equal(batch.word_mask, read.source.unit.ge(0) & ~special(read.source))
    assert read.source.tokens == tuple(
        tuple(model.reader.source_vocabulary.decode(row[mask].tolist()))
        for row, mask in zip(batch.source, batch.source_mask, strict=True)
    )
    assert read.cut == 0


def special(words):
    """Positions of special tokens."""
    return words.places.gather(1, words.unit.clamp(min=0)) == NO_WORD


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
def test_targets_end_with_the_end_token_and_are_shown_as_words(kind):
    model = adapter(kind)
    read = texts(model)
    batch = read.batch
    assert ((batch.target == END).sum(1) == 1).all()
    again = model.reader.target_words(batch.target, batch.target_mask)
    for i, text in enumerate(TARGETS):
        assert [
            n for n, real in zip(read.target.names[i], read.target.is_word[i], strict=False) if real
        ] == text.split()
        assert model.reader.text(batch.target[i][batch.target_mask[i]]) == text
        # What was generated has no text to compare with: its words are read off the pieces, with the same result.
        assert again.names[i] == read.target.names[i]
    assert torch.equal(again.unit, read.target.unit)


@pytest.mark.parametrize("kind", ["marian", "bert", "roberta"])
def test_a_text_given_as_words_is_the_text(kind):
    model = adapter(kind)
    whole, apart = model.reader.read(SOURCES), model.reader.read([text.split() for text in SOURCES])
    assert torch.equal(whole.batch.source, apart.batch.source)
    assert torch.equal(whole.source.unit, apart.source.unit)
    with pytest.raises(BadSetting, match="'two words' among them"):
        model.reader.read([["a", "two words"]])


def test_attention_by_word_is_summed_over_source_subwords_and_averaged_over_target_subwords():
    source = Words.of([TokenizedText(("an", "isle"), ("an", "is", "##le", "[SEP]"), (0, 1, 1, NO_WORD))])
    target = Words.of([TokenizedText(("île",), ("<s>", "î", "le"), (NO_WORD, 0, 0))])
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.5, 0.1, 0.2, 0.2]]])  # 1 x 3 x 4
    expected = torch.tensor([[[0.1, 0.5, 0.4], [0.6, 0.25, 0.15]]])
    torch.testing.assert_close(by_word(weights, source, target), expected)
    torch.testing.assert_close(by_word(weights[:, None], source, target), expected[:, None])  # with heads
    assert source.names == (("an", "isle", "[SEP]"),)
    assert target.names == (("<s>", "île"),)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["marian", "bert"])
def test_attention_by_word_sums_to_one_over_the_words_of_each_text(kind):
    model = adapter(kind)
    read = texts(model)
    result = by_word(model(read.batch).attention, read.source, read.target)  # batch x heads x units x units
    sums = result.nansum(-1)
    torch.testing.assert_close(sums, read.target.mask[:, None].float().expand_as(sums))
    assert torch.equal(result[:, 0, 0].isnan(), ~read.source.mask)


def test_results_do_not_depend_on_the_batch():
    model = adapter("bert")
    together, apart = model.reader.read(SOURCES), list(model.reader.batches(SOURCES, size=3))
    assert [len(part.batch) for part in apart] == [3, 1]
    width = apart[1].batch.source.shape[1]
    assert torch.equal(apart[1].batch.source[0], together.batch.source[3, :width])


def test_classes_are_given_by_name_or_index():
    model = adapter("bert", id2label={0: "bad", 1: "fair", 2: "good"})
    read = model.reader.read(SOURCES, ["good", 0, "1", "bad"])
    assert (read.batch.target[:, 0] - len(SPECIALS)).tolist() == [2, 0, 1, 0]
    assert read.target.names[0] == ("good",)
    assert model.reader.target_vocabulary.tokens[3:] == ("bad", "fair", "good")
    for unknown in ("great", 3, -1):
        with pytest.raises(BadSetting, match="this model knows bad, fair, good"):
            model.reader.read(SOURCES[:1], [unknown])


@torch.no_grad()
def test_a_classifiers_own_decisions_can_be_its_target():
    model = adapter("distilbert")
    batch = model.reader.read(SOURCES).batch
    assert torch.equal(with_predicted_target(model, batch).target, model(batch).predictions)


def test_long_texts_are_truncated_and_counted():
    model = adapter("bert")
    read = model.reader.read(["the old dog " * 30, "a dog"])
    assert read.cut == 1
    assert read.batch.source.shape[1] == model.reader.max_length == 40
    assert read.batch.source_special[0, -1]
    assert adapter("roberta").reader.max_length == 38  # two positions lie before the first


def test_no_texts_and_odd_pairs_are_refused():
    model = adapter("bert")
    with pytest.raises(BadSetting, match="no text to read"):
        model.reader.read([])
    with pytest.raises(BadSetting, match="there are 2 texts, but 1 targets"):
        model.reader.read(["a", "b"], [0])
    with pytest.raises(BadSetting, match="at least one text, not 0"):
        list(model.reader.batches(["a"], size=0))


def test_the_map_of_target_ids_moves_with_the_model():
    model = adapter("marian")
    assert model.reader.target in set(model.modules())


WORDS = ("a", "dog", "sleeps", "<unk>", "</s>")


class MeanOfWords(Adapter, EmbedsSource, ReadsTexts):
    """A classifier by the mean of its own embedding, which has one row per word and none for special ids of ours."""

    def __init__(self, **reader):
        super().__init__()
        self.source_inputs = nn.Embedding(len(WORDS), 4)
        self.output = nn.Linear(4, 2)
        self.reader = WordReader(WORDS, classes=("no", "yes"), **reader)

    def forward(self, batch, attention=None, teacher_forcing=None, gates=False):
        embedded = self.source_inputs(batch.source)
        scores = embedded.new_zeros(len(batch), 1, 1, batch.source.shape[1])
        weights = intervene(masked_softmax(scores, batch.source_mask), batch.source_mask, attention)
        context = (weights @ embedded[:, None])[:, 0]
        logits = pad(self.output(context), (len(SPECIALS), 0), value=-torch.inf)
        layer = Attention(values=embedded[:, None], scores=scores, weights=weights)
        return Trace.of(batch, embedded=embedded, encoder=embedded, layers=(layer,), context=context, logits=logits)


@pytest.mark.parametrize("end", [None, "</s>"])
def test_a_model_with_its_own_vocabulary_reads_its_words(end):
    torch.manual_seed(0)
    model = MeanOfWords(end=end)
    read = model.reader.read(["a dog sleeps", "dog"], ["yes", 0])
    check_adapter(model, [read.batch])
    trace = read.label(model(read.batch))
    for row, mask, tokens in zip(trace.embedded, trace.source_mask, trace.source_tokens, strict=True):
        expected = model.source_inputs.weight[[WORDS.index(token) for token in tokens]]
        assert torch.equal(row[mask], expected)
    assert read.batch.word_mask.sum(1).tolist() == [3, 1]  # also those words whose ids are 0, 1 and 2
    assert read.batch.source_mask.sum(1).tolist() == ([3, 1] if end is None else [4, 2])
    assert trace.target_tokens == (("yes",), ("no",))


def test_a_reader_of_words_knows_its_targets():
    reader = WordReader(WORDS, targets=("ein", "hund"), end="</s>")
    read = reader.read(["a cat"], ["ein hund"])
    assert read.batch.source.tolist() == [[0, 3, 4]]
    assert read.source.names == (("a", "cat", "</s>"),)
    assert read.batch.target.tolist() == [[3, 4, END]]
    assert reader.text(read.batch.target[0]) == "ein hund"
    assert reader.target_words(read.batch.target, read.batch.target_mask).names == (("ein", "hund", "<end>"),)
    for wrong in ({}, {"classes": ("a", "b"), "targets": ("c",)}, {"classes": ("a", "b"), "end": "<end>"}):
        with pytest.raises(BadSetting):
            WordReader(WORDS, **wrong)
