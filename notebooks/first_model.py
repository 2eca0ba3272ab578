# %% [markdown]
# # Look inside your first model
#
# A small network learns to translate made-up sentences of letters into numbers: B A C becomes 2 1 3. Then we ask it
# where it looks, what would happen if it looked elsewhere, and why it looks there. A few seconds on a laptop.

# %%
from dataclasses import replace

import torch

import attnscope

task = attnscope.TASKS["one_to_one"](num_words=4, min_length=7, max_length=9, test_size=200)
torch.manual_seed(0)
network = replace(attnscope.MODELS["aed"], units=48)  # a GRU that reads, one that writes, attention between them
model = attnscope.build(network, len(task.source_vocabulary), len(task.target_vocabulary))
settings = attnscope.TrainingSettings(steps=200, batch_size=64, learning_rate=0.01, epsilon=1e-3, max_grad_norm=1.0)
attnscope.fit(model, task, settings=settings)
attnscope.evaluate(model, task.batches("test"))

# %% [markdown]
# It makes next to no mistakes. Every forward pass gives a **Trace**: all that the pass reveals, by name. `encoder` is
# what the network has read at each word, `decoder` what it is about to say, and the weights of the last layer are its
# attention.

# %%
batch = next(task.batches("test"))
with torch.no_grad():
    trace = model(batch)
trace  # noqa: B018

# %% [markdown]
# **Where does it look?** A row for each word that it says, a column for each word that it reads, in the first sentence:
# at the letter that it is about to translate, or right beside it.

# %%
attention = attnscope.attention_scores(trace)
read = task.source_vocabulary.decode(batch.source[0].tolist())
said = task.target_vocabulary.decode(trace.predictions[0].tolist())
attention.plot(source=read, target=said)

# %% [markdown]
# **Does it matter where it looks?** A picture does not say. An intervention does: let the same network attend to all
# words alike, and see how many it still gets right.

# %%
without = attnscope.evaluate(model, task.batches("test"), attention=attnscope.uniform)
without  # noqa: B018

# %% [markdown]
# Most of the words are lost: this network needs its attention. (There are networks that do not, see `tutek2020.py`.)
#
# **What would it say if it saw one word only?** The lexical probe puts each word alone in the place of all that is
# attended to, and asks how likely the right answer is then (as log-odds: above 0 is likelier than not).

# %%
attnscope.lexical(model, batch)

# %% [markdown]
# Red wherever the right letter stands, at whichever place. So the letter says *what* to answer, and attention says
# *whose turn it is*.
#
# **Why does it look there?** Each state is split into what depends on time alone, what depends on the word alone, and a
# rest. So attention has nine terms. How much of it is decided by time alone?

# %%
formed = attnscope.decompose(model, lambda: task.batches("test"), lambda: task.batches("validation"), decoding="greedy")
formed  # noqa: B018

# %% [markdown]
# The darkest part is time with time: the network counts, in the encoder and in the decoder, and looks at the word whose
# turn it is. What the words are matters less. `aitken2021.py` shows how it counts.
#
# From here: `attnscope.audit(...)` asks a model of your own all of this and more, and writes one page
# (docs/own-model.md); the other notebooks each show what one paper found.
