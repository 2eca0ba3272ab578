"""A reproduction report lists the machines, times, runs and parameters of a study."""

from attnscope.report.text import reproduction_report
from attnscope.studies.result import row


def test_a_report_names_machines_runs_parameters_and_validation_beside_test(make):
    experiments = {
        "AED": {"model": {"cell": "gru"}, "training": {"learning_rate": 0.01}},
        "AO": {"runs": {"first": {"model": {"cell": "gru"}, "training": {"learning_rate": 0.1}}}},
    }
    table = [
        row(model="AED", quantity="F1 on the validation split", values=[0.5, 0.7]),
        row(model="AED", quantity="F1, trained attention", values=[0.4, 0.6]),
        row(model="AO", quantity="F1 on the validation split", values=[0.5, 0.5]),
    ]
    result = make(settings={"experiments": experiments}, table=table)
    text = reproduction_report([result], "| epochs | 100 | 25 |", "No search.")
    assert "## Substitutions\n\n| epochs | 100 | 25 |\n\n## Infrastructure" in text
    assert f"| {result.machine} | 1 |" in text
    assert f"`{result.finding}`" in text
    assert "| `training.learning_rate` | 0.01 (1), 0.1 (1) |" in text
    assert "| `model.cell` | gru (2) |" in text
    (pair,) = [line for line in text.splitlines() if "F1, trained attention" in line]  # AO has no test score
    assert "| AED | F1, trained attention | 1 | 0.6 ± " in pair
    assert "## Search\n\nNo search." in text


def test_a_report_counts_runs_and_keeps_out_long_lists(make):
    parts = [{"kind": "hiding", "weight": 1.0, "words": list(range(100))}]
    shared = {"model": {"dropout": 0.0}, "objective": {"parts": parts}}
    experiments = {"first": {"runs": {"base": shared}}, "second": {"runs": {"base": shared}}, "counts": {"runs": {}}}
    networks = [("sst · base", 0.5, 0.25), ("sst · tying", 0.75, 0.5)]
    quantities = ("F1 on the validation split", "F1, trained attention")
    table = [
        row(network=name, quantity=quantity, values=[score, score])
        for name, *scores in networks
        for quantity, score in zip(quantities, scores, strict=True)
    ]
    text = reproduction_report([make(settings={"experiments": experiments}, seeds=(0, 1), table=table)], "", "")
    assert "| 2 (0, 1) | 2 |" in text  # one setting with two seeds
    assert "| `objective.hiding.weight` | 1.0 (1) |" in text
    assert "| `objective.hiding.words` | long, see the manifests |" in text
    assert "`model.dropout`" not in text
    assert "| SST | F1, trained attention | 2 | 0.625 (0.5 to 0.75) | 0.375 (0.25 to 0.5) |" in text


def test_a_study_without_validation_scores_says_so(make):
    assert "No finding of this study stores a score on validation data" in reproduction_report([make(table=[])], "", "")


def test_a_cpu_build_of_torch_beside_a_gpu_is_reported_as_inconsistent(make):
    gpu, cpu_build = "a processor, NVIDIA H200", {"torch": "2.13.0+cpu"}
    wrong = make(finding="old", machine=gpu, versions=cpu_build, by_seed=None)
    right = make(finding="new", machine=gpu, versions={"torch": "2.11.0"}, by_seed=None)
    text = reproduction_report([wrong, right], "", "")
    assert "The software of `old` is that of the machine that wrote the file" in text
    assert "was not recorded" not in reproduction_report([right], "", "").partition("## Runs")[0]
