"""How are links written down? Pharaoh format: "0-0 1-2", a line a sentence pair, source first.

A gold line may mark a link that is only possible with a p in place of the hyphen: "0-0 1p2". Some files count from 0
and others from 1, and no line tells which: `base` always has to be said.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from attnscope.errors import AttnscopeError, require
from attnscope.probes.alignment.error_rate import GoldLinks
from attnscope.probes.alignment.links import Link, Links

WRITTEN = re.compile(r"(\d+)([-p])(\d+)")


def to_pharaoh(links: Iterable[Link], *, base: int) -> str:
    """One line.

    >>> to_pharaoh({(1, 2), (0, 0)}, base=1)
    '1-1 2-3'
    """
    check_base(base)
    return " ".join(f"{source + base}-{target + base}" for source, target in sorted(links))


def links_from_pharaoh(line: str, *, base: int) -> Links:
    """The links of one line, sure and possible alike.

    >>> sorted(links_from_pharaoh("1-1 2-3", base=1))
    [(0, 0), (1, 2)]
    """
    gold = gold_from_pharaoh(line, base=base)
    return gold.sure | gold.possible


def gold_from_pharaoh(line: str, *, base: int) -> GoldLinks:
    """The sure and the possible links of one line."""
    check_base(base)
    found = [written(text, base) for text in line.split()]
    return GoldLinks.of(
        sure=[link for mark, link in found if mark == "-"], possible=[link for mark, link in found if mark == "p"]
    )


def read_pharaoh(path: Path, *, base: int) -> list[GoldLinks]:
    """Every line of a file; an empty line is a sentence pair without links."""
    gold = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            gold.append(gold_from_pharaoh(line, base=base))
        except AttnscopeError as error:
            raise AttnscopeError(f"{path}, line {number}: {error}") from None
    return gold


def written(text: str, base: int) -> tuple[str, Link]:
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise AttnscopeError(f"'{text}' is no link; expected source-target, such as 3-4, or 3p4 for a possible one")
    source, target = int(match[1]) - base, int(match[3]) - base
    if min(source, target) < 0:
        raise AttnscopeError(f"'{text}' counts from 0, but base=1 says that these links count from 1")
    return match[2], (source, target)


def check_base(base: int) -> None:
    require(base in (0, 1), f"links count from 0 or from 1: base is 0 or 1, not {base}")
