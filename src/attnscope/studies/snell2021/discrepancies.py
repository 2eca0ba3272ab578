"""Which settings explain where our numbers on real text differ? (beyond snell2021; tables 2, 5 and 6)

One experiment per discrepancy; each arm changes one setting. 20 Newsgroups A(α, β^uf): with headers, as in the paper.
SST ξ*: embeddings from GloVe, as A.8 says, and all words known, nearly as in the author's code. BLEU on Multi30k: beam
search of width 5, as in the author's evaluation; its tokenisation and casing are sacrebleu's defaults, as ours are.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.lab.experiment import Run
from attnscope.models import EncoderDecoder, Start
from attnscope.models.capabilities import Generates
from attnscope.studies.bars import Panel, draw_panels, quantity_panel
from attnscope.studies.claims import ClaimVerdict, at_least, equivalent, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PublishedNumber, TrainedCase, cases
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.agreements import measure
from attnscope.studies.snell2021.experiments import MULTI30K_NAMES, SampleSettings, Sizes, case, translators
from attnscope.studies.snell2021.tables import BLEU, BLEU_REACH, FIVE, PERCENT
from attnscope.tasks import END, Batch, Classification, Translation, Words
from attnscope.tasks.text import Vectors
from attnscope.training.evaluation import bleu

FIRST_SEED = 3  # seeds 0 to 2 are those of the tables that showed the discrepancies

# Classification: headers, embeddings, vocabulary ---------------------------------------------------------------------

GLOVE = Vectors("glove/glove.6B.100d.float16.npz")
NEWS, SST = "20newsgroups", "sst"
HEADERS, VECTORS, ALL_WORDS = f"{NEWS}, with headers", f"{SST}, GloVe", f"{SST}, all words known"
UNIFORM, FINAL = "attention_uniform", "xi_final"
REASON = {HEADERS: UNIFORM, VECTORS: FINAL, ALL_WORDS: FINAL}  # the number that the arm is to explain
REACH = 2.0  # points below the published number that count as reaching it


def corpus_of(arm: str) -> str:
    return arm.split(", ")[0]


def text_arms(sizes: Sizes) -> dict[str, Case]:
    return cases((NEWS, SST, *REASON), lambda arm: text_arm(arm, sizes))


def text_arm(arm: str, sizes: Sizes) -> Case:
    """Return the networks of a corpus as in the tables, with one setting changed."""
    base_case = case(corpus_of(arm), sizes.text)
    if arm == VECTORS:
        start = Start(vectors=GLOVE)
        roles = {role: run if role == "proxy" else replace(run, start=start) for role, run in base_case.runs.items()}
        return replace(base_case, runs=roles)
    return replace(
        base_case, runs={role: replace(run, task=with_setting(arm, run.task)) for role, run in base_case.runs.items()}
    )


def with_setting(arm: str, task: object) -> Classification:
    assert isinstance(task, Classification)
    if arm == HEADERS:
        return replace(task, preparation=replace(task.preparation, strip_headers=False))
    return replace(task, vocabulary=Words(min_count=1)) if arm == ALL_WORDS else task


def text_values(measured: Measurements, arm: str, name: str) -> list[float]:
    return FIVE.values(measured, arm, name)


def text_published(arm: str, name: str) -> PublishedNumber:
    return FIVE.published(corpus_of(arm), name)


def text_claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for arm, name in REASON.items():
        corpus, theirs = corpus_of(arm), text_published(arm, name)["published"]
        what = {UNIFORM: "A(α, β^uf)", FINAL: "ξ*"}[name]
        reached = f"{arm}: {what} is at most {REACH:g} points below the published {theirs}"
        ours, before = text_values(measured, arm, name), text_values(measured, corpus, name)
        at_size = all(seed["as_published"] for seed in measured[arm])
        small = untested(reached, "this profile trains smaller networks for fewer steps")
        verdicts += [
            more_than(f"{arm}: {what} is higher than without", ours, before),
            at_least(reached, ours, theirs - REACH) if at_size else small,
        ]
    return verdicts


TEXT_COLUMNS = {UNIFORM: "A(α, β^uf)", FINAL: "ξ* (accuracy)"}


def text_table(measured: Measurements) -> list[Row]:
    return [
        row(corpus=arm, quantity=text, values=text_values(measured, arm, name), **text_published(arm, name))
        for arm in measured
        for name, text in TEXT_COLUMNS.items()
    ]


def text_figure(measured: Measurements) -> dict[str, Panel]:
    seeds = {arm: {name: text_values(measured, arm, name) for name in TEXT_COLUMNS} for arm in measured}
    return {"percent": quantity_panel(seeds, TEXT_COLUMNS, text_published)}


# BLEU: beam search ---------------------------------------------------------------------------------------------------

BEAMS = 5  # author's code
SEARCHES = {"greedy": "BLEU, greedy search", "beam": f"BLEU, beam search of width {BEAMS}"}


class BeamSearch(Generates, nn.Module):
    """A translator that searches with several beams, by the sum of log-probabilities, without a length penalty."""

    def __init__(self, model: EncoderDecoder, beams: int = BEAMS):
        super().__init__()
        self.model, self.beams = model, beams

    @torch.no_grad()
    def generate(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        max_length: int,
        **options: object,
    ) -> Int[Tensor, "batch generated"]:
        """Return the best translation of each sentence; END and what follows it are END."""
        repeated = [each.repeat_interleave(self.beams, 0) for each in (source, source_mask)]
        prefixes = source.new_zeros(len(source), self.beams, 0)
        scores = source.new_zeros(len(source), self.beams, dtype=torch.float64)
        scores[:, 1:] = -torch.inf  # all beams start alike: only one of them counts
        for _ in range(max_length):
            gains = self.next_tokens(repeated, prefixes)  # batch x beams x words
            scores, candidates = (scores[..., None] + gains).flatten(1).topk(self.beams)
            origin, token = candidates // gains.shape[-1], candidates % gains.shape[-1]
            parents = prefixes.gather(1, origin[..., None].expand(-1, -1, prefixes.shape[-1]))
            prefixes = torch.cat([parents, token[..., None]], -1)
            if (prefixes == END).any(-1).all():
                break
        return prefixes[:, 0]  # the best one comes first

    def next_tokens(
        self, repeated: list[Tensor], prefixes: Int[Tensor, "batch beams steps"]
    ) -> Float[Tensor, "batch beams words"]:
        """Return log-probabilities of the next token; of a finished translation END is certain."""
        target = nn.functional.pad(prefixes.flatten(0, 1), (0, 1), value=END)
        source, source_mask = repeated
        batch = Batch(source, source_mask, target, torch.ones_like(target, dtype=torch.bool))
        gains: Tensor = self.model(batch, teacher_forcing=1.0).logits[:, -1].double().log_softmax(-1)
        finished = (target[:, :-1] == END).any(1)
        gains[finished] = -torch.inf
        gains[finished, END] = 0.0
        return gains.view(*prefixes.shape[:2], -1)


def bleu_arms(sizes: Sizes) -> dict[str, Case]:
    corpora = [corpus for corpus in sizes.text.translation if corpus in MULTI30K_NAMES]

    def arm(corpus: str) -> Case:
        runs = translators(corpus, sizes.text.task(corpus), sizes.text)
        return Case({"network": runs["standard"]}, SampleSettings(sizes.text.pairs, sizes.text.as_published))

    return cases(corpora, arm)


def measure_bleu(subject: TrainedCase[SampleSettings]) -> Measurement:
    run: Run = subject.runs["network"]
    model, task = run.model(decoding="teacher_forced"), run.task
    assert isinstance(model, EncoderDecoder)
    assert isinstance(task, Translation)
    searches: Mapping[str, Generates] = {"greedy": model, "beam": BeamSearch(model)}
    scores = {
        name: bleu(search, task, max_sentences=subject.settings.sentences).score for name, search in searches.items()
    }
    return {"as_published": subject.settings.as_published, **{f"bleu_{name}": score for name, score in scores.items()}}


def bleu_published(corpus: str, name: str) -> PublishedNumber:
    return BLEU.published(corpus, "bleu_final")


def bleu_claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for corpus in measured:
        theirs = bleu_published(corpus, "bleu_beam")["published"]
        near = f"{corpus}: BLEU with beam search is within {BLEU_REACH:g} points of {theirs}"
        higher = f"{corpus}: BLEU is higher with beam search than with greedy search"
        at_size = all(measured.flags(corpus, "as_published"))
        small = untested(near, "this profile trains a smaller network for fewer steps than the paper")
        verdicts += [
            measured.greater(higher, corpus, "bleu_beam", "bleu_greedy"),
            equivalent(near, measured.values(corpus, "bleu_beam"), theirs, BLEU_REACH) if at_size else small,
        ]
    return verdicts


BLEU_COLUMNS = {f"bleu_{name}": text for name, text in SEARCHES.items()}

DISCREPANCIES = (
    Finding(
        name="text-settings",
        title="20 Newsgroups with headers; SST with GloVe and with all words known",
        section="beyond; A.8, table 5",
        experiments=text_arms, measure=measure, table=text_table, claims=text_claims, figure=text_figure,
        draw=partial(draw_panels, within=dict.fromkeys(("percent", "BLEU"), PERCENT)), first_seed=FIRST_SEED,
        notes=(
            "The claims were written before any of these networks was trained; seeds are others than those of the "
            "tables.",
            "GloVe fills 100 of 300 dimensions, and is trained on; the author's vocabulary has words of three or more "
            "occurrences, or with a vector of their own. The proxy starts at random in every arm.",
        ),
    ),
    Finding(
        name="bleu-search",
        title="BLEU on Multi30k with beam search",
        section="beyond; A.4, table 6",
        experiments=bleu_arms, measure=measure_bleu, table=BLEU_COLUMNS, published=bleu_published, claims=bleu_claims,
        columns=lambda corpus: {"corpus": corpus},
        figure=lambda measured: {
            "BLEU": quantity_panel(measured.seed_values(BLEU_COLUMNS), BLEU_COLUMNS, bleu_published)
        },
        draw=partial(draw_panels, within=dict.fromkeys(("percent", "BLEU"), PERCENT)), first_seed=FIRST_SEED,
        notes=(
            "The author's evaluation searches with five beams, by sums of log-probabilities, and calls sacrebleu with "
            "its defaults (13a, case kept), as ours does; its corpus is read from German to English.",
        ),
    ),
)  # fmt: skip
