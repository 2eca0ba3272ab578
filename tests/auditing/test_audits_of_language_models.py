"""Audit, explanation and probes of language models from the command line, offline, on tiny folders."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from language_examples import foreign, language_model, tokenizer

import attnscope
from attnscope.cli import app, main
from attnscope.errors import AttnscopeError
from attnscope.faithfulness import assess
from attnscope.faithfulness.prompts import MAX_NAMES, part_numbers, part_units, sentence_units
from attnscope.models.inputs import Inputs
from attnscope.probes import PROBES
from attnscope.probes.divergences import tvd
from attnscope.probes.heads.sentences import Sentences

PROMPTS = [
    {"prompt": "the old cat sat . a dog sleeps . the cat", "answer": "sat", "parts": ["the old cat sat .", "a dog"]},
    {"prompt": "a dog sees the mat . small dogs see . a dog", "answer": "sees", "parts": {"one": "a dog sees"}},
    {"prompt": "the mat on the house . the mat", "answer": "on the", "parts": []},
] * 4  # fmt: skip


@pytest.fixture(params=["gpt2", "llama"])
def folder(request, tmp_path):
    foreign(request.param).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    return tmp_path


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """By kind, a model that is saved in a folder, and prompts without answers: one token is predicted."""
    result = {}
    for kind in ("gpt2", "llama"):
        place = tmp_path_factory.mktemp(kind)
        foreign(kind).save_pretrained(place / "model")
        tokenizer().save_pretrained(place / "model")
        prompts = [json.dumps({"prompt": one["prompt"]}) for one in (*PROMPTS, *PROMPTS[:6])]
        (place / "prompts.jsonl").write_text("\n".join(prompts))
        result[kind] = place / "model", place / "prompts.jsonl"
    return result


def run(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_audits_explains_and_probes_a_folder(folder):
    model, prompts = folder / "model", folder / "prompts.jsonl"
    output = run("audit", model, prompts, "--out", folder / "audit", "--quick")
    assert "page:" in output
    report = json.loads((folder / "audit" / "audit.json").read_text())
    assert report["model"]["kind"] == "language model"
    assert not {name: part["failed"] for name, part in report["parts"].items() if part.get("failed")}
    assert "IBM" not in json.dumps(report["parts"]["heads"])  # an answer is no translation of its prompt
    assert {row["unit"] for row in report["parts"]["units"]["table"]} == {"token", "word", "sentence", "named part"}
    page = (folder / "audit" / "audit.html").read_text()
    assert "the next token" in page
    output = run("explain", model, "the old cat sat on the", "--audit", folder / "audit")
    assert "probability of" in output
    assert "audited" in output
    run("explain", model, "the old cat", "--target", "sat on", "--audit", folder / "audit")
    output = run("probe", model, "head_statistics", prompts)
    assert "induction" in output


# Probes that need what a language model or its prompts do not have, and a word of the sentence that says so.
NOT_ANSWERED = {
    "decompose": "position_shares", "optimal": "attention", "plausibility": "rationale", "word_alignment": "alignment",
    "gates": "gates", "weights": "recurrent",
}  # fmt: skip
OPTIONS = {
    "fragility": ["draws=2"], "erasure": ["draws=1"], "information": ["k=3"], "distance_shares": ["window=3"],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("name", PROBES)
def test_every_probe_runs_from_the_command_or_says_why_not(name, kind, folders, capsys):
    model, prompts = folders[kind]
    options = [part for one in OPTIONS.get(name, []) for part in ("--set", one)]
    status = 0
    try:
        main(["probe", str(model), name, str(prompts), *options])
    except SystemExit as end:
        status = end.code
    printed = capsys.readouterr()
    if name in NOT_ANSWERED:
        assert status == 2
        (line,) = printed.err.strip().splitlines()
        assert line.startswith("attnscope: ")
        assert NOT_ANSWERED[name] in line
    else:
        assert status in (0, None), printed.err
        assert len(printed.out.splitlines()) > 1


def test_sentences_and_named_parts_are_units():
    model = language_model("gpt2")
    read = model.reader.read(["the cat sat . a dog sleeps . the cat"], ["sat"])
    sentences = Sentences(read.batch, read.source, read.target)
    tokens, units = read.source.tokens[0], sentence_units(sentences)[0].tolist()
    assert len(units) == len(tokens)
    assert max(units) == 2
    assert sorted(units) == units
    missing = []
    (result,) = part_units([["a dog sleeps .", "a dog", "dogs"]], missing)(sentences).tolist()
    assert missing == ["dogs"]
    first, second = (
        "".join(token for token, unit in zip(tokens, result, strict=True) if unit == number).replace("Ġ", " ").strip()
        for number in (0, 1)
    )
    assert first.startswith("sleeps")
    assert second == "a dog"  # of parts that overlap, the later one has the words
    assert part_numbers(["a", "b"], ["c"]) == [-1, -1]


def test_an_answer_of_several_tokens_is_assessed_token_by_token():
    model = language_model("llama")
    pairs = [("the old cat sat on", "the mat"), ("a dog sees the", "old house"), ("small dogs see", "the cat")] * 2
    result = assess(model, pairs, quick=True)
    assert result.texts == 6
    counts = [len(model.reader.read([prompt], [answer]).target.tokens[0]) for prompt, answer in pairs]
    assert len(result.decisions) == sum(min(4, count) for count in counts)


def test_an_explanation_is_about_the_next_token():
    model = language_model("gpt2")
    result = attnscope.explain(model, "the old cat sat on the")
    assert len(result.target_tokens) == 1
    assert result.prediction == result.target
    assert set(result.scores) == {"attention", "leave-one-out", "gradient × input", "β"}
    assert result.scores["attention"].sum().item() == pytest.approx(1.0, abs=1e-5)
    assert not any("longer than the model can read" in sentence for sentence in result.sentences())


def test_an_explanation_reports_a_truncated_text():
    sentences = list(attnscope.explain(language_model("gpt2"), "the old cat sat on " * 20).sentences())
    assert any("longer than the model can read: only 64 tokens" in sentence for sentence in sentences)


def test_an_audit_counts_parts_that_do_not_occur_in_the_prompt():
    prompts = [PROMPTS[0] | {"parts": ["the old cat sat .", "a dog sleeps .", "the cat sleeps"]}, *PROMPTS[1:3]] * 2
    result = attnscope.audit(language_model("gpt2"), prompts, quick=True)
    assert "are left out: 2." in " ".join(result.parts["units"].sentences)


def without_weights(positions):
    """An intervention that takes all weight from these positions."""

    def change(weights, mask):
        rest = weights.masked_fill(positions.nonzero()[:, 0][:, None].eq(torch.arange(weights.shape[-1])).any(0), 0)
        return rest / rest.sum(-1, keepdim=True).clamp(min=1e-9)

    return change


def test_named_parts_have_their_attention_and_the_output_changes_without_them(tmp_path):
    model, parts = language_model("gpt2"), {"first": "the old cat sat", "second": "small dogs see"}
    prompt = {"prompt": "the old cat sat small dogs see the cat", "answer": "sat", "parts": parts}
    report = attnscope.audit(model, [prompt] * 2, tmp_path, quick=True)
    rows = {row["part"]: row for row in report.parts["named_parts"].table}
    assert list(rows) == ["first", "second", "other words"]
    assert {row["prompts"] for row in rows.values()} == {2}
    assert sum(row["tokens"] for row in rows.values()) == pytest.approx(1)
    whole = model.trace([prompt["prompt"]], ["sat"])
    second = "".join(whole.source_tokens[0]).replace("Ġ", " ").index(" small dogs see")
    ends = torch.tensor([len(token) for token in whole.source_tokens[0]]).cumsum(0)
    inside = (ends > second) & (ends <= second + len(" small dogs see"))
    attention = whole.layers[-1].weights.mean(1)[0][:, inside].sum(1).mean()
    assert rows["second"]["attention"] == pytest.approx(attention.item(), abs=1e-5)
    without = model.trace(["the old cat sat the cat"], ["sat"])
    change_without = tvd(whole.logits.softmax(-1), without.logits.softmax(-1)).mean().item()
    assert rows["second"]["deleted"] == pytest.approx(change_without, abs=1e-5)
    masked = model.trace([prompt["prompt"]], ["sat"], attention={len(whole.layers) - 1: without_weights(inside)})
    change = tvd(whole.logits.softmax(-1), masked.logits.softmax(-1)).mean()
    assert rows["second"]["masked"] == pytest.approx(change.item(), abs=1e-5)
    other = prompt | {"parts": ["small dogs see"]}
    report = attnscope.audit(model, [other] * 2, tmp_path, quick=True)  # not as it was stored for other parts
    rows = {row["part"]: row for row in report.parts["named_parts"].table}
    assert list(rows) == ["part 1", "other words"]
    assert rows["part 1"]["deleted"] == pytest.approx(change_without, abs=1e-5)


@pytest.mark.parametrize("prompt", ["<s>the old cat</s>small dogs<s>see", "<s> the old cat </s> small dogs <s> see"])
def test_named_parts_begin_and_end_at_special_tokens(prompt):
    texts = language_model("gpt2").reader.read([prompt])
    missing: list[str] = []
    (units,) = part_units([["the old cat", "small dogs"]], missing)(
        Sentences(texts.batch, texts.source, texts.target)
    ).tolist()
    parts = ["".join(t for t, unit in zip(texts.source.tokens[0], units, strict=True) if unit == i) for i in (0, 1)]
    assert [part.replace("Ġ", " ").strip() for part in parts] == ["the old cat", "small dogs"]
    assert not missing


def test_only_the_commonest_names_of_parts_are_shown():
    prompts = [
        {"prompt": "the old cat sat . a dog sleeps .", "parts": {f"passage {i}": "the old cat sat .", "dog": "a dog"}}
        for i in range(MAX_NAMES + 5)
    ]  # fmt: skip
    part = attnscope.audit(language_model("gpt2"), prompts).parts["named_parts"]
    assert len(part.table) == MAX_NAMES + 1
    assert part.table[0]["part"] == "dog"
    assert part.table[-1]["part"] == "other words"
    assert f"Of {MAX_NAMES + 6} names" in part.sentences[-1]


def test_the_error_for_a_missing_file_lists_the_fields_of_prompts():
    with pytest.raises(AttnscopeError, match="a 'prompt' and its 'answer'"):
        attnscope.audit(language_model("gpt2"), "missing.jsonl")


def test_parts_that_never_occur_are_reported_as_missing():
    prompts = [
        {"prompt": "the old cat sat .", "parts": ["a dog"]},
        {"prompt": "a dog sees the mat .", "parts": ["cats"]},
    ]
    part = attnscope.audit(language_model("gpt2"), prompts, quick=True).parts["named_parts"]
    assert part.failed == "no named part occurs in its prompt as whole words"


def test_chats_are_read_from_a_file_and_a_last_message_of_the_assistant_is_the_answer(tmp_path):
    chats = [
        [("user", "the old cat sat on the"), ("assistant", "mat")],
        [("user", "a dog"), ("assistant", "sleeps"), ("user", "small dogs see the"), ("assistant", "house")],
    ] * 2  # fmt: skip
    rows = [{"messages": [{"role": role, "content": content} for role, content in chat]} for chat in chats]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(row | {"parts": ["old cat"]}) + "\n" for row in rows))
    model = language_model("gpt2", chat=True)
    report = attnscope.audit(model, path, quick=True)
    assert not [part.failed for part in report.parts.values() if part.failed]
    assert {row["unit"] for row in report.parts["units"].table} == {"token", "word", "sentence", "named part"}
    inputs = Inputs.of(model, path)
    assert inputs.has_targets
    assert inputs.examples[1].target == "house"
    assert len(inputs.examples[1].source) == 3
    read = inputs.read(slice(1, 2))
    assert model.reader.text(read.batch.target[0]).strip() == "house"
    assert len(attnscope.run_probe("head_statistics", model, path).table()) == 8
    unanswered = [{"messages": row["messages"][:1]} for row in rows]
    assert len(attnscope.run_probe("position_shares", model, unanswered).position) == 2  # the others are too short
    for wrong in ("text", [], [{"role": "user"}], rows[0]["messages"][1:]):
        with pytest.raises(AttnscopeError, match="'messages'"):
            Inputs.of(model, [{"messages": wrong}])
    with pytest.raises(AttnscopeError, match="no chat template"):
        attnscope.run_probe("agreement", language_model("gpt2"), path)


def test_prompts_without_answers_are_audited_on_the_predicted_token():
    report = attnscope.audit(language_model("llama"), [{"prompt": one["prompt"]} for one in PROMPTS], quick=True)
    assert not [part.failed for part in report.parts.values() if part.failed]
    assert "quality" not in report.parts


def test_the_readmes_example_of_a_language_model_runs(tmp_path, monkeypatch):
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"Language models are read in the same way.*?\n\n((?:    .*\n)+)", readme)
    foreign("gpt2").save_pretrained(tmp_path / "my-gpt2")
    tokenizer().save_pretrained(tmp_path / "my-gpt2")
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    monkeypatch.chdir(tmp_path)
    result = {"attnscope": attnscope}
    exec(compile("\n".join(line.strip() for line in code.splitlines()), "README.md", "exec"), result)
    assert '.trace(["The cat sat"])' in code
    assert result["model"].kind == "language model"
