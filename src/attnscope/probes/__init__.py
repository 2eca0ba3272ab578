"""Probes: functions of a model and data, whose results have .table() and .plot(ax).

    run_probe("fragility", model, texts).table()
    PROBES["fragility"].question

Add your own Probe to PROBES to run it by name. Transplants (attnscope.probes.transplant) and
adversarial training (attnscope.probes.adversary) need two models or training, so they are called directly.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Protocol, cast, get_origin, get_type_hints, runtime_checkable

from attnscope.display import Axes
from attnscope.errors import alternatives, check_seed, choose, fits, in_words, require
from attnscope.models.capabilities import GivesTrace, PredictsNextToken, ReadsOut, needs

if TYPE_CHECKING:
    from pandas import DataFrame

    from attnscope.models.inference import Model
    from attnscope.models.inputs import Data


@runtime_checkable
class Answer(Protocol):
    """What every probe returns."""

    def table(self) -> "DataFrame": ...

    def plot(self, ax: Axes | None = None) -> Axes: ...


@dataclass(frozen=True)
class Probe:
    """A probe by name.

    Attributes:
        name: Its name, also on the command line.
        question: The question it answers, in one line.
        location: The function, or its path below attnscope.probes: "module.name".
        needs: The capabilities that a model must declare.
        needs_data: What the data must contain besides texts: "labels", "rationales", "word alignments".
    """

    name: str
    question: str
    location: str | Callable[..., Answer]
    needs: tuple[type, ...] = (GivesTrace,)
    needs_data: tuple[str, ...] = ()

    @property
    def function(self) -> Callable[..., Answer]:
        """The function of (model, data, **options); its module is imported at first use."""
        if not isinstance(self.location, str):
            return self.location
        module, _, name = self.location.rpartition(".")
        function: Callable[..., Answer] = getattr(import_module(f"attnscope.probes.{module}"), name)
        return function

    def __call__(self, model: "Model", data: "Data" = None, **options: object) -> Answer:
        """Check that the model has the capabilities needed, then run the probe."""
        needs(model, *self.needs, by=f"the probe {self.name!r}")
        self.check(options)
        answer = self.function(model, data, **options)
        require(
            isinstance(answer, Answer),
            f"a probe returns an object with .table() and .plot(ax); {self.name!r} returned a {type(answer).__name__}",
        )
        return answer

    def check(self, options: dict[str, object]) -> None:
        """Raise an error for options that the function does not have, or whose type does not fit its annotations."""
        hints = get_type_hints(self.function)
        for name, value in options.items():
            choose(f"option of the probe {self.name!r}", name, list(signature(self.function).parameters)[2:])
            kinds = alternatives(hints.get(name, object))
            possible = " or ".join(word for kind in kinds for word in in_words(kind))
            require(
                any(
                    isinstance(value, origin) if (origin := get_origin(kind)) in ABSTRACT else fits(value, kind)
                    for kind in kinds
                ),
                f"{name} of the probe {self.name!r} is {possible or 'something else'}, not {value!r:.60}",
            )
            if name == "seed":
                check_seed(f"{name} of the probe {self.name!r}", cast(int, value))


ABSTRACT = (Callable, Collection, Mapping, Sequence)  # options of these types are checked by isinstance
READOUT = (GivesTrace, ReadsOut)
LANGUAGE = (PredictsNextToken,)
PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("decompose", "How much of attention follows from time, from tokens, from neither?",
              "decomposition.decompose"),
        Probe("agreement", "Does attention agree with what each source token would output alone?",
              "agreement.agreement", READOUT),
        Probe("lexical", "What would the model output if it attended to one source token only?",
              "lexical.lexical", READOUT),
        Probe("saliency", "Which source tokens influence the output?", "saliency.saliency"),
        Probe("entropy", "How peaked is attention?", "divergences.entropy"),
        Probe("optimal", "How much lower could the loss be with other attention?",
              "optimal.optimal_attention", READOUT),
        Probe("heads", "Which layers and heads matter to the output?", "heads.ranking.head_ranking"),
        Probe("head_mixture", "Does any mixture of heads predict which tokens decide?", "heads.mixture.head_mixture"),
        Probe("fragility", "How much do predictions depend on attention?", "fragility.fragility"),
        Probe("grounding", "Would each token alone predict the class?", "grounding.grounding", READOUT),
        Probe("adversary", "How far can attention move while the output stays?", "adversary.adversary"),
        Probe("erasure", "Do the most attended tokens decide?", "erasure.erasure"),
        Probe("plausibility", "Does attention fall on what people marked?", "plausibility.plausibility",
              needs_data=("rationales",)),
        Probe("word_alignment", "Does attention align the words that translate each other?",
              "word_alignment.word_alignment", needs_data=("word alignments",)),
        Probe("information", "How much of a token is left in its hidden state?", "information.information"),
        Probe("diagnostic", "Can a linear classifier decode tokens from hidden states?", "diagnostic.diagnostic"),
        Probe("gates", "How often are the gates of recurrent cells open and closed?", "gates.gates"),
        Probe("weights", "How many strong connections are there?", "weights.weights"),
        Probe("head_statistics", "Where do the heads of a language model attend, with and without the sink?",
              "language.head_statistics", LANGUAGE),
        Probe("head_kinds", "Which heads attend to the previous token, by induction, to duplicates, to a sink?",
              "language.head_kinds", LANGUAGE),
        Probe("position_shares", "How much of each head's scores follows from positions, how much from words?",
              "positions.position_shares"),
        Probe("distance_shares", "How much of each head's scores follows from the distance, how much from the token?",
              "distances.distance_shares", LANGUAGE),
    )
}  # fmt: skip


def run_probe(name: str, model: "Model", data: "Data" = None, **options: object) -> Answer:
    """Run a probe by name.

    Args:
        name: A name in PROBES.
        model: A model, or what `attnscope.load` returns.
        data: Texts, a path, a table, a Task or Batches; None for a run's own test set.
        options: Keyword arguments of the probe's function.
    """
    return PROBES[choose("probe", name, PROBES, "PROBES")](model, data, **options)
