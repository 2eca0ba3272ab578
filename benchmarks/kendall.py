"""What does Kendall's τ of many rows cost, beside scipy.stats.kendalltau in a loop?

    python benchmarks/kendall.py              100,000 rows of 40, one thread
    python benchmarks/kendall.py 10000        fewer

Processor seconds in one process, the best of several rounds each, in turns. The loop runs over the first rows only, and
its time is scaled up: it grows with the rows. Both answers are compared before anything is timed.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import kendalltau

from attnscope.probes.agreement import kendall

ROWS, PLACES, LOOPED, ROUNDS = 100_000, 40, 2_000, 3
GOAL = 100.0  # at least this many times faster than the loop


def loop(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array([kendalltau(a, b).statistic for a, b in zip(x, y, strict=True)])


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main(rows: int = ROWS) -> dict[str, float | bool]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(rows, PLACES), torch.randn(rows, PLACES).mul(4).round()  # the second has ties
    few = [values[:LOOPED].numpy() for values in (x, y)]
    np.testing.assert_allclose(kendall(x, y)[:LOOPED].numpy(), loop(*few), rtol=0, atol=1e-15)
    times = [(seconds(lambda: kendall(x, y)), seconds(lambda: loop(*few))) for _ in range(ROUNDS)]
    ours, theirs = (min(column) for column in zip(*times, strict=True))
    theirs *= rows / len(few[0])
    result = {"rows": rows, "kendall_s": ours, "scipy_loop_s": theirs, "ratio": theirs / ours}
    result |= {"goal": GOAL, "goal met": theirs / ours >= GOAL}
    return result


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:])), indent=2))
