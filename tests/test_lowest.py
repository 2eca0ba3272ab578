"""Is each lower bound of the package the version that `make lowest` tries, and has the tested set all of them?"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent
NEWER = {"torch", "safetensors"}  # constraints-lowest.txt says why


def bounds() -> dict[str, str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["hf"], *extras["ray"], *extras["text"]]
    return dict(one.split(">=") for one in requirements)


def test_the_lowest_required_versions_are_those_tested():
    lines = (PROJECT / "constraints-lowest.txt").read_text(encoding="utf-8")
    tried = {name: version.removesuffix(".*") for name, version in re.findall(r"^([\w-]+)==(.+)$", lines, re.MULTILINE)}
    requirements = bounds()
    assert tried.keys() == requirements.keys()
    assert {name for name, version in tried.items() if version != requirements[name]} == NEWER


def test_the_constraints_have_each_requirement_once_with_its_hash():
    lines = (PROJECT / "constraints-hashes.txt").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+ --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    names = [entry.partition("==")[0].replace("_", "-") for entry in entries]
    assert len(set(names)) == len(names)
    assert bounds().keys() - set(names) == {"torch"}  # the file says why
