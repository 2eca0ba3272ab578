"""May this model's attention be shown as a reason? Everything that the papers would ask of it, in one go.

audit("folder", "texts.jsonl", out="audit")            a Hugging Face model; writes audit.html and audit.json
audit("runs/runs/KEY", settings=Settings(quick=True))   a run of ours, on the test set of its task
audit(adapter, [Example("a fine film", "yes"), ...])    any model that has a `reader`
"""

from attnscope.auditing.runner import Settings, audit
from attnscope.faithfulness.criteria import Interval
from attnscope.faithfulness.records import Test, Verdict
from attnscope.faithfulness.subject import Example

__all__ = ["Example", "Interval", "Settings", "Test", "Verdict", "audit"]
