# %% [markdown]
# # How do encoder-decoder networks attend? (Aitken et al. 2021)
#
# A recurrent network with attention translates letter by letter. How does the decoder find the letter to translate?
# The paper's answer: **both sides follow the same path in time**. The states of encoder and decoder, averaged over all
# sentences at each step, trace one curve; the decoder attends to where the encoder was at the same point of it.
#
# The task is synthetic (three letters, sentences of 7 to 9), and the network is small. The notebook takes a quarter of
# a minute.

# %%
from dataclasses import replace

import pandas as pd
import torch

import attnscope
from attnscope.probes.decomposition import plot_paths
from attnscope.tasks import OneToOne, ReversedOneToOne
from attnscope.training import L2, CrossEntropy

SETTINGS = attnscope.TrainingSettings(steps=170, batch_size=64, learning_rate=0.01, epsilon=1e-3, max_grad_norm=1.0)


def trained(task):
    torch.manual_seed(0)
    settings = replace(attnscope.MODELS["aed"], units=48)
    model = attnscope.build(settings, len(task.source_vocabulary), len(task.target_vocabulary))
    attnscope.fit(model, task, CrossEntropy() + L2(1e-3), SETTINGS)
    return model


def decomposed(model, task):
    return attnscope.decompose(
        model, lambda: task.batches("test"), lambda: task.batches("validation"), decoding="greedy"
    )


task = OneToOne(min_length=7, max_length=9, test_size=200)
model = trained(task)
attnscope.evaluate(model, task.batches("test"))

# %% [markdown]
# Decompose every state: its mean over all sentences at that step (the **temporal** component), the mean of its token
# beyond that (the **input** component), and the residual. In the plane of their two main directions, the temporal
# components of encoder and decoder are, from light (early) to dark (late):

# %%
formed = decomposed(model, task)
plot_paths(formed.encoder, formed.decoder)

# %% [markdown]
# The two curves run side by side, in the same direction. The inner product of a decoder step with each encoder step is
# largest at equal times. So the temporal components alone should select the right letter. What is their share of the
# attention scores?

# %%
formed

# %% [markdown]
# They make up most of the scores (darkest; about 0.9 in larger networks). "Predictability" measures the same in another
# way: how much of the attention can be predicted from the step, without the sentence. The mean attention is:

# %%
formed.mean_attention

# %% [markdown]
# **Where are the letters?** In the input components, orthogonal to the path. Each output token's readout vector aligns
# with the input component of its own letter, and so the readout implements the dictionary:

# %%
readout = model.output.weight[:, -model.settings.units :]
formed.readout(readout).plot(outputs=task.target_vocabulary.tokens, inputs=task.source_vocabulary.tokens)

# %% [markdown]
# **A test of the explanation**: reverse the output. Nothing about the letters changes, only the order. If the
# explanation is right, the decoder must now follow the encoder's path from its end to its beginning.

# %%
backwards = ReversedOneToOne(min_length=7, max_length=9, test_size=200)
reversing = trained(backwards)
formed_backwards = decomposed(reversing, backwards)
plot_paths(formed_backwards.encoder, formed_backwards.decoder)

# %%
formed_backwards.mean_attention

# %% [markdown]
# It does: the light end of one curve lies at the dark end of the other. Sentences have 7, 8 or 9 letters, so the
# decoder cannot start at one fixed step, and the temporal components explain less of its attention:

# %%
pd.concat({"forwards": formed.table(), "backwards": formed_backwards.table()})

# %% [markdown]
# To run the whole study, with the paper's other tasks, call `attnscope.reproduce("aitken2021")`; our results are in
# docs/results.md.
