"""How long does the explorer take from a dragged bar to the new output, measured in the browser?

A text of 32 tokens; the bar of the last layer (all heads), and of the first layer, where every later layer runs again.
The models have random weights: a classifier of DistilBERT's shape (6 layers, 12 heads, states of 768), a BiLSTM
(tutek2020's sizes: states of 150 a direction), whose output the page computes itself, and a Marian of 6 + 6 layers of
width 256. The time runs from the pointer's move to the moment at which the new probabilities stand on the page.
"""

import shutil
import threading
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import torch
import transformers
from playwright.sync_api import Page, sync_playwright
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import attnscope
from attnscope.explorer import Explorer
from attnscope.explorer.passage import read_batch
from attnscope.explorer.server import Server
from attnscope.models import ClassifierSettings, build
from attnscope.models.adapters import WordReader

TOKENS, DRAGS = 32, 30
GOALS = {"distilbert": 100, "bilstm": 100, "marian": 300}  # milliseconds, the median
WORDS = [f"w{i}" for i in range(1000)]
WATCH = """() => { window.times = []; let begun = 0;
  document.addEventListener("pointermove", () => { begun = performance.now(); }, true);
  new MutationObserver(() => { if (begun) { window.times.push(performance.now() - begun); begun = 0; } })
    .observe(document.querySelector(".outcome"), { subtree: true, childList: true, attributes: true });
}"""


def tokenizer(around: str) -> Any:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["</s>", "<unk>", "<pad>", *WORDS])}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single=around, special_tokens=[("</s>", 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, cls_token="</s>", sep_token="</s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>", model_max_length=64,
    )  # fmt: skip


def distilbert() -> Explorer:
    config = transformers.DistilBertConfig(vocab_size=len(WORDS) + 3, pad_token_id=2)
    model = transformers.DistilBertForSequenceClassification(config)
    return attnscope.explore(attnscope.load(model, tokenizer=tokenizer("</s> $A </s>")), [text(TOKENS - 2)], audit=None)


def bilstm() -> Explorer:
    module = build(ClassifierSettings(input_size=300, units=150, hidden=150), len(WORDS) + 3, 5)
    reader = WordReader(("<pad>", "<end>", "<start>", *WORDS), classes=("no", "yes"))
    return attnscope.explore(attnscope.load(module, tokenizer=reader), [text(TOKENS)], audit=None)


def marian() -> Explorer:
    config = transformers.MarianConfig(
        vocab_size=len(WORDS) + 3, d_model=256, encoder_layers=6, decoder_layers=6, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_position_embeddings=64,
        pad_token_id=2, eos_token_id=0, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    loaded = attnscope.load(transformers.MarianMTModel(config), tokenizer=tokenizer("$A </s>"))
    return attnscope.explore(loaded, [text(TOKENS - 1)], audit=None)


def text(words: int) -> str:
    return " ".join(WORDS[i * 7 % len(WORDS)] for i in range(words))


def latencies(page: Page, layer: int | None) -> list[float]:
    """Drag a bar in small moves, each after the last one's output has come; milliseconds from move to output."""
    if layer is not None:
        page.get_by_label("Layer").select_option(str(layer))
    box = page.locator(".token").nth(3).locator(".track").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 4
    page.evaluate(WATCH)
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(DRAGS):
        page.mouse.move(x, y - 4 - 2 * (step % 20))
        page.wait_for_function("count => window.times.length >= count", arg=step + 1)
    page.mouse.up()
    times: list[float] = page.evaluate("window.times")
    return times[2:DRAGS]


def measure(page: Page, explorer: Explorer, layer: int | None) -> dict[str, float]:
    server = Server(explorer.session)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        page.goto(server.address)
        page.wait_for_selector(".token", timeout=300_000)
        page.wait_for_selector("[data-tau='β']", timeout=300_000)
        page.wait_for_timeout(1000)
        times = latencies(page, layer)
    finally:
        page.goto("about:blank")
        server.stop()
        thread.join(20)
    one_pass = pass_time(explorer)
    return {
        "median ms": round(median(times), 1), "90 % ms": round(quantiles(times, n=10)[-1], 1),
        "pass ms": round(one_pass, 1), "in passes": round(median(times) / one_pass, 2),
    }  # fmt: skip


def pass_time(explorer: Explorer) -> float:
    """Return the median time in milliseconds of a whole pass of the model, to which a busy machine adds as much."""
    model = explorer.session.models[0]
    batch, times = model.read(0, None).batch, []
    for _ in range(12):
        begun = perf_counter()
        read_batch(model.loaded, batch)
        times.append(1000 * (perf_counter() - begun))
    return median(times)


def main() -> dict[str, object]:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    found: dict[str, object] = {}
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        for make, layers in ((bilstm, (None,)), (distilbert, (5, 0)), (marian, (5, 0))):
            explorer = make()
            for layer in layers:
                name = make.__name__ + ("" if layer is None else f", layer {layer}")
                found[name] = measure(page, explorer, layer) | {"goal ms": GOALS[make.__name__]}
        browser.close()
    return found
