"""The wheel holds all files of the package, is small, and works without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build")
ROOT = Path(__file__).parent.parent
MAX_BYTES = 1_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No matching distribution found for hatchling" in done.stdout + done.stderr:
        pytest.skip("the build backend cannot be installed on this machine")
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_is_small_and_holds_every_file_of_the_package(wheel):
    assert wheel.stat().st_size < MAX_BYTES
    package = ROOT / "src" / "attnscope"
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    expected = {name for name in files if "__pycache__" not in name}
    assert "attnscope/py.typed" in expected
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_commands_work_from_the_wheel_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    results = tmp_path / "results" / "aitken2021"
    results.mkdir(parents=True)
    (results / "average.json").write_bytes((ROOT / "results" / "aitken2021" / "average.json").read_bytes())

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
        command = [sys.executable, "-m", "attnscope", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [sys.executable, "-c", "import attnscope; print(attnscope.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    used = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert used.startswith(str(tmp_path / "installed"))
    assert "audit" in run("--help")
    assert run("--version").split()[1] == wheel.name.split("-")[1]
    run("report", "results", "--out", "page.html")
    assert "What to see" in (tmp_path / "page.html").read_text(encoding="utf-8")
    key = run("train", "keyword", "classifier", "--set", "training.steps=20").strip().splitlines()[-1].split()[-1]
    run("audit", key, "--quick")
    assert (tmp_path / "audit" / "audit.html").exists()
