"""`make quick` starts no server, and every commit runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.stores import CELL_STORES

ROOT = Path(__file__).parents[2]


def stores_of(*options: str) -> set[str]:
    """The stores that a run of one file of the contract has tests of."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options, "tests/contract/test_habits.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    return {store for store in CELL_STORES if re.search(rf"[\[-]{store}[\]-]", listed)}


@pytest.mark.slow
def test_the_contract_runs_over_what_needs_no_server() -> None:
    assert stores_of("--quick") == {"memory", "sqlite", "aio sqlite"}


@pytest.mark.slow
def test_control_without_the_option_it_runs_over_servers() -> None:
    assert stores_of() > {"memory", "sqlite", "mariadb"}


def test_each_commit_runs_it() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (hook,) = repository["hooks"]

    assert (repository["repo"], hook["language"], hook["entry"]) == ("local", "system", "make quick")
    assert (hook["always_run"], hook["pass_filenames"]) == (True, False)
    recipe = re.search(r"^quick: check\n\t(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert "--quick" in recipe[1]
    assert recipe[1].endswith("tests/unit tests/contract")
