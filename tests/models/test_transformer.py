"""Transformers equal torch's own layers, keep the contract of an adapter, and train as an ensemble of seeds."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from attnscope.errors import BadSetting
from attnscope.models import (
    Transformer,
    TransformerClassifier,
    TransformerClassifierSettings,
    TransformerDecoder,
    TransformerDecoderSettings,
    TransformerSettings,
    uniform,
)
from attnscope.models.transformer import causal_mask, rotate
from attnscope.probes.language import head_statistics
from attnscope.probes.lexical import lexical_scores
from attnscope.tasks import PAD, SPECIALS, START, Batch, Keyword, OneToOne
from attnscope.testing import check_adapter
from attnscope.training import CrossEntropy, Guidance, MaskedWords, TrainingSettings, Tying
from attnscope.training.fit import TrainingRun, run_to_end
from attnscope.training.replicas import fit_together

WORDS = 11
SIZES = {"units": 16, "layers": 2, "heads": 2, "hidden": 24, "max_length": 12}
POSITIONS = ("learned", "rotary")


def sentences(lengths=(6, 3, 1, 5), target_lengths=(4, 5, 2, 1), seed=0):
    generator = torch.Generator().manual_seed(seed)
    sides = []
    for each in (lengths, target_lengths):
        mask = torch.arange(max(each)) < torch.tensor(each)[:, None]
        words = torch.randint(3, WORDS, mask.shape, generator=generator).masked_fill(~mask, PAD)
        sides += [words, mask]
    return Batch(*sides)


def classes():
    batch = sentences(target_lengths=(1, 1, 1, 1))
    return replace(batch, target=torch.arange(4)[:, None] % 3 + len(SPECIALS))


def texts():
    """Whole texts, and prompts with shorter answers."""
    whole = sentences(target_lengths=(6, 3, 1, 5))
    return [whole, sentences(target_lengths=(4, 2, 1, 1))]


def of(kind, settings=None, seed=0, **changes):
    torch.manual_seed(seed)
    words = {TransformerClassifier: len(SPECIALS) + 3}.get(kind, WORDS)
    return kind((settings or TransformerSettings)(**SIZES | changes), WORDS, words).eval()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_three_models_keep_the_contract(positions, norm_first):
    changes = {"positions": positions, "norm_first": norm_first}
    check_adapter(of(Transformer, **changes), [sentences()])
    check_adapter(of(TransformerDecoder, TransformerDecoderSettings, **changes), texts())
    for readout in ("cls", "pooling"):
        check_adapter(of(TransformerClassifier, TransformerClassifierSettings, readout=readout, **changes), [classes()])


def copied(attention, theirs):
    """Give torch's attention the weights of ours."""
    parts = [attention.query, attention.key, attention.value]
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts])
    theirs.out_proj.load_state_dict(attention.output.state_dict())


def torch_layer(layer, kind, norm_first):
    theirs = kind(
        SIZES["units"], SIZES["heads"], SIZES["hidden"], dropout=0.0, batch_first=True, norm_first=norm_first
    ).eval()
    copied(layer.attend, theirs.self_attn)
    if layer.cross is not None:
        copied(layer.cross, theirs.multihead_attn)
    theirs.linear1.load_state_dict(layer.feed_forward[0].state_dict())
    theirs.linear2.load_state_dict(layer.feed_forward[2].state_dict())
    for number, norm in enumerate(layer.norms, 1):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
    return theirs


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [True, False])
def test_layers_equal_those_of_torch(norm_first):
    model, batch = of(Transformer, norm_first=norm_first), sentences()
    encoder = [torch_layer(layer, nn.TransformerEncoderLayer, norm_first) for layer in model.encoder.layers]
    decoder = [torch_layer(layer, nn.TransformerDecoderLayer, norm_first) for layer in model.stack.layers]
    trace = model(batch)
    padding = ~batch.source_mask
    state = trace.embedded + model.encoder.positions[: batch.source.shape[1]]
    for layer in encoder:
        state = layer(state, src_key_padding_mask=padding)
    state = model.encoder.norm(state)
    real = batch.source_mask
    assert torch.allclose(state[real], trace.encoder[real], atol=1e-5)
    inputs = torch.cat([torch.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
    hidden = model.target_inputs(inputs) + model.stack.positions[: inputs.shape[1]]
    for layer in decoder:
        hidden = layer(hidden, state, tgt_mask=~causal_mask(inputs)[0], memory_key_padding_mask=padding)
    logits = model.output(model.stack.norm(hidden))
    assert torch.allclose(logits[batch.target_mask], trace.logits[batch.target_mask], atol=1e-5)


@torch.no_grad()
def test_the_language_model_equals_torch_layers_under_a_causal_mask():
    model, (batch, _) = of(TransformerDecoder, TransformerDecoderSettings), texts()
    layers = [torch_layer(layer, nn.TransformerEncoderLayer, True) for layer in model.stack.layers]
    trace = model(batch)
    state = trace.embedded + model.stack.positions[: batch.source.shape[1]]
    for layer in layers:
        state = layer(state, src_mask=~causal_mask(batch.source)[0], src_key_padding_mask=~batch.source_mask)
    logits = model.output(model.stack.norm(state))
    assert torch.allclose(logits[batch.source_mask], trace.logits[batch.target_mask], atol=1e-5)


def test_rotary_scores_depend_on_distances_only():
    torch.manual_seed(0)
    query, key = (rotate(torch.randn(1, 1, 1, 8, dtype=torch.float64).expand(-1, -1, 9, -1)) for _ in range(2))
    scores = (query @ key.mT)[0, 0]
    for distance in range(-8, 9):
        diagonal = scores.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(scores.diagonal(1)[0], scores.diagonal(2)[0])


@torch.no_grad()
def test_greedy_decoding_equals_a_token_by_token_loop():
    model, batch = of(Transformer), sentences()
    trace = model(batch, teacher_forcing=0.0)
    tokens = torch.full_like(batch.target[:, :1], START)
    for step in range(batch.target.shape[1]):
        assert torch.equal(trace.decoder_input[:, : step + 1], tokens)
        prefix = Batch(batch.source, batch.source_mask, torch.cat([tokens[:, 1:], tokens[:, :1]], 1), tokens >= 0)
        tokens = torch.cat([tokens, model(prefix, teacher_forcing=1.0).predictions[:, -1:]], 1)
    generated = model.generate(batch.source, batch.source_mask, batch.target.shape[1])
    ended = (generated == 1).cumsum(1) > 0
    assert torch.equal(generated.masked_fill(ended, 1), trace.predictions.masked_fill(ended, 1))


def test_the_lexical_probe_equals_a_pass_with_all_attention_on_one_token():
    model, batch = of(Transformer), sentences()
    gamma = lexical_scores(model, model(batch)).values
    on_second = torch.nn.functional.one_hot(torch.full_like(batch.target, 1), batch.source.shape[1]).float()
    log_p = model(batch, attention=on_second).logits.log_softmax(-1)
    gold = log_p.gather(-1, batch.target[..., None])[..., 0]
    real = batch.target_mask & (batch.source_mask.sum(1) > 1)[:, None]
    assert torch.allclose(gamma[:, :, 1].sigmoid()[real], gold.exp()[real], atol=1e-5)


def test_head_statistics_of_a_language_model_that_attends_uniformly():
    model = of(TransformerDecoder, TransformerDecoderSettings)
    for layer in model.stack.layers:
        nn.init.zeros_(layer.attend.query.weight)
        nn.init.zeros_(layer.attend.query.bias)
    batch = sentences(lengths=(6, 6), target_lengths=(6, 6))
    values = head_statistics(model, [batch]).values
    assert values["first"] == pytest.approx(values["first if uniform"], rel=1e-5)
    assert values["entropy"] == pytest.approx(1, rel=1e-5)


def test_interventions_at_every_position_of_a_language_model():
    model, batch = of(TransformerDecoder, TransformerDecoderSettings), texts()[0]
    everywhere = model.logits_with(batch, {0: uniform, 1: uniform})
    assert torch.allclose(
        everywhere[batch.target_mask], model(batch, {0: uniform, 1: uniform}).logits[batch.target_mask], atol=1e-5
    )
    prompts = texts()[1]
    assert not torch.allclose(model.logits_with(prompts, {0: uniform}), model(prompts, {0: uniform}).logits)


TASK = OneToOne(num_words=4, min_length=2, max_length=5, test_size=16)
TRAINED = {
    "encoder-decoder": (Transformer, TransformerSettings, TASK, CrossEntropy()),
    "rotary, dropout, guided": (  # of one length: padding would be given random numbers, too
        Transformer, lambda **sizes: TransformerSettings(**sizes, positions="rotary", dropout=0.2),
        replace(TASK, min_length=5),
        CrossEntropy() + Guidance(0.5),
    ),
    "free running": (Transformer, TransformerSettings, TASK, CrossEntropy()),
    "cls": (TransformerClassifier, TransformerClassifierSettings, Keyword(num_words=5, length=6), CrossEntropy()),
    "pooling": (
        TransformerClassifier, lambda **sizes: TransformerClassifierSettings(**sizes, readout="pooling"),
        Keyword(num_words=5, length=6), CrossEntropy() + Tying(0.1) + MaskedWords(0.1, p=0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TRAINED)
def test_each_seed_of_an_ensemble_learns_what_it_learns_alone(case):
    kind, settings, task, objective = TRAINED[case]
    training = TrainingSettings(
        # With a small epsilon, Adam turns rounding errors of gradients that are zero (key biases) into whole steps.
        steps=3, batch_size=4, teacher_forcing=0.0 if case == "free running" else 1.0, evaluate_every=10, epsilon=1e-3,
    )  # fmt: skip

    def runs():
        for seed in range(3):
            torch.manual_seed(seed)
            model = kind(settings(**SIZES), len(task.source_vocabulary), len(task.target_vocabulary))
            yield TrainingRun(model, task, objective, training, seed, None, {})

    alone, together = [run_to_end(run) for run in runs()], list(runs())
    fit_together(together)
    for one, other in zip(alone, together, strict=True):
        for (name, mine), theirs in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5), name


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 3}, "does not divide"),
        ({"positions": "sinusoidal"}, "learned"),
        ({"positions": "rotary", "units": 6, "heads": 2}, "even size"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_bad_settings_are_refused(changes, sentence):
    with pytest.raises(BadSetting, match=sentence):
        TransformerSettings(**SIZES | changes)


def test_texts_longer_than_learned_positions_are_refused():
    with pytest.raises(BadSetting, match="max_length"):
        of(Transformer, max_length=4)(sentences())
