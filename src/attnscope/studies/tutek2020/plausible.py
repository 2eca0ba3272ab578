"""Does regularisation bring attention closer to human rationales? (beyond tutek2020; ERASER: DeYoung et al. 2020)

Faithful attention need not be plausible, nor the other way round. This finding is about plausibility only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier
from attnscope.probes.counterfactual import trace_and_mask
from attnscope.probes.plausibility import Plausibility, PlausibilityAccumulator
from attnscope.probes.saliency import influence
from attnscope.studies.bars import BarValues, Panel, bar_values, draw_bars, keep_last_legend
from attnscope.studies.claims import UNIT, ClaimVerdict
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, cases
from attnscope.studies.tutek2020.decisions import batches_on_device, corpus_and_model, trained_classifier
from attnscope.studies.tutek2020.experiments import BASE, COMPARED, ModelLabel, Sizes, model_experiment, prepared_corpus
from attnscope.studies.tutek2020.faithfulness import log_odds
from attnscope.tasks import CORPORA, Batch, Classification, Words
from attnscope.training.evaluation import decide

ATTENTION = "additive"
MAX_LENGTH = 400  # words of a review, as of those of IMDB

ANNOTATED: dict[str, Classification] = {
    "yelp_rationales": prepared_corpus("yelp_rationales", CORPORA["yelp_rationales"].splits, Words(min_count=1)),
    "eraser_movies": prepared_corpus(
        "eraser_movies", CORPORA["eraser_movies"].splits, Words(min_count=2), max_length=MAX_LENGTH, too_long="truncate"
    ),
}
EPOCHS = {"yelp_rationales": 12, "eraser_movies": 20}  # our choice: these corpora are small

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
QUANTITIES = {
    "f1": "F1",
    **{
        f"{score}_{name}": f"{text}: {measure}"
        for score, text in SCORES.items()
        for name, measure in MEASURES.items()
        if (score, name) != ("supporting", "mass")  # scores that may be negative have no shares
    },
    **{f"{CHANCE}_{name}": f"{CHANCE}: {measure}" for name, measure in MEASURES.items()},
    "texts": "texts with a marked word",
}


def experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    """Long reviews are left to the profile paper."""

    def case(label: ModelLabel) -> Case:
        return Case({"model": annotated_experiment(sizes, label.corpus, label.model)})

    corpora = tuple(ANNOTATED) if sizes.name == "paper" else ("yelp_rationales",)
    return cases(ModelLabel.product(corpora, COMPARED, (ATTENTION,)), case)


def annotated_experiment(sizes: Sizes, name: str, model: str) -> Experiment:
    """Return a model of table 1 as trained on SST, with the weights chosen there, but on texts with rationales."""
    task, like = ANNOTATED[name], model_experiment(sizes, "sst", ATTENTION, model)
    epoch = task.steps(like.training.batch_size)
    training = replace(like.training, steps=EPOCHS[name] * epoch, evaluate_every=epoch)
    return replace(like, task=task, training=training)


# One model -----------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[None]) -> Measurement:
    model, batches = trained_classifier(subject), batches_on_device(subject)
    return {"f1": 100 * decide(model, batches).f1, **agreement_numbers(plausibility(model, batches))}


def plausibility(model: Classifier, batches: Iterable[Batch]) -> Plausibility:
    """Return the agreement of attention and of gradients of the log-odds, unsigned and towards the decision."""
    accumulator = PlausibilityAccumulator()
    for batch in batches:
        trace, _ = trace_and_mask(model, batch)
        slope = influence(model, batch, log_odds).values[:, 0].nan_to_num()  # padding has none
        scores = {
            "attention": trace.attention[:, 0, 0],
            "gradient": slope.abs(),
            "supporting": slope * log_odds(trace).detach().sign(),
        }
        accumulator.update(batch, scores)
    return accumulator.result()


def agreement_numbers(agreement: Plausibility) -> dict[str, float]:
    """Return means over texts, called `<score>_<measure>`; chance is the same for every score."""
    table = agreement.table()
    ours = {f"{score}_{name}": float(table[name][score]) for score in SCORES for name in MEASURES}
    by_chance = {f"{CHANCE}_{name}": float(table[f"{name}_chance"]["attention"]) for name in MEASURES}
    return {**ours, **by_chance, "texts": agreement.texts, "left_out": agreement.left_out}


# Claims and figure ---------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    """Claims are about average precision, which needs no threshold."""
    verdicts, name = list[ClaimVerdict](), "attention_average_precision"
    for base in measured.where(model=BASE):
        above = f"{base.corpus}: base's attention agrees with people more than chance (average precision)"
        verdicts.append(measured.greater(above, base, name, f"{CHANCE}_average_precision"))
        for model in COMPARED[1:]:
            closer = f"{base.corpus}: attention of {model} agrees with people more than base's (average precision)"
            verdicts.append(measured.more_than(closer, base._replace(model=model), base, name))
    return verdicts


SHOWN = ("attention", "gradient")


def figure(measured: Measurements) -> dict[str, dict[str, Panel]]:
    """Return panels by corpus and score, with groups by measure and bars by model, and chance."""
    return {
        corpus: {
            score: {text: bars(measured.where(corpus=corpus), score, name) for name, text in MEASURES.items()}
            for score in SHOWN
        }
        for corpus in measured.each("corpus")
    }


def bars(measured: Measurements, score: str, name: str) -> dict[str, BarValues]:
    models = {label.model: bar_values(measured.values(label, f"{score}_{name}")) for label in measured}
    return {**models, CHANCE: bar_values(measured.values(next(iter(measured)), f"{CHANCE}_{name}"))}


def draw(data: Mapping[str, Mapping[str, Panel]]) -> Figure:
    """Draw one row per corpus: agreement of attention and of gradient × input; one bar per model, and chance."""
    picture, axes = plots.panels(max(len(data), 1), len(SHOWN), size=(5.4, 3.2))
    for number, (corpus, by_score) in enumerate(data.items()):
        line = axes[number * len(SHOWN) : (number + 1) * len(SHOWN)]
        for ax, (score, content) in zip(line, by_score.items(), strict=True):
            draw_bars(content, ax, "mean over texts", UNIT)
            ax.set_title(f"{corpus}: {SCORES[score]}", parse_math=False)
        keep_last_legend(line)
    return picture


PLAUSIBLE = Finding(
    name="plausible",
    title="Does regularisation bring attention closer to human rationales?",
    section="beyond; the measures of DeYoung et al. 2020 (ERASER)",
    experiments=experiments, measure=measure, table=QUANTITIES, columns=corpus_and_model, claims=claims, figure=figure,
    draw=draw,
    notes=(
        "The paper does not ask this: it wants attention to be faithful to the model, not to people. Claims were "
        "written before any model was tested; they are about average precision, the other measures stand beside it.",
        "Models have additive attention and are trained as on SST, with the δ and η chosen there: none was tuned on "
        "these texts, which are few. Yelp: 1,237 reviews to train on and 154 to test on, split by us, 12 epochs; "
        "movies: the published 1,600 and 199, 20 epochs, in the profile paper only. The best epoch by accuracy on the "
        "validation split is kept.",
        f"Movie reviews are truncated to {MAX_LENGTH} words, and marks after that are lost: nine in ten of "
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
