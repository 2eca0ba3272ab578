"""Does the remedy bring attention closer to what people mark? (beyond tutek2020; ERASER: DeYoung et al. 2020)

Faithful attention need not be plausible, nor the other way round. This asks for the second only.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier
from attnscope.probes.counterfactual import trace_and_mask
from attnscope.probes.plausibility import Plausibility, PlausibilityAccumulator
from attnscope.probes.saliency import influence
from attnscope.studies.bars import bar_values, draw_bars, one_key
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import by_corpus_and_model
from attnscope.studies.tutek2020.experiments import (
    BASE,
    MLM,
    RESIDUAL,
    TYING,
    ModelLabel,
    Sizes,
    corpus,
    labels,
    trained,
)
from attnscope.studies.tutek2020.faithfulness import log_odds
from attnscope.tasks import CORPORA, Batch, Classification, Words
from attnscope.training.decisions import decide

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTENTION = "additive"
MODELS = (BASE, RESIDUAL, TYING, MLM)
LONGEST = 400  # words of a review, as of those of IMDB

MARKED: dict[str, Classification] = {
    "yelp_rationales": corpus("yelp_rationales", CORPORA["yelp_rationales"].splits, Words(min_count=1)),
    "eraser_movies": corpus(
        "eraser_movies", CORPORA["eraser_movies"].splits, Words(min_count=2), max_length=LONGEST, too_long="truncate"
    ),
}
EPOCHS = {"yelp_rationales": 12, "eraser_movies": 20}  # our choice: few texts need more rounds

# Scores of words, and how each agrees with people.
SCORES = {
    "attention": "attention",
    "gradient": "|gradient × input|",
    "supporting": "gradient × input, towards the decision",
}
MEASURES = {
    "average_precision": "average precision",
    "token_f1": "token F1",
    "iou_f1": "IOU F1",
    "mass": "share on marked words",
}
CHANCE = "chance"


def marked_corpora(sizes: Sizes) -> tuple[str, ...]:
    """Long reviews are left to the profile paper."""
    return tuple(MARKED) if sizes.name == "paper" else ("yelp_rationales",)


def experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    models = labels(marked_corpora(sizes), MODELS, (ATTENTION,))
    return {label: case_unless_missing(partial(case, sizes, label.corpus, label.model)) for label in models}


def case(sizes: Sizes, name: str, model: str) -> Case:
    return Case({"model": trained_on_marked(sizes, name, model)})


def trained_on_marked(sizes: Sizes, name: str, model: str) -> Experiment:
    """A model of table 1 as it is trained on SST, with the weights chosen there, but on texts that people marked."""
    task, like = MARKED[name], trained(sizes, "sst", ATTENTION, model)
    epoch = task.steps(like.training.batch_size)
    training = replace(like.training, steps=EPOCHS[name] * epoch, evaluate_every=epoch)
    return replace(like, task=task, training=training)


# One model -----------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    run = subject.runs["model"]
    model = run.model()
    assert isinstance(model, Classifier)
    batches = [batch.to(subject.device) for batch in run.task.batches("test")]
    return {"f1": 100 * decide(model, batches).f1, **in_numbers(plausibility(model, batches))}


def plausibility(model: Classifier, batches: Iterable[Batch]) -> Plausibility:
    """Attention, and the gradient of the log-odds beside it: of either sign, and towards the decision."""
    found = PlausibilityAccumulator()
    for batch in batches:
        trace, _ = trace_and_mask(model, batch)
        slope = influence(model, batch, log_odds).values[:, 0].nan_to_num()  # padding, which is no word, has none
        scores = {
            "attention": trace.attention[:, 0, 0],
            "gradient": slope.abs(),
            "supporting": slope * log_odds(trace).detach().sign(),
        }
        found.update(batch, scores)
    return found.result()


def in_numbers(found: Plausibility) -> dict[str, float]:
    """Means over texts, called `<score>_<measure>`; chance is the same for every score."""
    table = found.table()
    ours = {f"{score}_{name}": float(table[name][score]) for score in SCORES for name in MEASURES}
    by_chance = {f"{CHANCE}_{name}": float(table[f"{name}_chance"]["attention"]) for name in MEASURES}
    return {**ours, **by_chance, "texts": found.texts, "left_out": found.left_out}


# What it says --------------------------------------------------------------------------------------------------------

QUANTITIES = {
    "f1": "F1",
    **{f"{score}_{name}": f"{text}: {measure}" for score, text in SCORES.items() for name, measure in MEASURES.items()},
    **{f"{CHANCE}_{name}": f"{CHANCE}: {measure}" for name, measure in MEASURES.items()},
    "texts": "texts with a marked word",
}
del QUANTITIES["supporting_mass"]  # of what may be negative there is no share


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, columns=by_corpus_and_model)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [verdict for name in measured.each("corpus") for verdict in of_corpus(measured, name)]


def of_corpus(measured: Measurements, name: str) -> list[ClaimVerdict]:
    """By average precision, which needs no threshold."""

    def precision(model: str, score: str = "attention") -> list[float]:
        return measured.values(ModelLabel(name, ATTENTION, model), f"{score}_average_precision")

    above = more_than(
        f"{name}: base's attention agrees with people more than chance (average precision)",
        precision(BASE),
        precision(BASE, CHANCE),
    )
    closer = [
        more_than(
            f"{name}: attention of {model} agrees with people more than base's (average precision)",
            precision(model),
            precision(BASE),
        )
        for model in MODELS
        if model != BASE
    ]
    return [above, *closer]


# Drawing -------------------------------------------------------------------------------------------------------------

DRAWN = ("attention", "gradient")


def figure(measured: Measurements) -> dict[str, Any]:
    """By corpus and score: measures by model, and chance."""
    return {name: picture_of(measured.where(corpus=name)) for name in measured.each("corpus")}


def picture_of(measured: Measurements) -> dict[str, Any]:
    return {score: {text: by_model(measured, score, of) for of, text in MEASURES.items()} for score in DRAWN}


def by_model(measured: Measurements, score: str, of: str) -> dict[str, Any]:
    found = {label.model: bar_values(measured.values(label, f"{score}_{of}")) for label in measured}
    return {**found, CHANCE: bar_values(measured.values(next(iter(measured)), f"{CHANCE}_{of}"))}


def draw(data: Any) -> "Figure":
    """A row a corpus: how far attention, and gradient × input, agree with people; a bar a model, and chance."""
    picture, axes = plots.panels(max(len(data), 1), len(DRAWN), size=(5.4, 3.2))
    for number, (name, by_score) in enumerate(data.items()):
        line = axes[number * len(DRAWN) : (number + 1) * len(DRAWN)]
        for ax, (score, content) in zip(line, by_score.items(), strict=True):
            draw_bars(content, ax, "mean over texts")
            ax.set_title(f"{name}: {SCORES[score]}", parse_math=False)
        one_key(line)
    return picture


PLAUSIBLE = Finding(
    name="plausible",
    title="Does the remedy bring attention closer to what people mark?",
    section="beyond; the measures of DeYoung et al. 2020 (ERASER)",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "The paper does not ask this: it wants attention to be faithful to the model, not to people. Claims were "
        "written before any model was tested; they are about average precision, the other measures stand beside it.",
        "Models have additive attention and are trained as on SST, with the δ and η chosen there: none was tuned on "
        "these texts, which are few. Yelp: 1,237 reviews to train on and 154 to test on, drawn by us, 12 epochs; "
        "movies: the published 1,600 and 199, 20 epochs, in the profile paper only. The best epoch by accuracy on the "
        "validation split is kept.",
        f"Movie reviews are cut to {LONGEST} words, and what people marked after that is cut with them: nine in ten of "
        "the test reviews are longer, and four in ten of their marked words remain.",
        "In the test split of the movies, as we have it, six in ten of the marked passages stop one word before the "
        "punctuation that ends the sentence. All models are measured against the same marks.",
        "Only the test split of the movies was marked exhaustively. A word of Yelp counts as marked if half of the "
        "annotators marked it.",
        "A score chooses as many words of a text as people marked. Chance is exact for average precision, token F1 and "
        "the share on marked words, and the mean over 20 random orders for IOU F1. Texts without a marked word are "
        "left out.",
        "Gradient × input is that of the log-odds, through attention: its size, and signed towards the decision.",
        "What this does not show: that a model uses the words that it shares with people.",
    ),
)  # fmt: skip
