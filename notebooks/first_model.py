# %% [markdown]
# # A first model
#
# A small network learns to translate synthetic sentences of letters into numbers: B A C becomes 2 1 3. Where does it
# attend, what happens under a different attention, and how is its attention formed? The notebook takes a few seconds on
# a laptop.

# %%
from dataclasses import replace

import torch

import attnscope

task = attnscope.TASKS["one_to_one"](num_words=4, min_length=7, max_length=9, test_size=200)
torch.manual_seed(0)
network = replace(attnscope.MODELS["aed"], units=48)  # a GRU encoder, a GRU decoder, attention between them
model = attnscope.build(network, len(task.source_vocabulary), len(task.target_vocabulary))
settings = attnscope.TrainingSettings(steps=200, batch_size=64, learning_rate=0.01, epsilon=1e-3, max_grad_norm=1.0)
attnscope.fit(model, task, settings=settings)
attnscope.evaluate(model, task.batches("test"))

# %% [markdown]
# It makes hardly any errors. Every forward pass returns a **Trace**: its intermediate values, by name. `encoder` and
# `decoder` hold the hidden states, `layers` the attention.

# %%
batch = next(task.batches("test"))
with torch.no_grad():
    trace = model(batch)
trace

# %% [markdown]
# **Where does it attend?** The plot has one row per output token and one column per source token of the first sentence.
# The network attends to the letter that it translates next, or right next to it.

# %%
attention = attnscope.attention_scores(trace)
read = task.source_vocabulary.decode(batch.source[0].tolist())
said = task.target_vocabulary.decode(trace.predictions[0].tolist())
attention.plot(source=read, target=said)

# %% [markdown]
# **Does it matter where it attends?** A heat map does not say. An intervention does: evaluate the same network with
# uniform attention.

# %%
without = attnscope.evaluate(model, task.batches("test"), attention=attnscope.uniform)
without

# %% [markdown]
# Accuracy drops: this network depends on its attention. (Others do not, see `tutek2020.py`.)
#
# **What does each source token predict alone?** The lexical probe puts all attention on one token and computes the
# probability of the gold output (as log-odds: above 0 is more likely than not).

# %%
attnscope.lexical(model, batch)

# %% [markdown]
# The plot is red wherever the right letter is, at any position. So the letter determines *what* to output, and
# attention *which letter is next*.
#
# **How is its attention formed?** Each state is decomposed into a component of its time step, a component of its token,
# and a residual. The attention scores then have nine terms. How much do the temporal components alone explain?

# %%
formed = attnscope.decompose(model, lambda: task.batches("test"), lambda: task.batches("validation"), decoding="greedy")
formed

# %% [markdown]
# The darkest part is temporal · temporal: encoder and decoder both count steps, and attention goes to the token at the
# same step. The tokens themselves matter less. `aitken2021.py` shows how they count.
#
# Next, `attnscope.audit(...)` runs all of this and more on your own model, and writes one page (docs/own-model.md);
# each of the other notebooks shows the result of one paper.
