"""Explaining one prediction: attention and other scores of each token, and the verdict of the model's audit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnscope import plots
from attnscope.auditing.report import read_audit
from attnscope.display import Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.faithfulness.records import answer_of, mapping
from attnscope.files import Malformed
from attnscope.loading import load
from attnscope.models.adapters.readers import Label, Source, Text, TextPair
from attnscope.models.capabilities import EmbedsSource, GivesTrace, ReadsOut, needs
from attnscope.models.inference import device_of, evaluating, module_of
from attnscope.models.loaded import LoadedModel
from attnscope.models.trace import Trace
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.saliency import gradient_times_input, leave_one_out
from attnscope.probes.scores import attention_scores
from attnscope.tasks.batch import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = object

SCORES = ATTENTION, LEAVE_ONE_OUT, GRADIENT, LEXICAL = "attention", "leave-one-out", "gradient × input", "β"


@dataclass(frozen=True)
class Explanation(Displayed):
    """Scores of each source token for one prediction.

    Attributes:
        model: Its name.
        source_tokens: The tokens of the text.
        target_tokens: The tokens of the target; of a classifier one, the class.
        prediction: The predicted class or translation.
        target: The class or translation that the scores are about; by default the prediction.
        probability: The probability of the target's tokens, multiplied.
        scores: By name, one number per output token and source token.
        missing: By name of a score, why this model has none.
        verdict: The answer of the model's audit, if it has been audited.
        truncated: Whether the text has more tokens than the model can read, and was truncated.
    """

    model: str
    prediction: str
    target: str
    probability: float
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    scores: dict[str, Float[Tensor, "target source"]]
    missing: dict[str, str] = field(default_factory=dict)
    verdict: str | None = None
    truncated: bool = False

    def table(self) -> pd.DataFrame:
        """Return one row per source token (of a translation: per output and source token), one column per score."""
        values = {name: score.flatten().tolist() for name, score in self.scores.items()}
        if len(self.target_tokens) == 1:
            return pd.DataFrame(values, index=pd.Index(self.source_tokens, name="token"))
        index = pd.MultiIndex.from_product([self.target_tokens, self.source_tokens], names=["output", "token"])
        return pd.DataFrame(values, index=index)

    def sentences(self) -> Iterator[str]:
        yield f"{self.model} predicts {self.prediction}"
        if self.truncated:
            yield f"the text is longer than the model can read: only {len(self.source_tokens)} tokens are explained"
        yield f"probability of {self.target}: {self.probability:.3f}"
        yield self.verdict or "not audited: `attnscope audit` tests whether its attention may be read as an explanation"
        yield from (f"no {name}: {reason}" for name, reason in self.missing.items())

    def display_sentences(self) -> list[str]:
        return list(self.sentences())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw a classifier's scores, each divided by its largest absolute value; of a translator, the attention."""
        if len(self.target_tokens) > 1:
            return self.plot_score(ATTENTION, ax)
        largest = {name: score.abs().nan_to_num().max().clamp(min=1e-12) for name, score in self.scores.items()}
        rows = [(score[0] / largest[name]).tolist() for name, score in self.scores.items()]
        return plots.heatmap(rows, self.scores, self.source_tokens, ax, title=self.title, diverging=True)

    def plot_score(self, name: str, ax: Axes | None = None) -> Axes:
        """Draw one score, output tokens by source tokens.

        Args:
            name: A key of `scores`.
            ax: Axes to draw on; new ones by default.
        """
        values = self.scores[name]
        return plots.heatmap(
            values.tolist(), self.target_tokens, self.source_tokens, ax, title=name, diverging=bool((values < 0).any())
        )

    def figure(self) -> Figure:
        """Return one panel for a classifier; one panel per score for a translator."""
        if len(self.target_tokens) == 1:
            figure, (ax,) = plots.panels(1, 1, size=(max(4.0, 0.45 * len(self.source_tokens)), 2.2))
            self.plot(ax)
            return figure
        figure, axes = plots.panels(1, len(self.scores), size=(4.0, 3.6))
        for name, ax in zip(self.scores, axes, strict=True):
            self.plot_score(name, ax)
        return figure

    @property
    def title(self) -> str:
        return f"{self.model}: {self.target} ({self.probability:.2f})"


def explain(
    model: LoadedModel | nn.Module | str | Path,
    text: Source,
    *,
    target: Label | Text | None = None,
    audit: str | Path = "audit",
) -> Explanation:
    """Return the scores of each token of one text.

    Args:
        model: A LoadedModel, or anything that `attnscope.load` takes.
        text: A string, a list of words, or a pair of texts.
        target: The class or translation that is explained; None: the prediction.
        audit: The folder of an audit; its verdict is shown if it is about this model.
    """
    loaded = load(model)
    prediction = loaded.predict([text])[0]
    sides = (text.text, text.pair) if isinstance(text, TextPair) else (text,)
    require(any(side and not str(side).isspace() for side in sides), "a text without any word cannot be explained")
    inputs = loaded.read([text], None if target is None else [target])
    batch = inputs.batch.to(device_of(loaded))
    with evaluating(loaded):
        trace = inputs.label(loaded(batch, teacher_forcing=1.0))
    scores, missing = compute_scores(loaded, batch, trace)
    log_probabilities = trace.logits.log_softmax(-1).gather(-1, trace.target[..., None])[0]
    return Explanation(
        model=loaded.name,
        prediction=prediction,
        target=loaded.reader.text(trace.target[0]),
        probability=log_probabilities.sum().exp().item(),
        source_tokens=inputs.source.tokens[0],
        target_tokens=inputs.target.tokens[0],
        scores=scores,
        missing=missing,
        verdict=verdict_of(loaded.name, Path(audit)),
        truncated=inputs.cut > 0,
    )


def compute_scores(
    model: LoadedModel, batch: Batch, trace: Trace, names: Sequence[str] = SCORES
) -> tuple[dict[str, Float[Tensor, "target source"]], dict[str, str]]:
    """Return the scores that this model supports, and the reasons why it does not support the others."""
    module = module_of(model)
    functions: dict[str, tuple[Callable[[], Tensor], tuple[type, ...]]] = {
        ATTENTION: (lambda: attention_scores(trace).values, ()),
        LEAVE_ONE_OUT: (lambda: leave_one_out(cast(GivesTrace, module), batch).values, (GivesTrace,)),
        GRADIENT: (lambda: gradient_times_input(cast(EmbedsSource, module), batch).values, (EmbedsSource,)),
        LEXICAL: (lambda: lexical_scores(cast(ReadsOut, module), trace).probability, (ReadsOut,)),
    }
    scores, missing = dict[str, Tensor](), dict[str, str]()
    for name in names:
        compute, capabilities = functions[name]
        try:
            needs(model, *capabilities, by=name)
            # A later token of an answer has no score: without it, the answer would move.
            scores[name] = compute().masked_fill(~trace.pairs, torch.nan)[0].detach().cpu()
        except AttnscopeError as error:
            missing[name] = str(error)
    return scores, missing


def verdict_of(model: str, folder: Path) -> str | None:
    """Return the answer of an audit in this folder, if it is about this model."""
    path = folder / "audit.json"
    if not path.is_file():
        return None
    audit = read_audit(path)
    name, verdict = mapping(audit.get("model")).get("name"), mapping(audit.get("verdict"))
    if name is None or not {"answer", "headline"} <= verdict.keys():
        raise Malformed(f"{path} is not an audit: it names no model or no verdict")
    return f"audited ({path}): {answer_of(verdict['answer'])}. {verdict['headline']}" if name == model else None
