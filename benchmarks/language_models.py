"""What does it cost to record attention of a language model, and to measure its heads over long texts?

A model of GPT-2's size with random weights (12 layers, 12 heads, states of 768, 50,257 tokens).

- Rows: one text of 512 tokens, the last row of one layer, beside the model's own pass with fused attention (sdpa), both
  with the logits of the last token; and all rows of all layers, beside eager attention with output_attentions=True,
  both with all logits. Weights are compared before anything is timed; passes are timed in turns, on one thread.
- Statistics: head statistics over one text, a block of rows at a time, beside the pass with sdpa alone, and eager
  attention with output_attentions=True; each in a process of its own, for its peak memory, on two threads. A process
  that would take more than ROOM, or than the machine has left, ends by itself, and the table says so. Times are
  compared by CPU seconds.

    python -m benchmarks.language_models              rows, and statistics of 1,024 tokens
    python -m benchmarks.language_models 4096 8192    statistics of texts of this length; minutes each
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from attnscope.models.adapters import HFLanguageModel, LanguageReader, TargetIds
from attnscope.models.adapters.recording import Recorder
from attnscope.probes.language import head_statistics
from attnscope.tasks import Batch

TOKENS, ROUNDS = 50_257, 7
GOAL = 1.2  # times the pass of the peer, at most
SIDES = ("statistics", "sdpa", "output_attentions")
ROOM = 22e9  # bytes that one process may take: nearly all of a machine with 24 GB


class Silent:
    """In the place of a tokenizer, which is not timed."""


def gpt2(positions: int, implementation: str = "sdpa") -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_positions=positions, attn_implementation=implementation)
    return GPT2LMHeadModel(config).eval()


def adapted(model: Any, length: int) -> HFLanguageModel:
    target = TargetIds(TOKENS, padding=None, end=TOKENS - 1, start=None)
    return HFLanguageModel(model, LanguageReader(Silent(), model, TOKENS, length, target))


def text(length: int) -> Batch:
    ids = torch.randint(3, TOKENS - 1, (1, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    return Batch(ids, mask, ids.roll(-1, 1), mask.clone())


def in_turns(sides: dict[str, Callable[[], object]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):  # in turns, so that a busy machine slows both
        for name, side in sides.items():
            start = time.process_time()
            side()
            times[name].append(time.process_time() - start)
    return {name: median(found) for name, found in times.items()}


def rows(length: int = 512, layer: int = 5) -> dict[str, float]:
    """Seconds of each pass, and the two ratios."""
    torch.set_num_threads(1)
    model, eager, batch = gpt2(length), gpt2(length, "eager"), text(length)
    eager.load_state_dict(model.state_dict())
    ours = adapted(model, length)
    last = Batch(batch.source, batch.source_mask, batch.target[:, -1:], batch.target_mask[:, -1:])

    def one_row() -> Any:
        recorder = ours.recorder(last, None)
        recorder.recorded_layers = [layer]
        return ours.record(last, recorder)

    def whole() -> Any:
        return ours.record(batch, Recorder(ours.family.modules, None))

    def plain() -> Any:
        return model(input_ids=batch.source, use_cache=False, logits_to_keep=1)

    def matrices() -> Any:
        return eager(input_ids=batch.source, use_cache=False, output_attentions=True)

    expected = matrices()
    torch.testing.assert_close(one_row().attention, expected.attentions[layer][:, :, -1:], rtol=1e-4, atol=1e-5)
    for ours_, theirs in zip(whole().layers, expected.attentions, strict=True):
        torch.testing.assert_close(ours_.weights, theirs, rtol=1e-4, atol=1e-5)
    took = in_turns({"one row of one layer": one_row, "sdpa": plain, "all layers": whole, "eager": matrices})
    return {f"{name}, s a pass": seconds for name, seconds in took.items()} | {
        "one row of one layer, times sdpa": took["one row of one layer"] / took["sdpa"],
        "all layers, times eager": took["all layers"] / took["eager"], "goal": GOAL,
    }  # fmt: skip


def status(file: str, name: str) -> float:
    """A size that the kernel reports, in MB (Linux)."""
    (line,) = [line for line in Path(file).read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024 / 1e6


def peak() -> float:
    """The largest memory of this process so far, in MB."""
    return status("/proc/self/status", "VmHWM")


def side(name: str, length: int) -> dict[str, float]:
    """One side of the comparison, in this process: seconds, and peak memory before and after the pass, in MB."""
    torch.set_num_threads(2)
    room = int(min(ROOM, 1e6 * status("/proc/meminfo", "MemAvailable") - 1e9))
    resource.setrlimit(resource.RLIMIT_DATA, (room, room))
    model, batch = gpt2(length, "eager" if name == "output_attentions" else "sdpa"), text(length)
    before = peak()
    start, worked = time.perf_counter(), time.process_time()
    try:
        if name == "statistics":
            head_statistics(adapted(model, length), batch)
        else:
            model.base_model(input_ids=batch.source, use_cache=False, output_attentions=name == "output_attentions")
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        return {"out of memory within MB": room / 1e6, "peak MB": peak()}
    return {
        "seconds": time.perf_counter() - start, "CPU seconds": time.process_time() - worked, "MB before": before,
        "peak MB": peak(),
    }  # fmt: skip


def statistics(length: int) -> dict[str, Any]:
    """All sides, each in a process of its own, and ratios; matrices of 12 layers and 12 heads need 576 T² bytes."""
    found: dict[str, Any] = {"matrices alone, MB": 576 * length**2 / 1e6}
    for name in SIDES:
        command = [sys.executable, "-m", "benchmarks.language_models", name, str(length)]
        done = subprocess.run(command, capture_output=True, text=True)
        found[name] = json.loads(done.stdout) if done.returncode == 0 else {"ended with": done.returncode}
    worked = {name: found[name].get("CPU seconds") for name in SIDES}
    for other in SIDES[1:]:
        if worked["statistics"] and worked[other]:
            found[f"statistics, times {other}"] = worked["statistics"] / worked[other]
    return found


@torch.no_grad()
def main(lengths: tuple[int, ...] = (1024,)) -> dict[str, Any]:
    return {"rows": rows()} | {f"statistics, {length} tokens": statistics(length) for length in lengths}


if __name__ == "__main__":
    with torch.no_grad():
        if sys.argv[1:2] and sys.argv[1] in SIDES:
            print(json.dumps(side(sys.argv[1], int(sys.argv[2]))))
        elif sys.argv[1:]:
            print(json.dumps({length: statistics(int(length)) for length in sys.argv[1:]}, indent=2))
        else:
            print(json.dumps(main(), indent=2))
