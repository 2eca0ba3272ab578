"""May this model's attention be shown as a reason? All tests of faithfulness in one call, with a page of the evidence.

audit("folder", "texts.jsonl", out="audit")            a Hugging Face model; writes audit.html and audit.json
audit("runs/runs/KEY", quick=True)                      a run, on the test set of its task
audit(adapter, [("a fine film", "yes"), ...])           any model that has a `reader`
audit(hf_model, frame, tokenizer=tokenizer)             a Hugging Face model in memory, and a DataFrame
"""

from attnscope.auditing.report import Report
from attnscope.auditing.runner import Settings, audit
from attnscope.faithfulness.criteria import Interval
from attnscope.faithfulness.records import Part, Test, Verdict
from attnscope.models.examples import Example

__all__ = ["Example", "Interval", "Part", "Report", "Settings", "Test", "Verdict", "audit"]
