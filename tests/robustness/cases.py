"""The table of the trial: bad inputs, and valid controls beside them, of the command line and of Python."""

from collections.abc import Callable, Iterator
from itertools import chain

from robustness import api_cases, data_cases, folder_cases, later_cases
from robustness.trial import Case, Place, expect_success

Word = str | Callable[[Place], str]


def cli(name: str, bad: bool, words: tuple[Word, ...]) -> Case:
    """A command line; words that are functions are made when it is run."""

    def run(place: Place) -> None:
        expect_success([word(place) if callable(word) else word for word in words])

    return Case(f"cli: {name}", bad, run)


def title(words: tuple[Word, ...]) -> str:
    shown = " ".join(word if isinstance(word, str) else word.__name__ for word in words)
    return shown if len(shown) <= 150 else f"{shown[:120]}… ({len(shown)} characters)"


def bad(*words: Word) -> Case:
    return cli(title(words), True, words)


def good(*words: Word) -> Case:
    return cli(title(words), False, words)


def classifier(place: Place) -> str:
    return place.classifier


def aed(place: Place) -> str:
    return place.aed


def beginning_of_key(place: Place) -> str:
    return place.aed[:8]


def folder_of_run(place: Place) -> str:
    return f"runs/runs/{place.aed}"


def out(name: str) -> Callable[[Place], str]:
    return lambda place: str(place.path(name))


def folder(name: str, content: str | bytes) -> Callable[[Place], str]:
    """A folder with one file."""

    def made(place: Place) -> str:
        path = place.path(name)
        path.parent.mkdir(parents=True)
        place.write(str(path), content)
        return str(place.home / f"case-{place.count}")

    made.__name__ = f"{name} {content!r:.40}"
    return made


COMMANDS = ("list", "reproduce", "report", "site", "verify", "train", "probe", "explain", "audit")
NEEDED = {
    "reproduce": ("aitken2021",),
    "report": ("results",),
    "site": ("results",),
    "verify": ("results",),
    "train": ("one_to_one", "aed"),
    "probe": ("bert", "entropy"),
    "explain": ("bert", "a dog"),
    "audit": ("bert", "texts.jsonl"),
}


def usage() -> Iterator[Case]:
    """Words that a command does not have."""
    yield bad("attend")
    yield bad("--set", "a=1")
    yield bad("--versions")
    for name in COMMANDS:
        needed = NEEDED.get(name, ())
        yield bad(name, *needed, "--no-such-option")
        yield bad(name, *needed, "a", "b", "c", "d")
        if needed:
            yield bad(name)
        if len(needed) > 1 and name in ("train", "explain"):
            yield bad(name, needed[0])
        yield good(name, "--help")
    yield good("--help")
    yield good("--version")
    yield good("list")


def values() -> Iterator[Case]:
    """Values that an option does not take."""
    reproduce = ("reproduce", "aitken2021", "--only", "fig2-aed", "--store", "none")
    for option, given in {
        "--seeds": ("0", "-1", "x", "1.5", "inf", ""),
        "--first-seed": ("-1", "x", "0.5", str(2**64), str(10**30)),
        "--workers": ("-1", "x", "1.5", "nan"),
        "--profile": ("slow", "", "QUICK"),
        "--engine": ("cloud", ""),
        "--device": ("tpu", "", "cuda:99", "cpu:7", "cpu,cuda", "meta"),
    }.items():
        yield from (bad(*reproduce, option, value) for value in given)
    yield bad("reproduce", "aitken2021", "--only", "fig9")
    yield bad("reproduce", "all", "--only", "fig3")
    yield bad(*reproduce, "--address", "127.0.0.1:1")
    yield bad(*reproduce, "--engine", "ray", "--workers", "2")
    yield from (
        bad("reproduce", name) for name in ("", "aitken", "../aitken2021", "os", "os.path", "mine", "fails", "0")
    )
    audit = ("audit", "bert", "texts.jsonl", "--out", "none")
    for option, given in {
        "--budget": ("inf", "nan", "-1", "0", "x", "-inf", "1e400"),
        "--batch-size": ("0", "-2", "x", "1.5"),
        "--texts": ("1", "0", "-5", "x", "1e3"),
        "--seed": ("-1", "x", str(2**64), str(10**40), "1.5"),
        "--device": ("tpu", "gpu", "cuda:-1", "cuda:1:2"),
        "--split": ("train", "", "tests"),
        "--against": ("", "nowhere", "marian", ":fn"),
        "--store": (),
    }.items():
        yield from (bad(*audit, option, value) for value in given)
    yield bad("audit", "bert", "texts.jsonl", "--out", "texts.jsonl")
    yield bad("audit", "bert", "texts.jsonl", "--out", "texts.jsonl/audit")
    train = ("train", "one_to_one", "aed", "--set", "training.steps=1")
    yield from (bad(*train, "--seed", seed) for seed in ("-1", "x", str(2**63), str(2**64), str(10**50), "1.5"))
    yield from (bad(*train, "--device", device) for device in ("tpu", "cuda:5", "Cpu"))
    yield bad(*train, "--store", "texts.jsonl")
    yield bad(*train, "--store", "texts.jsonl/store")
    yield bad("train", "sst", "classifier", "--data", "nowhere")
    yield bad("train", "sst", "classifier", "--data", "texts.jsonl")
    for task, model in (
        ("", "aed"),
        ("one-to-one", "aed"),
        ("one_to_one", ""),
        ("one_to_one", "bert"),
        ("one_to_one", "classifier"),
        ("texts.jsonl", "classifier"),
    ):
        yield bad("train", task, model)
    probe = ("probe", "bert", "entropy", "texts.jsonl")
    for name in ("figure", "figure.", "figure.gif", "figure.exe", "."):
        yield bad(*probe, "--out", name)
        yield bad("explain", "bert", "a dog", "--out", name)
    yield bad(*probe, "--csv", "texts.jsonl/table.csv")
    yield bad(*probe, "--csv", ".")
    yield bad(*probe, "--checkpoint", "3")
    yield bad("probe", classifier, "entropy", "--checkpoint", "99")
    yield bad("probe", classifier, "entropy", "--checkpoint", "-1")
    yield bad("probe", classifier, "entropy", "--checkpoint", "x")
    yield bad("probe", "bert", "entropy")
    yield bad("probe", "bert", "movement", "texts.jsonl")
    yield bad("probe", "bert", "", "texts.jsonl")
    yield from (bad("explain", "bert", text) for text in ("\udc80 dog", "a \ud800"))
    yield from (bad("explain", "bert", text, "--target", "1") for text in ("", " \u3000"))
    yield from (
        bad("explain", "bert", "a dog", "--target", name) for name in ("LABEL_7", "", "-1", "²", "9" * 5000, "3")
    )
    yield bad("explain", aed, "A Z")
    yield bad("explain", aed, "A B", "--target", "9")
    yield bad("explain", classifier, "a film", "--target", "maybe")
    yield bad("explain", "bert", "a dog", "--audit", folder("audit.json", "{"))
    yield bad("explain", "bert", "a dog", "--audit", folder("audit.json", "[]"))
    yield bad("explain", "bert", "a dog", "--audit", folder("audit.json", '{"model": 3}'))
    yield bad("explain", "bert", "a dog", "--audit", folder("audit.json", '{"model": {"name": "bert"}}'))
    yield good(*probe)
    yield good(*probe, "--csv", out("table.csv"))
    yield good(*probe, "--out", out("figure.svg"))
    yield good(*probe, "--device", "cpu")
    yield good(*probe, "--set", "decoding=teacher_forced")
    yield good("explain", "bert", "a dog")
    yield good("explain", "bert", "a dog", "--target", "LABEL_2")
    yield good("explain", "bert", "a dog", "--target", "1", "--out", out("one.pdf"))
    yield good("explain", classifier, "a fine film", "--target", "yes")
    yield good("explain", "mine.py:model", "a fine film")
    yield good("explain", aed, "A B")
    yield good("explain", "marian", "a dog sleeps", "--target", "ein hund")
    yield good("probe", classifier, "entropy")
    yield good("probe", aed, "decompose")
    yield good("probe", beginning_of_key, "weights")
    yield good("probe", folder_of_run, "entropy")
    yield good("train", "one_to_one", "aed", "--set", "training.steps=1", "--set", "model.units=2", "--seed", "7")
    yield good(
        "audit", "bert", "texts.jsonl", "--quick", "--out", out("audit"), "--no-examples", "--seed", "3", "--texts", "4"
    )
    yield good("audit", classifier, "--quick", "--out", out("audit"), "--texts", "4")


TRAIN = ("train", "one_to_one", "aed", "--set", "training.steps=1", "--set", "task.test_size=4")
SETTINGS = """
steps | training.betas=[0.9] training.betas=[] training.betas=[0.9,0.9,0.9] training.betas=0.9 training.betas=["a","b"]
 training.betas=[1.5,0.9] training.betas=[-0.1,0.9] training.betas=null training.betas=[[0.9],0.9] training.betas=x
 training.checkpoints=["a"] training.checkpoints=[1.5] training.checkpoints=[null] training.checkpoints=[-1]
 training.checkpoints=[2] training.checkpoints=[true] training.checkpoints=[[1]] training.checkpoints=1
 training.checkpoints={} training.steps=0 training.steps=-1 training.steps=1.5 training.steps=many training.steps=null
 training.steps=true training.steps=[1] training.batch_size=0 training.batch_size=1.5 training.batch_size=-3
 training.learning_rate=0 training.learning_rate=-1 training.learning_rate=NaN training.learning_rate=Infinity
 training.learning_rate="fast" training.learning_rate=null training.epsilon=0 training.epsilon=NaN
 training.weight_decay=-1 training.weight_decay=NaN training.weight_decay=Infinity training.amsgrad=1
 training.amsgrad=yes training.schedule=step training.schedule=3 training.schedule=null training.decay=NaN
 training.decay=-1 training.decay=0 training.decay=2e308
 training.warmup=-1 training.warmup=0.5 training.max_grad_norm=0 training.max_grad_norm=-1 training.max_grad_norm=NaN
 training.max_grad_norm="a" training.max_grad_norm=[1] training.teacher_forcing=1.5 training.teacher_forcing=-0.1
 training.teacher_forcing=NaN training.evaluate_every=0 training.evaluate_every=-5 training.patience=0
 training.patience=1.5 training.patience=a training.stop_at_accuracy=x training.stop_at_accuracy=NaN
 training.stop_at_accuracy=2 training.stop_at_accuracy=-1 training.keep_weights=first training.best_metric=f1
 training.attention=fixed training.trained=none training.decoding=beam training.decoding=1 training.nothing=1
 training= training=1 training.=1 training training.steps.more=1 =1 .=1 nothing=1 training..steps=1
model | model.units=0 model.units=-4 model.units=2.5 model.units=a model.units=null model.units=true
 model.units=1000000000000 model.units=100000000000000000000 model.layers=0 model.layers=-1 model.layers=1.5
 model.heads=0 model.heads=7 model.heads=-2 model.cell=grru model.cell=3 model.cell=null model.attention=doted
 model.attention=["dot"] model.dropout=1 model.dropout=-0.5 model.dropout=NaN model.dropout=x model.input_size=0
 model.input_size=a model.input_size=1 model.inputs=bytes model.readout=none model.combine=max model.positions=3
 model.positions.base=1 model.positions.base=NaN model.positions.base=Infinity model.positions.nothing=3
 model.first_state=random model.hidden=0 model.hidden=a model.activation=gelu model.initialisation=xavier
 model.context=nowhere model.key_size=0 model.bidirectional=2 model=aed
task | task.num_words=0 task.num_words=27 task.num_words=-1 task.num_words=2.5 task.num_words=x task.min_length=0
 task.min_length=21 task.max_length=1 task.max_length=-3 task.max_length=NaN task.max_length=100000000000000000
 task.test_size=0 task.test_size=-1 task.test_size=1.5 task.test_size=100000000000000000000 task=1 task.file=a
experiment | seed=-1 seed=1.5 seed=x seed=18446744073709551616 seed=null threads=0 threads=-1 threads=1.5
 threads=100000 threads=a device=tpu device=3 watch=shares2 watch=[3] watch=3 start.weights=-1 start.weights=1.5
 start.weights=a start.weights=99999999999999999999 start.heads=[0] start.heads=[-1] start.heads=["a"] start.heads=0
 start.vectors=3 objective.total=3 objective.weight=3 objective=l2 {"a":1} [1] NaN
"""
VALID_SETTINGS = """
training.betas=[0.8,0.9] training.checkpoints=[1] training.checkpoints=[] training.learning_rate=1 training.epsilon=1e-6
 training.max_grad_norm=null training.schedule=cosine training.patience=2 training.amsgrad=true training.warmup=3
 training.teacher_forcing=1 training.keep_weights=best training.stop_at_accuracy=1 training.attention=uniform
 training.decoding=teacher_forced model.units=3 model.layers=2 model.cell=lstm model.attention=mlp model.dropout=0.5
 model.positions.base=100 model.input_size=9 task.num_words=26 task.max_length=30 task.min_length=1 seed=5
 seed=9223372036854775807 threads=2 watch=shares watch=[] start.weights=3
"""


def settings() -> Iterator[Case]:
    """`--set` of the training command."""
    for line in SETTINGS.replace("\n ", " ").strip().splitlines():
        yield from (bad(*TRAIN, "--set", change) for change in line.partition("|")[2].split())
    yield bad(*TRAIN, "--set", "training.checkpoints=" + "[" * 100_000)
    yield bad(*TRAIN, "--set", "training.betas=" + "[" * 5000 + "]" * 5000)
    yield bad(*TRAIN, "--set", "training.steps=" + "9" * 5000)
    yield bad(*TRAIN, "--set", "model.units=" + "9" * 5000)
    yield bad(*TRAIN, "--set", "training.schedule=\udc80")
    yield bad(*TRAIN, "--set", "")
    small = ("--set", "model.units=2", "--set", "task.max_length=20")
    yield from (good(*TRAIN, *small, "--set", change) for change in VALID_SETTINGS.split())


CORPUS = """
task.label=labels task.label= task.label=3 task.text=texts task.text=[] task.text=[3] task.labels=["yes"]
 task.labels=["yes","yes"] task.labels=["no","maybe"] task.labels=[3] task.labels=yes task.labels=["no",""]
 task.exclude_labels=["yes"] task.exclude_labels=["yes","no"] task.special=start task.rationale=text
 task.rationale=marks task.rationale=3 task.file= task.file=nowhere.jsonl task.file=mine.py task.file=.
 task.file=hf:nowhere/nothing task.columns=[1] task.fingerprint=abc task.splits.training=[]
 task.splits.training=["train"] task.splits.test=["test"] task.splits.validation_share=0 task.splits.test_share=1
 task.splits.validation_share=0.95 task.splits.max_test=0 task.splits.seed=-1 task.splits.seed=x task.splits.field=3
 task.splits.validation_share=NaN task.splits.test_share=x task.preparation.tokeniser=bpe
 task.preparation.min_length=0 task.preparation.max_length=0 task.preparation.min_length=100
 task.preparation.too_long=wrap task.preparation.lower=3 task.vocabulary.min_count=0 task.vocabulary.max_size=0
 task.vocabulary.min_count=x model.grounding=sum model.query=none model.query_start=x model.attention=bilinear
 start.vectors=nowhere.txt
"""


def corpora() -> Iterator[Case]:
    """`train` on a corpus of one's own."""

    def words(place: Place, *more: str) -> list[str]:
        from robustness.trial import SMALL_CLASSIFIER

        given = (*place.corpus_settings, *SMALL_CLASSIFIER, *more)
        return ["train", "sst", "classifier", *(word for one in given for word in ("--set", one))]

    def case(change: str, refused: bool) -> Case:
        return Case(f"cli: train corpus {change}", refused, lambda place: expect_success(words(place, change)))

    def file_case(name: str, content: str | bytes, refused: bool) -> Case:
        def run(place: Place) -> None:
            expect_success(words(place, f"task.file={place.file(name, content)}"))

        return Case(f"cli: train corpus {name} {content[:60]!r}", refused, run)

    yield from (case(change, True) for change in CORPUS.split())
    rows = '{"text": "a film", "label": "yes"}\n{"text": "a dog", "label": "no"}\n'
    for name, content in {
        "a.jsonl": "",
        "b.jsonl": "\n\n",
        "c.jsonl": "[]\n",
        "d.jsonl": "{",
        "e.jsonl": rows,
        "f.jsonl": rows * 9 + "3",
        "g.jsonl": b"\xff\xfe" + rows.encode(),
        "h.jsonl.gz": rows,
        "i.csv": "text,label\n",
        "j.csv": "text\na\n" * 9,
        "k.tsv": "text\tlabel\na\n",
        "l.csv": 'text,label\n"a,b\n',
        "m.txt": rows * 9,
        "n.jsonl": rows * 9 + "[" * 99999,
        "o.jsonl": '{"text": "a", "label": 1.5}\n' * 9,
        "p.jsonl": '{"text": ["a", 3], "label": 1}\n' * 9,
        "q.jsonl": '{"text": "a", "label": "yes"}\n' * 30,
        "r.csv": "text,text\na,b\n" * 9,
    }.items():
        yield file_case(name, content, True)
    yield file_case("s.csv", "text,label\n" + "".join(f"a film {i},yes\nthe dog {i},no\n" for i in range(30)), False)
    yield file_case("t.tsv", "text\tlabel\n" + "".join(f"a film {i}\tyes\ndog {i}\tno\n" for i in range(30)), False)
    yield case('task.labels=["yes","no"]', False)
    yield case("task.vocabulary.max_size=2", False)


PROBE_OPTIONS = {
    "fragility": (
        "draws=0",
        "draws=-1",
        "draws=x",
        "draws=1.5",
        "seed=-1",
        "seed=x",
        "nothing=1",
        "draws=null",
        "draws",
    ),
    "saliency": ("method=shap", "method=3", "decoding=beam", "of=3", "method=[]"),
    "erasure": ("removal=words", "draws=0", "draws=1.5", "seed=-1"),
    "adversary": ("epsilon=-1", "epsilon=0", "epsilon=NaN", "epsilon=x", "settings=3", "settings={}"),
    "agreement": ("first=attentions", "second=3", "first=null", "decoding=1", "source_specials=3"),
    "decompose": ("top_k=0", "top_k=-1", "top_k=x", "min_count=-1", "min_count=x", "of=nothing", "held_out=3"),
    "information": (
        "choice=rare",
        "num_words=0",
        "num_words=x",
        "k=0",
        "k=-1",
        "num_starts=0",
        "batch_size=0",
        "max_tokens=0",
        "seed=-1",
        "without=3",
    ),
    "diagnostic": ("feature=pos", "states=middle", "max_classes=1", "max_classes=0", "max_classes=x", "settings=[]"),
    "grounding": ("margin=-1", "margin=NaN", "margin=x", "bins=0", "bins=1.5", "margin=2"),
    "optimal": ("tolerance=0", "tolerance=-1", "tolerance=x", "tolerance=NaN"),
    "heads": ("max_sentences=0", "max_sentences=x", "of=everything", "gold=3", "saliency=3", "aligner=3"),
    "lexical": ("head=9", "head=-1", "head=x", "attention=3", "attention=uniform"),
}
RUN_OPTIONS = {
    "gates": ("low=-1", "high=2", "low=0.9", "low=x", "high=NaN"),
    "weights": ("threshold=-1", "threshold=x", "share=0", "share=2", "share=x", "threshold=NaN"),
}
VALID_OPTIONS = {
    "fragility": ("draws=2", "seed=4"),
    "saliency": ("method=leave_one_out",),
    "erasure": ("draws=1", "removal=text"),
    "agreement": ("second=attention", "source_specials=false"),
    "decompose": ("top_k=2", "min_count=1"),
    "information": ("k=2",),
    "grounding": ("bins=4",),
    "heads": ("max_sentences=2",),
    "lexical": ("head=1",),
    "diagnostic": ("max_classes=5",),
    "adversary": ("epsilon=0.1",),
}


def probes() -> Iterator[Case]:
    """Options of probes, and data that lack what a probe needs."""
    for name, changes in PROBE_OPTIONS.items():
        yield from (bad("probe", "bert", name, "texts.jsonl", "--set", change) for change in changes)
    for name, changes in RUN_OPTIONS.items():
        yield from (bad("probe", aed, name, "--set", change) for change in changes)
    for name, changes in VALID_OPTIONS.items():
        yield from (good("probe", "bert", name, "texts.jsonl", "--set", change) for change in changes)
    yield bad("probe", "bert", "plausibility", "texts.jsonl")
    yield bad("probe", "bert", "word_alignment", "texts.jsonl")
    yield bad("probe", "bert", "gates", "texts.jsonl")
    yield bad("probe", "marian", "grounding", "pairs.jsonl")
    yield bad("probe", "marian", "word_alignment", "texts.jsonl")
    yield bad("probe", aed, "plausibility")
    yield good("probe", "marian", "word_alignment", "pairs.jsonl")
    yield good("probe", aed, "gates", "--set", "low=0.2")
    yield good("probe", aed, "weights", "--set", "share=0.1")


NAMES = (
    "",
    ":",
    ":fn",
    "os.path:join",
    "os:getcwd",
    "os.path:",
    "json:nothing",
    "json:dumps",
    "mine.py:",
    "mine.py:1a",
    "mine.py:not_callable",
    "mine.py:returns_none",
    "mine.py:returns_number",
    "mine.py:returns_linear",
    "mine.py:returns_triple",
    "mine.py:raises",
    "mine.py:exits",
    "mine.py:takes_argument",
    "mine.py:model:more",
    "nowhere.py:model",
    "broken.py:model",
    "fails.py:model",
    "leaves.py:model",
    "needs.py:model",
    "no.such.module:model",
    "..:model",
    ".mine:model",
    "builtins:print",
    "builtins:exit",
    "sys:exit",
    "texts.jsonl:model",
    "nowhere",
    "zz",
    "0",
    "0" * 64,
    "g" * 64,
    "results",
    ".",
    "..",
    "/",
    "texts.jsonl",
    "bert/config.json",
    "hf:",
    "hf:/",
    "hf:a/b/c",
    "hf:owner/name",
    "hf:../bert",
    "x" * 5000,
    "~nobody",
    "\udc80",
    "bert\n",
    " bert",
    "a b:c d",
    "runs",
    "runs/runs",
    "attnscope:load",
    "attnscope.errors:BadSetting",
    "torch.nn:Linear",
    "mine:LINEAR",
)


def names() -> Iterator[Case]:
    """Names of models."""
    for name in NAMES:
        yield bad("audit", name, "texts.jsonl", "--out", "none")
    yield bad("probe", "", "entropy", "texts.jsonl")
    yield bad("probe", ":fn", "entropy", "texts.jsonl")
    yield bad("explain", ":fn", "a dog")
    yield good("probe", "mine.py:model", "entropy", "corpus.jsonl")
    yield good("probe", "adapter:model", "entropy", "corpus.jsonl")
    yield good("probe", "./bert", "entropy", "texts.jsonl")
    yield good("probe", "roberta", "entropy", "texts.jsonl")
    yield good("probe", "marian", "entropy", "pairs.jsonl")


def results() -> Iterator[Case]:
    """Folders of results."""
    for name in ("verify", "report", "site"):
        for content in ("", "null", "3", "[]", "{", "{}", '{"finding": 3}', "[" * 99999, '{"a": NaN}', "\x00"):
            yield bad(name, folder("aitken2021/fig3.json", content), *(("--out", "none") if name == "site" else ()))
        yield bad(name, "nowhere", *(("--out", "none") if name == "site" else ()))
        yield bad(name, "texts.jsonl", *(("--out", "none") if name == "site" else ()))
        yield bad(name, "bert", *(("--out", "none") if name == "site" else ()))
    for name in ("report.docx", "report", "texts.jsonl/report.html"):
        yield bad("report", "results", "--out", name)
    yield bad("site", "results", "--out", "texts.jsonl")
    yield good("verify", "results")
    yield good("report", "results", "--out", out("report.md"))


CASES = list(
    chain(
        usage(),
        values(),
        settings(),
        corpora(),
        probes(),
        names(),
        results(),
        data_cases.cases(),
        folder_cases.cases(),
        api_cases.cases(),
        later_cases.cases(),
    )
)
