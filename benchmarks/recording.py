"""What does it cost to record a Hugging Face model's cross-attention, beside a plain pass that returns attentions?

A model of Marian's size with random weights (6 layers a side, 8 heads, states of 512, 58,101 words), 16 sentences of up
to 30 pieces each way. Ours gives a Trace: queries, keys, values, alignment and weights of every cross-attention layer
and head, states, context and logits. The peer is the library's own forward pass with eager attention and
output_attentions=True. Weights and logits are compared before anything is timed; passes are timed in turns, on one
thread (processor time) and on two (wall time, for a machine with nothing else to do).
"""

import json
import time
from copy import deepcopy
from statistics import median
from typing import Any

import torch
from torch import Tensor

from attnscope.models.adapters import HFEncoderDecoder, TargetIds, TranslationReader
from attnscope.tasks import SPECIALS, Batch

SENTENCES, LONGEST, WORDS, ROUNDS = 16, 30, 58_101, 9
GOAL = 1.2  # times the plain pass, at most


class Silent:
    """In the place of a tokenizer, which is not timed."""


def marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    # Marian's sizes, as published: transformer-align of OPUS-MT
    layers = {"encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "d_model": 512, "scale_embedding": True}
    ids = {"vocab_size": WORDS, "pad_token_id": WORDS - 1, "eos_token_id": 0, "decoder_start_token_id": WORDS - 1}
    return MarianMTModel(MarianConfig(**layers, **heads, **ids)).eval()


def sentences() -> Batch:
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (2, SENTENCES))
    lengths[:, 0] = LONGEST
    masks = torch.arange(LONGEST) < lengths[..., None]
    words = torch.randint(len(SPECIALS), WORDS, masks.shape) * masks
    return Batch(words[0], masks[0], words[1], masks[1])


def compare(model: Any, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    target_ids = TargetIds(WORDS, padding=WORDS - 1, end=0, start=None)
    ours = HFEncoderDecoder(model, TranslationReader(Silent(), model, WORDS, LONGEST, target_ids))
    peer, batch = deepcopy(model), sentences()
    peer.set_attn_implementation("eager")
    ids = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
    said = {"decoder_input_ids": ours.decoder_input_ids(ours(batch).decoder_input), "use_cache": False}

    def plain() -> tuple[Tensor, tuple[Tensor, ...]]:
        output = peer(**ids, **said, output_attentions=True)
        return output.logits, output.cross_attentions

    def recorded() -> tuple[Tensor, tuple[Tensor, ...]]:
        trace = ours(batch)
        return trace.logits, tuple(layer.weights for layer in trace.layers)

    sides = {"plain": plain, "recorded": recorded}
    logits, weights = plain()
    torch.testing.assert_close(recorded(), (target_ids.reorder(logits), weights), rtol=1e-4, atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):  # in turns, so that a busy machine slows both
        for name, side in sides.items():
            start = clock()
            side()
            times[name].append(clock() - start)
    took = {name: median(found) for name, found in times.items()}
    return {f"{name}, s a pass": seconds for name, seconds in took.items()} | {
        "times the plain pass": took["recorded"] / took["plain"], "goal": GOAL,
    }  # fmt: skip


@torch.no_grad()
def main() -> dict[str, dict[str, float]]:
    model = marian()
    return {f"threads: {threads}": compare(model, threads) for threads in (1, 2)}


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
