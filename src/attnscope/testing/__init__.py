"""Checks of your own model or task: does it fulfil the contract of an adapter, or of a Batch?

    from attnscope.testing import check_adapter, check_task, quick_check
    check_adapter(model, batches)    # an AssertionError lists all violations as sentences
    quick_check(model, batch)        # the short form, which runs before every audit: the first violation
    check_task(task)                 # a BadSetting names the first violation; every run checks its task

Each clause of CLAUSES yields one sentence per violation. What a model does not declare is not checked: without
EmbedsSource it has no saliency, without ReadsOut no lexical probe.
"""

from attnscope.tasks.task import check_task
from attnscope.testing.contract import CLAUSES, BrokenContract, check_adapter, quick_check

__all__ = ["CLAUSES", "BrokenContract", "check_adapter", "check_task", "quick_check"]
