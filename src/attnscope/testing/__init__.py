"""Does a model keep what an adapter must promise, and a task what a Batch must? Checks for what is one's own.

    from attnscope.testing import check_adapter, check_task
    check_adapter(model, batches)    # an AssertionError lists, as sentences, everything that does not hold
    check_task(task)                 # a BadSetting says the first thing that is off; every run is checked so, too

Each clause of CLAUSES gives a sentence for whatever is wrong with a model. What it does not have is not asked for: a
model without `source_inputs` cannot be asked for saliency, one without `readout` and `context_of` not for the lexical
probe, and one without attention shows none.
"""

from attnscope.tasks.check import check_task
from attnscope.testing.contract import CLAUSES, check_adapter

__all__ = ["CLAUSES", "check_adapter", "check_task"]
