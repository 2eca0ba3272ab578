"""Does a model keep what an adapter must promise? The contract as tests that anyone can run on a model of their own.

    from attnscope.testing import check_adapter
    check_adapter(model, batches)    # an AssertionError lists, as sentences, everything that does not hold

Each clause of CLAUSES gives a sentence for whatever is wrong. What a model does not have is not asked for: a model
without `source_inputs` cannot be asked for saliency, one without `readout` and `context_of` not for the lexical probe,
and one without attention shows none.
"""

from attnscope.testing.contract import CLAUSES, check_adapter

__all__ = ["CLAUSES", "check_adapter"]
