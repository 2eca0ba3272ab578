"""The state of the explorer: models, texts and verdicts, and the answer to each request of a page.

A request is a JSON object with a `kind`; weights are sent as bytes (single precision, little-endian). Requests are
answered one at a time. Between the batches of an audit, other requests are answered.
"""

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.auditing import Settings, audit
from attnscope.auditing.report import Report
from attnscope.errors import AttnscopeError, BadSetting, require
from attnscope.explanation import SCORES
from attnscope.explorer.passage import Edit, Passage, attended_pairs, read_batch
from attnscope.faithfulness.criteria import VERDICT
from attnscope.faithfulness.records import to_json
from attnscope.lab.experiment import Run
from attnscope.loading import from_run
from attnscope.models.adapters.causal import LanguageReader
from attnscope.models.adapters.readers import NO_WORD, Texts, split_words
from attnscope.models.inputs import Data, Inputs, TextInputs, with_predictions
from attnscope.models.loaded import CLASSIFIER, LANGUAGE_MODEL, LoadedModel
from attnscope.probes.adversary import EPSILON, exact_adversary, has_exact_adversary
from attnscope.probes.counterfactual import CounterfactualAttention, layer_weights
from attnscope.probes.decomposition.components import component_sums, has_inner_products, vectors_of
from attnscope.probes.divergences import relative_entropy, tvd
from attnscope.probes.heads.formation import head_formation
from attnscope.probes.heads.ranking import HeadRankingAccumulator
from attnscope.probes.heads.sentences import Sentences
from attnscope.probes.language import head_kinds

Progress = Callable[[int, int, str], None]  # done, total, title
MAX_TEXTS = 200  # in the list
MAX_CHARACTERS = 20_000  # of a text that the user types
MAX_EDITS = 4096
MAX_PASSAGES = 64  # in the cache
MAX_CHECKPOINTS = 24  # of a run, evenly chosen where there are more
HEAD_TEXTS, ABLATED_TEXTS = 48, 12  # for statistics of heads, and for their ablation
TEMPORAL_TEXTS = 64
MAX_CONFIRMED = 10_000_000  # parameters of a language model whose kinds of heads are confirmed by ablation
CONFIRMED = "✓"
ENTROPY = "entropy (0 one token, 1 uniform)"


@dataclass(frozen=True)
class Answer:
    """The answer to one request: a JSON object and tensors."""

    content: Mapping[str, object]
    tensors: Sequence[Tensor] = ()

    def buffers(self) -> list[bytes]:
        return [tensor.detach().cpu().numpy().astype("<f4").tobytes() for tensor in self.tensors]

    def described(self) -> dict[str, object]:
        """Return the content with the shapes of the tensors."""
        return {**self.content, "shapes": [list(tensor.shape) for tensor in self.tensors]}


@dataclass
class ExploredModel:
    """A model with its texts and its verdict; a run also at each of its checkpoints.

    Attributes:
        loaded: The model.
        data: The texts that it reads, as of `Inputs.of`.
        run: Where it comes from, if it is a run.
        report: Its audit, if there is one.
        name: Its name on the page.
    """

    loaded: LoadedModel
    data: Data = None
    run: Run | None = None
    report: Report | None = None
    name: str = ""
    models: dict[int, LoadedModel] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs.of(self.loaded, self.data, max_texts=MAX_TEXTS)

    @property
    def steps(self) -> list[int]:
        """Checkpoints, at most MAX_CHECKPOINTS of them."""
        checkpoints = [] if self.run is None else self.run.checkpoints
        chosen = np.linspace(0, len(checkpoints) - 1, min(len(checkpoints), MAX_CHECKPOINTS)).round().astype(int)
        return [checkpoints[i] for i in chosen]

    def at(self, step: int | None) -> LoadedModel:
        """Return the model after a training step; None: the final one."""
        if step is None or self.run is None:
            return self.loaded
        if step not in self.models:
            self.models[step] = from_run(self.run, step)
        return self.models[step]

    def read(self, text: int | str, step: int | None) -> Texts:
        """Return a text of the data by its number, or a text that the user typed.

        The target is the reference of a run's task, so that checkpoints are comparable; else the model's prediction.
        """
        if isinstance(text, str):
            require(0 < len(text.strip()) <= MAX_CHARACTERS, f"a text has 1 to {MAX_CHARACTERS} characters")
            reader = self.loaded.reader
            return reader.read_whole([text]) if isinstance(reader, LanguageReader) else self.at(step).read([text])
        require(0 <= text < len(self.inputs), f"there is no text {text}; there are {len(self.inputs)}")
        return self.part(slice(text, text + 1))[1]

    def part(self, rows: slice) -> tuple[Texts, Texts]:
        """Return some texts with their own targets, and with explored ones; for a language model, the whole text."""
        reader, inputs = self.loaded.reader, self.inputs
        if isinstance(reader, LanguageReader) and isinstance(inputs, TextInputs):
            sources = [example.source for example in inputs.examples[rows]]
            whole = reader.read_whole([split_words(source)[0] for source in sources])
            return whole, whole
        texts = inputs.read(rows)
        return texts, texts if self.references else with_predictions(self.loaded, texts)

    def parts(self, size: int, max_texts: int = MAX_TEXTS) -> Iterator[tuple[Texts, Texts]]:
        """Yield the texts, `size` at a time, as `part` returns them."""
        end = min(len(self.inputs), max_texts)
        return (self.part(slice(start, min(start + size, end))) for start in range(0, end, size))

    @property
    def references(self) -> bool:
        """Whether targets are references: those of a run that generates."""
        return self.loaded.task is not None and not self.loaded.classes

    def described(self) -> dict[str, object]:
        return {
            "name": self.name or self.loaded.name, "kind": self.loaded.kind, "classes": self.loaded.classes,
            "steps": self.steps, "texts": len(self.inputs), "origin": self.inputs.origin.name,
            "reference": self.references,
            "verdict": None if self.report is None else verdict_of(self.report),
        }  # fmt: skip


class Session:
    """Answers the requests of a page about one or two models."""

    def __init__(self, models: Sequence[ExploredModel]):
        require(1 <= len(models) <= 2, f"the explorer shows one or two models, not {len(models)}")
        self.models = list(models)
        self.lock = threading.Lock()
        self.passages: OrderedDict[tuple[int, int | None, int | str], Passage] = OrderedDict()
        self.cache: dict[str, Answer] = {}  # of answers that are slow to compute
        self.kinds: dict[str, Callable[[Request], Answer]] = {
            "overview": self.overview, "texts": self.texts, "view": self.view, "intervene": self.intervene,
            "farthest": self.farthest, "scores": self.scores, "heads": self.heads, "training": self.training,
            "audit": self.audit,
        }  # fmt: skip

    def answer(
        self, content: Mapping[str, object], buffers: Sequence[bytes] = (), progress: Progress | None = None
    ) -> Answer:
        """Return the answer to a request; on failure it holds an `error`, a sentence."""
        with self.lock:
            try:
                request = Request(content, buffers, progress or (lambda done, total, title: None))
                kind = request.string("kind")
                require(kind in self.kinds, f"there is no request {kind!r:.40}")
                return self.kinds[kind](request)
            except AttnscopeError as error:
                return Answer({"error": str(error)})

    # Requests

    def overview(self, request: "Request") -> Answer:
        models = [model.described() for model in self.models]
        return Answer({"models": models, "scores": SCORES[1:], "epsilon": EPSILON})

    def texts(self, request: "Request") -> Answer:
        """Return the list of texts, with the prediction and measures of the first model."""
        model = self.model(request)
        size = 32 if model.loaded.kind == CLASSIFIER else 8

        def rows() -> Iterator[dict[str, object]]:
            for texts, targeted in model.parts(size):
                yield from measures(model.loaded, texts, targeted, model.inputs.has_targets)

        return self.cached(f"texts {request.key}", lambda: Answer({"texts": list(rows())}))

    def view(self, request: "Request") -> Answer:
        return Answer(*self.passage(request).view())

    def intervene(self, request: "Request") -> Answer:
        """Return the output with edited attention."""
        passage, row = self.passage(request), request.integer("row")
        edits = request.edits(passage.source)
        return Answer(asdict(passage.outcome(edits, row)))

    def farthest(self, request: "Request") -> Answer:
        return self.cached(
            f"farthest {request.key}", lambda: Answer(*self.passage(request).farthest(request.integer("row")))
        )

    def scores(self, request: "Request") -> Answer:
        names = [str(name) for name in request.items("names")]
        return self.cached(f"scores {request.key}", lambda: Answer(*self.passage(request).scores(names)))

    def heads(self, request: "Request") -> Answer:
        model, step = self.model(request), request.step
        return self.cached(f"heads {request.key}", lambda: head_statistics(model, step))

    def training(self, request: "Request") -> Answer:
        model = self.model(request)
        require(bool(model.steps), "this model has no checkpoints: train it with --set training.checkpoints=[…]")
        return self.cached(f"training {request.key}", lambda: training_course(model))

    def audit(self, request: "Request") -> Answer:
        """Run a quick audit; other requests are answered between its batches."""
        model = self.model(request)

        def progress(done: int, total: int, title: str) -> None:
            self.lock.release()
            try:
                request.progress(done, total, title)
            finally:
                self.lock.acquire()

        if model.report is None:
            model.report = audit(model.loaded, model.data, settings=Settings(quick=True), progress=progress)
        return Answer({"verdict": verdict_of(model.report)})

    # Cached answers and passages

    def cached(self, key: str, compute: Callable[[], Answer]) -> Answer:
        if key not in self.cache:
            self.cache[key] = compute()
            while len(self.cache) > 8 * MAX_PASSAGES:
                self.cache.pop(next(iter(self.cache)))
        return self.cache[key]

    def model(self, request: "Request") -> ExploredModel:
        number = request.integer("model")
        require(0 <= number < len(self.models), f"there is no model {number}")
        return self.models[number]

    def passage(self, request: "Request") -> Passage:
        model, step, text = self.model(request), request.step, request.text
        require(step is None or step in model.steps, f"there is no checkpoint {step}")
        place = request.integer("model"), step, text
        if place not in self.passages:
            self.passages[place] = Passage(model.at(step), model.read(text, step))
            if len(self.passages) > MAX_PASSAGES:
                self.passages.popitem(last=False)
        self.passages.move_to_end(place)
        return self.passages[place]


@dataclass(frozen=True)
class Request:
    """A request, whose fields are checked as they are read."""

    content: Mapping[str, object]
    buffers: Sequence[bytes]
    progress: Progress

    @property
    def key(self) -> str:
        return request_key(self.content)

    def string(self, name: str) -> str:
        value = self.content.get(name)
        if not isinstance(value, str):
            raise BadSetting(f"a request has a string {name!r}, not {value!r:.40}")
        return value

    def integer(self, name: str) -> int:
        value = self.content.get(name, 0)
        if not isinstance(value, int):
            raise BadSetting(f"{name!r} is a whole number, not {value!r:.40}")
        return value

    def items(self, name: str) -> Sequence[object]:
        value = self.content.get(name, [])
        if not isinstance(value, list) or len(value) > MAX_EDITS:
            raise BadSetting(f"{name!r} is a list of at most {MAX_EDITS} items")
        return value

    @property
    def step(self) -> int | None:
        return None if self.content.get("step") is None else self.integer("step")

    @property
    def text(self) -> int | str:
        return self.string("text") if isinstance(self.content.get("text"), str) else self.integer("text")

    def edits(self, source: int) -> list[Edit]:
        """Return the edits, [layer, head, row] each (null: all), whose weights are concatenated in a buffer."""
        places = self.items("edits")
        buffer = self.buffers[0] if self.buffers else b""
        require(len(buffer) == 4 * len(places) * source, f"{len(places)} edits have {source} weights each, of 4 bytes")
        weights = torch.from_numpy(np.frombuffer(buffer, "<f4").copy())
        return [as_edit(place, row) for place, row in zip(places, weights.view(-1, source), strict=True)]


def as_edit(place: object, weights: Float[Tensor, " source"]) -> Edit:
    match place:
        case [int() | None as layer, int() | None as head, int(row)]:
            return Edit(layer, head, row, weights)
    raise BadSetting(f"an edit is [layer, head, row], not {place!r:.40}")


def request_key(content: Mapping[str, object]) -> str:
    """Return the canonical JSON of a request, without the id of its answer."""
    fields = {name: value for name, value in content.items() if name != "id" and value is not None}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def verdict_of(report: Report) -> dict[str, object]:
    """Return the answer of an audit, and the tests that it follows from."""
    names = {criterion.name for criterion in VERDICT}
    tests = [test for test in report.tests if test.name in names] or list(report.tests[:3])
    return {
        "answer": report.answer, "headline": report.headline, "tests": to_json(tests), "texts": report.data.texts,
        "quick": bool(report.provenance.settings.get("quick")),
    }  # fmt: skip


# Measures ------------------------------------------------------------------------------------------------------------


def measures(loaded: LoadedModel, texts: Texts, targeted: Texts, has_gold: bool) -> Iterator[dict[str, object]]:
    """Yield one row per text: prediction, its probability, entropy, and the effect of other attention."""
    reading = read_batch(loaded, targeted.batch)
    (sentence, step), own = reading.places, reading.own_probabilities
    attended = attended_pairs(reading)[sentence, step]  # decisions x source
    everywhere = (attended / attended.sum(-1, keepdim=True))[None, :, None]
    spread = everywhere.expand(1, *reading.own.shape).to(reading.own)
    predicted = reading.trace.predictions
    columns = {
        "confidence": own.double().max(-1).values,
        "entropy": relative_entropy(reading.own, attended[:, None]).mean(-1),
        "uniform": tvd(reading.probabilities(spread)[0], own).double(),
    }
    if reading.classifies and has_exact_adversary(reading):
        columns["farthest"] = exact_adversary(reading, EPSILON).jsd / math.log(2)
    for i, names in enumerate(texts.source.names):
        words = [name for name, place in zip(names, texts.source.places[i].tolist(), strict=False) if place != NO_WORD]
        output = predicted[i][targeted.batch.target_mask[i]]
        gold = texts.batch.target[i][texts.batch.target_mask[i]]
        yield {
            "text": " ".join(words),
            "predicted": loaded.reader.text(output[-1:] if loaded.kind == LANGUAGE_MODEL else output),
            "gold": loaded.reader.text(gold) if has_gold and loaded.kind != LANGUAGE_MODEL else None,
            **{name: rounded(values[sentence == i]) for name, values in columns.items()},
        }


def rounded(values: Float[Tensor, " decisions"]) -> float | None:
    mean = float(values.nanmean())
    return round(mean, 5) if math.isfinite(mean) else None


def head_statistics(model: ExploredModel, step: int | None) -> Answer:
    """Return statistics of each layer and head, the effect of ablation among them, and the kind of each head."""
    loaded = model.at(step)
    texts = [targeted for _, targeted in model.parts(8, HEAD_TEXTS)]
    columns, kinds = (causal_heads if loaded.kind == LANGUAGE_MODEL else formed_heads)(loaded, texts)
    ranking = HeadRankingAccumulator(loaded, saliency=None, decoding="teacher_forced")
    for _, targeted in model.parts(4, ABLATED_TEXTS):
        ranking.update(Sentences.of(targeted))
    effect = ranking.result().ablated
    columns |= {"log-probability lost if ablated": effect.loss, "outputs changed if ablated": effect.changed}
    values = torch.stack([column.reshape(effect.loss.shape).cpu() for column in columns.values()])
    content = {"statistics": list(columns), "kinds": kinds, "confirmed": CONFIRMED, "texts": len(model.inputs)}
    return Answer(content, [values])


def formed_heads(loaded: LoadedModel, texts: Sequence[Texts]) -> tuple[dict[str, Tensor], list[str]]:
    """Return how the attention of each head is formed, and its kind: where most of its weight goes, on average."""
    table = head_formation(loaded, [part.batch for part in texts], decoding="teacher_forced").table()
    entropy, share, special, spread = (
        torch.tensor(table[name].to_numpy(copy=True)) for name in ("entropy", "time", "on specials", "spread")
    )
    kinds = name_kinds(special=special > 0.5, broad=entropy > 0.9, positional=spread < 1)
    return {ENTROPY: entropy, "share of positions in the score": share, "weight on special tokens": special}, kinds


def causal_heads(loaded: LoadedModel, texts: Sequence[Texts]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the same for a language model, whose positions attend to themselves and those before them.

    Kinds of a small model are those of `head_kinds` where ablation confirms them, on repeated random tokens.
    """
    parts: dict[str, list[Tensor]] = {ENTROPY: [], "weight on the first token": [], "weight on the previous token": []}
    for part_texts in texts:
        reading = read_batch(loaded, part_texts.batch)
        weights, pairs = layer_weights(reading.trace), attended_pairs(reading)
        choice = pairs.sum(-1) > 2  # batch x target: with another token than itself and the first
        before = (pairs.sum(-1) - 2).clamp(min=0)[None, :, None, :, None].expand(*weights.shape[:-1], 1)
        statistics = relative_entropy(weights, pairs[:, None]), weights[..., 0], weights.gather(-1, before)[..., 0]
        for part, values in zip(parts.values(), statistics, strict=True):
            part.append(values.transpose(2, 3)[:, choice].double())  # layers x chosen x heads
    columns = {name: torch.cat(part, 1).mean(1) for name, part in parts.items()}
    entropy, first, previous = (column.flatten() for column in columns.values())
    kinds = name_kinds(sink=first > 0.5, previous=previous > 0.5, broad=entropy > 0.9)
    if sum(parameter.numel() for parameter in loaded.module.parameters()) <= MAX_CONFIRMED:
        heads = columns[ENTROPY].shape[1]
        confirmed = head_kinds(loaded).table().query("confirmed")[::-1]  # the first kind has precedence
        for layer, head, kind in confirmed[["layer", "head", "kind"]].to_numpy().tolist():
            kinds[layer * heads + head] = f"{kind} {CONFIRMED}"
    return columns, kinds


def name_kinds(**kinds: Bool[Tensor, " heads"]) -> list[str]:
    """Return the first kind of each head that applies; "content" where none does.

    >>> name_kinds(special=torch.tensor([True, False, False]), broad=torch.tensor([True, True, False]))
    ['special', 'broad', 'content']
    """
    rows = zip(*(applies.tolist() for applies in kinds.values()), strict=True)
    return [next((name for name, applies in zip(kinds, row, strict=True) if applies), "content") for row in rows]


# Training ------------------------------------------------------------------------------------------------------------


def training_course(model: ExploredModel) -> Answer:
    """Return the learning curves of a run, and its temporal components at each checkpoint (aitken2021 figure 2)."""
    assert model.run is not None
    log = model.run.log
    names = [name for name in ("word_accuracy", "final_accuracy", "loss") if name in log]
    curves = {name: log[name].astype(float).where(log[name].notna(), None).tolist() for name in names}
    content: dict[str, object] = {"steps": model.steps, "log": {"step": log["step"].tolist(), **curves}}
    temporal = [temporal_components(model, step) for step in model.steps]
    if any(part is None for part in temporal):
        return Answer(content)
    encoder, decoder = (torch.stack([part[side] for part in temporal if part is not None]) for side in (0, 1))
    final = torch.cat([encoder[-1], decoder[-1]])
    _, _, axes = torch.linalg.svd(final - final.mean(0), full_matrices=False)
    return Answer(content, [(side - final.mean(0)) @ axes[:2].T for side in (encoder, decoder)])


@torch.no_grad()
def temporal_components(model: ExploredModel, step: int) -> tuple[Tensor, Tensor] | None:
    """Return the mean keys and queries at each time step; None where attention is not an inner product."""
    texts = model.part(slice(TEMPORAL_TEXTS))[1]
    trace = CounterfactualAttention.of(model.at(step), texts.batch, "teacher_forced").trace
    if trace.decoder is None or not has_inner_products(trace):
        return None
    vectors = vectors_of(trace, "attention")
    assert vectors.decoder is not None
    encoder, decoder = (
        component_sums(side).components().temporal[0].float().cpu() for side in (vectors.encoder, vectors.decoder)
    )
    return encoder, decoder


# Requests of a static page -------------------------------------------------------------------------------------------


def static_requests(session: Session, texts: int) -> Iterator[tuple[dict[str, object], list[bytes]]]:
    """Yield the requests whose answers a static page stores: the first texts, and the simple interventions."""
    yield {"kind": "overview"}, []
    for number, model in enumerate(session.models):
        yield {"kind": "texts", "model": number}, []
        if model.steps:
            yield {"kind": "training", "model": number}, []
        steps: list[int | None] = [None, *model.steps]
        for step in steps:
            for text in range(min(texts, len(model.inputs))):
                yield from passage_requests(session, {"model": number, "step": step, "text": text})
        if session.answer({"kind": "view", "model": number, "text": 0}).content.get("heads") != 1:
            yield {"kind": "heads", "model": number}, []


def passage_requests(session: Session, place: Mapping[str, object]) -> Iterator[tuple[dict[str, object], list[bytes]]]:
    """Yield the requests about one text; interventions only where the page cannot compute them itself."""
    yield {"kind": "view", **place}, []
    if "error" in session.answer({"kind": "view", **place}).content:
        return
    names = SCORES[1:] if place["step"] is None else SCORES[-1:]  # during training β alone
    for name in names:
        yield {"kind": "scores", "names": [name], **place}, []
    if place["step"] is not None:
        return
    passage = session.passage(Request({"kind": "view", **place}, [], lambda done, total, title: None))
    if passage.reading.classifies:
        yield {"kind": "farthest", "row": 0, **place}, []
    if passage.contributions is not None:
        return
    for row in range(passage.rows):
        for preset, weights in preset_weights(passage, row).items():
            edits = {"edits": [[passage.layers - 1, None, row]], "preset": preset, "row": row}
            yield {"kind": "intervene", **edits, **place}, [weights.numpy().astype("<f4").tobytes()]


def preset_weights(passage: Passage, row: int) -> dict[str, Float[Tensor, " source"]]:
    """Return other weights of one output token by name, as the page computes them."""
    own, attended = passage.trace.attention[0, :, row].mean(0).cpu(), passage.attended[row].cpu()
    places, shuffled = attended.nonzero().flatten(), own.clone()
    shuffled[places] = own[passage.shuffle[attended[passage.shuffle]]]
    weights = {"uniform": attended / attended.sum(), "shuffled": shuffled}
    for place in places.tolist():
        only = torch.zeros_like(own)
        only[place] = 1
        without = own * (1 - only)
        weights[f"only {place}"] = only
        if (left := without.sum()) > 0:
            weights[f"without {place}"] = without / left
    return weights
