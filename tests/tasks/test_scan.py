"""SCAN is read as published, split by split, with gold attention where there is some."""

import gzip
import json
from itertools import islice

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.lab.configuration import describe, rebuild
from attnscope.tasks import MissingCorpus, Scan
from attnscope.tasks.scan import COMMANDS, STOP, WITH_GOLD_ATTENTION
from attnscope.tasks.text import ChangedCorpus

ROWS = [
    {"split": "train", "source": "jump .", "target": "I_JUMP", "alignment": "0 1"},
    {"split": "train", "source": "jump .", "target": "I_JUMP", "alignment": "0 1"},
    {"split": "train", "source": "walk left .", "target": "I_TURN_LEFT I_WALK", "alignment": "1 0 2"},
    {"split": "train", "source": "run after walk .", "target": "I_WALK I_RUN", "alignment": "2 0 3"},
    {"split": "test", "source": "look opposite left .", "target": "I_TURN_LEFT I_TURN_LEFT I_LOOK",
     "alignment": "2 2 0 3"},
]  # fmt: skip
# the published numbers of rows: train, test
PUBLISHED = {
    "simple": (16728, 4182),
    "length": (16990, 3920),
    "addprim_jump": (14670, 7706),
    "addprim_turn_left": (21890, 1208),
    "template_jump_around_right": (18528, 1173),
    "template_around_right": (15225, 4476),
    "template_opposite_right": (15225, 4476),
    "template_right": (15225, 4476),
}


def spelled(task, split):
    for batch in task.batches(split):
        for i in range(len(batch)):
            source = task.source_vocabulary.decode(batch.source[i][batch.source_mask[i]].tolist())
            target = task.target_vocabulary.decode(batch.target[i][batch.target_mask[i]].tolist())
            guide = [] if batch.gold_attention is None else batch.gold_attention[i][batch.target_mask[i]].tolist()
            yield " ".join(source), " ".join(target), guide


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scan").mkdir()

    def file(name, rows):
        with gzip.open(tmp_path / "scan" / f"{name}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)

    return file


def test_a_command_its_actions_and_their_guide(write):
    write("hard_attention_simple", ROWS)
    task = Scan(gold_attention=True)
    expected = ("look opposite left <end>", "I_TURN_LEFT I_TURN_LEFT I_LOOK <end>", [2, 2, 0, 3])
    assert list(spelled(task, "test")) == [expected]
    assert list(spelled(Scan(gold_attention=True, end=False), "test")) == [
        ("look opposite left <end>", "I_TURN_LEFT I_TURN_LEFT I_LOOK", [2, 2, 0])
    ]


def test_without_guides_a_batch_has_none(write):
    write("simple", [{**row, "source": row["source"].removesuffix(" .")} for row in ROWS])
    assert next(Scan().batches("test")).gold_attention is None
    assert next(spelled(Scan(), "test"))[:2] == ("look opposite left <end>", "I_TURN_LEFT I_TURN_LEFT I_LOOK <end>")


def test_validation_is_sampled_from_commands_that_occur_once(write):
    """Otherwise the one command that shows what 'jump' means could be missing from training."""
    write("addprim_jump", ROWS)
    validation = set()
    for seed in range(20):
        task = Scan("addprim_jump", validation_share=0.5, seed=seed)
        sentences = {split: [source for source, _, _ in spelled(task, split)] for split in ("training", "validation")}
        assert sentences["training"].count("jump <end>") == 2
        assert len(sentences["validation"]) == 1
        assert not set(sentences["training"]) & set(sentences["validation"])
        validation |= set(sentences["validation"])
    assert validation == {"walk left <end>", "run after walk <end>"}


def test_a_published_validation_set_is_used(write):
    write("hard_attention_length", [*ROWS, {**ROWS[0], "split": "validation"}])
    task = Scan("length", gold_attention=True)
    assert len(task.part("training")) == 4
    assert [source for source, _, _ in spelled(task, "validation")] == ["jump <end>"]


def test_an_epoch_has_each_sentence_once(write):
    write("hard_attention_simple", ROWS)
    task = Scan(gold_attention=True)
    steps = task.steps(2)
    rows = [tuple(row[row > 0].tolist()) for step in range(steps) for row in task.training_batch(0, step, 2).source]
    assert sorted(rows) == sorted(tuple(source) for source in task.part("training").source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "hop ."}, "line 1: the source must consist of words of SCAN, but has hop"),
        ({"target": "JUMP"}, "line 1: the target must consist of words of SCAN, but has JUMP"),
        ({"target": ""}, "line 1: the target must consist of words of SCAN, but has none"),
        ({"alignment": "0"}, "line 1: the alignment must have 2 numbers, .* not '0'"),
        ({"alignment": "0 2"}, "each from 0 to 1, not '0 2'"),
    ],
)
def test_a_malformed_line_is_named(write, change, message):
    write("hard_attention_simple", [{**ROWS[0], **change}, *ROWS])
    with pytest.raises(Malformed, match=message):
        Scan(gold_attention=True).part("test")


def test_missing_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    with pytest.raises(MissingCorpus, match=r"looked for .*scan/hard_attention_length\.jsonl\.gz .*'alignment'"):
        Scan("length", gold_attention=True).part("training")


def test_another_file_than_that_of_the_settings_is_refused(write):
    write("simple", ROWS)
    task = Scan().resolved()
    write("simple", ROWS[::-1])
    with pytest.raises(ChangedCorpus, match=r"scan/simple.jsonl.gz has changed: its checksum is .*, the settings say"):
        task.part("test")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"commands": "lenght"}, "there is no split of SCAN 'lenght'; choose one of simple"),
        (
            {"commands": "filler_num0", "gold_attention": True},
            "with gold attention 'filler_num0'; choose one of simple, addprim_jump",
        ),
        ({"validation_share": 1.0}, "validation_share is between 0 and 1"),
    ],
)
def test_unknown_splits_are_refused(wrong, message):
    with pytest.raises(BadSetting, match=message):
        Scan(**wrong)


def test_settings_come_back_from_json():
    task = Scan("addprim_jump", gold_attention=True, seed=3)
    assert rebuild(describe(task)) == task


@pytest.mark.corpus
@pytest.mark.parametrize("commands", COMMANDS, scope="module")  # one split after the other: each is read once
def test_every_published_split_is_read_whole(corpus, commands):
    task = Scan(commands)
    rows = corpus(task.file)
    counts = tuple(sum(row["split"] == split for row in rows) for split in ("train", "test"))
    assert counts == PUBLISHED.get(commands, counts)
    assert (len(task.part("training")) + len(task.part("validation")), len(task.part("test"))) == counts
    expected = [(row["source"] + " <end>", row["target"] + " <end>", []) for row in rows if row["split"] == "test"]
    assert list(islice(spelled(task, "test"), 200)) == expected[:200]


@pytest.mark.corpus
@pytest.mark.parametrize("commands", WITH_GOLD_ATTENTION, scope="module")
def test_published_guides_are_the_published_alignments(corpus, commands):
    task = Scan(commands, gold_attention=True)
    rows = [row for row in corpus(task.file) if row["split"] == "test"]
    assert all(row["source"].endswith(f" {STOP}") for row in rows)
    guides = [" ".join(map(str, guide)) for _, _, guide in spelled(task, "test")]
    assert guides == [row["alignment"] for row in rows]
    assert any(guide.split() != sorted(guide.split(), key=int) for guide in guides)  # not diagonal


@pytest.mark.corpus
@pytest.mark.parametrize("commands", WITH_GOLD_ATTENTION, scope="module")
def test_guided_and_plain_files_have_the_same_commands(corpus, commands):
    plain, guided = Scan(commands), Scan(commands, gold_attention=True)
    corpus(plain.file)
    both = zip(plain.part("test").source, guided.part("test").source, strict=True)
    assert all(np.array_equal(*sources) for sources in both)
