"""What every command waits for before it does anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTED = "import sys, {module}; print(*sys.modules)"


def imported_by(module: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(module=module)], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_a_command_that_migrates_nothing_does_not_wait_for_what_migrates() -> None:
    slow = {"alembic", "mako", "pygments", "jinja2", "pgparse"}

    assert imported_by("tripstore.cli.run") & slow == set()


def test_a_command_that_migrates_nothing_does_not_wait_for_the_types_of_postgres() -> None:
    assert "sqlalchemy.dialects.postgresql" not in imported_by("tripstore.cli.cutover.commands, tripstore.wiring")


def test_help_waits_for_no_store() -> None:
    imported = imported_by("tripstore.cli")

    assert imported & {"sqlalchemy", "psycopg2", "pymysql", "yaml", "rich", "importlib.metadata"} == set()
    assert {name for name in imported if name.startswith("tripstore.") and name.count(".") > 2} == set()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["alembic.command", "jinja2", "sqlalchemy.dialects.postgresql", "psycopg2"])
def test_control_it_would_be_seen(module: str) -> None:
    assert module in imported_by(module)


@pytest.mark.slow
def test_the_example_says_in_a_sentence_that_there_is_no_database() -> None:
    """Control: what it prints otherwise is a traceback of ninety lines, with exit code 1 as well."""
    command = [sys.executable, "-m", "tripstore.demo.legacy", "--url", "postgresql://me@127.0.0.1:1/none", "--create"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: the database cannot be reached (")
    assert "Connection refused" in line
    assert line.endswith("Look at --url, and whether Postgres runs.")
