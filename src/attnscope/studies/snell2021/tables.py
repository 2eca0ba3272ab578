"""Do attention and lexical knowledge agree on real text? (snell2021 tables 2 to 8, 10 and 11; §3.2, §5.1, A.4 to A.10)

Every table is read from one measurement per corpus and seed; its Layout says which numbers it shows: its columns,
claims and figure, and the notes on our choices and data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.studies.bars import MAX_WIDTH, Panel, bar_values, draw_bars
from attnscope.studies.claims import COSINE, UNIT, ClaimVerdict, SeedValues, equivalent, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurements, PublishedNumber
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.agreements import measure
from attnscope.studies.snell2021.experiments import IN_TABLE_2, MULTI30K_NAMES, Sizes, corpus_cases, published

PAIRS = {
    "attention_uniform": "(α, β^uf)",
    "uniform_proxy": "(β^uf, β^px)",
    "saliency_uniform": "(Δ, β^uf)",
    "attention_lexical": "(α, β)",
    "attention_frozen": "(α, α^fr)",
    "uniform_logistic": "(β^uf, β^log)",
    "attention_again": "(α, α̂(T))",
    "attention_again_words": "(α, α̂(T)), end token left out",
    "lowering_uniform": "(−Δ, β^uf)",
    "attention_uniform_last": "(α, β^uf), last checkpoint",
    "uniform_proxy_last": "(β^uf, β^px), last checkpoint",
    "saliency_uniform_last": "(Δ, β^uf), last checkpoint",
    "proxy_uniform": "(β^px, β^uf), author's code",
    "saliency_uniform_most": "(Δ, β^uf), author's code",
    "attention_lexical_again": "(α, β), author's code",
    "logistic_uniform": "(β^log, β^uf), author's code",
}
AUTHOR = {
    "uniform_proxy": "proxy_uniform",
    "saliency_uniform": "saliency_uniform_most",
    "attention_lexical": "attention_lexical_again",
    "uniform_logistic": "logistic_uniform",
}  # by column of the paper, the pair that the author's code computes
FOUR = ("attention_uniform", "uniform_proxy", "saliency_uniform", "attention_lexical")
THREE = FOUR[:3]  # the columns of tables 3, 4 and 8
EXTRA = ("lowering_uniform", "attention_uniform_last", "uniform_proxy_last", "saliency_uniform_last")
CHANCE = "chance_attention_uniform"  # the column Â: that of the other pairs differs where words repeat


@dataclass(frozen=True)
class Layout:
    """A table of the paper: its columns A(u, v) and ξ(u, v), their split, metric and unit."""

    number: int
    pairs: tuple[str, ...]
    contexts: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # pairs that we add
    split: str = "validation"
    metric: str = "top"
    performance: str = "xi"  # ξ in accuracy; or "bleu"
    percent: bool = True

    def agreement(self, pair: str) -> str:
        return f"{'A' if self.metric == 'top' else 'τ'}{PAIRS[pair]}"

    @property
    def agreements(self) -> dict[str, str]:
        """Columns of agreement by their name in a measurement; τ has no chance level but zero."""
        columns = {pair: self.agreement(pair) for pair in self.pairs}
        return columns | ({CHANCE: "Â"} if self.metric == "top" else {})

    @property
    def in_context(self) -> dict[str, str]:
        """Columns of ξ, and ξ*."""
        columns = {f"{self.performance}_{pair}": f"ξ{PAIRS[pair]}" for pair in self.contexts}
        return columns | ({f"{self.performance}_final": "ξ*"} if self.contexts else {})

    def values(self, measured: Measurements, corpus: str, what: str) -> SeedValues:
        """Return one number per seed, in percent where the paper has percent; BLEU is so anyway."""
        factor = 100.0 if self.percent and not what.startswith("bleu_") else 1.0
        return measured.values(corpus, f"{self.split}.{self.metric}.{what}").times(factor)

    @property
    def by_author(self) -> dict[str, str]:
        """The same columns as the author's code computes them, where that is something else."""
        pairs = {AUTHOR[pair]: self.agreement(AUTHOR[pair]) for pair in self.pairs if pair in AUTHOR}
        contexts = [AUTHOR[pair] for pair in self.contexts if pair in AUTHOR]
        return pairs | {f"{self.performance}_{pair}": f"ξ{PAIRS[pair]}" for pair in contexts}

    def published(self, corpus: str, what: str) -> PublishedNumber:
        """Return the paper's number, the same for a column as in its text and as in the author's code."""
        pair = "chance" if what == CHANCE else what.removeprefix(f"{self.performance}_")
        column = next((column for column, by_author in AUTHOR.items() if by_author == pair), pair)
        source = MULTI30K_NAMES[0] if corpus in MULTI30K_NAMES else corpus  # the paper has one of the two directions
        return published(f"table{self.number}_{source}", column if pair in (what, "chance") else f"xi_{column}")

    # Rows ------------------------------------------------------------------------------------------------------------

    def table(self, measured: Measurements) -> list[Row]:
        """Return the rows."""
        columns = self.agreements | self.in_context
        extra = {pair: self.agreement(pair) for pair in self.extra}
        return [
            row(
                corpus=corpus,
                quantity=self.with_unit(measured, corpus, what, text),
                asterisk=self.asterisk(measured, corpus, what),
                values=self.values(measured, corpus, what),
                **self.published(corpus, what),
            )
            for corpus in measured
            for what, text in (columns | self.by_author | extra).items()
        ]

    def with_unit(self, measured: Measurements, corpus: str, what: str, text: str) -> str:
        """Return the text with the unit of ξ, and for BLEU with its signature."""
        signatures = set(measured.per_seed(corpus, "signature")) if what == "bleu_final" else ()
        unit = " (BLEU)" if what.startswith("bleu_") else " (accuracy)" if what.startswith("xi_") else ""
        return " ".join([f"{text}{unit}", *signatures])

    def asterisk(self, measured: Measurements, corpus: str, what: str) -> str:
        """Return in how many seeds ξ is ξ*, since no checkpoint of the other seed agreed more."""
        pair = what.removeprefix(f"{self.performance}_")
        if what == pair or pair == "final":
            return ""
        flags = measured.flags(corpus, f"{self.split}.{self.metric}.starred_{pair}")
        return f"{sum(flags)} of {len(flags)}" if any(flags) else ""

    def compare(self, text: str, measured: Measurements, corpus: str, name: str, other: str) -> ClaimVerdict:
        """Claim that the number `name` of a corpus is more than the number `other`."""
        return more_than(text, self.values(measured, corpus, name), self.values(measured, corpus, other))

    # Claims ----------------------------------------------------------------------------------------------------------

    def above_chance(self, measured: Measurements) -> list[ClaimVerdict]:
        """Claim of each agreement that it is above the chance level of its second score."""
        baseline = "above chance" if self.metric == "top" else "above zero"
        text = f"{{}}: {{}} is {baseline}"
        return [
            self.compare(text.format(corpus, self.agreement(pair)), measured, corpus, pair, f"chance_{pair}")
            for pair in self.pairs
            for corpus in measured
        ]

    def non_trivial(self, measured: Measurements) -> list[ClaimVerdict]:
        """Claim the caption of table 2; the paper does not define trivial: we take the performance before training."""
        text, prefix = "{}: ξ{} is not trivial: more than the untrained network's", f"{self.performance}_"
        return [
            self.compare(text.format(corpus, PAIRS[pair]), measured, corpus, prefix + pair, f"{prefix}untrained")
            for pair in ("attention_uniform", "attention_lexical")
            if pair in self.contexts
            for corpus in measured
        ]

    # The figure ------------------------------------------------------------------------------------------------------

    def figure(self, measured: Measurements) -> dict[str, Panel]:
        """Return panels for agreement and ξ, with groups by corpus and bars by column."""
        times = {"top": "%", "kendall": "× 100"}[self.metric] if self.percent else ""
        agreement = " ".join([{"top": "agreement A", "kendall": "Kendall's τ"}[self.metric], times]).strip()
        performance = "ξ, BLEU" if self.performance == "bleu" else "ξ, accuracy in %"
        panels = {agreement: self.agreements, performance: self.in_context}
        return {ylabel: self.panel(measured, columns) for ylabel, columns in panels.items() if columns}

    def panel(self, measured: Measurements, columns: Mapping[str, str]) -> Panel:
        return {
            corpus: {
                text: bar_values(self.values(measured, corpus, what), self.published(corpus, what))
                for what, text in columns.items()
            }
            for corpus in measured
            if measured[corpus]
        }


PERCENT = (0.0, 100.0)
RANGES = {  # by the label of the axis
    "agreement A": UNIT, "agreement A %": PERCENT, "Kendall's τ": COSINE, "Kendall's τ × 100": (-100.0, 100.0),
    "ξ, BLEU": PERCENT, "ξ, accuracy in %": PERCENT,
}  # fmt: skip


def draw(data: Mapping[str, Panel]) -> Figure:
    """Draw one panel for agreement and one for ξ."""
    groups = max((len(panel) for panel in data.values()), default=1)
    cells = max((len(columns) for panel in data.values() for columns in panel.values()), default=1)
    picture, axes = plots.panels(len(data), 1, size=(min(3.2 + 0.24 * groups * max(cells, 4), MAX_WIDTH), 3.3))
    for ax, (ylabel, content) in zip(axes, data.items(), strict=True):
        draw_bars(content, ax, ylabel, RANGES[ylabel])
    return picture


CHOICES = (
    "α is that of the checkpoint with the best validation accuracy. (α, β^uf) is taken at the checkpoint where it is "
    "highest, on that split and in that measure, as published (A.7), and so are the other pairs with β^uf, of which "
    "the paper does not say it. Rows that say so give the last checkpoint.",
    "Rows with 'author's code' take every pair at the checkpoint where that pair is highest, with β^px and β^log in "
    "the first place, (β^px, β^uf), and for (α, β) the β of another seed. This is what the published numbers are by "
    "the author's code, so they stand beside these rows, too.",
    "ξ is read off the learning curve of the next seed for each seed (the author averages five for classification), "
    "at exactly the checkpoints of A.8; ξ* is where that curve ends. An asterisk counts the seeds where no checkpoint "
    "agreed more, so that ξ = ξ*.",
    "β is compared by its log-odds γ, which do not tie. Â is the share of positions that are in the top of the second "
    "score, in closed form. Start and end tokens count as positions and as output words.",
    "Δ is gradient · embedding, positive where a word raises the probability of the gold output. In the author's "
    "classification code its sign is the other one, so that is given too: (−Δ, β^uf).",
)
DATA = (
    "Published numbers are of the paper's corpora, which are not all at hand: AG News here has 10,000 of 60,000 "
    "training texts, Amazon about 7,400 of 40,000 reviews, IWSLT'14 4,600 of 160,240 training pairs; Yelp is the "
    "human-attention set, 1,545 reviews in place of 88,821. 20 Newsgroups is without headers, which give the class "
    "away, and cut at 1,000 words. Tatoeba stands in for News Commentary; it is trained for one epoch, its "
    "proxy for no more than 40,000 steps.",
    "Multi30k is in the tables twice: from English to German, as the paper says, and the other way round, as the "
    "author's code reads it; the published numbers stand beside both. German to English was added after a first run "
    "from English to German had ended 4 points of BLEU below the paper.",
    "Agreement is measured on at most 4,000 texts or 1,014 pairs of either split, sampled once for all seeds: all of "
    "the validation split, but for Tatoeba and IWSLT'14.",
    "Embeddings start at random. A.8 says GloVe, but the author's code replaces the embedding after filling it.",
    "The profile 'quick' is smaller than the paper in every respect: fewer corpora, texts truncated to 150 words, "
    "networks of 64 or 128 units, 1,000 or 1,500 steps, 4,000 subwords, 500 texts or 200 pairs to measure on.",
    "A corpus of your own, such as News Commentary, is a file of JSON lines with the fields source and target: "
    "attnscope.tasks.CORPORA['news_it_pt'] = Translation('news/it-pt.jsonl', skip_numeric=True, "
    "vocabulary=Subwords()), and its name among `translation` of a profile's text sizes. The published numbers then "
    "stand beside news_it_pt, news_en_nl and news_en_pt.",
)
SEE_TABLE5 = ("On corpora and sizes, and on corpora of your own, see the notes of table5.",)
LIMIT = (
    "What this does not show: that attention is attracted by knowledge of single words. What agrees above chance may "
    "have a common cause; and the best of some twenty checkpoints is chosen on the sentences that it is reported on."
)


# The tables ----------------------------------------------------------------------------------------------------------


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
    return corpus_cases(sizes.text, sizes.text.in_tables)


def corpora_of_table_2(sizes: Sizes) -> dict[str, Case]:
    return corpus_cases(sizes.text, [corpus for corpus in sizes.text.in_tables if corpus in IN_TABLE_2])


def classified(sizes: Sizes) -> dict[str, Case]:
    return corpus_cases(sizes.text, sizes.text.classification)


def translations(sizes: Sizes) -> dict[str, Case]:
    return corpus_cases(sizes.text, sizes.text.translation)


# What is claimed -----------------------------------------------------------------------------------------------------


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
    return equivalent(text, values, theirs, BLEU_REACH)


def frozen_agrees_less(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    text, pairs = "{}: A(α, α^fr) is less than A(α, β^uf)", ("attention_uniform", "attention_frozen")
    return [layout.compare(text.format(corpus), measured, corpus, *pairs) for corpus in measured]


def both_are_close(layout: Layout, measured: Measurements) -> list[ClaimVerdict]:
    return [
        equivalent(
            f"{corpus}: logistic regression agrees with β^uf as much as the proxy does, within {CLOSE}",
            layout.values(measured, corpus, "uniform_logistic"),
            layout.values(measured, corpus, "uniform_proxy"),
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
        TWO, "Attention, word knowledge and its proxy agree, even where attention is uniform", "§3.2, table 2",
        corpora_of_table_2, above_chance_and_not_trivial, (*CHOICES, *DATA, LIMIT),
    ),
    finding(
        FIVE, "The same agreements on every corpus, in full", "A.4, table 5", all_corpora,
        Layout.above_chance, (*CHOICES, *DATA, LIMIT),
    ),
    finding(
        KENDALL, "The same agreements as rank correlations", "A.4, table 3", all_corpora,
        Layout.above_chance, ("Kendall's τ-b × 100, over all positions of a sentence.", *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        ON_TRAINING, "The same agreements on the training set", "A.4, table 7", all_corpora, Layout.above_chance,
        ("On sampled training sentences, at most as many as on validation.", *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        BLEU_KENDALL, "Translation: rank correlations put in context by BLEU", "A.4, table 4", translations,
        above_chance_and_not_trivial, (GREEDY, *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        BLEU, "Translation: agreements put in context by BLEU", "A.4, table 6", translations,
        multi30k_is_translated, (GREEDY, *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        BLEU_ON_TRAINING, "Translation: agreements on the training set put in context by BLEU", "A.4, table 8",
        translations, above_chance_and_not_trivial, (GREEDY, *CHOICES, *SEE_TABLE5, LIMIT),
    ),
    finding(
        FROZEN, "Attention is not learned where word knowledge is frozen", "A.6, table 10", classified,
        frozen_agrees_less, (
            "α^fr: every weight but those of the attention stays as it started. It is taken at the checkpoint where it "
            "agrees best with α, as published.",
            *CHOICES,
            *SEE_TABLE5,
            "What this does not show: that nothing is learned. The states of an untrained network still tell words "
            "apart, and attention over them may find some that matter.",
        ),
    ),
    finding(
        LOGISTIC, "The proxy is a logistic regression", "A.10, table 11", classified, both_are_close, (
            f"Close means no further apart than the furthest two of the paper's table 11, {CLOSE}. The regression is "
            "fitted on the whole training set; of 19 penalties over ten orders of magnitude the one with the best "
            "validation accuracy is taken.",
            *CHOICES,
            *SEE_TABLE5,
            "What this does not show: that the two give words the same weights; both are only compared with β^uf.",
        ),
    ),
)  # fmt: skip


SMS = "sms"
TWO_SEEDS = ("attention_again",)
WORDS_ONLY = ("attention_again_words",)
# 0: no table of the paper
SMS_LAYOUTS = (Layout(0, TWO_SEEDS, extra=WORDS_ONLY), Layout(0, TWO_SEEDS, extra=WORDS_ONLY, metric="kendall"))


def with_sms(sizes: Sizes) -> dict[str, Case]:
    return corpus_cases(sizes.text, (*sizes.text.classification, SMS))


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
