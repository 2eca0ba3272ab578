"""Lines of a corpus that are not used take no memory: they are read one by one."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("resource")  # not on Windows
MEGABYTES = 64
READ = """
import resource, sys
from attnscope import WordReader
from attnscope.models.examples import Fields, read_examples
from attnscope.tasks import Classification, Splits, Words
name, path = sys.argv[1:]
if name == "audit":
    examples, origin = read_examples(path, "test", Fields(("no", "yes")), 20, 0)
    assert len(examples) == 20, len(examples)
else:
    task = Classification(path, splits=Splits(("train",), (), ("test",)), vocabulary=Words(1))
    assert len(task.part("test")) == 30
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak(name, path):
    """The largest memory of a process that reads the corpus, in MB."""
    command = [sys.executable, "-c", READ, name, str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["audit", "train"])
def test_memory_does_not_grow_with_lines_that_are_not_used(name, tmp_path):
    rows = [
        {"text": f"a {('dull', 'fine')[i % 2]} film {i}", "label": ("no", "yes")[i % 2], "split": split}
        for split, count in (("test", 30), ("train", 200))
        for i in range(count)
    ]
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = json.dumps({"text": "words that nobody reads " * 8, "label": "no", "split": "other"}) + "\n"
    large.write_text(small.read_text() + line * (MEGABYTES * 2**20 // len(line)))
    assert peak(name, large) < peak(name, small) + 16
