"""What does taking a model apart cost, beside asking it at all, and does its memory stay flat?

    python benchmarks/decomposition.py            100,000 sequences of length 20, 128 units, one thread
    python benchmarks/decomposition.py 10000      fewer

Time is a ratio: decompose() (two passes: fit and measure) over two passes of the model alone, in turns in this process,
in processor seconds, the best of several rounds each. Memory is the peak of a fresh process that takes a tenth of the
sequences apart, and of one that takes all.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attnscope.models import PRESETS, EncoderDecoder
from attnscope.models.capabilities import TEACHER_FORCING, Decoding
from attnscope.probes.decomposition import decompose
from attnscope.tasks import Batch, OneToOne

SEQUENCES, BATCH, ROUNDS = 100_000, 128, 5
TASK = OneToOne(min_length=19, max_length=19)  # 19 letters and the end token
GOAL_TIME, GOAL_MEMORY = 1.5, 1.1  # at most: times the passes alone; times the peak at a tenth of the sequences


def make_model() -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(PRESETS["aed"], len(TASK.source_vocabulary), len(TASK.target_vocabulary)).eval()


def stream(sequences: int) -> Iterator[Batch]:
    """Fresh sentences, made as they are asked for, so that they are never all in memory."""
    for step in range(-(-sequences // BATCH)):
        yield TASK.training_batch(seed=0, step=step, size=min(BATCH, sequences - step * BATCH))


@torch.no_grad()
def forward_alone(model: EncoderDecoder, batches: list[Batch], decoding: Decoding) -> None:
    for _ in range(2):
        for batch in batches:
            model(batch, teacher_forcing=TEACHER_FORCING[decoding])


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def time_ratio(sequences: int, decoding: Decoding) -> dict[str, float]:
    model, batches = make_model(), list(stream(sequences // ROUNDS))
    alone, whole = (partial(call, model, batches, decoding=decoding) for call in (forward_alone, decompose))
    rounds = [(seconds(alone), seconds(whole)) for _ in range(ROUNDS)]
    bare, taken = (ROUNDS * min(times) for times in zip(*rounds, strict=True))
    return {"alone_s": bare, "decompose_s": taken, "ratio": taken / bare}


def peak_mib(sequences: int) -> float:
    """The most memory that a process of its own held while it took this many sequences apart."""
    code = f"from decomposition import measure_peak; measure_peak({sequences})"
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=here, check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure_peak(sequences: int) -> None:
    torch.set_num_threads(1)
    decompose(make_model(), partial(stream, sequences))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main(sequences: int = SEQUENCES) -> dict[str, Any]:
    torch.set_num_threads(1)
    tenth, whole = peak_mib(sequences // 10), peak_mib(sequences)
    result = {
        "sequences": sequences,
        "teacher forcing": time_ratio(sequences, "teacher_forced"),
        "greedy decoding": time_ratio(sequences, "greedy"),
        "peak_mib": {"tenth": tenth, "whole": whole, "ratio": whole / tenth},
    }
    result["goals met"] = {
        "time": result["teacher forcing"]["ratio"] <= GOAL_TIME and result["greedy decoding"]["ratio"] <= GOAL_TIME,
        "memory": whole / tenth <= GOAL_MEMORY,
    }
    return result


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:])), indent=2))
