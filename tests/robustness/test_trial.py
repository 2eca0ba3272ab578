"""The trial of bad inputs and valid controls: no traceback, nothing bad accepted, every control accepted."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def outcomes():
    """All cases, run in one process without the type checks of the tests."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-m", "robustness.trial"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=880)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def names(outcomes, *wrong):
    return [f"{one['name']}: {one['message'][-300:]}" for one in outcomes if one["outcome"] in wrong]


def test_there_are_hundreds_of_different_cases(outcomes):
    repeated = [name for name, count in Counter(one["name"] for one in outcomes).items() if count > 1]
    assert repeated == []
    assert sum(one["bad"] for one in outcomes) >= 500
    assert sum(not one["bad"] for one in outcomes) >= 100


def test_no_input_gives_a_traceback_or_a_timeout(outcomes):
    assert names(outcomes, "traceback", "timeout") == []


def test_no_invalid_input_is_accepted(outcomes):
    assert names([one for one in outcomes if one["bad"]], "accepted") == []


def test_every_control_is_accepted(outcomes):
    assert names([one for one in outcomes if not one["bad"]], "refused") == []


def test_every_error_message_is_one_short_sentence(outcomes):
    messages = {one["name"]: one["message"] for one in outcomes if one["outcome"] == "refused"}
    usage = [name for name, message in messages.items() if message.startswith("Usage:") or "cli: verify" in name]
    for name, message in messages.items():
        assert message.strip(), name
        assert name in usage or (len(message) < 1500 and "\n" not in message), (name, message)
