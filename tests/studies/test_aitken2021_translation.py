"""Translation in aitken2021: with a small corpus, without a corpus, and with the real one."""

from dataclasses import replace

import pytest
import torch
from small_translations import TINY, write_corpus

from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import train
from attnscope.lab.store import Store
from attnscope.studies import study
from attnscope.studies.aitken2021.analysis import NetworkAnalysis
from attnscope.studies.aitken2021.experiments import (
    AO,
    PAPER,
    PROFILES,
    QUICK,
    TRANSLATION,
    english_to_french,
    of_figure_5,
    translation,
    translations,
)
from attnscope.studies.aitken2021.fig3_4 import ARTICLES, SENTENCE, count_aligned, token_ids, translate
from attnscope.studies.aitken2021.fig5 import length_ratio
from attnscope.studies.reproduce import reproduce
from attnscope.studies.result import Result
from attnscope.tasks import END, START
from attnscope.tasks.text import UNKNOWN_WORD
from attnscope.tasks.text.tasks import load_corpus

FINDINGS = ("fig4", "fig5a", "fig5b", "fig5c")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder for corpora, with nothing in it."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("ATTNSCOPE_DATA", str(folder))
    monkeypatch.setitem(PROFILES, "tiny", TINY)
    return folder


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """An AO network after a few steps on the small corpus."""
    experiment = translation(AO, replace(TINY, units=16))
    file = write_corpus(tmp_path_factory.mktemp("data")) / experiment.task.file
    experiment = replace(experiment, task=replace(experiment.task, file=str(file)))
    return NetworkAnalysis(train(experiment, Store(tmp_path_factory.mktemp("store"))))


def reproduced_finding(name, tmp_path):
    (result,) = reproduce(study("aitken2021"), [study("aitken2021").finding(name)], "tiny", 2, tmp_path, LocalEngine(0))
    return Result.read(tmp_path / "results" / "aitken2021" / f"{result.finding}.json")


def about_translation(result):
    names = ("AED:", "AO:") if result.finding == "fig4" else tuple(map(str, TRANSLATION))
    return [claim for claim in result.claims if claim.text.startswith(names)]


@pytest.mark.slow
@pytest.mark.parametrize("name", FINDINGS)
def test_translation_is_measured_claimed_and_drawn(name, data, tmp_path):
    write_corpus(data)
    result = reproduced_finding(name, tmp_path)
    labels = {row["model"] for row in result.table}
    assert labels >= ({"AED", "AO"} if name == "fig4" else set(map(str, TRANSLATION)))
    assert all(row["n"] == 2 for row in result.table)
    assert len(about_translation(result)) >= 2
    assert not any(claim.evidence == "not tested" for claim in result.claims)
    assert study("aitken2021").finding(name).draw(result.figure).axes


@pytest.mark.slow
@pytest.mark.parametrize("name", FINDINGS)
def test_without_the_corpus_its_claims_are_undecided_and_others_are_unchanged(name, data, tmp_path):
    result = reproduced_finding(name, tmp_path)
    (note,) = [note for note in result.notes if note.startswith("Runs failed")]
    assert note.count("seeds 0, 1") == 2
    assert ": there is no corpus" in note
    missing = {"AED", "AO"} if name == "fig4" else set(map(str, TRANSLATION))
    assert all((row["n"] == 0) == (row["model"] in missing) for row in result.table)
    assert all(claim.why for claim in about_translation(result))
    assert (result.figure is None) == (name == "fig4")
    if result.figure is not None:
        assert len(result.figure) == 4
        assert study("aitken2021").finding(name).draw(result.figure).axes


def test_networks_of_translation_have_the_sizes_of_the_paper(data):
    write_corpus(data)
    for experiment in translations(PAPER).values():
        assert (experiment.model.inputs, experiment.model.input_size, experiment.model.units) == ("learned", 128, 128)
        assert experiment.task.vocabulary.max_size == 30_000
        assert experiment.task.preparation.max_length == 15
    assert list(of_figure_5(PAPER))[-2:] == list(TRANSLATION)


def test_readouts_that_predict_a_word_align_with_it(analysis):
    """Each readout set so that its dot product is 1 with one word and 0 with all others."""
    inputs = list(token_ids(analysis.run.task.source_vocabulary).values())
    components = analysis.encoder.input[0, inputs]  # fewer words than units, so that it can be solved
    solutions = torch.linalg.pinv(components).T
    english, french = token_ids(analysis.run.task.source_vocabulary), token_ids(analysis.run.task.target_vocabulary)
    readout = analysis.model.output.weight.detach()
    for article, word in (("la", "the"), ("le", "the"), ("les", "a")):
        readout[french[article]] = solutions[inputs.index(english[word])].to(readout)
    assert count_aligned(analysis, ARTICLES, inputs) == 2
    readout[french["les"]] = readout[french["la"]]
    assert count_aligned(analysis, ARTICLES, inputs) == 3


def test_sentences_are_translated_by_greedy_decoding(analysis):
    trace = translate(analysis, "the cat in a zebra")
    read = [analysis.source_tokens[word] for word in trace.source[0].tolist()]
    assert read == ["the", "cat", "in", "a", UNKNOWN_WORD, "<end>"]
    output = trace.target[0].tolist()
    assert trace.decoder_input[0].tolist() == [START, *output[:-1]]
    assert END not in output[:-1]
    assert trace.predictions[0].tolist() == output


def test_words_are_counted_without_end_tokens(analysis):
    test = analysis.run.task.part("test")
    sources, targets = ([len(row) - 1 for row in side] for side in (test.source, test.target))
    assert length_ratio(analysis) == pytest.approx(sum(targets) / sum(sources))


@pytest.mark.corpus
@pytest.mark.slow
def test_the_real_corpus_is_that_of_the_paper_in_small(corpus):
    task = english_to_french(QUICK)
    try:
        words = set(task.source_vocabulary.tokens)
        assert set(task.preparation.words(SENTENCE)) <= words
        assert set(ARTICLES) <= set(task.target_vocabulary.tokens[:50])
        training = task.part("training")
        assert training.lengths.max() == 16  # with the end token
        assert len(training) > 150_000
        longer = sum(map(len, training.target)) / sum(map(len, training.source))
        assert 1.1 < longer < 1.3  # the paper: about 1.2
    finally:
        load_corpus.cache_clear()
