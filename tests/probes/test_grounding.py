"""The probability of a token is the prediction with all attention on it; leakage counts tokens near the decision."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from lexical_examples import encoder_decoder, random_batch

from attnscope.errors import BadSetting
from attnscope.models import ClassifierSettings, build, uniform
from attnscope.probes.grounding import (
    GroundingAccumulator,
    TokenProbabilities,
    batch_token_probabilities,
    plot_sentence,
    token_probabilities,
)
from attnscope.tasks import SPECIALS, Batch
from attnscope.tasks.batch import END, START

WORDS = 20


def made(classes=2, seed=0, **settings):
    torch.manual_seed(seed)
    chosen = ClassifierSettings(input_size=6, units=4, hidden=4, attention="additive", **settings)
    return build(chosen, WORDS, classes + len(SPECIALS)).double().eval()


def texts(lengths=(5, 2, 7), classes=2, seed=0):
    """Start, words, end, padding; a label each."""
    random = torch.Generator().manual_seed(seed)
    width = max(lengths) + 2
    source, label = torch.zeros(len(lengths), width, dtype=torch.long), torch.zeros(len(lengths), 1, dtype=torch.long)
    for row, length in enumerate(lengths):
        source[row, 0], source[row, length + 1] = START, END
        source[row, 1 : length + 1] = torch.randint(len(SPECIALS), WORDS, (length,), generator=random)
        label[row] = len(SPECIALS) + row % classes
    return Batch(source, torch.arange(width) < torch.tensor(lengths)[:, None] + 2, label, torch.ones_like(label).bool())


def per_token(tokens, decision, predicted=None, gold=None, classes=2):
    tokens, decision = torch.tensor(tokens, dtype=torch.double), torch.tensor(decision, dtype=torch.double)
    zeros = torch.zeros(len(decision), dtype=torch.long)
    predicted = zeros if predicted is None else torch.tensor(predicted)
    gold = predicted if gold is None else torch.tensor(gold)
    return TokenProbabilities(tokens, decision, predicted, predicted, gold, classes)


def same(one, other):
    return all(torch.equal(one.state_dict()[name], value) for name, value in other.items())


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("specials_attended", [True, False])
def test_it_is_the_prediction_with_all_attention_on_one_token(classes, specials_attended):
    model, batch = made(classes, specials_attended=specials_attended), texts(classes=classes)
    result = batch_token_probabilities(model, batch)
    own = model(batch)
    for row, place in (~result.tokens.isnan()).nonzero().tolist():
        alone = torch.zeros_like(own.attention)
        alone[:, :, :, place] = 1
        probabilities = model(batch, attention=alone).logits[row, 0].softmax(-1)
        torch.testing.assert_close(result.tokens[row, place], probabilities[own.predictions[row, 0]])
    torch.testing.assert_close(result.decision, own.logits[:, 0].softmax(-1).amax(-1))


def test_attention_mixes_the_logits_of_the_tokens_into_that_of_the_decision():  # eq. 9
    model, batch = made(specials_attended=False), texts()
    trace = model(batch)
    result = token_probabilities(model, trace, target_class=1)
    mixed = (trace.attention[:, 0, 0] * result.tokens.logit().nan_to_num()).sum(1)
    torch.testing.assert_close(mixed.sigmoid(), result.decision)


def test_special_tokens_and_padding_are_left_out():
    result, batch = batch_token_probabilities(made(), texts()), texts()
    torch.testing.assert_close(~result.tokens.isnan(), batch.source_mask & (batch.source >= len(SPECIALS)))
    assert [len(result.of_text(row)) for row in range(3)] == [5, 2, 7]


def test_a_text_without_words_keeps_its_special_tokens():
    result = batch_token_probabilities(made(), texts((3, 0)))
    assert (~result.tokens[1].isnan()).sum() == 2


def test_the_class_can_be_chosen():
    model, batch = made(), texts()
    no, yes = (batch_token_probabilities(model, batch, target_class=number) for number in (0, 1))
    torch.testing.assert_close(
        no.tokens + yes.tokens, torch.ones_like(no.tokens).masked_fill(no.tokens.isnan(), torch.nan), equal_nan=True
    )
    torch.testing.assert_close(no.decision + yes.decision, torch.ones(3).double())
    with pytest.raises(BadSetting, match="no class 2; they are 0 to 1"):
        batch_token_probabilities(model, batch, target_class=2)


def test_where_attention_is_intervened_the_decision_changes_and_the_tokens_do_not():
    model, batch = made(), texts()
    own, even = (
        batch_token_probabilities(model, batch, target_class=1),
        batch_token_probabilities(model, batch, target_class=1, attention=uniform),
    )
    torch.testing.assert_close(own.tokens, even.tokens, equal_nan=True)
    assert not torch.allclose(own.decision, even.decision)


def test_table_3_averages_over_tokens_then_over_correct_texts():
    nan = float("nan")
    found = per_token([[0.9, 0.7, 0.5], [0.6, nan, nan], [0.99, 0.99, 0.99]], [0.8, 0.6, 0.9], [0, 1, 1], [0, 1, 0])
    ground = GroundingAccumulator()
    ground.update(found)
    result = ground.result()
    assert result.probability == pytest.approx((0.7 + 0.6) / 2)
    assert result.decision == pytest.approx(0.7)
    assert (result.correct, result.texts) == (2, 3)


def test_leakage_counts_tokens_above_chance_that_are_nearly_as_sure_as_the_decision():
    result = per_token([[0.95, 0.81, 0.79, 0.2], [0.56, 0.51, 0.5, 0.49]], [0.9, 0.55])
    assert result.leakage().tolist() == [0.5, 0.5]
    assert result.leakage(margin=0.0).tolist() == [0.25, 0.25]


def test_chance_is_one_of_so_many_classes():
    tokens, decision = [[0.38, 0.34, 0.33, 0.2]], [0.4]
    assert per_token(tokens, decision, classes=3).leakage().tolist() == [0.5]
    assert per_token(tokens, decision, classes=2).leakage().tolist() == [0.0]


def test_a_model_with_equal_tokens_has_full_leakage():
    model, batch = made(), texts()
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.fill_(2.0)
    result = batch_token_probabilities(model, batch)
    assert result.leakage().tolist() == [1.0] * 3
    torch.testing.assert_close(result.mean, result.decision)


def test_means_by_confidence_put_together_are_the_whole():
    ground, found = GroundingAccumulator(), batch_token_probabilities(made(seed=3), texts((4, 6, 2, 3, 8, 5, 1, 2)))
    ground.update(found)
    result, bins = ground.result(), ground.result().by_confidence
    assert (bins["decision"].between(bins["from"], bins["to"])).all()
    for name in ("probability", "decision", "leakage"):
        assert np.average(bins[name], weights=bins["correct"]) == pytest.approx(getattr(result, name))
    assert set(result.table()) == {"probability", "decision", "leakage", "correct", "texts"}


def test_a_batch_equals_its_texts_one_by_one_and_two_halves_the_whole():
    model, batch = made(), texts((5, 2, 7, 3))
    whole, first, second = GroundingAccumulator(), GroundingAccumulator(), GroundingAccumulator()
    whole.update(batch_token_probabilities(model, batch))
    for row, ground in enumerate((first, first, second, second)):
        length = int(batch.source_mask[row].sum())
        one = {name: value[row : row + 1] for name, value in batch.tensors().items()}
        one |= {name: one[name][:, :length] for name in ("source", "source_mask")}
        ground.update(batch_token_probabilities(model, Batch(**one)))
    first.merge(second)
    assert first.result().table().to_numpy() == pytest.approx(whole.result().table().to_numpy())


def test_results_that_cannot_be_averaged_are_refused():
    model, batch = made(), texts()
    with pytest.raises(BadSetting, match="predicted classes"):
        GroundingAccumulator().update(
            batch_token_probabilities(
                model, batch, target_class=1 - int(batch_token_probabilities(model, batch).predicted[0])
            )
        )
    wrong = GroundingAccumulator()
    wrong.update(per_token([[0.9]], [0.9], [1], [0]))
    with pytest.raises(BadSetting, match="no text was classified correctly"):
        wrong.result()
    with pytest.raises(BadSetting, match="merge those of equal settings"):
        GroundingAccumulator().merge(GroundingAccumulator(margin=0.2))
    translator, sentences = encoder_decoder(), random_batch(2, seed=0)
    with pytest.raises(BadSetting, match="decisions of a classifier"):
        batch_token_probabilities(translator, sentences)


def test_the_model_is_left_as_it_was():
    model = made(dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    twice = [batch_token_probabilities(model, texts()).tokens for _ in range(2)]
    torch.testing.assert_close(*twice, equal_nan=True)
    assert model.training
    assert same(model, before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("length", [5, 30, 60])
def test_the_words_of_a_sentence_do_not_overlap(length):
    words, random = [f"wonderful{i}" for i in range(length)], np.random.default_rng(0)
    ax = plot_sentence(
        words, {"base": random.random(length), "tying": random.random(length)}, {"base": 0.9, "tying": 0.7}
    )
    ax.figure.canvas.draw()
    labels = ax.get_xticklabels()
    assert [label.get_text() for label in labels] == words
    between = np.diff([label.get_window_extent().x1 for label in labels])
    assert (between >= 0.95 * labels[0].get_fontsize() * ax.figure.dpi / 72).all()
    plt.close(ax.figure)


def test_a_model_and_its_decision_share_a_colour():
    ax = plot_sentence(["a", "$b"], {"base": [0.1, 0.2], "tying": [0.4, 0.6]}, {"tying": 0.7})
    dotted = [line for line in ax.lines if line.get_linestyle() == ":"]
    tying = next(line for line in ax.lines if list(line.get_ydata()) == [0.4, 0.6])
    assert [line.get_color() for line in dotted] == [tying.get_color()]
    assert dotted[0].get_ydata()[0] == 0.7
    plt.close(ax.figure)
    with pytest.raises(BadSetting, match="a decision of MLM, but no probabilities"):
        plot_sentence(["a"], {"base": [0.1]}, {"MLM": 0.7})


def test_the_result_has_a_figure():
    ground = GroundingAccumulator()
    ground.update(per_token([[0.9, 0.7], [0.6, 0.5]], [0.8, 0.6]))
    ax = ground.result().plot()
    assert ax.get_xlabel() == "probability of the prediction"
    plt.close(ax.figure)
