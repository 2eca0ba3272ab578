"""Do attention and lexical knowledge agree on real text? (snell2021 §3.2, §5.1, A.4, A.6, A.9, A.10)

Every table is read from one measurement per corpus and seed; its Layout says which numbers it shows.
"""

from collections.abc import Callable
from functools import partial

from attnscope.studies.bars import Panel
from attnscope.studies.claims import ClaimVerdict, at_most, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurements
from attnscope.studies.result import Row
from attnscope.studies.snell2021.agreements import measure
from attnscope.studies.snell2021.experiments import IN_TABLE_2, MULTI30K_NAMES, Sizes, cases
from attnscope.studies.snell2021.layouts import CHOICES, DATA, EXTRA, FOUR, LIMIT, SEE_TABLE5, THREE, Layout, draw

Claims = Callable[[Layout, Measurements], list[ClaimVerdict]]

TWO = Layout(2, FOUR, contexts=("attention_uniform", "attention_lexical"))
FIVE = Layout(5, FOUR, FOUR, EXTRA)
KENDALL = Layout(3, THREE, THREE, ("attention_lexical", *EXTRA), metric="kendall")
ON_TRAINING = Layout(7, FOUR, FOUR, EXTRA, split="training")
BLEU_KENDALL = Layout(4, THREE, THREE, metric="kendall", performance="bleu")
BLEU = Layout(6, FOUR, FOUR, performance="bleu")
BLEU_ON_TRAINING = Layout(8, THREE, THREE, split="training", performance="bleu")
FROZEN = Layout(10, ("attention_frozen", "attention_uniform"))
LOGISTIC = Layout(11, ("uniform_proxy", "uniform_logistic"), percent=False)

CLOSE = 0.07  # the largest gap between the two columns of table 11 as published: SST and Amazon
BLEU_REACH = 3.0  # points around the published BLEU of Multi30k


# What is trained -----------------------------------------------------------------------------------------------------


def all_corpora(sizes: Sizes) -> dict[str, Case]:
    return cases(sizes.text, sizes.text.in_tables)


def corpora_of_table_2(sizes: Sizes) -> dict[str, Case]:
    return cases(sizes.text, [corpus for corpus in sizes.text.in_tables if corpus in IN_TABLE_2])


def classified(sizes: Sizes) -> dict[str, Case]:
    return cases(sizes.text, sizes.text.classification)


def translations(sizes: Sizes) -> dict[str, Case]:
    return cases(sizes.text, sizes.text.translation)


# What is claimed -----------------------------------------------------------------------------------------------------


def above_chance(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    return layout.above_chance(measured)


def above_chance_and_not_trivial(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    return [*layout.above_chance(measured), *layout.non_trivial(measured)]


def multi30k_is_translated(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    present = [corpus for corpus in MULTI30K_NAMES if corpus in measured] or MULTI30K_NAMES[:1]
    bleus = [bleu_of_multi30k(layout, measured, corpus) for corpus in present]
    return [*above_chance_and_not_trivial(layout, measured), *bleus]


def bleu_of_multi30k(layout: Layout, measured: Measurements, corpus: str = MULTI30K_NAMES[0]) -> ClaimVerdict:
    """That of the other seed, whose last one is ξ*, against the published one."""
    what = "bleu_final"
    theirs = layout.published(corpus, what)["published"]
    text = f"{corpus}: BLEU on validation is within {BLEU_REACH:g} points of {theirs}"
    seeds = measured.by_label.get(corpus, [])
    if not all(seed["as_published"] for seed in seeds):
        return untested(text, "this profile trains a smaller network for fewer steps than the paper")
    values = layout.values(measured, corpus, what) if seeds else []
    return at_most(text, [abs(value - theirs) for value in values], BLEU_REACH)


def frozen_agrees_less(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    return [
        more_than(
            f"{corpus}: A(α, α^fr) is less than A(α, β^uf)",
            layout.values(measured, corpus, "attention_uniform"),
            layout.values(measured, corpus, "attention_frozen"),
        )
        for corpus in measured
    ]


def both_are_close(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    return [
        at_most(
            f"{corpus}: logistic regression agrees with β^uf as much as the proxy does, within {CLOSE}",
            [
                abs(log - proxy)
                for log, proxy in zip(
                    *(layout.values(measured, corpus, f"uniform_{name}") for name in ("logistic", "proxy")), strict=True
                )
            ],
            CLOSE,
        )
        for corpus in measured
    ]


# The findings --------------------------------------------------------------------------------------------------------

GREEDY = "BLEU of greedy translations of the sentences that agreement is measured on; its signature stands by ξ*."


def finding(
    layout: Layout,
    title: str,
    section: str,
    experiments: Callable[[Sizes], dict[str, Case]],
    claims: Claims,
    notes: tuple[str, ...],
) -> Finding:
    return Finding(
        name=f"table{layout.number}",
        title=title,
        section=section,
        experiments=experiments, measure=measure, table=layout.table, claims=partial(claims, layout),
        figure=layout.figure, draw=draw,
        notes=notes,
    )  # fmt: skip


TABLES = (
    finding(
        TWO,
        "Attention, word knowledge and its proxy agree, even where attention is uniform",
        "§3.2, table 2",
        corpora_of_table_2,
        above_chance_and_not_trivial,
        (*CHOICES, *DATA, LIMIT),
    ),
    finding(
        FIVE,
        "The same agreements on every corpus, in full",
        "A.4, table 5",
        all_corpora,
        above_chance,
        (*CHOICES, *DATA, LIMIT),
    ),
    finding(
        KENDALL,
        "The same agreements as rank correlations",
        "A.4, table 3",
        all_corpora,
        above_chance,
        ("Kendall's τ-b × 100, over all positions of a sentence.", *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        ON_TRAINING,
        "The same agreements on the training set",
        "A.4, table 7",
        all_corpora,
        above_chance,
        ("On sampled training sentences, at most as many as on validation.", *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        BLEU_KENDALL,
        "Translation: rank correlations put in context by BLEU",
        "A.4, table 4",
        translations,
        above_chance_and_not_trivial,
        (GREEDY, *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        BLEU,
        "Translation: agreements put in context by BLEU",
        "A.4, table 6",
        translations,
        multi30k_is_translated,
        (GREEDY, *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        BLEU_ON_TRAINING,
        "Translation: agreements on the training set put in context by BLEU",
        "A.4, table 8",
        translations,
        above_chance_and_not_trivial,
        (GREEDY, *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        FROZEN,
        "Attention is not learned where word knowledge is frozen",
        "A.6, table 10",
        classified,
        frozen_agrees_less,
        (
            "α^fr: every weight but those of the attention stays as it started. It is taken at the checkpoint where it "
            "agrees best with α, as published.",
            *CHOICES,
            *SEE_TABLE5,
            "What this does not show: that nothing is learned. The states of an untrained network still tell words "
            "apart, and attention over them may find some that matter.",
        ),
    ),
    finding(
        LOGISTIC,
        "The proxy is a logistic regression",
        "A.10, table 11",
        classified,
        both_are_close,
        (
            f"Close means no further apart than the furthest two of the paper's table 11, {CLOSE}. The regression is "
            "fitted on the whole training set; of 19 penalties over ten orders of magnitude the one with the best "
            "validation accuracy is taken.",
            *CHOICES,
            *SEE_TABLE5,
            "What this does not show: that the two give words the same weights; both are only compared with β^uf.",
        ),
    ),
)


SMS = "sms"
TWO_SEEDS = ("attention_again",)
WORDS_ONLY = ("attention_again_words",)
# 0: no table of the paper
SMS_LAYOUTS = (Layout(0, TWO_SEEDS, extra=WORDS_ONLY), Layout(0, TWO_SEEDS, extra=WORDS_ONLY, metric="kendall"))


def with_sms(sizes: Sizes) -> dict[str, Case]:
    return cases(sizes.text, (*sizes.text.classification, SMS))


def sms_agrees_less(measured: Measurements) -> list[ClaimVerdict]:
    return [
        more_than(
            f"two seeds agree less on {SMS} than on {corpus}, by {layout.agreement(*TWO_SEEDS)}",
            layout.values(measured, corpus, *TWO_SEEDS),
            layout.values(measured, SMS, *TWO_SEEDS),
        )
        for layout in SMS_LAYOUTS
        for corpus in measured
        if corpus != SMS
    ]


def sms_table(measured: Measurements) -> list[Row]:
    return [row for layout in SMS_LAYOUTS for row in layout.table(measured)]


def sms_figure(measured: Measurements) -> dict[str, Panel]:
    return {ylabel: panel for layout in SMS_LAYOUTS for ylabel, panel in layout.figure(measured).items()}


A9_SMS = Finding(
    name="a9-sms",
    title="On the SMS set, two seeds attend to different words",
    section="A.9",
    experiments=with_sms, measure=measure, table=sms_table, claims=sms_agrees_less, figure=sms_figure, draw=draw,
    notes=(
        "α is that of one seed at the checkpoint with the best validation accuracy, α̂(T) that of another when training "
        "ends. In short sentences chance agrees more often, which A(α, α̂(T)) does not take into account and Kendall's "
        "τ does.",
        "Most messages are no spam, and attention may then rest on the end token in both seeds, so the agreement among "
        "the words alone is given, too.",
        *SEE_TABLE5,
        "What this does not show: why. Messages are short, few and of few words, as the paper says, all at once.",
    ),
)  # fmt: skip
