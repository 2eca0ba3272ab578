# %% [markdown]
# # Do the papers' answers hold in a Transformer?
#
# The four papers are about recurrent networks. The study `transformers` asks their questions about Transformers. This
# notebook covers three of them, on synthetic tasks and with small networks: how attention is learned, how it is formed,
# and whether the heads of a language model develop in the same order. It takes about half a minute.

# %%
import pandas as pd

import attnscope
from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import Start, TransformerDecoderSettings, TransformerSettings
from attnscope.probes.language import head_statistics
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.tasks import Copying, OneToOne, RepeatedSequences

NETWORK = TransformerSettings(units=64, layers=1, heads=1, hidden=128)
SETTINGS = attnscope.TrainingSettings(
    steps=250, batch_size=32, learning_rate=2e-3, warmup=20, teacher_forcing=1.0, evaluate_every=10
)


def trained(experiment):
    """A trained model and its log."""
    model = experiment.new_model()
    progress = attnscope.fit(model, experiment.task, settings=experiment.training)
    return model, pd.DataFrame(progress.log).set_index("step")


def beta(model, batch):
    """The lexical probe at the gold position: the probability of the token if only its source is attended to."""
    probability = batch_lexical_scores(model, batch).probability
    return float(probability.gather(2, batch.gold_attention[..., None]).mean())


# %% [markdown]
# ## How attention is learned
#
# The task is to copy permutations of the same 12 tokens. According to Snell et al. (2021), co-occurrence does not
# reveal which token translates into which, so attention is learned late. If the reason is lexical, a network that
# *starts* with the right lexical weights should learn to attend sooner, and one that starts with scrambled weights of
# the same size should not.

# %%
task = Copying(test_size=64, distribution="permutations", num_words=12, length=12)
starts = {
    start: trained(Experiment(task, NETWORK, SETTINGS, start=Start(copying=start)))
    for start in ("given", "random", "scrambled")
}
curves = pd.DataFrame({start: log["word_accuracy"] for start, (_, log) in starts.items()})
plots.profiles(curves.index.to_numpy(), dict(curves.items()), xlabel="training step", ylabel="token accuracy")

# %% [markdown]
# It does. The lexical probe shows what each network knows about single tokens at the end; chance is 1 in 12. The
# network with scrambled weights may copy without this knowledge: another part of the network then undoes the
# scrambling.

# %%
batch = next(task.batches("test"))
pd.DataFrame({"β at the gold position": {start: beta(model, batch) for start, (model, _) in starts.items()}})

# %% [markdown]
# ## How attention is formed
#
# Aitken et al. (2021) decompose states into components explained by the step, by the token, and by neither. Here is the
# same decomposition for the cross-attention of a Transformer that translates letter by letter:

# %%
letters = OneToOne(min_length=7, max_length=9, test_size=200)
translator, _ = trained(Experiment(letters, NETWORK, SETTINGS))
formed = attnscope.decompose(translator, lambda: letters.batches("test"), decoding="teacher_forced")
formed

# %% [markdown]
# Attention can be predicted from the step alone, as in the recurrent networks of the paper. But the product of the two
# temporal components makes up only about half of the scores, instead of nine tenths. The mean attention:

# %%
formed.mean_attention

# %% [markdown]
# ## Induction heads
#
# We train a language model of two layers on repeated sequences. An induction head attends to the token after an earlier
# occurrence of the current one. Does the network know what an attended token predicts before such a head exists?

# %%
sequences = RepeatedSequences(num_words=16, length=16, min_period=4, max_period=8, test_size=100)
repeated = next(sequences.batches("test"))
decoder = TransformerDecoderSettings(units=48, heads=2, hidden=96, positions="rotary")


def scores(model, task):
    heads = head_statistics(model, [repeated]).values  # by measure, layers x heads
    found = {"previous-token head": heads["previous"][0].max(), "induction head": heads["induction"][1].max()}
    return {"lexical probe": beta(model, repeated), **{name: float(value) for name, value in found.items()}}


model = Experiment(sequences, decoder, SETTINGS).new_model()
progress = attnscope.fit(model, sequences, settings=SETTINGS, watch={"heads": scores})
onset = pd.DataFrame(progress.log).set_index("step").filter(like="heads.")
onset.columns = onset.columns.str.removeprefix("heads.")
plots.profiles(onset.index.to_numpy(), dict(onset.items()), xlabel="training step", ylabel="score, probability")

# %%
onset.iloc[::5].round(2)

# %% [markdown]
# These are illustrations with one seed each, at sizes for a laptop. For all six questions over seeds, with controls and
# verdicts, run `attnscope.reproduce("transformers")`; docs/transformers.md describes what changes from recurrent
# networks to Transformers.
