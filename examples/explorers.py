"""The explorers of the results site: five small networks, trained here on sentences of our own, as static pages.

    python examples/explorers.py results/explorers           all of them, about ten minutes on two cores
    python examples/explorers.py results/explorers language  one of them

Each page is one file. Those of hiding, copying and one-to-one can be edited live; the Transformers' pages hold the
output for the attention of their buttons.
"""

import itertools
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import attnscope
from attnscope.explorer import Explorer
from attnscope.lab.experiment import Experiment, Run, train
from attnscope.lab.store import Store
from attnscope.models import PRESETS, ClassifierSettings
from attnscope.tasks import Classification, Copying, Splits, Words
from attnscope.training import CrossEntropy, Hiding, TrainingSettings, Tying

GOOD = ["wonderful", "charming", "moving", "funny", "clever", "brilliant", "warm", "gripping"]
BAD = ["dull", "tedious", "clumsy", "shallow", "awful", "bland", "boring", "lifeless"]
FRAMES = [
    "the {noun} of this film is {word} and the rest is fine", "a {word} {noun} from the first scene to the last",
    "we went to see it with friends and found the {noun} {word}", "the {noun} by the young director is {word}",
    "i had read the book and the {noun} still felt {word}", "two hours later i remember a {word} {noun} and the music",
]  # fmt: skip
NOUNS = ["story", "plot", "ending", "dialogue", "cast", "script", "picture", "comedy"]


def reviews() -> Iterator[dict[str, object]]:
    """Sentences about films, of which one word tells the class."""
    for frame, noun, (label, word) in itertools.product(
        FRAMES, NOUNS, [*(("positive", word) for word in GOOD), *(("negative", word) for word in BAD)]
    ):
        yield {"text": frame.format(noun=noun, word=word), "label": label}


def hiding(folder: Path) -> Explorer:
    """A classifier that is trained to keep its attention off the words that it uses, beside one tied to its words."""
    rows = list(reviews())
    random.Random(0).shuffle(rows)
    corpus = folder / "reviews.jsonl"
    corpus.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = Classification(
        file=str(corpus), vocabulary=Words(min_count=1), splits=Splits(validation_share=0.15, test_share=0.15)
    )
    settings = ClassifierSettings(
        input_size=32, units=16, hidden=16, attention="additive", specials_attended=False
    )  # start and end are read, but not attended to, as in tutek2020
    base = Experiment(task, settings, TrainingSettings(steps=400, batch_size=32, learning_rate=5e-3))
    hidden = tuple(task.resolved().source_vocabulary.ids[word] for word in (*GOOD, *BAD))
    runs = [
        train(one, Store(folder / "runs"))
        for one in (replace(base, objective=CrossEntropy() + more) for more in (Hiding(1.0, hidden), Tying(0.1)))
    ]
    print("accuracy:", [round(run.summary["word_accuracy"], 3) for run in runs])
    return explore_audited(*runs, names=("hiding", "tied to words"))


def copying(folder: Path) -> Explorer:
    """Copying is learned late from permutations, and early from words that are sampled anew (snell2021 §3.3)."""
    network = replace(PRESETS["copying"], units=64, input_size=64, hidden=None)  # a linear readout, as in A.1
    steps = (0, 50, 100, 200, 300, 400)
    settings = TrainingSettings(
        steps=400, batch_size=64, learning_rate=2e-3, betas=(0.9, 0.999), max_grad_norm=None, teacher_forcing=1.0,
        evaluate_every=20, checkpoints=steps, decoding="teacher_forced",
    )  # fmt: skip
    runs = [
        train(Experiment(Copying(64, kind, words, 12), network, settings), Store(folder / "runs"))
        for kind, words in (("permutations", 12), ("sampled", 36))
    ]
    return explore_audited(*runs, names=("permutations", "control"))


def one_to_one(folder: Path) -> Explorer:
    """An encoder-decoder with attention on one-to-one translation (aitken2021 figure 2)."""
    task = attnscope.TASKS["one_to_one"](num_words=3, min_length=8, max_length=10, test_size=100)
    steps = (0, 10, 20, 30, 40, 60, 80, 100, 150, 200, 300)
    settings = TrainingSettings(steps=300, batch_size=64, evaluate_every=10, checkpoints=steps)
    run = train(Experiment(task, attnscope.MODELS["aed"], settings), Store(folder / "runs"))
    return explore_audited(run, names=("one-to-one",))


def explore_audited(run: Run, against: Run | None = None, names: tuple[str, ...] = ()) -> Explorer:
    """Return an explorer of one or two runs with their quick audits."""
    reports = [attnscope.audit(one, quick=True) for one in (run, against) if one is not None]
    audits = {"audit": reports[0], "audit_against": reports[-1]}
    return attnscope.explore(run, against=against, names=names, **audits)


# Transformers --------------------------------------------------------------------------------------------------------

ENGLISH = {
    "det": ["the", "a"], "adj": ["small", "old", "young", "quiet"], "noun": ["dog", "cat", "horse", "child"],
    "verb": ["sees", "hears", "finds", "follows"], "adverb": ["today", "often", "here", "never"],
}  # fmt: skip
GERMAN = {
    "small": "kleine", "old": "alte", "young": "junge", "quiet": "ruhige", "dog": "hund", "cat": "katze",
    "horse": "pferd", "child": "kind", "sees": "sieht", "hears": "hört", "finds": "findet", "follows": "verfolgt",
    "today": "heute", "often": "oft", "here": "hier", "never": "nie",
}  # fmt: skip
ARTICLES = {  # of subject and object, definite and indefinite
    "dog": (("der", "den"), ("ein", "einen")), "cat": (("die", "die"), ("eine", "eine")),
    "horse": (("das", "das"), ("ein", "ein")), "child": (("das", "das"), ("ein", "ein")),
}  # fmt: skip


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """English sentences and their translations, in which the adverb moves and articles agree with their noun."""
    chance, found = random.Random(seed), []
    for _ in range(count):
        word = {name: chance.choice(words) for name, words in ENGLISH.items()}
        subject, goal = chance.sample(ENGLISH["noun"], 2)
        articles = [chance.randrange(2), chance.randrange(2)]
        english = ENGLISH["det"][articles[0]], subject, word["verb"], ENGLISH["det"][articles[1]], goal, word["adverb"]
        german = [
            ARTICLES[subject][articles[0]][0], GERMAN[subject], GERMAN[word["verb"]], GERMAN[word["adverb"]],
            ARTICLES[goal][articles[1]][1], GERMAN[goal],
        ]  # fmt: skip
        found.append((" ".join(english), " ".join(german)))
    return found


def tokenizer_of(texts: list[str], end: bool) -> Any:
    words = sorted({word for text in texts for word in text.split()})
    ids = {word: i for i, word in enumerate(["</s>", "<unk>", "<pad>", *words])}
    made = Tokenizer(models.WordLevel(ids, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if end:
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=32
    )


def fitted(model: Any, batches: Callable[[int], dict[str, Any]], steps: int) -> Any:
    """Train with Adam on fresh batches, and print the last loss."""
    adam = torch.optim.Adam(model.parameters(), 2e-3)
    model.train()
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 50)
        loss = model(**batches(step)).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
    print(f"loss after {steps} steps: {loss.item():.3f}")
    return model.eval()


def translator(folder: Path) -> Explorer:
    """A Marian of two and two layers, on English and German sentences of our own."""
    given = pairs(4000, 0)
    tokenizer = tokenizer_of([text for pair in given for text in pair], end=True)
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer), d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=32, pad_token_id=2,
        eos_token_id=0, decoder_start_token_id=2, forced_eos_token_id=None, scale_embedding=True, dropout=0.0,
    )  # fmt: skip
    torch.manual_seed(0)

    def batch(step: int) -> dict[str, Any]:
        some = given[step * 64 % 3900 :][:64]
        source = tokenizer([one for one, _ in some], return_tensors="pt", padding=True)
        target = tokenizer([other for _, other in some], return_tensors="pt", padding=True)["input_ids"]
        labels = target.masked_fill(target == 2, -100)
        return {"input_ids": source["input_ids"], "attention_mask": source["attention_mask"], "labels": labels}

    model = fitted(transformers.MarianMTModel(config), batch, 500)
    loaded = attnscope.load(model, tokenizer=tokenizer)
    test = pairs(40, 1)
    report = attnscope.audit(loaded, test, quick=True)
    return attnscope.explore(loaded, test, audit=report, names=("English to German",))


def language(folder: Path) -> Explorer:
    """A GPT-2 of two layers and four heads, on the same English sentences."""
    given = [f"{one} . {two} ." for (one, _), (two, _) in zip(pairs(4000, 0), pairs(4000, 2), strict=True)]
    tokenizer = tokenizer_of(given, end=False)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=32, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
        pad_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    torch.manual_seed(0)

    def batch(step: int) -> dict[str, Any]:
        ids = tokenizer(given[step * 64 % 3900 :][:64], return_tensors="pt", padding=True)["input_ids"]
        return {"input_ids": ids, "labels": ids.masked_fill(ids == 2, -100)}

    model = fitted(transformers.GPT2LMHeadModel(config), batch, 300)
    loaded = attnscope.load(model, tokenizer=tokenizer)
    test = [text for text, _ in pairs(40, 1)]
    return attnscope.explore(loaded, test, audit=attnscope.audit(loaded, test, quick=True), names=("a small GPT-2",))


EXPLORERS: dict[str, tuple[Callable[[Path], Explorer], int]] = {  # with the number of texts on the page
    "hiding": (hiding, 12), "copying": (copying, 2), "one-to-one": (one_to_one, 4), "translator": (translator, 3),
    "language": (language, 4),
}  # fmt: skip


def main(out: str, *names: str) -> None:
    torch.set_num_threads(1)
    for name in names or EXPLORERS:
        make, texts = EXPLORERS[name]
        with tempfile.TemporaryDirectory() as folder:
            explorer = replace(make(Path(folder)), title=str(make.__doc__).rstrip("."))
            print(explorer.save(Path(out) / f"{name}.html", texts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
