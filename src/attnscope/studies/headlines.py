"""The headline claims of the four papers, and the claims of our findings that test each of them.

The list was written before any verdict was formed with it. A headline holds if the stated share of its claims holds; a
claim is named by its finding and a pattern of its text.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """A sentence of a paper and the claims that test it.

    Attributes:
        study: The study.
        section: Where the sentence stands.
        quote: The sentence, or its part, in the paper's words.
        tests: By finding, patterns (`fnmatch`) of the texts of claims.
        criterion: What has to hold, with its margin or threshold.
        share: The smallest share of these claims that has to hold.
        number: The finding and a pattern of the labels of a row that stands for it, with a published number.
        within: The range of that number, where its row, being of the first schema, does not store it.
        reason: Why it differs, where a run shows that, with the file; empty: open.
    """

    study: str
    section: str
    quote: str
    tests: Mapping[str, tuple[str, ...]]
    criterion: str
    share: float = 1.0
    number: tuple[str, str] | None = None
    within: tuple[float, float] | None = None
    reason: str = ""


HEADLINES = (
    # aitken2021
    Headline(
        "aitken2021", "abstract",
        "depending on the task requirements, networks rely more heavily on either the temporal or input-driven "
        "components",
        {"fig2-aed": ("*dominates*",), "fig2h": ("* is negligible*",), "fig5a": ("translation, *smaller part*",)},
        "μ·μ is over half of the alignment in one-to-one translation, at most a tenth in sorting, and a smaller part "
        "in translation than in eSCAN",
    ),
    Headline(
        "aitken2021", "abstract",
        "These findings hold across both recurrent and feed-forward architectures",
        {"fig2-aed": ("*dominates*",), "fig2-ao": ("*dominates*",), "cells": ("*is the largest term*",)},
        "μ·μ is over half of the alignment in AED and AO, and the largest term with every cell and attention",
    ),
    Headline(
        "aitken2021", "§1",
        "the temporal (input) components play a larger role in determining the attention matrix as the average "
        "attention matrix becomes a better (worse) approximation for a random sample's attention matrix",
        {"average": ("*the larger the temporal share*",)},
        "Spearman's ρ over tasks is at least 0.5",
    ),
    Headline(
        "aitken2021", "§1",
        "[we] show how the input/temporal component behavior differs across said architectures",
        {"fig2-ved": ("deltas are larger than in *",), "fig3": ("deltas * in AED* than in AO *",)},
        "deltas are larger in VED than in AED and AO, and on eSCAN in AED than in AO",
    ),
    Headline(
        "aitken2021", "§4.1",
        "For eSCAN, the [μ·μ] term is still largely dominant, capturing > 77% of [the alignment] in the AED and AO "
        "networks",
        {"fig5a": ("eSCAN, *: * captures over 77 % of the alignment",)},
        "at least 0.77 in both",
        reason="open; in AO neither shorter sentences nor longer training is the reason "
        "(`results/aitken2021/ao-escan.json`)",
        number=("fig5a", "eSCAN, AO | μ·μ, share of*"), within=(0.0, 1.0),
    ),
    Headline(
        "aitken2021", "§4.1",
        "For translation […] in general we find none of the nine terms in (3) dominate above the rest",
        {"fig5a": ("translation, *: none of the nine terms dominates*",)},
        "no term is over half of the alignment in either",
    ),
    Headline(
        "aitken2021", "§3",
        "Indeed, we find [μ·μ] to be negligible, and instead [decoder delta · encoder input] dominates the alignment "
        "values",
        {"fig2h": ("* is negligible*", "decoder delta · encoder input dominates*")},
        "μ·μ is at most a tenth; the other is the largest of nine terms in more than half of the networks",
        reason="for μ·μ, a setting: with 26 letters and terms less their mean over encoder steps it is 0.07; the other "
        "term is then the largest in none of ten networks either: open (`results/aitken2021/sorting-terms.json`)",
    ),
    # snell2021
    Headline(
        "snell2021", "abstract",
        "before the attention mechanism is learned, KTIW can be learned from word co-occurrence statistics",
        {"table2": ("*: A(β^uf, β^px) is above chance",), "eq15": ("*and the counts correlate by at least 0.95",)},
        "agreement above chance on every corpus; a correlation of at least 0.95",
        number=("table2", "imdb | A(β^uf, β^px) | *"), within=(0.0, 100.0),
    ),
    Headline(
        "snell2021", "§1",
        "even when the attention weights are frozen to be uniform, probe β still strongly agrees with the attention "
        "weights of a standardly trained model",
        {"table2": ("*: A(α, β^uf) is above chance", "*: ξ(α, β^uf) is not trivial*")},
        "agreement above chance, and more than that of an untrained network, on every corpus",
        number=("table2", "imdb | A(α, β^uf) | *"), within=(0.0, 100.0),
    ),
    Headline(
        "snell2021", "abstract",
        "but not the other way around",
        {"table10": ("*: A(α, α^fr) is less than A(α, β^uf)",)},
        "agreement with frozen word knowledge is lower than with uniform attention on every corpus",
        number=("table10", "imdb | A(α, α^fr) | *"), within=(0.0, 100.0),
    ),
    Headline(
        "snell2021", "abstract",
        "the learning of the attention fails, and the model cannot even learn the simple task of copying the input "
        "words to the output",
        {"fig3": ("permutations of 40 words: *not learnt*",), "fig4": ("permutations of 40 words: C is constant*",)},
        "some networks do not learn to copy permutations; their count table is constant",
        reason="a setting: a delay in every network; each of 20 learns permutations by step 620, where the paper stops "
        "at 300, and a failure of up to 17 % of networks is not excluded (`results/snell2021/fig3.json`). Of 20 other "
        "seeds, those that need more than 300 steps are the five that find another solution: they attend to all words "
        "but the one to copy (`results/transformers/elimination.json`)",
    ),
    Headline(
        "snell2021", "abstract",
        "Our approximation explains why models sometimes attend to salient words",
        {"table2": ("*: A(Δ, β^uf) is above chance",)},
        "agreement of saliency and β^uf above chance on every corpus",
        number=("table2", "imdb | A(Δ, β^uf) | *"), within=(0.0, 100.0),
    ),
    Headline(
        "snell2021", "abstract",
        "a multi-head attention model can overcome the above hard training distribution by improving learning "
        "dynamics rather than expressiveness",
        {"fig6": ("contexts summed*: one good head helps*", "contexts summed*: several random heads converge more*")},
        "more networks converge with one good head than with none, and with eight random heads than with one",
        reason="the network: summed as in eq. 21, heads learn whatever their start (`results/snell2021/fig6.json`); "
        "with the value layers of the author's script the claims hold (`results/snell2021/fig6-author.json`)",
    ),
    Headline(
        "snell2021", "§7",
        "the LSTM attention models first learn how to translation individual words from bag of words co-occurrence "
        "statistics, which then drives the learning of the attention",
        {"aligners": ("the lexical probe has come half of its way no later than attention*",),
         "fig2": ("*: A(α, β^uf(τ)) rises, then falls*",)},
        "the probe is no later than attention; β^uf agrees best between the first and the last checkpoint",
    ),
    Headline(
        "snell2021", "§6",
        "These assumptions are accurate enough […] but they are not always true",
        {"sec6.2": ("in a fixed other order it is never learnt*",)},
        "copying in another order is not learnt, over orders of positions",
    ),
    # tutek2020
    Headline(
        "tutek2020", "abstract",
        "we provide an explanation as to why attention has seen rightful critique when used with recurrent networks",
        {"fig2": ("base: most tokens have nearly the probability of the decision", "fewer tokens do in *")},
        "most tokens have nearly the probability of the decision in base; fewer have in tying and MLM",
    ),
    Headline(
        "tutek2020", "§6",
        "regularization methods […] which strengthen the relationship between the input and hidden states",
        {"table2": ("*: the states of * share more with their words than those of base",)},
        "mutual information is higher than in base on every corpus",
        number=("table2", "sst | tying | embedding and state, nats, the most frequent*"),
    ),
    Headline(
        "tutek2020", "§6",
        "while not being a detriment to classification performance",
        {"table1": ("*: F1 of * is at most 2 points lower than that of base",)},
        "F1 at most 2 points lower than that of base, on every corpus",
        number=("table1", "sst | additive | tying | F1, trained*"), within=(0.0, 100.0),
    ),
    Headline(
        "tutek2020", "§6",
        "Adding such methods causes the model to become more susceptible to attacks modifying the attention weights of "
        "a trained model",
        {"table1": ("*: * loses more F1 than base under * attention",)},
        "more F1 is lost than in base, in at least half of the comparisons; the paper's own table has 27 of 32",
        share=0.5,
        number=("table1", "sst | additive | tying | loss of F1, permuted*"),
    ),
    Headline(
        "tutek2020", "§6",
        "and increases faithfulness of explanations produced by attention weights",
        {"jain-wallace": ("*'s attention agrees more with * than base's", "*: attention that keeps the output is*"),
         "fig1": ("*: at equal JSD, TVD is higher for * than for base",)},
        "at least half of the tests of Jain and Wallace and of imitation are in favour",
        share=0.5,
    ),
    Headline(
        "tutek2020", "§5",
        "the regularization keeps the representations for neutral words grounded closer to the decision boundary",
        {"table3": ("*: a token alone * less* in * than in base",)},
        "the probability of the decision by a token alone is lower than in base, on every corpus",
        number=("table3", "sst | additive | tying | probability of*"), within=(0.0, 1.0),
    ),
    # baan2019
    Headline(
        "baan2019", "§6",
        "Thanks to Attentive Guidance, seq2seqs are able to generalize compositionally on the lookup table task when, "
        "without it, they cannot",
        {"table5-6": ("guided: *", "baseline: fails *")},
        "guided networks are no worse than the lowest published run; baselines get more sentences wrong than right",
        number=("table5-6", "guided | sequence accuracy, NC"),
    ),
    Headline(
        "baan2019", "§6",
        "small subsets of […] neurons are responsible for specific functions",
        {"table2": ("* h_enc, guided: two units *", "* h_enc: the baseline needs more units than the guided network"),
         "table3": ("* h_enc, guided: two units *", "* h_enc: the baseline needs more units than the guided network")},
        "two units are enough in guided networks, and baselines need more",
        number=("table2", "guided | current table from h_enc: units in*"),
    ),
    Headline(
        "baan2019", "§6",
        "well-connected neurons",
        {"sec4.1-overlap": ("guided: at least 93 %*",)},
        "at least 93 % of the functional group is among the strongest 5 % of units",
        number=("sec4.1-overlap", "guided | * strongest 5 % of units"),
    ),
    Headline(
        "baan2019", "§6",
        "these neurons seem to play a more crucial part in specific model components like the encoder / decoder gates "
        "and decoder embeddings",
        {"table4": ("the encoder matters*", "the decoder matters*", "the decoder embedding matters*",
                    "the decoder Wih matters*")},
        "guided networks do worse with the baseline's component; of encoder and decoder, less than half is left",
        number=("table4", "guided: decoder embedding | and *trained*"), within=(0.0, 1.0),
    ),
    Headline(
        "baan2019", "§6",
        "while playing a negligible role in others",
        {"table4": ("the encoder's embedding does not matter*",)},
        "at most 0.12 lower with the baseline's encoder embedding, the paper's standard deviation",
        number=("table4", "guided: encoder embedding | and *trained*"), within=(0.0, 1.0),
    ),
    Headline(
        "baan2019", "§6",
        "only 26 neurons in the encoder and decoder are needed to implement a perfect solution",
        {"sec5.2": ("*restores it*",)},
        "accuracy after pruning and retraining is at most 0.12 lower than that of the whole network",
        number=("sec5.2", "guided | the strongest neurons, *trained*"),
        reason="a setting, in part: 0.76 with 20 epochs of retraining, 0.86 with 100, 0.99 where removed neurons may "
        "come back, as in the authors' code (`results/baan2019/sec5.2.json`; with 20 epochs: "
        "`results/earlier/retraining-20-epochs/baan2019/sec5.2.json`)",
    ),
    Headline(
        "baan2019", "§6",
        "models with fewer parameters cannot learn to solve the lookup table task",
        {"small": ("26 units trained from scratch solve fewer new compositions than a large network",)},
        "26 units trained from scratch solve fewer new compositions than 512",
    ),
)  # fmt: skip
