"""Running an audit: part by part, each stored as soon as it is measured, within a time budget if there is one."""

import hashlib
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict, Unpack

import torch
from torch import nn

import attnscope
from attnscope.auditing.report import DataInfo, ModelInfo, Provenance, Report
from attnscope.errors import AttnscopeError, require
from attnscope.faithfulness import checks, classifier, examples, translator
from attnscope.faithfulness.records import FORMAT, Part, mapping, to_json
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.faithfulness.verdict import verdict
from attnscope.files import read_json, write_json
from attnscope.lab.experiment import Run
from attnscope.loading import load
from attnscope.models.adapters.hugging_face import HuggingFace
from attnscope.models.capabilities import GivesTrace
from attnscope.models.inputs import Data, Inputs
from attnscope.models.loaded import CLASSIFIER, TRANSLATOR, LoadedModel
from attnscope.testing import quick_check

ModelLike = str | Path | nn.Module | Run | LoadedModel
Progress = Callable[[int, int, str], None]  # texts done, texts in all, title of the part
Check = Callable[[Subject, Sample], Part | None]
FIRST_TEXTS, GROWTH = 8, 4  # under a budget: texts of the first try, and how many times as many at the next one


@dataclass(frozen=True)
class PartPlan:
    """One part of an audit: its title and question, and its number of texts, quick and in full."""

    title: str
    question: str
    quick: int
    full: int

    def num_texts(self, subject: Subject, quick: bool) -> int:
        """Return the number of texts; half as many sentences of a translator, which has many output words each."""
        most = self.quick if quick else self.full
        return min(len(subject.inputs), most if subject.is_classifier else most // 2)


PARTS = {
    "quality": PartPlan("Model quality", "How good are the model's outputs?", 500, 5000),
    "formation": PartPlan("Formation of attention", "Does it depend on positions, tokens, or both?", 300, 2000),
    "heads": PartPlan("Ranking of heads", "Which align words, matter when ablated, agree with saliency?", 24, 400),
    "dependence": PartPlan("Fragility", "How does the output change with other attention?", 300, 2000),
    "adversary": PartPlan("Adversarial search", "Does a very different attention give the same output?", 32, 640),
    "erasure": PartPlan("Erasure", "How does the output change when attended tokens are removed?", 60, 800),
    "correlation": PartPlan("Saliency", "Does it agree with gradients and leave-one-out?", 60, 800),
    "single_tokens": PartPlan("Single tokens", "What does each token predict alone?", 300, 2000),
    "information": PartPlan("Mutual information", "How well does a state identify its token?", 500, 5000),
    "another_seed": PartPlan("Another seed", "Does the same model from another seed attend alike?", 100, 1000),
    "plausibility": PartPlan("Plausibility", "Does it agree with human annotations?", 200, 1000),
    "examples": PartPlan("Examples", "What does it look like?", 60, 200),
}
SHARED: dict[str, Check] = {
    "formation": checks.formation, "heads": checks.rank_heads, "information": checks.information,
    "correlation": checks.correlation, "adversary": checks.adversary, "single_tokens": checks.single_tokens,
}  # fmt: skip
CHECKS: dict[str, dict[str, Check]] = {
    CLASSIFIER: {
        "quality": classifier.quality, "dependence": classifier.dependence, "erasure": classifier.erasure,
        "plausibility": classifier.plausibility, "examples": examples.class_examples,
    },
    TRANSLATOR: {
        "quality": translator.quality, "dependence": translator.dependence, "erasure": translator.erasure,
        "plausibility": translator.plausibility, "examples": examples.translation_examples,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How much is measured, and how fast.

    Attributes:
        quick: Whether fewer texts and fewer random samples are used.
        budget: Minutes for the whole audit; parts use fewer texts to keep to it.
        batch_size: Texts per batch; changes the speed, never a result.
        max_texts: Texts that are sampled where there are more.
        seed: Random seed.
        examples: Whether texts of the data are shown. Without, the page can be shared where the data cannot.
    """

    quick: bool = False
    budget: float | None = None
    batch_size: int = 32
    max_texts: int = 5000
    seed: int = 0
    examples: bool = True

    def __post_init__(self) -> None:
        require(self.batch_size > 0, f"a batch needs at least one text, not {self.batch_size}")
        require(self.max_texts > 1, f"an audit needs at least two texts, not {self.max_texts}")
        require(self.budget is None or self.budget > 0, f"a budget is a number of minutes above 0, not {self.budget}")


class Options(TypedDict, total=False):
    """The settings as keywords."""

    quick: bool
    budget: float | None
    batch_size: int
    max_texts: int
    seed: int
    examples: bool


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
    **options: Unpack[Options],
) -> Report:
    """Audit a model: may its attention be read as an explanation?

    Args:
        model: Anything that `attnscope.load` takes: a folder, "hf:owner/name", a run, "file.py:function", an adapter, a
            Hugging Face model in memory with its `tokenizer`, or a LoadedModel.
        data: Texts with labels or translations: a path, a list of dicts or of (text, label) pairs, a DataFrame, a
            Hugging Face Dataset, a Task, or None for the test set of a run's own task.
        out: A folder for audit.html and audit.json. Parts that an earlier attempt left there are used again, if they
            are about the same weights and texts. None: nothing is written.
        settings: How much is measured.
        split: The split of the data; by default test, if there is one.
        against: The same model from another seed, to compare with.
        tokenizer: The tokenizer of a Hugging Face model in memory.
        device: Where the model is moved to; by default it stays where it is.
        store: The folder of runs in which a key is looked up.
        progress: Called with the number of texts done, the number in all, and the title of the part.
        options: Single settings, such as quick=True.
    """
    chosen, folder = replace(settings or Settings(), **options), None if out is None else Path(out)
    models = [load(one, tokenizer=tokenizer, device=device, store=store) for one in (model, against) if one is not None]
    subject, *others = [open_subject(loaded, data, split, chosen) for loaded in models]
    other = others[0] if others else None
    if other is not None:
        one, two = models
        require(one.kind == two.kind, f"{one.name} is a {one.kind}, but {two.name} a {two.kind}")
    with teacher_forced(*models):
        report = compile_report(subject, Parts(subject, other, chosen, folder, progress).all(), chosen)
    if folder is not None:
        report.save(folder / "audit.json")
        report.save(folder / "audit.html")
    return report


def open_subject(loaded: LoadedModel, data: Data, split: str | None, settings: Settings) -> Subject:
    """Return the model with the texts that it is audited on."""
    require(not loaded.fixed_attention, f"{loaded.name} was trained with fixed attention: it has none of its own")
    inputs = Inputs.of(loaded, data, split=split, max_texts=settings.max_texts, seed=settings.seed, needs_targets=True)
    require(len(inputs) > 1, f"there is only one text to audit {loaded.name} on; an audit needs several")
    quick_check(loaded, inputs.read(slice(FIRST_TEXTS)).batch)
    return Subject(loaded, inputs)


@contextmanager
def teacher_forced(*loaded: LoadedModel) -> Iterator[None]:
    """Decode with teacher forcing, so that every output word has one attention and one gold word to compare with."""
    models = [one.module for one in loaded if isinstance(one.module, GivesTrace)]
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
        self.parts = dict(self.load())
        self.open = [name for name in self.checks if name not in self.parts]
        self.done, self.total = 0, sum(self.num_texts(name) for name in self.open)

    def all(self) -> dict[str, Part]:
        """Return all parts that mean anything to this model and these texts, in order."""
        for name in list(self.open):
            self.parts[name] = self.measure(name)
        return {name: part for name in self.checks if (part := self.parts[name]) is not None}

    def num_texts(self, name: str) -> int:
        return PARTS[name].num_texts(self.subject, self.settings.quick)

    def load(self) -> Iterator[tuple[str, Part | None]]:
        """Yield the parts that an earlier attempt stored about the same; what failed is tried again."""
        for name in self.checks if self.folder is not None else ():
            path = self.path(name)
            stored = mapping(read_json(path)) if path.is_file() else {}
            part = None if stored.get("part") is None else Part.from_json(mapping(stored["part"]))
            if stored.get("key") == self.key and (part is None or part.failed is None):
                yield name, part

    def path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.json"

    def measure(self, name: str) -> Part | None:
        """Measure one part, and store it."""
        plan, begun = PARTS[name], time.monotonic()
        num_texts, part = self.affordable(name)
        self.done += self.num_texts(name)
        self.open.remove(name)
        stored = None
        if part is not None:
            seconds = time.monotonic() - begun
            stored = to_json(replace(part, title=plan.title, question=plan.question, texts=num_texts, seconds=seconds))
        if self.folder is not None:
            write_json(self.path(name), {"key": self.key, "part": stored})
        return None if stored is None else Part.from_json(mapping(stored))

    def compute(self, name: str, num_texts: int) -> Part | None:
        """Return a part; one that cannot be measured says why, and the others go on."""
        done = self.done

        def progress(texts: int) -> None:
            nonlocal done
            done = min(done + texts, self.done + self.num_texts(name))
            self.progress(done, self.total, PARTS[name].title)

        settings = self.settings
        sample = Sample(self.subject, num_texts, settings.batch_size, settings.seed, settings.quick, progress)
        try:
            return self.checks[name](self.subject, sample)
        except AttnscopeError as error:
            return Part(failed=str(error))

    def affordable(self, name: str) -> tuple[int, Part | None]:
        """Return the part from all texts or, with a budget, from as many as a fair share of the time left allows.

        A few texts are tried first, then more, as long as the time for them, by that of the last try, is there.
        """
        most, begun = self.num_texts(name), time.monotonic()
        if self.ends is None:
            return most, self.compute(name, most)
        share = max(0.0, self.ends - begun) / len(self.open)
        texts = min(FIRST_TEXTS, most)
        while True:
            tried = time.monotonic()
            part = self.compute(name, texts)
            took = time.monotonic() - tried
            left = share - (time.monotonic() - begun)
            more = min(most, GROWTH * texts, int(texts * left / took))
            if more <= texts or (more < most and more < 2 * texts):
                return texts, part
            texts = more


def checks_of(subject: Subject, other: Subject | None, settings: Settings) -> dict[str, Check]:
    """Return the check of every part of this audit, in order."""
    found = SHARED | CHECKS[subject.loaded.kind]
    if other is not None:
        found["another_seed"] = checks.another_seed(other)
    return {name: found[name] for name in PARTS if name in found and (settings.examples or name != "examples")}


def key_of(subject: Subject, other: Subject | None, settings: Settings) -> str:
    """Return a key that changes with weights, texts and what is measured; not with the batch size."""
    measured = f"{FORMAT} {attnscope.__version__} {settings.quick} {settings.budget} {settings.seed}"
    digest = hashlib.sha256(measured.encode())
    for one in (subject, other):
        for name, tensor in {} if one is None else one.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    for texts in subject.inputs.texts(settings.batch_size):
        for row, mask in zip(texts.batch.source, texts.batch.source_mask, strict=True):
            digest.update(row[mask].cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def compile_report(subject: Subject, parts: dict[str, Part], settings: Settings) -> Report:
    """Return the report: the verdict that follows from the parts, and what was audited how."""
    tests = [test for part in parts.values() for test in part.tests]
    heads = parts["formation"].heads if "formation" in parts else {}
    loaded, inputs, module = subject.loaded, subject.inputs, subject.model
    return Report(
        verdict(subject, tests), parts,
        ModelInfo(
            loaded.name, loaded.kind, type(module.model if isinstance(module, HuggingFace) else module).__name__,
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
