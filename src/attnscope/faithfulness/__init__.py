"""Is attention a faithful explanation? Tests, criteria and the rule that makes a verdict of them."""
