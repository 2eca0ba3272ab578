"""Runs every case of the table in this process, as `python -m robustness.trial`, and prints one JSON line per case.

It runs apart from pytest: the type checks of the tests would refuse bad calls before attnscope sees them.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 30  # of CPU time; a case that takes longer has failed
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
RESULTS = Path(__file__).parents[2] / "results"
MAKERS = """
import torch
from adapter import model
LINEAR = torch.nn.Linear(1, 1)
def returns_none(): return None
def returns_number(): return 3
def returns_linear(): return LINEAR
def returns_triple(): return (1, 2, 3)
def raises(): raise ValueError("two\\nlines")
def exits(): raise SystemExit(3)
def takes_argument(folder): return folder
not_callable = 3
"""
SMALL_RUN = ("training.steps=1", "training.batch_size=4")
SMALL_CLASSIFIER = (*SMALL_RUN, "model.units=2", "model.input_size=2", "model.hidden=2")
SMALL_AED = (*SMALL_RUN, "model.units=3", "task.test_size=6", "task.min_length=2", "task.max_length=3")


@dataclass(frozen=True)
class Case:
    """One input: a call that should be refused with a sentence, or a valid control that should be accepted."""

    name: str
    bad: bool
    run: "Callable[[Place], object]"


@dataclass(frozen=True)
class Outcome:
    """What became of a case: accepted, refused, traceback or timeout."""

    name: str
    bad: bool
    outcome: str
    message: str
    seconds: float


class Place:
    """A folder with tiny models, texts, a store and results, made once, and files that single cases need."""

    def __init__(self, home: Path):
        self.home, self.count = home, 0
        os.chdir(home)
        self.make_models()
        self.make_texts()
        self.make_runs()
        (home / "results" / "aitken2021").mkdir(parents=True)
        shutil.copy(RESULTS / "aitken2021" / "fig3.json", home / "results" / "aitken2021")

    def make_models(self) -> None:
        from safetensors.torch import load_file

        from models import language_examples
        from models.adapter_examples import foreign, tokenizer_for

        for name, kind, changed in (
            ("bert", "bert", {}), ("marian", "marian", {}), ("roberta", "roberta", {}),
            ("stars", "bert", {"id2label": {i: str(i + 1) for i in range(3)}}),
        ):  # fmt: skip
            foreign(kind, **changed).save_pretrained(self.home / name)
            tokenizer_for(kind).save_pretrained(self.home / name)
        multilingual_translator(self.home / "nllb")
        language_examples.foreign("gpt2").save_pretrained(self.home / "gpt2")
        language_examples.tokenizer().save_pretrained(self.home / "gpt2")
        self.tensors = load_file(self.home / "bert" / "model.safetensors")
        shutil.copy(EXAMPLES / "adapter.py", self.home)
        self.write("mine.py", MAKERS)
        self.write("broken.py", "def model(:\n")
        self.write("fails.py", "raise KeyError('at import')\n")
        self.write("leaves.py", "raise SystemExit(4)\n")
        self.write("needs.py", "import no_such_library\n")

    def make_texts(self) -> None:
        from models.adapter_examples import SOURCES, TARGETS

        self.texts = [{"text": text, "label": number % 3} for number, text in enumerate(SOURCES * 2)]
        self.pairs = [{"source": s, "target": t, "alignment": "0-0"} for s, t in zip(SOURCES, TARGETS, strict=True)]
        self.write("texts.jsonl", json_lines(self.texts))
        self.write("pairs.jsonl", json_lines(self.pairs))
        self.write("long.jsonl", json_lines([{"text": f"{text} the cat sat on the mat"} for text in SOURCES]))
        words = ("dull", "fine")
        corpus = [{"text": f"a {words[i % 2]} film no {i}", "label": ("no", "yes")[i % 2]} for i in range(40)]
        self.write("corpus.jsonl", json_lines(corpus))

    def make_runs(self) -> None:
        corpus = ["task.file=corpus.jsonl", "task.labels=[]", "task.exclude_labels=[]", "task.label=label",
                  "task.text=text", "task.vocabulary.min_count=1", 'task.splits.training=["all"]',
                  "task.splits.validation=[]", "task.splits.test=[]"]  # fmt: skip
        self.corpus_settings = corpus
        self.classifier = self.train("sst", "classifier", *corpus, *SMALL_CLASSIFIER)
        self.aed = self.train("one_to_one", "aed", *SMALL_AED)

    def train(self, task: str, model: str, *settings: str) -> str:
        words = [word for setting in settings for word in ("--set", setting)]
        code, out, err = command(["train", task, model, *words])
        assert code == 0, err
        return out.split("run: ")[1].strip()

    def path(self, name: str) -> Path:
        """Return a new path below the home folder, whose name ends like this."""
        self.count += 1
        return self.home / f"case-{self.count}" / name

    def write(self, name: str, content: str | bytes) -> str:
        (self.home / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def file(self, name: str, content: str | bytes) -> str:
        path = self.path(name)
        path.parent.mkdir()
        return self.write(str(path), content)

    def variant(self, base: str, without: tuple[str, ...] = (), **changed: "str | bytes | dict[str, Any]") -> str:
        """Return a copy of a model folder in which some files have other content; a dict changes fields of JSON.

        A keyword names a file: "config" stands for config.json, "weights" for model.safetensors.
        """
        folder = self.path(base)
        names = {"weights": "model.safetensors"}
        files = {names.get(name, f"{name}.json"): content for name, content in changed.items()}
        folder.mkdir(parents=True)
        for path in (self.home / base).iterdir():
            if path.name not in (*without, *files):
                (folder / path.name).symlink_to(path)
        for name, content in files.items():
            if isinstance(content, dict):
                content = json.dumps(json.loads((self.home / base / name).read_text()) | content)
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(folder)

    def reweighted(self, change: "Callable[[dict[str, Any]], dict[str, Any]]") -> str:
        """Return a BERT folder with other tensors."""
        from safetensors.torch import save

        tensors = change({name: tensor.clone() for name, tensor in self.tensors.items()})
        return self.variant("bert", weights=save(tensors, {"format": "pt"}))


def multilingual_translator(folder: Path) -> None:
    """Write an NLLB model whose tokenizer knows two languages."""
    import transformers

    from models.adapter_examples import SMALL, sentencepiece_like

    cut = json.loads(sentencepiece_like("bart").backend_tokenizer.to_str())["model"]
    tokenizer = transformers.NllbTokenizer(
        vocab=cut["vocab"], merges=[tuple(pair) for pair in cut["merges"]],
        extra_special_tokens=["eng_Latn", "deu_Latn"], src_lang="eng_Latn", tgt_lang="deu_Latn",
    )  # fmt: skip
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**SMALL | ids)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def json_lines(rows: "list[Any]") -> str:
    return "\n".join(map(json.dumps, rows))


def command(words: list[str]) -> tuple[int, str, str]:
    """Run the command in this process; return its exit code and what it printed."""
    from attnscope.cli import main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["attnscope", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def expect_success(words: list[str]) -> None:
    """Run the command; raise AttnscopeError with its message if it was refused, and RuntimeError for a bug."""
    from attnscope.errors import AttnscopeError

    code, out, err = command(words)
    if code == 70 or "Traceback" in out + err:
        raise RuntimeError(err)
    if code:
        said = [line for line in err.splitlines() if not line.startswith("attnscope: warning:")]
        if not said or (said[0].startswith("attnscope:") and len(said) > 1):
            raise RuntimeError(f"exit code {code} without one clear sentence: {err!r}")
        raise AttnscopeError(" ".join(said))


class TimedOut(BaseException):
    """The case took too long."""


def time_out(number: int, frame: object) -> None:
    raise TimedOut


def run(case: Case, place: Place) -> Outcome:
    """Run one case, from the same state as every other."""
    from attnscope.errors import AttnscopeError

    begun, path, environment = time.process_time(), list(sys.path), dict(os.environ)
    signal.signal(signal.SIGPROF, time_out)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.run(place)
        outcome, message = "accepted", ""
    except AttnscopeError as error:
        outcome, message = "refused", str(error)
    except TimedOut:
        outcome, message = "timeout", f"more than {SECONDS} seconds"
    except Exception:
        outcome, message = "traceback", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.chdir(place.home)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
    return Outcome(case.name, case.bad, outcome, message, round(time.process_time() - begun, 3))


def run_all(only: str = "") -> Iterator[Outcome]:
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported
    from robustness.cases import CASES

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"COLUMNS": "160", "TMPDIR": folder, "ATTNSCOPE_DATA": folder}
        tempfile.tempdir = folder
        place = Place(Path(folder).resolve())
        for case in CASES:
            if only in case.name:
                yield run(case, place)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    for outcome in run_all(*sys.argv[1:2]):
        print(json.dumps(outcome.__dict__), flush=True)


if __name__ == "__main__":
    main()
