"""Checks for a model or a task of one's own: does it keep what an adapter, or a Batch, must promise?

    from attnscope.testing import check_adapter, check_task, quick_check
    check_adapter(model, batches)    # an AssertionError lists, as sentences, everything that does not hold
    quick_check(model, batch)        # the short form, which runs before every audit: the first thing that is wrong
    check_task(task)                 # a BadSetting says the first thing that is wrong; every run is checked so, too

Each clause of CLAUSES yields one sentence for whatever is wrong with a model. What a model does not declare is not
checked: without EmbedsSource it has no saliency, without ReadsOut no lexical probe, and without
attention nothing is checked about it.
"""

from attnscope.tasks.check import check_task
from attnscope.testing.contract import CLAUSES, BrokenContract, check_adapter, quick_check

__all__ = ["CLAUSES", "BrokenContract", "check_adapter", "check_task", "quick_check"]
