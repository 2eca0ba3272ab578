"""Which words does a score link? By the highest score, by a threshold, or where two directions agree."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import require

Link = tuple[int, int]  # source position, target position, from zero
Links = frozenset[Link]


def argmax_links(
    scores: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
    unlinked: Bool[Tensor, "batch source"] | None = None,
) -> list[Links]:
    """A link from each target word to its highest source word, the first where several are.

    Target words outside their mask get none. Source words outside theirs do not compete. `unlinked` ones (an end
    token, say) do, and a target word that they win stays without a link.
    """
    best = scores.masked_fill(~source_mask[:, None], -torch.inf).argmax(-1)  # batch x target
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best[..., None], True)
    linkable = source_mask if unlinked is None else source_mask & ~unlinked
    return links_at(chosen & linkable[:, None] & target_mask[:, :, None])


def threshold_links(
    scores: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
    threshold: float,
) -> list[Links]:
    """A link wherever the score is at least the threshold."""
    return links_at((scores >= threshold) & source_mask[:, None] & target_mask[:, :, None])


def links_at(chosen: Bool[Tensor, "batch target source"]) -> list[Links]:
    found: list[set[Link]] = [set() for _ in range(len(chosen))]
    for sentence, target, source in chosen.nonzero().tolist():
        found[sentence].add((source, target))
    return [frozenset(links) for links in found]


def intersections(one: Sequence[Iterable[Link]], other: Sequence[Iterable[Link]]) -> list[Links]:
    """The links that two directions agree on; those of the opposite direction have to be `flipped` first."""
    require(len(one) == len(other), f"there are links of {len(one)} sentences, but of {len(other)} in the other list")
    return [frozenset(a) & frozenset(b) for a, b in zip(one, other, strict=True)]


def flipped(links: Iterable[Link]) -> Links:
    """The same links, source and target exchanged.

    >>> sorted(flipped({(0, 1), (2, 3)}))
    [(1, 0), (3, 2)]
    """
    return frozenset((target, source) for source, target in links)


def word_links(links: Iterable[Link], source_words: Sequence[int], target_words: Sequence[int]) -> Links:
    """Links between pieces of words as links between words: two words are linked where any of their pieces are.

    `source_words` and `target_words` give the number of the word that each piece belongs to.

    >>> sorted(word_links({(0, 0), (1, 0), (2, 1)}, source_words=[0, 0, 1], target_words=[0, 1]))
    [(0, 0), (1, 1)]
    """
    return frozenset((source_words[source], target_words[target]) for source, target in links)
