"""How is an audit carried out? Part by part, each kept as soon as it is there, within a budget if there is one."""

import hashlib
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

import attnscope
from attnscope.auditing.opening import opened
from attnscope.auditing.page import write_page
from attnscope.errors import AttnscopeError, require
from attnscope.faithfulness import checks, classifier, examples, translator
from attnscope.faithfulness.records import Part, Test, plain
from attnscope.faithfulness.subject import CLASSIFIER, TRANSLATOR, Example, Sample, Subject
from attnscope.faithfulness.verdict import verdict
from attnscope.files import read_json, write_json

Seen = Callable[[int, int, str], None]  # texts done, texts in all, what is asked
FIRST, AT_MOST = 8, 4  # texts that are asked about first, under a budget, and how many times as many at the next try


@dataclass(frozen=True)
class Settings:
    """How much is asked, and how fast."""

    quick: bool = False
    budget: float | None = None  # minutes, all in all; parts are asked about fewer texts to keep to it
    batch_size: int = 32  # changes the speed, and never a result
    most: int = 5000  # texts, drawn at random where there are more
    seed: int = 0
    examples: bool = True  # False: no text of the data is in the page, which may then go where they may not

    def __post_init__(self) -> None:
        require(self.batch_size > 0, f"a batch needs at least one text, not {self.batch_size}")
        require(self.most > 1, f"an audit needs at least two texts, not {self.most}")
        require(self.budget is None or self.budget > 0, f"a budget is a number of minutes above 0, not {self.budget}")


def audit(
    model: str | Path | nn.Module,
    data: str | Path | Sequence[Example] | None = None,
    out: str | Path = "audit",
    settings: Settings | None = None,
    split: str | None = None,
    against: str | Path | nn.Module | None = None,
    device: str | None = None,
    seen: Seen = lambda done, of, asks: None,
) -> dict[str, Any]:
    """Audit a model: writes audit.html and audit.json to the folder `out`, and gives what is in the latter.

    Parts that an earlier attempt left there are kept, if they are about the same weights and the same texts.
    """
    chosen = settings or Settings()
    subject = on(device, opened(model, data, split, chosen.most, chosen.seed))
    other = None if against is None else on(device, opened(against, data, split, chosen.most, chosen.seed))
    check(subject, other)
    parts = Parts(subject, other, chosen, Path(out), seen).all()
    content = content_of(subject, parts, chosen)
    write_json(Path(out) / "audit.json", content)
    write_page(content, Path(out) / "audit.html")
    return content


def on(device: str | None, subject: Subject) -> Subject:
    """Moved there, or left where it is."""
    if device is not None:
        subject.model.to(device)
    return subject


def check(subject: Subject, other: Subject | None) -> None:
    require(subject.count > 1, f"there is only one text to ask {subject.name} about; an audit needs several")
    if other is not None:
        require(subject.kind == other.kind, f"{subject.name} is a {subject.kind}, but {other.name} a {other.kind}")


class Parts:
    """The evidence about a subject, in a folder."""

    def __init__(self, subject: Subject, other: Subject | None, settings: Settings, folder: Path, seen: Seen):
        self.subject, self.settings, self.seen = subject, settings, seen
        self.asks = {n: ask for n, ask in asks(subject, other).items() if settings.examples or n != "examples"}
        self.folder, self.key = folder / "parts", key_of(subject, other, settings)
        self.ends = None if settings.budget is None else time.monotonic() + 60 * settings.budget
        self.open = [name for name in self.asks if self.found(name) is None]
        self.done, self.of = 0, sum(self.texts(name) for name in self.open)

    def all(self) -> dict[str, Part]:
        found = {name: self.found(name) or self.made(name) for name in self.asks}
        return {name: part for name, part in found.items() if not part.get("absent")}

    def texts(self, name: str) -> int:
        return PARTS[name].texts(self.subject, self.settings.quick)

    def found(self, name: str) -> Part | None:
        """What an earlier attempt left about the same; what failed is tried again."""
        path = self.folder / f"{name}.json"
        if not path.is_file():
            return None
        kept: Part = read_json(path)
        return kept if kept.get("key") == self.key and "failed" not in kept else None

    def made(self, name: str) -> Part:
        part, begun = PARTS[name], time.monotonic()
        most, answer = self.affordable(name)
        self.done += self.texts(name)
        self.open.remove(name)
        about = {"title": part.title, "asks": part.asks, "texts": most, "seconds": time.monotonic() - begun}
        kept: Part = plain({"key": self.key, **about, **(answer or {"absent": True})})
        write_json(self.folder / f"{name}.json", kept)
        return kept

    def answered(self, name: str, most: int) -> Part | None:
        """A part that cannot be measured says why, and the others go on."""
        sample = self.sample(name, most)
        try:
            return self.asks[name](self.subject, sample)
        except AttnscopeError as error:
            return {"failed": str(error)}

    def sample(self, name: str, most: int) -> Sample:
        before = self.done

        def told(texts: int) -> None:
            nonlocal before
            before = min(before + texts, self.done + self.texts(name))
            self.seen(before, self.of, PARTS[name].title)

        settings = self.settings
        return Sample(self.subject, most, settings.batch_size, settings.seed, settings.quick, told)

    def affordable(self, name: str) -> tuple[int, Part | None]:
        """The answer from all texts or, with a budget, from as many as a fair share of the time that is left allows.

        A few texts are asked about first, then more, as long as the time for them, by that of the last try, is there.
        """
        most, begun = self.texts(name), time.monotonic()
        if self.ends is None:
            return most, self.answered(name, most)
        share = max(0.0, self.ends - begun) / len(self.open)
        texts = min(FIRST, most)
        while True:
            tried = time.monotonic()
            answer = self.answered(name, texts)
            took = time.monotonic() - tried
            left = share - (time.monotonic() - begun)
            more = min(most, AT_MOST * texts, int(texts * left / took))
            if more <= texts or (more < most and more < 2 * texts):
                return texts, answer
            texts = more


def key_of(subject: Subject, other: Subject | None, settings: Settings) -> str:
    """Changes with the weights, the texts and what is asked; not with the size of batches."""
    told = hashlib.sha256(f"{attnscope.__version__} {settings.quick} {settings.budget} {settings.seed}".encode())
    for one in (subject, other):
        if one is not None:
            for name, tensor in one.model.state_dict().items():
                told.update(name.encode())
                told.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    for some in subject.texts(settings.batch_size):
        for row, mask in zip(some.batch.source, some.batch.source_mask, strict=True):
            told.update(row[mask].cpu().numpy().tobytes())
    return told.hexdigest()[:16]


def content_of(subject: Subject, parts: dict[str, Part], settings: Settings) -> dict[str, Any]:
    tests = [
        Test(**{**test, "bounds": tuple(test["bounds"])}) for part in parts.values() for test in part.get("tests", ())
    ]
    heads = parts.get("formed", {}).get("heads") or {"layer": [0], "head": [0]}
    made = {
        "attnscope": attnscope.__version__, "torch": torch.__version__, "transformers": installed("transformers"),
        "date": datetime.now(UTC).date().isoformat(), "machine": f"{platform.machine()}, {platform.system()}",
        "seconds": sum(part["seconds"] for part in parts.values()), "settings": vars(settings),
    }  # fmt: skip
    model = {
        "name": subject.name, "kind": subject.kind, "what": subject.what, "classes": subject.classes,
        "layers": len(set(heads["layer"])), "heads": len(set(heads["head"])),
    }  # fmt: skip
    data = subject.data | {
        "texts": subject.count, "cut": sum(some.cut for some in subject.texts(settings.batch_size)),
        "rationales": subject.has_rationales, "links": subject.links is not None,
    }  # fmt: skip
    found: dict[str, Any] = plain({
        "version": 1, "made": made, "model": model, "data": data, "verdict": verdict(subject, tests), "parts": parts,
    })  # fmt: skip
    return found


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


Ask = Callable[[Subject, Sample], Part | None]


@dataclass(frozen=True)
class Asked:
    """One part of the evidence: its question, and the number of texts, quick and in full."""

    title: str
    asks: str
    quick: int
    full: int

    def texts(self, subject: Subject, quick: bool) -> int:
        """Half as many sentences of a translator, where every word of the output is asked about."""
        most = self.quick if quick else self.full
        return min(subject.count, most if subject.kind == CLASSIFIER else most // 2)


PARTS = {
    "quality": Asked("How good is it?", "What does the model get right?", 500, 5000),
    "formed": Asked("How attention is formed", "Is it about where words stand, which they are, or both?", 300, 2000),
    "heads": Asked("Which heads to believe", "Which align, are missed, and agree with saliency?", 24, 400),
    "dependence": Asked("Fragility", "What happens to the output with other attention?", 300, 2000),
    "adversary": Asked("Adversarial search", "Could quite another attention lead to the same output?", 32, 640),
    "erasure": Asked("Erasure", "What happens when the words that it points at are gone?", 60, 800),
    "correlation": Asked("Saliency", "Does it agree with gradients and with leaving words out?", 60, 800),
    "tokens": Asked("Words alone", "What would each word say alone?", 300, 2000),
    "information": Asked("Mutual information", "How much of a word is in the state attended to?", 500, 5000),
    "between": Asked("Another seed", "Would the same model from another seed attend alike?", 100, 1000),
    "plausibility": Asked("Plausibility", "Is it where people look?", 200, 1000),
    "examples": Asked("Examples", "What does it look like?", 60, 200),
}
ALWAYS: dict[str, Ask] = {
    "formed": checks.how_formed, "heads": checks.which_heads, "information": checks.information
}  # fmt: skip
ASKS: dict[str, dict[str, Ask]] = {
    CLASSIFIER: {
        "quality": classifier.quality, "dependence": classifier.dependence, "adversary": classifier.adversary,
        "erasure": classifier.erasure, "correlation": classifier.correlation, "tokens": classifier.tokens,
        "plausibility": classifier.plausibility, "examples": examples.text_examples,
    },
    TRANSLATOR: {
        "quality": translator.quality, "dependence": translator.dependence, "adversary": translator.adversary,
        "erasure": translator.erasure, "correlation": translator.correlation, "tokens": translator.tokens,
        "plausibility": translator.plausibility, "examples": examples.sentence_examples,
    },
}  # fmt: skip
BETWEEN = {CLASSIFIER: classifier.between, TRANSLATOR: translator.between}


def asks(subject: Subject, other: Subject | None) -> dict[str, Ask]:
    """Every question about this subject, in order; with another seed, how it compares."""
    found = ALWAYS | ASKS[subject.kind]
    if other is not None:
        found["between"] = lambda one, sample: BETWEEN[subject.kind](one, other, sample)
    return {name: found[name] for name in PARTS if name in found}
