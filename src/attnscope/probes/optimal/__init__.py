"""Which attention would minimise the loss? (snell2021 A.1)"""

from attnscope.probes.optimal.attention import OptimalAttention, optimal
from attnscope.probes.optimal.interior_point import minimise
from attnscope.probes.optimal.problem import Problem, as_problem

__all__ = ["OptimalAttention", "Problem", "as_problem", "minimise", "optimal"]
