"""Does a score find the words that translate each other? Error rates against gold word alignments. (beyond the papers)

A link is a pair (source position, target position), counted from zero; the links of a sentence pair are a set.
"""

from attnscope.probes.alignment.error_rate import Align, AlignmentQuality, GoldLinks
from attnscope.probes.alignment.links import (
    Link,
    Links,
    argmax_links,
    flipped,
    intersections,
    threshold_links,
    word_links,
)
from attnscope.probes.alignment.pharaoh import gold_from_pharaoh, links_from_pharaoh, read_pharaoh, to_pharaoh

__all__ = [
    "Align", "AlignmentQuality", "GoldLinks", "Link", "Links", "argmax_links", "flipped", "gold_from_pharaoh",
    "intersections", "links_from_pharaoh", "read_pharaoh", "threshold_links", "to_pharaoh", "word_links",
]  # fmt: skip
