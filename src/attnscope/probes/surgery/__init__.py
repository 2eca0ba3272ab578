"""Which parts of a network does its solution need? Swap them, or cut them out, and train on (baan2019 §5)

`substituted` and `pruned` give a new model, and say which of its weights are to be held; `retrained` trains it on.
"""

from attnscope.probes.surgery.outcome import Outcome, Outcomes, outcome
from attnscope.probes.surgery.pruning import pruned, with_neurons
from attnscope.probes.surgery.retraining import Held, Operated, holding, retrained
from attnscope.probes.surgery.substitution import COMPONENTS, parameters_of, substituted

__all__ = [
    "COMPONENTS", "Held", "Operated", "Outcome", "Outcomes", "holding", "outcome", "parameters_of", "pruned",
    "retrained", "substituted", "with_neurons",
]  # fmt: skip
