"""Write the tables of the documentation that are generated from files under results/ (`make tables`)."""

# ruff: noqa: E501 (sentences of pages)

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from attnscope.auditing.report import Report, audit_tests, audited_models, deciding_values, error_rates, tests_by_unit
from attnscope.report import wording
from attnscope.report.text import markdown_table, reproduction_report
from attnscope.studies.naming import audit_name, proper
from attnscope.studies.result import Result, labels_of, load_results

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("should-i-show-attention.md", "calibration"): partial(error_rates, RESULTS / "calibration" / "calibration.json"),
    ("audited-models.md", "table"): partial(audited_models, RESULTS / "audits", "../results/audits"),
    ("audits.md", "tests"): partial(audit_tests, RESULTS / "audits"),
}  # by page, and by the name of the comments around the table


def with_table(page: str, name: str) -> str:
    """Return the text of a page with its table regenerated."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    assert text.count(begin) == text.count(end) == 1, f"{page} needs the comments {begin.strip()} and {end}"
    table = TABLES[page, name]().strip()
    return re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n{table}\n\n{end}", text, flags=re.DOTALL)


SEARCH = {
    "aitken2021": "No search. Settings are those of the paper and its author's code. Where the code's learning rate, ε and gradient norm do not converge for recurrent "
    "networks, we chose others by convergence on pilots with other seeds. The finding `optimiser` crosses learning "
    "rates of 0.1, 0.01 and 0.001 with ε of 0.1, 0.01 and 1e-8 on seeds that no pilot had used.",
    "baan2019": "No search. Settings are those of the paper. The number of epochs was raised from 25 to the paper's 100 after a first run, which is "
    "kept in `results/earlier/baan2019`; the seeds of that run are not used again. "
    "So were the epochs of retraining in §5.2, from 20 to 100, on the same seeds; the file with 20 is kept in `results/earlier/retraining-20-epochs`.",
    "snell2021": "No search. Settings are those of the paper and its author's code.",
    "transformers": "Every model of `faithful` (and of `finetuned` in the profile `paper`) gets three settings: base three dropout rates, of which the validation split chooses, and each remedy three weights, of "
    "which it gets the strongest that costs at most one point of validation accuracy. All other models get one setting. Sizes, steps and learning rates were chosen on "
    "pilots with seeds below 10, which do not count in any claim.",
    "tutek2020": "Grid search by F1 on the validation split, for each corpus and attention: δ of tying in 1, 10, 20, 30; η of masked language modelling in 0.1, 0.3, 1, 3, 5 "
    "(finding `ablation`, two seeds that are not used elsewhere). `reduction` repeats the search with the cross entropy summed over a batch.",
}  # how the hyperparameters of each study were chosen; studies that are not listed had no search
SURPRISES = (
    (
        "Two settings of the optimiser decide between two solutions",
        "With both a small learning rate and a small ε, a recurrent network still learns one-to-one translation, but its temporal attention no longer "
        "peaks at the word that it translates.",
        "Both settings were crossed on seeds that no pilot had used. Where only one of them is small (0.01 with 1e-8, 0.001 with 0.01), networks find the published solution; "
        "with a rate of 0.1 and a smaller ε some seeds do not learn the task, with 0.001 and an ε of 0.1 they learn less than half of the words.",
        "aitken2021/optimiser",
        ("", "largest at t = s", "word accuracy"),
    ),
    (
        "Training time explains most of a published difference in units",
        "A guided network needs one or two units to encode the current table; the selected baseline needs many more. A baseline trained for as long needs nearly as few.",
        "`baseline, converged` is the control: the same baseline at the end of training. For the time step, and in the decoder's gates, the difference remains.",
        "baan2019/matched",
        ("units ranked over all classes", "h_enc"),
    ),
    (
        "Networks that fail to learn permutations learn them later",
        "The paper stops at 300 steps, when some networks have failed. All 20 seeds learn by step 620, so a failure for good is not seen; a rate of up to 17 % is not excluded.",
        "`control` is trained on sampled words, from which attention can be learned early; all 20 seeds learn within 300 steps.",
        "snell2021/fig3",
        ("have learnt", "within 300", "at the end"),
    ),
    (
        "Bad heads learn to copy when heads are summed",
        "Eight heads that each fail alone converge together if their outputs are summed, as in the paper's equation. The published figure requires a value layer per head, as in the author's script.",
        "The same heads, averaged instead of summed, do not converge within 200 steps; `fig6-author` uses the author's value layers.",
        "snell2021/fig6",
        ("all bad", "seeds that converge"),
    ),
    (
        "Fragility does not detect a network that hides what it uses",
        "On SST and AG News, five seeds do not show that networks trained to keep attention off the words that determine the class are less fragile under permuted attention than base, at the same F1 (on 20 Newsgroups they are, with a lower F1). Tests that compare attention with the effect of words do detect them.",
        "`base` is the control: the same networks, data and seeds without the penalty.",
        "tutek2020/deceptive",
        ("sst", "· F1", "telling words, in", "permuted", "τ of attention with leave-one-out", "sufficiency of"),
    ),
    (
        "Networks copy words by not attending to them",
        "Where every sentence holds the same words, some networks learn to attend to all words but the one to copy: what is missing from the context is the answer. Nine of "
        "20 Transformers with one layer and one head do so, and five of 20 LSTMs. They are the ones that learn latest; snell2021 explains the delay by counts, which carry no lexical information there. Read as an "
        "explanation, their attention would point at every word except the right one.",
        "Attention is changed in the trained networks: without any attention on the copied word they still copy it, with attention on it alone they fail. In all others, and in "
        "all networks that learn from sampled words, it is the other way round.",
        "transformers/elimination",
        ("", "share of seeds", "relative to uniform", "alone", "without attention"),
    ),
    (
        "Faithful is not plausible",
        "Regularisers make outputs depend more on attention. On film reviews they do not move attention towards what people mark: with two of three it agrees less with people. On Yelp reviews this is undecided.",
        "`chance` and gradients are measured on the same texts.",
        "tutek2020/plausible",
        ("eraser_movies", "attention: average precision", "chance: average precision"),
    ),
)  # title, surprise, control, file, and words that select its rows: each row has the first and one of the others


def surprises() -> str:
    """Return every surprise with its rows, its control and its file."""
    lines: list[str] = []
    for title, surprise, control, finding, (first, *others) in SURPRISES:
        result = Result.read(RESULTS / f"{finding}.json")
        texts = [
            " · ".join(f"{name} {text}" if text[:1].isdigit() else text for name, text in labels_of(row).items())
            for row in result.table
        ]
        chosen = [
            [proper(text), wording.published(row), wording.ours(row)]
            for text, row in zip(texts, result.table, strict=True)
            if first in text and (not others or any(word in text for word in others))
        ]
        assert chosen, f"{finding} has no row for: {title}"
        lines += [f"## {title}", "", surprise, "", *markdown_table(["measured", "published", "ours ± sd"], chosen)]
        lines += [f"**Control.** {control} File: `results/{finding}.json`.", ""]
    return "\n".join(lines)


def reports() -> dict[str, str]:
    """Return the reproduction report of every study with results, by its page."""
    results = load_results(RESULTS)
    studies = dict.fromkeys(result.study for result in results)
    chosen = {study: [result for result in results if result.study == study] for study in studies}
    return {
        f"reproduction/{study}.md": reproduction_report(own, substitutions(study), SEARCH.get(study, "No search."))
        for study, own in chosen.items()
    }


def substitutions(study: str) -> str:
    """Return the table of substitutions of a study in results.md; `transformers`, which is our own, has none."""
    if study == "transformers":
        return (
            "This is our own study and replaces nothing in a paper. All findings were run in the profile `paper` on one H200 (TF32 in training; five seeds, `hiding` eight, "
            "`elimination` 20), `finetuned` without the two models with MLM on 20 Newsgroups."
        )
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").partition(f"## {study} in short")[2]
    return re.search(r"^\| substitution .*?(?=\n\n)", text, flags=re.DOTALL | re.MULTILINE)[0]


SHOWN = ("sst-hiding", "sst-base", "sst-tying", "sst-distilbert", "sst-minilm", "multi30k-marian")  # in the README


def verdicts() -> str:
    """Return a few audited models with their answers and the numbers behind them."""
    rows = []
    for folder in (RESULTS / "audits" / name for name in SHOWN):
        audit = Report.load(folder / "audit.json")
        values = {test.name: f"{test.value:.2f}" for test in audit.tests if test.measured}
        answer = f"**{audit.answer}**{' (former rule)' if audit.verdict.former_rule else ''}"
        link = f"[{audit_name(folder).model}](results/audits/{folder.name}/audit.html)"
        rows.append([link, answer, *(values.get(test, "–") for test in ("route", "agreement"))])
    return "\n".join(
        markdown_table(["model", "may its attention be read as an explanation?", "route", "agreement"], rows)
    )


LANGUAGE_MODELS = {"gpt2-like-13m": "GPT-2-like", "llama-like-13m": "Llama-like"}
PROMPTS = {
    "words": "the next word of held-out texts",
    "news": "the topic of held-out news, asked as a question",
    "facts": "which box somebody has, in synthetic facts",
}


def answers() -> str:
    """Return the accuracy of the language models on each set of prompts."""
    tables = [
        pd.read_csv(RESULTS / "language-models" / name / "answers.csv", index_col="set") for name in LANGUAGE_MODELS
    ]
    rows = [
        [
            title,
            *(f"{t.accuracy[name]:.1%} ({100 * t['standard error'][name]:.1f})" for t in tables),
            f"{tables[0]['commonest answer'][name]:.1%}",
        ]
        for name, title in PROMPTS.items()
    ]
    header = [
        f"accuracy on {tables[0].prompts.iloc[0]} prompts (standard error)",
        *LANGUAGE_MODELS.values(),
        "most frequent answer",
    ]
    return "\n".join(markdown_table(header, rows)).replace("%", " %")


def language_audits() -> str:
    """Return route and agreement of the audits of the language models, by word and by named part of the prompt."""
    rows = []
    for prompts, title in PROMPTS.items():
        for model, name in LANGUAGE_MODELS.items():
            audit = Report.load(RESULTS / "audits" / f"{model}-{prompts}" / "audit.json")
            link = f"[{name}](../results/audits/{model}-{prompts}/audit.html)"
            units = tests_by_unit(audit)
            rows.append([title, link, *deciding_values(units["word"]), *deciding_values(units.get("named part", {}))])
    header = [
        "prompts",
        "model",
        *(f"{test}, by {unit}" for unit in ("word", "named part") for test in ("route", "agreement")),
    ]
    return "\n".join(markdown_table(header, rows))


TABLES["language-models.md", "answers"] = answers
TABLES["language-models.md", "audits"] = language_audits
TABLES["surprises.md", "surprises"] = surprises
TABLES["../README.md", "verdicts"] = verdicts


def main() -> int:
    for page, name in TABLES:
        (ROOT / "docs" / page).write_text(with_table(page, name), encoding="utf-8")
    for page, text in reports().items():
        (ROOT / "docs" / page).parent.mkdir(exist_ok=True)
        (ROOT / "docs" / page).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
