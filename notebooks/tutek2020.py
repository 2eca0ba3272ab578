# %% [markdown]
# # When is attention a faithful explanation? (Tutek and Šnajder 2020)
#
# The attention of a classifier shows which tokens it attended to. Did it decide *because* of these tokens? The paper's
# point: attention does not weigh tokens, it weighs **states**, and every state of a recurrent network encodes the
# tokens around it. If each state encodes the answer, it does not matter which one is attended to.
#
# The texts are synthetic: filler words, and one word of praise or blame at any position. The notebook takes a few
# seconds.

# %%
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

import attnscope
from attnscope.models import ClassifierSettings
from attnscope.probes.grounding import GroundingAccumulator, batch_token_probabilities, plot_sentence
from attnscope.tasks import END, SPECIALS, Batch, SyntheticTask, Vocabulary
from attnscope.training import CrossEntropy, Tying

BLAME, PRAISE = ["dull", "clumsy", "tedious"], ["wonderful", "moving", "clever"]
FILLER = ["the", "a", "this", "film", "plot", "actor", "scene", "story", "was", "is", "and", "of", "in", "with", "it"]


@dataclass(frozen=True)
class Reviews(SyntheticTask):
    """Eight words, seven of which carry no information."""

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([*BLAME, *PRAISE, *FILLER])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(["bad", "good"])

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        good, place = random.integers(0, 2, size), random.integers(0, 8, size)
        words = random.integers(len(BLAME + PRAISE), len(BLAME + PRAISE + FILLER), (size, 8))
        words[np.arange(size), place] = random.integers(0, 3, size) + 3 * good
        source = torch.from_numpy(np.pad(words + len(SPECIALS), ((0, 0), (0, 1)), constant_values=END))
        target = torch.from_numpy(good[:, None] + len(SPECIALS))
        return Batch(source, source > 0, target, target > 0)


task = Reviews(test_size=200)
network = ClassifierSettings(input_size=32, units=16, attention="dot", specials_attended=False)


def trained(objective):
    torch.manual_seed(0)
    model = attnscope.build(network, len(task.source_vocabulary), len(task.target_vocabulary))
    settings = attnscope.TrainingSettings(steps=200, batch_size=32, learning_rate=5e-3)
    attnscope.fit(model, task, objective, settings)
    return model


base = trained(CrossEntropy())
attnscope.evaluate(base, task.batches("test"))

# %% [markdown]
# It is always correct, and its attention looks like an explanation:

# %%
batch = next(task.batches("test"))
words = task.source_vocabulary.decode(batch.source[0].tolist())
with torch.no_grad():
    trace = base(batch)
attnscope.attention_scores(trace).plot(source=words, target=task.target_vocabulary.decode(batch.target[0].tolist()))

# %% [markdown]
# Now **shuffle the weights among the tokens** of the text, a hundred times. Seven of eight tokens carry no information,
# so a network that depends on its attention must now guess: about four in ten decisions should change ("changed").

# %%
of_base = attnscope.fragility(base, list(task.batches("test")))
of_base

# %% [markdown]
# Hardly any decision changes. How can the state of "the" suffice to decide? Put all attention on one state at a time,
# and compute the probability of "good":

# %%
alone = batch_token_probabilities(base, batch, target_class=1)
plot_sentence(words[:-1], {"base": alone.of_text()}, {"base": float(alone.decision[0])})

# %% [markdown]
# Filler words alone give the answer, because their states encode it from their neighbours.
#
# **The paper's remedy** is a regulariser: *tying* penalises the distance between a token's state and its embedding. The
# task is as easy as before.

# %%
tied = trained(CrossEntropy() + Tying(1.0, per_dimension=True))
of_tied = attnscope.fragility(tied, list(task.batches("test")))
of_tied

# %% [markdown]
# The accuracy is the same, and now about as many decisions change as expected: this network depends on its attention.
# Filler words favour one class, the same in every text (a prior), and the informative word decides:

# %%
alone_tied = batch_token_probabilities(tied, batch, target_class=1)
plot_sentence(
    words[:-1],
    {"base": alone.of_text(), "tied": alone_tied.of_text()},
    {"base": float(alone.decision[0]), "tied": float(alone_tied.decision[0])},
)


# %% [markdown]
# Over all texts, we compute the probability of the decision given a token alone, and the fraction of tokens that
# suffice for the decision ("leakage"). For the tied network this fraction can reach a half: in that many texts the
# prior happens to be right.


# %%
def grounded(model):
    ground = GroundingAccumulator()
    for some in task.batches("test"):
        ground.update(batch_token_probabilities(model, some))
    return ground.result()


pd.concat({"base": grounded(base).table(), "tied": grounded(tied).table()})

# %% [markdown]
# Two networks of one seed on synthetic texts are an illustration, not a result. Over six seeds, shuffling changes at
# most a tenth of the decisions of base in five seeds and a third in one, and 26 to 42 % of those of the tied network;
# with `attention="additive"` above, this small network depends on its attention from the start. For four corpora, other
# regularisers and more seeds, run `attnscope.reproduce("tutek2020")`.
