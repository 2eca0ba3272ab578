"""Two small language models, trained from nothing with the library transformers, measured as they learn, and audited.

    python examples/train_language_models.py WORK RESULTS --data DATA --minutes 9

trains models of 13 million parameters (6 layers, width 384) and is meant for a GPU. It stops after so many minutes, and
the same command, with the same WORK and RESULTS, goes on from there, on a CPU to the same numbers: repeat it until it
says that everything is done. A run that is killed loses a minute at most. With RESULTS.tar.gz instead of RESULTS, the
results are one file. With --weights FOLDER the trained weights are also written there, in half precision and in files
below 15 MB; beside the files of RESULTS/MODEL/model they make a model that `attnscope.load` reads. On a CPU, two models
of 0.7 million parameters take minutes each with one thread:

    python examples/train_language_models.py WORK RESULTS --data DATA --minutes 55 --name like-0.7m --layers 2 \\
        --width 128 --heads 4 --pieces 2048 --context 128 --batch 8 --steps 3000 --rate 2e-3 --max-texts 15000 \\
        --audit-minutes 1.5 --decisions 64 --layer-decisions 32

`gpt2` has learned positions, `llama` rotary positions and grouped queries. Both learn one tokenizer from the texts of
DATA (files .jsonl.gz with `text`, in those folders of CORPORA that are there), by default $ATTNSCOPE_DATA, and read the
questions below among them. On a GPU both are trained at the same time, in bfloat16 (on a CPU with --precision bf16);
everything is measured in single precision. WORK holds weights and token ids. RESULTS gets small files, for each model:

    curves.csv      perplexity and what AttentionMonitor measures, one row per checkpoint (`attnscope report RESULTS`)
    heads.csv       statistics, shares of position and words of every head, one row per checkpoint, layer and head
    kinds.csv       heads that look like a kind on repeated random tokens, and the loss without them, by checkpoint
    kinds-on-texts.csv  the same on held-out texts, after the last checkpoint
    lexical.csv     agreement of attention with the lexical probe, by checkpoint and layer, with and without the sink
    maps.csv        the attention of the best head of each kind on one sentence, after the last checkpoint
    answers.csv     accuracy on three sets of prompts, beside the share of the commonest answer
    settings.json   sizes, steps, numbers of tokens and parameters
    model/          tokenizer and configuration, with --weights
    audits/         audits of `words`, and of those questions that are answered better than by the commonest answer

The sets: the next word of held-out texts (`words`); the topic of held-out news, a question about AG News (`news`); and
which box somebody has, in sentences that are made up (`facts`, synthetic).
"""

import argparse
import copy
import gzip
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy

import attnscope
from attnscope.files import write_atomically
from attnscope.models.attention import up_to
from attnscope.models.inference import traces
from attnscope.monitoring import MEASURES, AttentionMonitor
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.language import head_kinds, head_statistics, losses, repeated_tokens
from attnscope.probes.lexical import lexical_scores_at
from attnscope.probes.positions import position_shares
from attnscope.probes.scores import attention_scores
from attnscope.tasks import Batch

KINDS = ("gpt2", "llama")
CORPORA = ("imdb", "amazon_reviews", "ag_news", "eraser_movies", "20newsgroups_sports")
END_OF_TEXT = "<|endoftext|>"
CHECKPOINTS = 18
SENTENCE = "The old captain looked at the sea . The young captain looked at the old captain and the young"
TOPICS = {"World": "World", "Sports": "Sports", "Business": "Business", "Sci/Tech": "Technology"}
PEOPLE = ["Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo"]
COLOURS = ["red", "green", "blue", "black", "white", "brown", "golden", "silver"]
HELD_OUT = 50  # one text in so many
SAVE_EVERY = 60.0  # seconds
SHARD = "15MB"  # the largest file of weights
SETTINGS = (
    "batch", "context", "width", "layers", "heads", "rate", "warmup", "seed", "pieces", "max_texts", "steps",
    "precision",
)  # fmt: skip

Row = dict[str, Any]


# Texts ---------------------------------------------------------------------------------------------------------------


def rows_of(folder: Path, corpora: tuple[str, ...]) -> Iterator[Row]:
    for corpus in corpora:
        for path in sorted((folder / corpus).glob("*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                yield from (row for row in map(json.loads, lines) if row.get("text"))


def news_question(row: Row) -> Row:
    parts = [str(row[name]).replace("\\", " ") for name in ("title", "text")]
    prompt = f"{' '.join(parts)}\nQuestion: What is this news about?\nAnswer:"
    return {"prompt": prompt, "answer": TOPICS[row["label"]], "parts": parts}


def made_up_question(draw: random.Random) -> Row:
    """Three sentences, and a question about one of them: synthetic."""
    people, colours = draw.sample(PEOPLE, 3), draw.sample(COLOURS, 3)
    facts = [f"{who} has a {colour} box." for who, colour in zip(people, colours, strict=True)]
    asked = draw.randrange(3)
    prompt = f"{' '.join(facts)}\nQuestion: Which box does {people[asked]} have?\nAnswer:"
    return {"prompt": prompt, "answer": colours[asked], "parts": facts}


def next_words(texts: list[str], draw: random.Random) -> Iterator[Row]:
    """The beginning of each text, from 20 to 40 words, and the word that follows."""
    for words in map(str.split, texts):
        end = draw.randint(20, 40)
        if len(words) > end and words[end].isalpha():
            yield {"prompt": " ".join(words[:end]), "answer": words[end]}


def prepare(options: argparse.Namespace) -> None:
    """Write tokenizer, token ids and prompts to the working folder, unless they are there."""
    work = Path(options.work)
    if (work / "training.npy").is_file():
        return
    work.mkdir(parents=True, exist_ok=True)
    data, draw = Path(options.data), random.Random(0)
    asked_later = {row["text"] for row in rows_of(data, ("ag_news",)) if row["split"] == "test"}
    texts = [
        str(row["text"]).replace("<br />", " ") for row in rows_of(data, CORPORA) if row["text"] not in asked_later
    ]
    if not texts:
        raise SystemExit(f"there are no texts in {data}: it should hold {', '.join(CORPORA)} with .jsonl.gz files")
    draw.shuffle(texts)
    texts = texts[: options.max_texts]
    held_out, read = texts[: len(texts) // HELD_OUT], texts[len(texts) // HELD_OUT :]
    news = [row for row in rows_of(data, ("ag_news",)) if row["label"] in TOPICS]
    asked = [news_question(row) for row in news if row["split"] == "train"]
    draw.shuffle(asked)
    asked = asked[: len(read) // 3] + [made_up_question(draw) for _ in range(len(read) // 3)]
    read += [f"{one['prompt']} {one['answer']}." for one in asked]
    draw.shuffle(read)
    tokenizer = tokenizer_of(read, options.pieces)
    tokenizer.save_pretrained(work / "tokenizer")
    tested = [news_question(row) for row in news if row["split"] == "test"]
    draw.shuffle(tested)
    known = {one["prompt"] for one in asked}
    made_up = (one for one in (made_up_question(draw) for _ in range(4000)) if one["prompt"] not in known)
    sets = {"words": next_words(held_out, draw), "news": tested, "facts": made_up}
    for name, prompts in sets.items():
        chosen = [one for one, _ in zip(prompts, range(options.prompts), strict=False)]
        (work / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in chosen), encoding="utf-8")
    for name, part in (("validation", held_out), ("training", read)):  # the training part last: it says "done"
        ids = [np.array(row, dtype=np.uint16) for row in tokenizer(part, verbose=False)["input_ids"]]
        np.save(work / "unfinished.npy", np.concatenate(ids))
        (work / "unfinished.npy").replace(work / f"{name}.npy")
        print(f"{name}: {len(part):,} texts, {sum(map(len, ids)):,} tokens", flush=True)


def tokenizer_of(texts: list[str], pieces: int) -> Any:
    """A byte-level tokenizer of the texts, which begins each text with the end of the one before."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer, trained.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces, special_tokens=[END_OF_TEXT], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    trained.train_from_iterator(texts[:20000], trainer)
    trained.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, trained.token_to_id(END_OF_TEXT))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )


def token_ids(path: Path, device: str) -> Tensor:
    return torch.from_numpy(np.load(path, allow_pickle=False).astype(np.int64)).to(device)


# Training ------------------------------------------------------------------------------------------------------------


def model_of(kind: str, tokenizer: Any, options: argparse.Namespace) -> Any:
    """A model with random weights."""
    torch.manual_seed(options.seed)
    end = tokenizer.eos_token_id
    ids = {"vocab_size": len(tokenizer), "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            n_embd=options.width, n_layer=options.layers, n_head=options.heads, n_positions=options.context,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            activation_function="gelu_pytorch_tanh", **ids,  # GPT-2's own, fused
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        hidden_size=options.width, num_hidden_layers=options.layers, num_attention_heads=options.heads,
        num_key_value_heads=options.heads // 2, intermediate_size=8 * options.width // 3,
        max_position_embeddings=options.context, tie_word_embeddings=True, **ids,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def checkpoint_steps(steps: int) -> list[int]:
    """0, and numbers of steps that grow by a constant factor.

    >>> checkpoint_steps(4000)[:6], checkpoint_steps(4000)[-1], len(checkpoint_steps(4000))
    ([0, 20, 28, 38, 53, 74], 4000, 18)
    """
    first = max(1, min(20, steps // CHECKPOINTS))
    grown = np.geomspace(first, steps, CHECKPOINTS - 1).round().astype(int).tolist()
    return [0, *sorted(set(grown))]


class Training:
    """One model, its optimizer and the step that it has reached, kept in the working folder."""

    def __init__(self, kind: str, options: argparse.Namespace):
        self.kind, self.options, self.device = kind, options, options.device
        self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(Path(options.work) / "tokenizer")
        self.ids = token_ids(Path(options.work) / "training.npy", options.device)
        self.places = torch.arange(options.context + 1, device=options.device)
        self.model = model_of(kind, self.tokenizer, options).to(options.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.1,
            fused=options.device.startswith("cuda"),
        )  # fmt: skip
        self.state = Path(options.work) / f"{kind}-{options.name}.pt"
        self.step = 0
        if self.state.is_file():
            saved = torch.load(self.state, map_location=options.device, weights_only=True)
            if saved["settings"] != self.settings():
                raise SystemExit(
                    f"{self.state} was trained with other settings: {saved['settings']}; choose another --name"
                )
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = int(saved["step"])

    def settings(self) -> dict[str, Any]:
        return {name: vars(self.options)[name] for name in SETTINGS}

    def save(self) -> None:
        content = {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
            "settings": self.settings(),
        }  # fmt: skip
        unfinished = self.state.with_suffix(".new")
        torch.save(content, unfinished)
        unfinished.replace(self.state)

    def rate(self) -> float:
        """Warm-up, then half a cosine down to a tenth."""
        warm = min(1.0, (self.step + 1) / self.options.warmup)
        return float(self.options.rate * warm * (0.55 + 0.45 * math.cos(math.pi * self.step / self.options.steps)))

    def advance(self) -> None:
        """Make one step; the parts of the text are the same whenever a run is continued."""
        context = self.options.context
        draw = np.random.default_rng((self.options.seed, self.step))
        starts = torch.from_numpy(draw.integers(0, len(self.ids) - context - 1, self.options.batch))
        part = self.ids[starts.to(self.device)[:, None] + self.places]  # a larger copy would wait for the last step
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.options.precision == "bf16"):
            logits = self.model(part[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.float().flatten(0, 1), part[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1


# Measures ------------------------------------------------------------------------------------------------------------


class Measures:
    """What is measured at every checkpoint, and written to the folder of results."""

    def __init__(self, training: Training, folder: Path, options: argparse.Namespace):
        self.training, self.folder, self.options = training, folder, options
        self.loaded = attnscope.load(training.model, tokenizer=training.tokenizer)
        validation = token_ids(Path(options.work) / "validation.npy", options.device)
        parts = len(validation) // options.context
        self.parts = validation[: parts * options.context].view(parts, -1).clone()
        self.parts[:, 0] = training.tokenizer.bos_token_id  # as in every prompt; a head may rest on it (a sink)
        self.texts = self.whole(self.parts[:16])
        self.decisions = [self.decision(part) for part in self.parts[: options.decisions].split(32)]
        count = min(64, options.context // 2 - 1)
        self.repeated = repeated_tokens(self.loaded, length=count, count=min(16, options.decisions)).to(options.device)
        measures = [name for name in MEASURES if name != "position_shares"]  # of every head, see below
        self.monitor = AttentionMonitor(self.loaded, self.decisions, folder / "curves.csv", measures=measures)

    def whole(self, ids: Tensor) -> Batch:
        """Parts of the text as a Batch: each token is predicted from those before it."""
        mask = torch.ones_like(ids[:, 1:], dtype=torch.bool)
        target = self.loaded.reader.target.from_tokenizer(ids[:, 1:])
        return Batch(ids[:, :-1], mask, target, mask.clone(), source_special=~mask).to(self.options.device)

    def decision(self, ids: Tensor, length: int = 40) -> Batch:
        """The beginning of each part, and the token that follows."""
        batch = self.whole(ids[:, : length + 1])
        sides = {"target": batch.target[:, -1:], "target_mask": batch.target_mask[:, -1:]}
        return Batch(**batch.tensors() | sides)

    @torch.no_grad()
    def losses(self) -> dict[str, float]:
        """Validation perplexity, and the loss on random tokens and on their repetition, which only induction knows."""
        model = self.training.model
        found = []
        for part in self.parts[:128].split(16):
            logits = model(part, attention_mask=torch.ones_like(part)).logits
            found.append(float(cross_entropy(logits[:, :-1].flatten(0, 1), part[:, 1:].flatten())))
        (per_token,) = losses(self.loaded.module, [self.repeated], None)
        half = (per_token.shape[1] + 1) // 2
        return {
            "validation perplexity": math.exp(float(np.mean(found))),
            "loss, random tokens": float(per_token[:, : half - 1].mean()),
            "loss, their repetition": float(per_token[:, half:].mean()),
        }

    def measure(self) -> float:
        """Write everything about this step, and return the seconds that it took."""
        begun, step, model = time.monotonic(), self.training.step, self.training.model
        model.eval()
        shares = position_shares(self.loaded, self.decisions[0].rows(slice(16)), permutations=8).table()
        numbers = self.losses() | {f"share of {name}": float(shares[name].mean()) for name in ("position", "words")}
        numbers |= self.monitor.measure(step, **numbers)
        on_text, on_repeated = (head_statistics(self.loaded, one).table() for one in (self.texts, self.repeated))
        heads = on_text.join(on_repeated.filter(regex="induction|duplicate|previous").add_suffix(", repeated tokens"))
        heads = heads.drop(columns=heads.filter(like="if uniform").columns).assign(
            position=shares["position"].to_numpy(), words=shares["words"].to_numpy()
        )
        self.add("heads.csv", heads.reset_index())
        self.add("kinds.csv", head_kinds(self.loaded, self.repeated, top=3).table())
        self.add("lexical.csv", self.lexical_by_layer())
        model.train()
        took = time.monotonic() - begun
        print(
            f"{self.training.kind}, step {step}: perplexity {numbers['validation perplexity']:.1f}, loss on repetition "
            f"{numbers['loss, their repetition']:.2f}, largest induction {numbers['largest induction']:.2f}, A "
            f"{numbers['A(α, β)']:.2f}, measured in {took:.1f} s", flush=True,
        )  # fmt: skip
        return took

    def lexical_by_layer(self) -> pd.DataFrame:
        """Agreement of each layer's attention with the lexical probe of that layer."""
        rows, module = [], self.loaded.module
        few = self.decisions[0].rows(slice(self.options.layer_decisions))
        for layer in range(len(module.attending_blocks)):
            totals = {sink: AgreementAccumulator() for sink in (True, False)}
            for _, trace in traces(self.loaded, few):
                scores = attention_scores(up_to(trace, layer)).values, lexical_scores_at(module, trace, layer).values
                for sink, total in totals.items():
                    total.update(*scores, trace if sink else trace.without_sink())
            for sink, total in totals.items():
                found = total.result()
                rows.append({"layer": layer, "sink": sink, "A": found.top, "chance": found.chance, "τ": found.kendall})
        return pd.DataFrame(rows)

    def add(self, name: str, table: pd.DataFrame) -> None:
        """Add the rows of this step to a file, from which later steps of an interrupted run are dropped."""
        path, step = self.folder / name, self.training.step
        known = pd.read_csv(path) if path.is_file() else pd.DataFrame({"step": []})
        rows = (
            pd.concat([known[known["step"] < step], table.assign(step=step)]) if len(known) else table.assign(step=step)
        )
        write_atomically(path, rows.to_csv(index=False, float_format="%.5g").encode())

    def finish(self) -> None:
        """Write kinds of heads on texts, and the attention of the best head of each kind on one sentence."""
        on_texts = head_kinds(self.loaded, self.texts, top=3).table()
        on_texts.to_csv(self.folder / "kinds-on-texts.csv", index=False, float_format="%.5g")
        kinds = pd.read_csv(self.folder / "kinds.csv")
        best = kinds[kinds["step"] == kinds["step"].max()].groupby("kind").first()
        trace = self.loaded.trace([SENTENCE])
        table = trace.table()
        number = {block: i for i, block in enumerate(self.loaded.module.attending_blocks)}
        found = [
            table[(table["layer"] == number[row["layer"]]) & (table["head"] == row["head"])].assign(kind=kind)
            for kind, row in best.iterrows()
        ]
        pd.concat(found).drop(columns="example").to_csv(self.folder / "maps.csv", index=False, float_format="%.4g")


# Questions -----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def answered(loaded: Any, path: Path) -> dict[str, float]:
    """The share of prompts that the model goes on from as the file says, and that of the commonest answer."""
    prompts = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    right = 0
    for start in range(0, len(prompts), 50):
        some = prompts[start : start + 50]
        batch = loaded.reader.read([one["prompt"] for one in some], [one["answer"] for one in some]).batch
        found = loaded.module.logits(batch).argmax(-1)
        right += int(((found == batch.target) | ~batch.target_mask).all(1).sum())
    share, count = right / len(prompts), len(prompts)
    commonest = Counter(one["answer"] for one in prompts).most_common(1)[0][1] / count
    error = math.sqrt(max(share * (1 - share), 1 / count) / count)
    return {"prompts": count, "accuracy": share, "standard error": error, "commonest answer": commonest}


def audit_all(kind: str, folder: Path, options: argparse.Namespace, until: float) -> bool:
    """Audit next words, and questions that are answered better than by the commonest answer; is all of it done?"""
    loaded = attnscope.load(str(Path(options.work) / "models" / f"{kind}-{options.name}"), device=options.device)
    paths = [Path(options.work) / f"{name}.jsonl" for name in ("words", "news", "facts")]
    rows = [{"set": path.stem, "synthetic": path.stem == "facts", **answered(loaded, path)} for path in paths]
    for row in rows:
        better = row["accuracy"] > row["commonest answer"] + 2 * row["standard error"]
        row["audited"] = better or row["set"] == "words"
        print(f"{kind}, {row}", flush=True)
    pd.DataFrame(rows).to_csv(folder / "answers.csv", index=False, float_format="%.4g")
    for path in (path for row, path in zip(rows, paths, strict=True) if row["audited"]):
        out = folder / "audits" / path.stem
        if (out / "audit.json").is_file():
            continue
        if time.time() + 60 * options.audit_minutes > until:
            return False
        texts = path.stem == "facts"  # those of corpora are not passed on
        report = attnscope.audit(
            loaded, path, budget=options.audit_minutes, examples=texts, max_texts=options.prompts, seed=options.seed
        )
        out.mkdir(parents=True, exist_ok=True)
        report.save_tables(out)
        report.save(out / "audit.html")
        report.save(out / "audit.json")  # last: it says "done"
        print(f"{kind}, {path.stem}: {report.answer}: {report.headline}", flush=True)
    return True


def run(kind: str, options: argparse.Namespace, until: float) -> bool:
    """Train, measure and audit one model until this time; is all of it done?"""
    folder = Path(options.results) / f"{kind}-{options.name}"
    folder.mkdir(parents=True, exist_ok=True)
    if steps_done(folder) < options.steps:
        training = Training(kind, options)
        train(training, Measures(training, folder, options), until)
        if training.step == options.steps:
            save_model(training, folder, options)
        write_settings(training, folder, options)  # last: it says "done"
        if training.step < options.steps:
            print(f"{kind}: {training.step} of {options.steps} steps are done", flush=True)
            return False
        del training
    return audit_all(kind, folder, options, until)


def steps_done(folder: Path) -> int:
    settings = folder / "settings.json"
    return int(json.loads(settings.read_text())["steps_done"]) if settings.is_file() else 0


def save_model(training: Training, folder: Path, options: argparse.Namespace) -> None:
    """Save the trained model in the working folder, and in half precision, in small files, where it is asked for."""
    model = Path(options.work) / "models" / folder.name
    training.model.eval().save_pretrained(model)
    training.tokenizer.save_pretrained(model)
    if options.weights:
        half, small = copy.deepcopy(training.model).cpu().half(), folder / "model"
        half.save_pretrained(small, max_shard_size=SHARD)
        training.tokenizer.save_pretrained(small)
        (Path(options.weights) / folder.name).mkdir(parents=True, exist_ok=True)
        for shard in small.glob("*.safetensors"):
            shutil.move(shard, Path(options.weights) / folder.name / shard.name)


def train(training: Training, measures: "Measures", until: float) -> None:
    """Go on training until this time or the last step, and measure the checkpoints on the way."""
    wanted = set(checkpoint_steps(training.options.steps))
    if training.step == 0:
        measures.measure()
    training.model.train()
    saved = time.monotonic()
    while training.step < training.options.steps and time.time() < until:
        training.advance()
        if training.step in wanted:
            measures.measure()
        if training.step in wanted or time.monotonic() - saved > SAVE_EVERY:
            training.save()
            saved = time.monotonic()
    training.save()
    if training.step == training.options.steps:
        measures.finish()


def write_settings(training: Training, folder: Path, options: argparse.Namespace) -> None:
    settings = training.settings() | {
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "steps_done": training.step, "training_tokens": len(training.ids),
        "tokens_read": training.step * options.batch * options.context,
        "device": torch.cuda.get_device_name() if options.device != "cpu" else "cpu", "torch": torch.__version__,
        "transformers": transformers.__version__,
    }  # fmt: skip
    write_atomically(folder / "settings.json", (json.dumps(settings, indent=1) + "\n").encode())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", help="folder of token ids and weights")
    parser.add_argument("results", help="folder of small files; with a name that ends in .tar.gz, packed into one")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--name", default="like", help="ending of the models' names")
    parser.add_argument("--data", default=os.environ.get("ATTNSCOPE_DATA", "."))
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call; the next one goes on")
    parser.add_argument("--audit-minutes", type=float, default=2.0, help="of the audit of one set of prompts")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--pieces", type=int, default=8192, help="tokens of the tokenizer")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-texts", type=int, default=None)
    parser.add_argument("--prompts", type=int, default=500, help="of each set")
    parser.add_argument("--decisions", type=int, default=192, help="next tokens on which checkpoints are measured")
    parser.add_argument("--layer-decisions", type=int, default=48, help="... the lexical probe of every layer")
    parser.add_argument("--weights", default=None, help="folder of weights in half precision, in files below 15 MB")
    parser.add_argument("--until", type=float, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--precision", choices=("bf16", "fp32"), help="of training; bf16 on a GPU, else fp32")
    options = parser.parse_args(arguments)
    options.precision = options.precision or ("fp32" if options.device == "cpu" else "bf16")
    until = options.until or time.time() + 60 * options.minutes
    packed = Path(options.results) if options.results.endswith(".tar.gz") else None
    if packed is not None:
        options.results = str(Path(options.work) / "results")
    prepare(options)
    try:
        if len(options.kinds) == 1:
            done = run(options.kinds[0], options, until)
            print(f"{options.kinds[0]}: {'everything is done' if done else 'call again to go on'}", flush=True)
        else:
            run_each(options, until)
    finally:
        if packed is not None:
            with tarfile.open(packed, "w:gz") as archive:
                archive.add(options.results, packed.name.removesuffix(".tar.gz"))


def run_each(options: argparse.Namespace, until: float) -> None:
    """Train every kind in a process of its own: at the same time on a GPU, else one after another."""
    given = {name: value for name, value in vars(options).items() if name not in ("work", "results", "kinds", "until")}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
    together, processes = options.device != "cpu", []
    for i, kind in enumerate(options.kinds):
        now = time.time()
        end = until if together else now + (until - now) / (len(options.kinds) - i)
        command = [sys.executable, __file__, options.work, options.results, f"--until={end}", *flags, "--kinds", kind]
        processes.append(subprocess.Popen(command))
        if not together:
            processes[-1].wait()
    failed = [kind for kind, process in zip(options.kinds, processes, strict=True) if process.wait()]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
