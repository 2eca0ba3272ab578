"""What is trained on made-up sequences: copying and the keyword. (snell2021 §3.3, §5.2, §6)"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ToySizes:
    """How large, how long, how many seeds."""

    seeds: int


SIZES = {"quick": ToySizes(seeds=4), "paper": ToySizes(seeds=20)}
