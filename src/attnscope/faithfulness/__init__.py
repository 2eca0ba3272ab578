"""Is attention a faithful explanation? Tests, criteria, and the rule that derives the verdict."""

from attnscope.faithfulness.assessment import Assessment, assess

__all__ = ["Assessment", "assess"]
