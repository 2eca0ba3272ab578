"""Cases of the explorer, calibration, curves, audits and language models."""

from collections.abc import Callable, Iterator

from robustness.trial import Case, Place, expect_success, json_lines

Call = Callable[[Place], object]
CURVES = "step,entropy\n0,0.5\n10,0.4\n"


def command(name: str, bad: bool, *words: str | Callable[[Place], str]) -> Case:
    def run(place: Place) -> None:
        expect_success([word(place) if callable(word) else word for word in words])

    return Case(f"cli: {name}", bad, run)


def file(name: str, content: str | bytes) -> Callable[[Place], str]:
    return lambda place: place.file(name, content)


def below(name: str, content: str) -> Callable[[Place], str]:
    """The folder of a case, with a file of this name in a folder inside."""

    def made(place: Place) -> str:
        path = place.path(f"one/{name}")
        path.parent.mkdir(parents=True)
        path.write_text(content)
        return str(path.parent.parent)

    return made


def out(name: str) -> Callable[[Place], str]:
    return lambda place: str(place.path(name))


def curves() -> Iterator[Case]:
    """`report` of the numbers that a monitor wrote."""
    for number, content in enumerate(
        (
            "", "\n\n", "step\n1\n", "step,entropy\n", "entropy\n0.5\n", "step,entropy\n1,much\n", b"\xff\xfe\x00a",
            "step,entropy\n1,0.5,3,4\n", "step,entropy\nfirst,0.5\n", "step,entropy\n,0.5\n",
            "step,entropy\n1,0.5\n1,0.6\n", "step,entropy\n-5,0.5\n", "\x00",
            "step,entropy\n0.5,0.5\n",
        )
    ):  # fmt: skip
        yield command(f"report curves {number} {content!r:.50}", True, "report", file("curves.csv", content))
    yield command("report curves nowhere", True, "report", "nowhere.csv")
    yield command("report curves of a folder", True, "report", below("curves.csv", "step,entropy\n1,much\n"))
    for name in ("figure", "figure.gif", "figure.html", "texts.jsonl/figure.png"):
        yield command(f"report curves --out {name}", True, "report", file("curves.csv", CURVES), "--out", name)
    yield command("report curves", False, "report", file("curves.csv", CURVES))
    yield command("report curves of several models", False, "report", below("curves.csv", CURVES))


def audits() -> Iterator[Case]:
    """`verify` of stored audits, and `explain` and `explore` with one that was edited."""
    for content in ("", "[]", "3", "{", "{}", '{"version": 3}', '{"version": 3, "digest": "0"}', '{"version": "x"}'):
        yield command(f"verify audit {content}", True, "verify", below("audit.json", content))
    edited = '{"version": 3, "model": {"name": "bert"}, "verdict": {"answer": "yes", "headline": "h"}, "digest": "0"}'
    for words in (("explain", "bert", "a dog"), ("explore", "bert", "texts.jsonl", "--static", "none.html")):
        audit = lambda place: f"{below('audit.json', edited)(place)}/one"  # noqa: E731
        yield command(f"{words[0]} with an edited audit", True, *words, "--audit", audit)


def commands() -> Iterator[Case]:
    """The commands `explore` and `calibrate`."""
    explore = ("explore", "bert", "texts.jsonl", "--no-browser")
    for more in (
        ("--static", "page.pdf"), ("--static", "page"), ("--static", "texts.jsonl/page.html"), ("--texts", "0"),
        ("--texts", "x"), ("--port", "-1"), ("--port", "65536"), ("--port", "x"), ("--device", "tpu"),
        ("--against", "nowhere"), ("--against", ""), ("--host", "nowhere.invalid"), ("--host", "999.1.1.1"),
        ("--host", ""), ("--no-such-option",), ("more",),
    ):  # fmt: skip
        yield command(f"explore bert texts.jsonl {' '.join(more)}", True, *explore, *more)
    for words in (
        ("nowhere", "texts.jsonl"), ("bert", "nowhere.jsonl"), ("bert",), (), ("bert", "mine.py"), ("", "texts.jsonl"),
    ):  # fmt: skip
        yield command(f"explore {' '.join(words)}", True, "explore", *words, "--static", "none.html")
    yield command("explore empty file", True, "explore", "bert", file("a.jsonl", ""), "--static", "none.html")
    static = ("explore", "bert", "texts.jsonl", "--static", out("page.html"), "--texts", "1")
    yield command("explore --static", False, *static)
    yield command("explore --help", False, "explore", "--help")
    yield command("calibrate --help", False, "calibrate", "--help")
    for content in ("", "kind,seed\n", "a,b\n1,2\n", "\x00"):
        known = below("calibration.csv", content)
        broken = lambda place, known=known: f"{known(place)}/one"  # noqa: E731
        yield command(f"calibrate {content!r}", True, "calibrate", "--quick", "--out", broken)
    for more in (("--no-such-option",), ("a",), ("--quick", "3"), ("--out",), ("--out", "texts.jsonl")):
        yield command(f"calibrate {' '.join(more)}", True, "calibrate", *more)


def python_calls() -> tuple[dict[str, Call], dict[str, Call]]:
    """Calls of the monitor, of `watch`, and of `explore`."""
    import torch

    import attnscope
    from robustness.api_cases import loaded

    texts = ["a dog", "dogs"]
    layer = torch.nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, batch_first=True).eval()

    def monitor(place: Place, path: object = None, **given: object) -> attnscope.AttentionMonitor:
        return attnscope.AttentionMonitor(loaded(place), texts, path or place.path("curves.csv"), **given)

    def watched(module: object = layer, **given: object) -> object:
        with attnscope.watch(module, **given) as seen:
            layer(torch.zeros(1, 3, 8))
        return seen

    weights = torch.full((1, 2, 3, 3), 1 / 3)
    bad: dict[str, Call] = {
        f"monitor(every={value!r})": lambda p, value=value: monitor(p, every=value)
        for value in (0, -1, 1.5, "a", None, True, float("nan"))
    }
    bad |= {
        f"monitor(measures={value!r})": lambda p, value=value: monitor(p, measures=value)
        for value in (["nothing"], "entropy", [3], 3, [[]], [])
    }
    bad |= {
        "monitor(no model)": lambda p: attnscope.AttentionMonitor(None, texts, p.path("c.csv")),
        "monitor(no tokenizer)": lambda p: attnscope.AttentionMonitor(loaded(p).module.model, texts, p.path("c.csv")),
        "monitor(path=3)": lambda p: monitor(p, path=3),
        "monitor(path=folder)": lambda p: monitor(p, path=p.home),
        "monitor(path of another file)": lambda p: monitor(p, path=p.home / "texts.jsonl"),
        "monitor(path in a file)": lambda p: monitor(p, p.home / "texts.jsonl" / "c.csv", measures=["entropy"]).step(0),
        "monitor(texts=3)": lambda p: attnscope.AttentionMonitor(
            loaded(p), 3, p.path("c.csv"), measures=["entropy"]
        ).step(0),
        "monitor(no texts)": lambda p: attnscope.AttentionMonitor(
            loaded(p), [], p.path("c.csv"), measures=["entropy"]
        ).step(0),
        "monitor.step('a')": lambda p: monitor(p).step("a"),
        "monitor.step(1.5)": lambda p: monitor(p, every=1).step(1.5),
        "monitor.step(-1)": lambda p: monitor(p, every=1, measures=["entropy"]).step(-1),
        "monitor.step(None)": lambda p: monitor(p).step(None),
        "monitor.measure(loss='a')": lambda p: monitor(p, measures=["entropy"]).measure(1, loss="a"),
        "watch(3)": lambda p: watched(3),
        "watch(None)": lambda p: watched(None),
        "watch(class)": lambda p: watched(torch.nn.Linear),
        "watch(attention=3)": lambda p: watched(attention=3),
        "watch(attention='uniform')": lambda p: watched(attention="uniform"),
        "watch(attention of no module)": lambda p: watched(attention={"nothing": attnscope.uniform}),
        "watch(attention of no head)": lambda p: watched(attention={("self_attn", 9): attnscope.uniform}),
        "watch(attention of head -1)": lambda p: watched(attention={("self_attn", -1): attnscope.uniform}),
        "watch(attention of head 'a')": lambda p: watched(attention={("self_attn", "a"): attnscope.uniform}),
        "watch(attention by number)": lambda p: watched(attention={0: attnscope.uniform}),
        "watch(attention of another shape)": lambda p: watched(attention=torch.ones(5, 5)),
        "watch(attention that returns None)": lambda p: watched(attention=lambda weights, allowed: None),
        "watch(attention NaN)": lambda p: watched(attention=weights * float("nan")),
        "watch(rows=3)": lambda p: watched(rows=3),
        "watch()['nothing']": lambda p: watched()["nothing"],
        "watch()[9]": lambda p: watched()[9],
        "watch().plot(head=9)": lambda p: watched().plot(head=9),
        "watch().plot(example=9)": lambda p: watched().plot(example=9),
        "plot of nothing seen": lambda p: attnscope.AttentionRecording().plot(),
        "explore(3)": lambda p: attnscope.explore(3, texts),
        "explore(texts=3)": lambda p: attnscope.explore(loaded(p), 3),
        "explore(no texts)": lambda p: attnscope.explore(loaded(p), []),
        "explore(audit=3)": lambda p: attnscope.explore(loaded(p), texts, audit=3),
        "explore(names=3)": lambda p: attnscope.explore(loaded(p), texts, names=3),
        "explore(against=3)": lambda p: attnscope.explore(loaded(p), texts, against=3),
        "explore().save(3)": lambda p: attnscope.explore(loaded(p), texts).save(3),
        "explore().save(texts=0)": lambda p: attnscope.explore(loaded(p), texts).save(p.path("a.html"), texts=0),
        "explore().save(texts='a')": lambda p: attnscope.explore(loaded(p), texts).save(p.path("a.html"), texts="a"),
    }
    good: dict[str, Call] = {
        "monitor": lambda p: monitor(p, measures=["entropy"]).step(0),
        "monitor(several)": lambda p: monitor(p, measures=("entropy", "dependence"), every=3).step(6),
        "watch": lambda p: watched().table(),
        "watch(weights)": lambda p: watched(attention=weights),
        "watch(function)": lambda p: watched(attention={("self_attn", 1): lambda own, allowed: own.flip(-1)}),
        "watch(rows)": lambda p: watched(rows=slice(0, 1)).plot(),
        "explore": lambda p: attnscope.explore(loaded(p), texts).save(p.path("a.html"), texts=1),
    }
    return bad, good


PROMPTS = ({"prompt": "the old", "answer": " films"}, {"prompt": "a dog", "answer": " sleeps"})
BAD_PROMPTS: dict[str, dict[str, object]] = {
    "no prompt": {"answer": " films"},
    "prompt a number": {"prompt": 3},
    "prompt a list of numbers": {"prompt": [1, 2]},
    "prompt null": {"prompt": None, "answer": "a"},
    "answer a number": {"prompt": "a dog", "answer": 3.5},
    "answer an object": {"prompt": "a dog", "answer": {}},
    "answer empty": {"prompt": "a dog", "answer": ""},
    "prompt empty": {"prompt": "", "answer": ""},
    "parts a number": {"prompt": "a dog", "parts": 3},
    "parts of numbers": {"prompt": "a dog", "parts": [3]},
    "chat a string": {"messages": "a dog"},
    "chat empty": {"messages": []},
    "chat without content": {"messages": [{"role": "user"}]},
    "chat of an answer": {"messages": [{"role": "assistant", "content": "a dog"}]},
    "chat without a template": {"messages": [{"role": "user", "content": "a dog"}]},
}
LANGUAGE_OPTIONS = {
    "head_statistics": ("block=0", "block=x", "seed=-1", "nothing=1"),
    "head_kinds": ("top=-1", "top=x", "seed=-1", "seed=x"),
    "position_shares": ("permutations=0", "permutations=x", "seed=-1"),
    "distance_shares": ("window=1", "window=0", "window=x", "max_tokens=0", "max_tokens=-1"),
}


def language_models() -> Iterator[Case]:
    """Prompts and options of language models, and probes that they or others lack the capability for."""
    for name, row in BAD_PROMPTS.items():
        prompts = file("prompts.jsonl", json_lines([row, row]))
        yield command(f"language model, {name}", True, "audit", "gpt2", prompts, "--quick", "--out", out("audit"))
    for probe, changes in LANGUAGE_OPTIONS.items():
        for change in changes:
            yield command(f"probe gpt2 {probe} {change}", True, "probe", "gpt2", probe, "long.jsonl", "--set", change)
    for probe in ("head_statistics", "head_kinds", "distance_shares"):
        yield command(f"probe bert {probe}", True, "probe", "bert", probe, "texts.jsonl")
    for probe in ("grounding", "plausibility", "word_alignment", "gates"):
        yield command(f"probe gpt2 {probe}", True, "probe", "gpt2", probe, "long.jsonl")
    yield command("explain gpt2, nothing", True, "explain", "gpt2", "")
    yield command("explain gpt2, half of a character", True, "explain", "gpt2", "a \udc80")
    yield command("explain gpt2 --pair", True, "explain", "gpt2", "a", "--pair", "b")
    yield command("audit gpt2 against bert", True, "audit", "gpt2", "long.jsonl", "--against", "bert", "--out", "none")
    yield command("explain gpt2", False, "explain", "gpt2", "the old films")
    yield command("probe gpt2 head_statistics", False, "probe", "gpt2", "head_statistics", "long.jsonl")
    yield command(
        "probe gpt2 distance_shares", False, "probe", "gpt2", "distance_shares", "long.jsonl", "--set", "window=3"
    )
    prompts = file("prompts.jsonl", json_lines(PROMPTS))
    yield command("audit gpt2", False, "audit", "gpt2", prompts, "--quick", "--out", out("audit"), "--texts", "2")


def cases() -> Iterator[Case]:
    yield from (*curves(), *audits(), *commands(), *language_models())
    bad, good = python_calls()
    yield from (Case(f"api: {name}", True, call) for name, call in bad.items())
    yield from (Case(f"api: {name}", False, call) for name, call in good.items())
