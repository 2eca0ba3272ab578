"""At which sizes is snell2021 run? Each group of findings has sizes of its own."""

from dataclasses import dataclass

from attnscope.studies.finding import Profile
from attnscope.studies.snell2021 import counting, text, toys


@dataclass(frozen=True)
class Sizes(Profile):
    """`seeds` is that of the findings on real text."""

    text: text.TextSizes
    toys: toys.ToySizes
    counting: counting.CountSizes


def sizes(name: str, seeds: int) -> Sizes:
    return Sizes(name, seeds, text.SIZES[name], toys.SIZES[name], counting.SIZES[name])


PROFILES = {"quick": sizes("quick", 2), "paper": sizes("paper", 3)}
