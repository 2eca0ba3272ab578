"""One text in one model: its attention, its output, and its output with other attention.

Where the output is a weighted sum of the tokens' contributions (one head, linear readout; tutek2020 eq. 9), these are
part of the view, and a page computes the output with other attention itself. Elsewhere the model runs again.

A translator's output is teacher-forced: the decoder input stays the same whatever the attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import require
from attnscope.explanation import SCORES, compute_scores
from attnscope.models.adapters.readers import Texts
from attnscope.models.attention import uniform
from attnscope.models.capabilities import ReadsOut
from attnscope.models.inference import evaluating
from attnscope.models.loaded import LoadedModel
from attnscope.models.trace import Interventions
from attnscope.probes.adversary import EPSILON, TOKEN_SEARCH, adversaries_in_batch, search_token_adversaries
from attnscope.probes.counterfactual import TOLERANCE, CounterfactualAttention, class_probabilities, read_out_rows
from attnscope.probes.divergences import tvd
from attnscope.tasks.batch import NOWHERE, Batch

MAX_SHOWN = 6  # outputs with their probabilities, of a large vocabulary
MAX_OUTPUTS = 64  # of a vocabulary that is shown as a whole
MAX_LIVE = 1 << 18  # contributions that are part of a view
MAX_WEIGHTS = 1 << 22  # of all layers and heads; for longer texts, a view has the last layer only


@dataclass(frozen=True)
class Edit:
    """Other weights for one output token.

    Attributes:
        layer: Which layer; None: all layers.
        head: Which of its heads; None: all heads.
        row: The output token.
        weights: One weight per source token.
    """

    layer: int | None
    head: int | None
    row: int
    weights: Float[Tensor, " source"]


@dataclass(frozen=True)
class Outcome:
    """The output with other attention.

    Attributes:
        tvd: For each output token, the total variation distance from the output with the model's own attention.
        predicted: The output tokens with the highest probability.
        table: Of one output token, the name of each output and its probability before and after.
    """

    tvd: list[float]
    predicted: list[str]
    table: list[tuple[str, float, float]]


class Passage:
    """A text that a model has read."""

    def __init__(self, loaded: LoadedModel, texts: Texts):
        self.loaded, self.texts = loaded, texts
        self.reading = read_batch(loaded, texts.batch)
        self.trace = self.reading.trace
        self.layers = len(self.trace.layers)
        self.trace.layer(-1)  # raises an error for a model without attention
        self.heads, self.rows, self.source = self.trace.attention.shape[1:]

    @cached_property
    def own(self) -> Float[Tensor, "target outputs"]:
        """The probabilities of all outputs with the model's own attention."""
        return self.probabilities(self.trace.logits)

    def probabilities(self, logits: Float[Tensor, "1 target words"]) -> Float[Tensor, "target outputs"]:
        return class_probabilities(logits) if self.reading.classifies else logits[0].double().softmax(-1)

    def name(self, output: int) -> str:
        if self.reading.classifies:
            return self.loaded.classes[output]
        return self.loaded.reader.target_vocabulary.decode([output])[0]

    @property
    def small(self) -> bool:
        """Whether the probability of every output is shown."""
        return self.own.shape[1] <= MAX_OUTPUTS

    # Data of a page

    def view(self) -> tuple[dict[str, object], list[Tensor]]:
        """Return tokens and names; and attention, probabilities of few outputs, and contributions as tensors."""
        names = self.texts.source
        batch, units = self.trace.batch, names.unit[0, : self.source].tolist()
        last_only = self.layers * self.trace.attention.numel() > MAX_WEIGHTS
        layers = self.trace.layers[-1:] if last_only else self.trace.layers
        tensors = [torch.stack([layer.weights[0] for layer in layers])]
        if self.small:
            tensors.append(self.own)
        if self.contributions is not None:
            tensors.append(self.contributions)
        content: dict[str, object] = {
            "tokens": names.tokens[0], "units": units, "words": names.names[0], "layers": self.layers,
            "heads": self.heads, "first": self.layers - len(layers),
            "special": (batch.source_mask & ~batch.word_mask)[0].tolist(),
            "attended": self.attended.any(0).tolist(),
            "queries": None if self.trace.rows is None else self.trace.rows[0].tolist(),
            "targets": self.texts.target.tokens[0], "classifies": self.reading.classifies,
            "predicted": [self.name(i) for i in self.own.argmax(-1).tolist()],
            "outputs": [self.name(i) for i in range(self.own.shape[1])] if self.small else None,
            "top": None if self.small else [self.table(self.own, row) for row in range(self.rows)],
            "live": self.contributions is not None, "shuffle": self.shuffle.tolist(), "cut": bool(self.texts.cut),
            **self.annotated_attention(),
        }  # fmt: skip
        return content, tensors

    @cached_property
    def attended(self) -> Bool[Tensor, "target source"]:
        """The positions that each output token may attend to; a language model has no later ones."""
        return attended_pairs(self.reading)[0]

    @cached_property
    def shuffle(self) -> Tensor:
        """A random order of the positions that may be attended to, the same each time the text is read."""
        places = self.attended.any(0).nonzero().flatten().cpu()
        seed = int(self.trace.source.sum())
        return places[torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))]

    def annotated_attention(self) -> dict[str, object]:
        """Return gold attention (a source position for each output token) or that of annotators, where there is any."""
        batch = self.texts.batch
        if batch.gold_attention is not None:
            places = batch.gold_attention[0].tolist()
            return {"gold": [None if place == NOWHERE else place for place in places]}
        if batch.rationale is None or not (marked := batch.rationale[0]).any():
            return {}
        return {"human": (marked / marked.sum()).tolist()}

    @cached_property
    def contributions(self) -> Float[Tensor, "target source outputs"] | None:
        """The logits of each output token given each source token alone, if their weighted sum gives the logits."""
        if self.reading.classifies:
            contributions = self.reading.contributions
            return None if contributions is None else contributions[0][None]
        model, outputs = self.reading.model, self.own.shape[1]
        if not isinstance(model, ReadsOut) or self.heads > 1 or self.rows * self.source * outputs > MAX_LIVE:
            return None
        t, s = torch.cartesian_prod(torch.arange(self.rows), torch.arange(self.source)).to(self.own.device).unbind(1)
        own = self.trace.attention
        with evaluating(model):
            values = self.trace.last.values[0].transpose(0, 1)[s]  # rows x heads x value
            alone = read_out_rows(model, self.trace, values, torch.zeros_like(t), t)
            contributions = alone.view(self.rows, self.source, -1)
            # Tested on whole passes, since in some models attention also changes the decoder's states.
            weights = torch.stack([own, uniform(own, self.reading.attended), own.flip(2)])
            logits = self.reading.logits(weights)[:, 0]
        error = torch.einsum("kts,tso->kto", weights[:, 0, 0], contributions) - logits
        return contributions if bool((error.abs() <= TOLERANCE * (1 + logits.abs().max())).all()) else None

    # Other attention

    def check(self, edit: Edit) -> None:
        weights = edit.weights
        require(
            (edit.layer is None or 0 <= edit.layer < self.layers)
            and (edit.head is None or 0 <= edit.head < self.heads)
            and 0 <= edit.row < self.rows,
            f"there is no layer {edit.layer}, head {edit.head} and output token {edit.row} in this text",
        )
        finite = weights.shape == (self.source,) and bool(weights.isfinite().all())
        require(
            finite and bool((weights >= 0).all()) and float(weights.sum()) <= 1 + 1e-3,
            f"weights are {self.source} numbers from 0 to 1 with a sum of at most 1",
        )
        later = ~self.attended[edit.row].cpu() if self.trace.rows is not None else torch.zeros(self.source).bool()
        require(not weights[later].any(), f"output token {edit.row} cannot attend to later tokens: their weights are 0")

    def logits(self, edits: Sequence[Edit]) -> Float[Tensor, "1 target words"]:
        """Return the logits with these weights; later edits and edits of single heads have precedence."""
        for edit in edits:
            self.check(edit)
        ordered = sorted(edits, key=lambda edit: (edit.layer is not None, edit.head is not None))
        if all(edit.layer == self.layers - 1 for edit in ordered) or self.layers == 1:
            weights = self.trace.attention.clone()
            for edit in ordered:
                weights[0, slice(None) if edit.head is None else edit.head, edit.row] = edit.weights.to(weights)
            return self.reading.logits(weights)
        changes: dict[int, list[Edit]] = {}
        for edit in ordered:
            for layer in range(self.layers) if edit.layer is None else [edit.layer]:
                changes.setdefault(layer, []).append(edit)
        changed: Interventions = {layer: Replacement(layer_edits) for layer, layer_edits in changes.items()}
        return self.reading.intervene(changed).logits

    def outcome(self, edits: Sequence[Edit], row: int) -> Outcome:
        """Return the output with these weights; the table is that of one output token."""
        require(0 <= row < self.rows, f"there is no output token {row}; there are {self.rows}")
        with torch.no_grad():
            after = self.probabilities(self.logits(edits)) if edits else self.own
        change = tvd(after, self.own).tolist()
        return Outcome(change, [self.name(i) for i in after.argmax(-1).tolist()], self.table(after, row))

    def table(self, after: Float[Tensor, "target outputs"], row: int) -> list[tuple[str, float, float]]:
        """Return outputs with their probabilities before and after: all, or the most probable ones of both."""
        before, changed = self.own[row], after[row]
        if self.small:
            shown = list(range(len(before)))
        else:
            tops = [part.topk(MAX_SHOWN).indices.tolist() for part in (before, changed)]
            shown = sorted({*tops[0], *tops[1]}, key=lambda i: -float(before[i]))[: MAX_SHOWN + 2]
        return [(self.name(i), float(before[i]), float(changed[i])) for i in shown]

    def farthest(self, row: int, epsilon: float = EPSILON) -> tuple[dict[str, object], list[Tensor]]:
        """Return the attention farthest from the model's own whose output differs by at most ε (TVD)."""
        require(0 <= row < self.rows, f"there is no output token {row}; there are {self.rows}")
        batch = self.reading.batch
        if self.reading.classifies:
            adversaries = adversaries_in_batch(self.loaded, batch, epsilon)
        else:
            tokens: Bool[Tensor, "1 target"] = (torch.arange(self.rows) == row)[None].to(batch.source.device)
            adversaries = search_token_adversaries(self.loaded, batch, tokens, TOKEN_SEARCH)
        content: dict[str, object] = {
            "feasible": bool(adversaries.feasible[0]), "jsd": float(adversaries.jsd[0]),
            "tvd": float(adversaries.tvd[0]), "epsilon": epsilon,
        }  # fmt: skip
        return content, [adversaries.weights[0]]

    def scores(self, names: Sequence[str]) -> tuple[dict[str, object], list[Tensor]]:
        """Return scores of each token by name, and the reasons why others are missing."""
        for name in names:
            require(name in SCORES, f"there is no score {name!r}; choose one of {', '.join(SCORES)}")
        scores, missing = compute_scores(self.loaded, self.reading.batch, self.trace, names)
        return {"names": list(scores), "missing": missing}, list(scores.values())


def read_batch(loaded: LoadedModel, batch: Batch) -> CounterfactualAttention:
    """Run a model on a batch, teacher-forced; the next token of a language model is not a class."""
    return CounterfactualAttention.of(loaded, batch, "teacher_forced", None if loaded.classes else batch.target_mask)


def attended_pairs(reading: CounterfactualAttention) -> Bool[Tensor, "batch target source"]:
    """Return the positions that each output token may attend to: the same for all, except in a language model."""
    pairs = reading.trace.pairs.expand(reading.trace.attention[:, 0].shape)
    return pairs & reading.attended[:, None] if reading.trace.rows is None else pairs


class Replacement:
    """An intervention that replaces rows of one layer."""

    def __init__(self, edits: Sequence[Edit]):
        self.edits = edits

    def __call__(self, weights: Tensor, mask: Tensor) -> Tensor:
        changed = weights.clone()
        for edit in self.edits:
            heads = slice(None) if edit.head is None else edit.head
            changed[:, heads, edit.row, : len(edit.weights)] = edit.weights.to(changed)
        return changed
