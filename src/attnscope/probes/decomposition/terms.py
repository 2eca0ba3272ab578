"""Which nine terms make the alignment, and what attention would some of them give alone? (aitken2021 eq. 3)"""

from collections.abc import Iterable
from itertools import product

from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import BadSetting
from attnscope.models.attention import masked_softmax
from attnscope.probes.decomposition.components import PARTS, Parts

Term = tuple[str, str]  # a part of the decoder's vector, a part of the encoder's
TERMS: tuple[Term, ...] = tuple(product(PARTS, PARTS))
TEMPORAL: tuple[Term, ...] = (("temporal", "temporal"),)  # μ·μ, enough for one-to-one (§3)
TEMPORAL_QUERY: tuple[Term, ...] = TERMS[:3]  # μ·μ + μ·χ + μ·Δ, the better approximation for eSCAN (§4.1)


def name(term: Term) -> str:
    """How a term is called in tables.

    >>> name(("temporal", "delta"))
    'temporal·delta'
    """
    return "·".join(term)


def terms(queries: Parts, keys: Parts) -> Float[Tensor, "3 3 batch heads target source"]:
    """terms[i, j] = part i of each query · part j of each key; the nine sum to the alignment."""
    rows = queries.stacked.flatten(2, 3)  # batch x heads x (target 3) x key
    columns = keys.stacked.flatten(2, 3)  # batch x heads x (source 3) x key
    products = rows @ columns.mT  # batch x heads x (target 3) x (source 3)
    apart = products.view(*products.shape[:2], queries.stacked.shape[2], 3, keys.stacked.shape[2], 3)
    return apart.permute(3, 5, 0, 1, 2, 4)


def rebuilt_alignment(
    nine: Float[Tensor, "3 3 batch heads target source"], keep: Iterable[Term] = TERMS
) -> Float[Tensor, "batch heads target source"]:
    """The sum of the terms kept."""
    kept = [nine[place(term)] for term in keep]
    return sum(kept, start=nine.new_zeros(nine.shape[2:]))


def rebuilt_attention(
    nine: Float[Tensor, "3 3 batch heads target source"],
    source_mask: Bool[Tensor, "batch source"],
    keep: Iterable[Term] = TERMS,
) -> Float[Tensor, "batch heads target source"]:
    """Attention from the terms kept alone: a softmax over source positions (the paper's column formula is a slip)."""
    return masked_softmax(rebuilt_alignment(nine, keep), source_mask)


def place(term: Term) -> tuple[int, int]:
    if term not in TERMS:
        raise BadSetting(f"there is no term {term!r}; give (part of the decoder, part of the encoder), each of {PARTS}")
    return PARTS.index(term[0]), PARTS.index(term[1])
