"""Running an audit: part by part, each stored as soon as it is measured, within a time budget if there is one."""

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict, Unpack

import torch
from torch import nn

import attnscope
from attnscope.auditing.report import DataInfo, ModelInfo, Provenance, Report
from attnscope.errors import AttnscopeError, check_kinds, check_seed, require
from attnscope.faithfulness import checks, evidence, examples, prompts
from attnscope.faithfulness.records import FORMAT, Part, mapping, to_json
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.faithfulness.verdict import verdict
from attnscope.files import read_checked, write_checked
from attnscope.lab.experiment import Run
from attnscope.loading import load
from attnscope.models.adapters.encoder_classifier import HFEncoderClassifier
from attnscope.models.adapters.hugging_face import HuggingFace
from attnscope.models.adapters.readers import ClassReader
from attnscope.models.capabilities import GivesTrace, ReadsOut
from attnscope.models.examples import Columns
from attnscope.models.inference import device_of, evaluating
from attnscope.models.inputs import Data, Inputs
from attnscope.models.loaded import LANGUAGE_MODEL, LoadedModel
from attnscope.studies.jobs import code_checksum
from attnscope.testing import quick_check

ModelLike = str | Path | nn.Module | Run | LoadedModel
Progress = Callable[[int, int, str], None]  # texts done, texts in all, title of the part
Check = Callable[[Subject, Sample], Part | None]
FIRST_TEXTS, GROWTH = 8, 4  # under a budget: texts of the first try, and the growth factor of further ones


@dataclass(frozen=True)
class PartPlan:
    """One part of an audit: its title and question, and its number of texts, quick and in full."""

    title: str
    question: str
    quick: int
    full: int
    searches: bool = False  # if every step of the search is a whole pass, it always uses the quick number of texts
    weight: int = 1  # of its share of a budget

    def num_texts(self, subject: Subject, quick: bool) -> int:
        """Return the number of texts; half as many sentences of a translator, which has many output words each."""
        count = self.quick if quick or (self.searches and not isinstance(subject.model, ReadsOut)) else self.full
        return min(len(subject.inputs), count if subject.is_classifier else count // 2)


PARTS = {
    "quality": PartPlan("Model quality", "How good are the model's outputs?", 500, 5000),
    "words": PartPlan(
        "Words deleted and masked", "Does the effect of words pass through attention?", 100, 500,
        weight=4,  # the answer rests on it
    ),
    "units": PartPlan("Units of the prompt", "Does it show which tokens, sentences and parts decide?", 30, 300),
    "named_parts": PartPlan(
        "Named parts of the prompt", "How much attention does each get, and what changes without it?", 60, 300
    ),
    "formation": PartPlan("Formation of attention", "Does it depend on positions, tokens, or both?", 300, 2000),
    "heads": PartPlan("Ranking of heads", "Which align words, matter when ablated, agree with saliency?", 24, 400),
    "mixture": PartPlan("Mixtures of heads", "Would another head, or a mixture of heads, agree better?", 100, 400),
    "adversary": PartPlan("Adversarial search", "Does a very different attention give the same output?", 32, 640, True),
    "single_tokens": PartPlan("Single tokens", "What does each token predict alone?", 300, 2000),
    "identity": PartPlan("Token identity", "Can the token be decoded from the state at its position?", 500, 5000),
    "another_seed": PartPlan("Another seed", "Does the same model from another seed attend alike?", 100, 1000),
    "plausibility": PartPlan("Plausibility", "Does it agree with human annotations?", 200, 1000),
    "examples": PartPlan("Examples", "What does it look like?", 60, 200),
}  # fmt: skip
CHECKS: dict[str, Check] = {
    "quality": evidence.quality, "words": checks.words, "formation": evidence.formation, "heads": evidence.rank_heads,
    "mixture": evidence.mixture, "adversary": checks.adversary, "single_tokens": checks.single_tokens,
    "identity": checks.token_identity, "plausibility": evidence.plausibility, "examples": examples.examples,
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Settings of an audit.

    Attributes:
        quick: Whether fewer texts and fewer random samples are used.
        budget: Minutes for the whole audit; parts use fewer texts to stay within it.
        batch_size: Texts per batch; changes the speed, never a result.
        max_texts: The largest number of texts; of more, a sample is used.
        seed: Random seed.
        examples: Whether the page shows texts of the data. Without them, it can be shared where the data cannot.
        tokens: Whether single tokens are deleted and masked, rather than whole words.
    """

    quick: bool = False
    budget: float | None = None
    batch_size: int = 32
    max_texts: int = 5000
    seed: int = 0
    examples: bool = True
    tokens: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.batch_size > 0, f"a batch needs at least one text, not {self.batch_size}")
        require(self.max_texts > 1, f"an audit needs at least two texts, not {self.max_texts}")
        require(self.budget is None or self.budget > 0, f"a budget is a number of minutes above 0, not {self.budget}")
        check_seed("seed", self.seed)


class Options(TypedDict, total=False):
    """The settings as keywords."""

    quick: bool
    budget: float | None
    batch_size: int
    max_texts: int
    seed: int
    examples: bool
    tokens: bool


def audit(
    model: ModelLike,
    data: Data = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    *,
    split: str | None = None,
    against: ModelLike | None = None,
    tokenizer: object | None = None,
    device: str | None = None,
    store: str | Path = "runs",
    progress: Progress = lambda done, total, title: None,
    text: str | None = None,
    label: str | None = None,
    pair: str | None = None,
    rationale: str | None = None,
    **options: Unpack[Options],
) -> Report:
    """Audit a model: may its attention be read as an explanation?

    Args:
        model: Anything that `attnscope.load` takes: a folder, "hf:owner/name", a run, "file.py:function", an adapter, a
            Hugging Face model in memory with its `tokenizer`, or a LoadedModel.
        data: Texts with labels, where there are any, or translations: a path, a list of dicts or of (text, label)
            pairs, a DataFrame, a Hugging Face Dataset, a Task, or None for the test set of a run's own task.
        out: A folder for audit.html, audit.json and tables as CSV (`Report.tables`). Parts that an earlier run
            stored there are reused, if weights and texts are the same. None: nothing is written.
        settings: Settings of the audit.
        split: The split of the data; by default test, if there is one.
        against: The same model from another seed, to compare with.
        tokenizer: The tokenizer of a Hugging Face model in memory.
        device: Where the model is moved to; by default it stays where it is.
        store: The folder of runs, to look up a key.
        progress: Called with the number of texts done, the number in all, and the title of the part.
        text: The column of the texts, if it has none of the usual names; the same for the next three.
        label: The column of the labels (of a translator, of the translations). Of a multi-label classifier, the label
            that is audited, whose column may hold 0 and 1.
        pair: The column of the second text, for models that read pairs.
        rationale: The column of what people marked, one number from 0 to 1 per word.
        options: Settings as keyword arguments, such as quick=True.
    """
    chosen, folder = replace(settings or Settings(), **options), None if out is None else Path(out)
    models = [
        load(each, tokenizer=tokenizer, device=device, store=store, label=label)
        for each in (model, against) if each is not None
    ]  # fmt: skip
    require(folder is None or not folder.is_file(), f"out= is a folder, but {folder} is a file")
    columns = Columns(text, label, pair, rationale)
    subject, *others = [open_subject(loaded, data, split, chosen, columns) for loaded in models]
    other = others[0] if others else None
    if other is not None:
        one, two = models
        require(one.kind == two.kind, f"{one.name} is a {one.kind}, but {two.name} a {two.kind}")
    with teacher_forced(*models):
        report = compile_report(subject, Parts(subject, other, chosen, folder, progress).all(), chosen)
    if folder is not None:
        report.save(folder / "audit.json")
        report.save(folder / "audit.html")
        report.save_tables(folder)
    return report


def open_subject(
    loaded: LoadedModel, data: Data, split: str | None, settings: Settings, columns: Columns | None = None
) -> Subject:
    """Return the model with the texts that it is audited on."""
    require(not loaded.fixed_attention, f"{loaded.name} was trained with fixed attention: it has none of its own")
    inputs = Inputs.of(
        loaded, data, split=split, max_texts=settings.max_texts, seed=settings.seed, needs_targets=True, columns=columns
    )
    require(len(inputs) > 1, f"there is only one text to audit {loaded.name} on; an audit needs several")
    if isinstance(loaded.reader, ClassReader) and loaded.reader.outputs.regression:
        loaded.reader.outputs.standardise(loaded(texts.batch) for texts in inputs.texts(settings.batch_size))
    first = inputs.read(slice(FIRST_TEXTS)).batch.to(device_of(loaded))
    with evaluating(loaded):
        logits = loaded(first).logits
    require(not bool(logits.isnan().any()), f"{loaded.name} outputs NaN: its weights are damaged, or they overflow")
    if len(first) == 1 or not torch.allclose(logits[1:], logits[:-1]):  # a constant output does not depend on attention
        quick_check(loaded, first)
    return Subject(loaded, inputs)


@contextmanager
def teacher_forced(*loaded: LoadedModel) -> Iterator[None]:
    """Decode with teacher forcing, so that every output word has one attention and one gold word to compare with."""
    models = [model.module for model in loaded if isinstance(model.module, GivesTrace)]
    before = [model.decoding for model in models]
    try:
        for model in models:
            model.decoding = "teacher_forced"
        yield
    finally:
        for model, decoding in zip(models, before, strict=True):
            model.decoding = decoding


class Parts:
    """The parts of an audit, stored in a folder if there is one."""

    def __init__(
        self, subject: Subject, other: Subject | None, settings: Settings, folder: Path | None, progress: Progress
    ):
        self.subject, self.settings, self.progress = subject, settings, progress
        self.checks = checks_of(subject, other, settings)
        self.folder = None if folder is None else folder / "parts"
        self.key = "" if folder is None else key_of(subject, other, settings)
        self.ends = None if settings.budget is None else time.monotonic() + 60 * settings.budget
        self.parts: dict[str, Part | None] = dict(self.load())
        self.open = [name for name in self.checks if name not in self.parts]
        self.done, self.total = 0, sum(self.num_texts(name) for name in self.open)

    def all(self) -> dict[str, Part]:
        """Return all parts that apply to this model and these texts, in order."""
        for name in list(self.open):
            self.parts[name] = self.measure(name)
        return {name: part for name in self.checks if (part := self.parts[name]) is not None}

    def num_texts(self, name: str) -> int:
        return PARTS[name].num_texts(self.subject, self.settings.quick)

    def load(self) -> Iterator[tuple[str, Part]]:
        """Yield the parts that an earlier run stored under the same key; those that failed are measured again."""
        for name in self.checks if self.folder is not None else ():
            stored = mapping(json.loads(read_checked(self.path(name)) or b"{}"))
            part = Part.from_json(mapping(stored.get("part")))
            if stored.get("key") == self.key and stored.get("part") is not None and part.failed is None:
                yield name, part

    def path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.json"

    def measure(self, name: str) -> Part | None:
        """Measure one part, and store it."""
        plan, start = PARTS[name], time.monotonic()
        num_texts, part = self.affordable(name)
        self.done += self.num_texts(name)
        self.open.remove(name)
        stored = None
        if part is not None:
            seconds = time.monotonic() - start
            stored = to_json(replace(part, title=plan.title, question=plan.question, texts=num_texts, seconds=seconds))
        if self.folder is not None:
            write_checked(self.path(name), json.dumps({"key": self.key, "part": stored}, allow_nan=False).encode())
        return None if stored is None else Part.from_json(mapping(stored))

    def compute(self, name: str, num_texts: int) -> Part | None:
        """Return a part; one that cannot be measured holds the reason, and the audit continues."""
        done = self.done

        def progress(texts: int) -> None:
            nonlocal done
            done = min(done + texts, self.done + self.num_texts(name))
            self.progress(done, self.total, PARTS[name].title)

        settings = self.settings
        sample = Sample(
            self.subject, num_texts, settings.batch_size, settings.seed, settings.quick, not settings.tokens, progress
        )  # fmt: skip
        try:
            return self.checks[name](self.subject, sample)
        except AttnscopeError as error:
            return Part(failed=str(error))
        except Exception as error:  # an error in one part does not stop the others
            return Part(failed=f"{type(error).__name__}: {error}")

    def affordable(self, name: str) -> tuple[int, Part | None]:
        """Return the part from all texts or, with a budget, from as many as a fair share of the time left allows.

        A few texts are tried first, then more, as long as the time left suffices, extrapolated from the last try.
        """
        max_texts, start = self.num_texts(name), time.monotonic()
        if self.ends is None:
            return max_texts, self.compute(name, max_texts)
        share = max(0.0, self.ends - start) * PARTS[name].weight / sum(PARTS[each].weight for each in self.open)
        texts = min(FIRST_TEXTS, max_texts)
        while True:
            before = time.monotonic()
            part = self.compute(name, texts)
            seconds = time.monotonic() - before
            left = share - (time.monotonic() - start)
            more = min(max_texts, GROWTH * texts, int(texts * left / seconds))
            if more <= texts or (more < max_texts and more < 2 * texts):
                return texts, part
            texts = more


def checks_of(subject: Subject, other: Subject | None, settings: Settings) -> dict[str, Check]:
    """Return the check of every part of this audit, in order."""
    available = dict(CHECKS)
    if subject.loaded.kind == LANGUAGE_MODEL:
        available |= {"formation": prompts.formation, "units": prompts.units}
        if subject.inputs.parts is not None:
            available["named_parts"] = prompts.named_parts
    if other is not None:
        available["another_seed"] = evidence.another_seed(other)
    left_out = {
        "examples": not settings.examples, "quality": not subject.inputs.has_targets,
        "mixture": not subject.is_classifier or subject.num_heads == 1,
    }  # fmt: skip
    return {name: available[name] for name in PARTS if name in available and not left_out.get(name, False)}


def key_of(subject: Subject, other: Subject | None, settings: Settings) -> str:
    """Return a key of all that results depend on: models, data with annotations, settings, code; not the batch size."""
    digest = hashlib.sha256(f"{FORMAT} {replace(settings, batch_size=1)}".encode())
    for module in (checks, evidence, examples, prompts):
        digest.update(code_checksum(module.__name__).encode())
    for each in filter(None, (subject, other)):
        digest.update(configuration_of(each.model).encode())
        for name, tensor in each.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    for texts in subject.inputs.texts(1):  # one by one: padding is not part of a text
        for name, tensor in texts.batch.tensors().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
    digest.update(repr(subject.inputs.parts).encode())
    digest.update(repr([[sorted(points) for points in pair] for pair in subject.inputs.alignments or ()]).encode())
    return digest.hexdigest()[:16]


def configuration_of(model: nn.Module) -> str:
    """Return the configuration of a model, such as its number of heads."""
    if isinstance(model, HuggingFace | HFEncoderClassifier):
        return json.dumps(model.model.config.to_dict(), sort_keys=True, default=str)
    plain = {
        path: {k: v for k, v in vars(part).items() if isinstance(v, int | float | str | tuple) or is_dataclass(v)}
        for path, part in model.named_modules()
    }
    return repr([type(model).__name__, *({**values, "training": False, "decoding": ""} for values in plain.values())])


def compile_report(subject: Subject, parts: dict[str, Part], settings: Settings) -> Report:
    """Return the report: the verdict that follows from the parts, and the provenance."""
    tests = [test for part in parts.values() for test in part.tests]
    warnings = [part.warning for part in parts.values() if part.warning]
    warnings += [f"Route and agreement could not be measured: {parts['words'].failed}"] * bool(parts["words"].failed)
    what = "single decisions" if subject.is_classifier else "the choice of words"
    if subject.loaded.kind == LANGUAGE_MODEL:
        what = "the next token"
    heads = parts["formation"].heads if "formation" in parts else {}
    loaded, inputs, module = subject.loaded, subject.inputs, subject.model
    return Report(
        verdict(tests, what, warnings, subject.depth), parts,
        ModelInfo(
            loaded.name, loaded.kind,
            type(module.model if isinstance(module, HuggingFace | HFEncoderClassifier) else module).__name__,
            loaded.classes, len(set(heads.get("layer", (0,)))), len(set(heads.get("head", (0,)))),
        ),
        DataInfo(
            inputs.origin.name, inputs.origin.split, len(inputs), inputs.origin.available,
            sum(texts.cut for texts in inputs.texts(settings.batch_size)), inputs.has_rationales,
            inputs.alignments is not None,
        ),
        Provenance(
            asdict(settings), sum(part.seconds or 0.0 for part in parts.values()),
            datetime.now(UTC).date().isoformat(), f"{platform.machine()}, {platform.system()}",
            attnscope.__version__, torch.__version__, installed_version("transformers"),
        ),
    )  # fmt: skip


def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
