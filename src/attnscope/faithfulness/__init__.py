"""Is attention a faithful explanation? Tests, criteria and the rule that makes a verdict of them."""

from attnscope.faithfulness.assessment import Assessment, assess

__all__ = ["Assessment", "assess"]
