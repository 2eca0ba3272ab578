"""Arms on discrepancies at a tiny size, and beam search against an exhaustive one."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from numpy.random import default_rng
from small_texts import corpora, messages

import attnscope.studies.snell2021 as snell2021
from attnscope.models import PRESETS, ClassifierSettings, EncoderDecoder, build
from attnscope.models.inference import evaluating
from attnscope.probes.optimal import minimise, one_head
from attnscope.studies.snell2021.a1 import DESCENT_STEPS, descend
from attnscope.studies.snell2021.discrepancies import ALL_WORDS, DISCREPANCIES, HEADERS, VECTORS, BeamSearch, text_arms
from attnscope.studies.snell2021.experiments import PROFILES, TextSizes
from attnscope.tasks import CORPORA, END, Batch
from studies import well_formed
from tasks.small_corpora import write_jsonl

TINY = TextSizes(
    classification=("20newsgroups", "sst"),
    translation=(),
    classifier=ClassifierSettings(input_size=8, units=6, hidden=5),
    translator=PRESETS["translation"],
    steps=10,
    max_steps=10,
    texts=20,
    pairs=10,
    as_published=False,
)
SIZES = replace(PROFILES["quick"], name="tiny", seeds=2, text=TINY)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    with corpora(tmp_path_factory.mktemp("data")) as folder, pytest.MonkeyPatch.context() as patch:
        rows = [{**row, "split": ("train", "test")[i // 50]} for i, row in enumerate(messages(default_rng(0)))]
        write_jsonl(folder / "20newsgroups_sports" / "20newsgroups_sports.jsonl.gz", rows)  # both classes in each split
        for name in TINY.classification:
            patch.setitem(CORPORA, name, replace(CORPORA[name]))  # one that has read no other data yet
        yield folder


def test_each_arm_changes_one_setting(texts):
    arms = text_arms(SIZES)
    before = {name: arms[name].runs["standard"] for name in TINY.classification}
    with_headers, vectors, words = (arms[name].runs["standard"] for name in (HEADERS, VECTORS, ALL_WORDS))
    assert not with_headers.task.preparation.strip_headers
    assert replace(with_headers, task=before["20newsgroups"].task) == before["20newsgroups"]
    assert vectors.start.vectors is not None
    assert replace(vectors, start=before["sst"].start) == before["sst"]
    assert words.task.vocabulary.min_count == 1
    assert replace(words, task=before["sst"].task) == before["sst"]


@pytest.mark.slow
def test_the_arms_write_a_well_formed_result(texts, tmp_path):
    finding = DISCREPANCIES[0]
    with well_formed.tiny(snell2021, (finding,), SIZES) as study:
        (result,) = well_formed.results_of(study, tmp_path).values()
    well_formed.check(finding, result)
    assert [claim.verdict for claim in result.claims][1::2] == ["undecided"] * 3  # a tiny network is held to no number


@pytest.fixture
def translator():
    torch.manual_seed(0)
    settings = replace(PRESETS["translation"], units=6, input_size=6, hidden=6, dropout=0.0)
    model = build(settings, 7, 7)
    assert isinstance(model, EncoderDecoder)
    with torch.no_grad():
        model.output.weight *= 8  # words that are not equally likely
    return model


def log_probability(model, source, mask, words):
    target = torch.tensor([words])
    batch = Batch(source, mask, target, torch.ones_like(target, dtype=torch.bool))
    steps = model(batch, teacher_forcing=1.0).logits.double().log_softmax(-1)[0]
    return steps.gather(1, target[0, :, None]).sum().item()


def test_a_beam_of_one_is_greedy_and_a_wide_one_finds_the_best(translator):
    source, mask = torch.tensor([[4, 5, 6, 4]]), torch.ones(1, 4, dtype=torch.bool)
    vocabulary, length = translator.output.out_features, 3
    with evaluating(translator), torch.no_grad():
        greedy = translator.generate(source, mask, length)[0].tolist()
        narrow = BeamSearch(translator, 1).generate(source, mask, length)[0].tolist()
        wide = BeamSearch(translator, vocabulary**length).generate(source, mask, length)[0].tolist()
        possible = {
            (*words[: words.index(END)], *[END] * (length - words.index(END))) if END in words else words
            for words in product(range(vocabulary), repeat=length)
        }

        def score(words):
            ended = words[: words.index(END) + 1] if END in words else words
            return log_probability(translator, source, mask, list(ended))

        best = max(possible, key=score)
    assert narrow == greedy[: len(narrow)]
    assert wide == list(best)[: len(wide)]


def test_gradient_descent_approaches_the_optimum():
    torch.manual_seed(0)
    mask = torch.tensor([[True, True, True, False]])
    problem = one_head(3 * torch.randn(1, 4, 5), torch.randn(1, 2, 5), torch.tensor([[0, 3]]), mask)
    weights, _ = minimise(problem, torch.ones(1, 2, dtype=torch.bool))
    descended = dict(descend(problem))
    losses = [problem.loss(descended[steps]).sum().item() for steps in DESCENT_STEPS]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(problem.loss(weights).sum().item(), abs=1e-2)
    assert all(each[..., 3].eq(0).all() for each in descended.values())
