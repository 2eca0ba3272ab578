"""How many texts a second can be given other attention that keeps the output? The search, and the exact solution.

1,000 made-up texts of 20 words, the classifier of tutek2020 with random weights, batches of 250, one thread, processor
time. The search is that of Jain and Wallace (2019): 5 starts, 500 steps. A report: there is no peer that does both.
"""

import json
import time

import torch

from attnscope.models import ClassifierSettings, build
from attnscope.probes.adversary import exact_adversaries, search_adversaries
from attnscope.tasks import SPECIALS, Batch

TEXTS, LENGTH, WORDS, TOGETHER = 1000, 20, 15_000, 250
SETTINGS = ClassifierSettings(input_size=300, units=150, hidden=150, attention="additive")


def main() -> dict[str, float]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build(SETTINGS, WORDS, len(SPECIALS) + 2)
    source = torch.randint(len(SPECIALS), WORDS, (TEXTS, LENGTH))
    target = torch.randint(0, 2, (TEXTS, 1)) + len(SPECIALS)
    pairs = zip(source.split(TOGETHER), target.split(TOGETHER), strict=True)
    batches = [
        Batch(x, torch.ones_like(x, dtype=torch.bool), y, torch.ones_like(y, dtype=torch.bool)) for x, y in pairs
    ]
    found = {}
    for name, ask in {"search": search_adversaries, "exact": exact_adversaries}.items():
        start = time.process_time()
        ask(model, batches)
        found[f"{name}, texts a processor second"] = TEXTS / (time.process_time() - start)
    return found


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
