"""The list of commands: it is printed without any of them, and a command that is called comes alone."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import click
import pytest

from schemaless_core.version import VERSION
from tripstore.cli.exits import Exit
from tripstore.cli.options import Settings
from tripstore.cli.root import PLACES, root
from tripstore.cli.run import run

_WHAT_IS_IMPORTED = """
import sys
from tripstore.cli.run import run
run({arguments})
print(*(name for name in {modules} if name in sys.modules), file=sys.stderr)
"""


def imported_by(*arguments: str) -> list[str]:
    """The modules of commands that are imported after a process ran this one."""
    code = _WHAT_IS_IMPORTED.format(arguments=list(arguments), modules=[place.module for place in PLACES.values()])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stderr.split()


def test_the_version_that_is_said_is_the_one_that_is_installed() -> None:
    assert version("tripstore") == VERSION


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("shadwo",)])
def test_what_is_no_command_imports_none(arguments: tuple[str, ...]) -> None:
    assert not [name for name in imported_by(*arguments) if name.startswith("tripstore.")]


def test_a_mistyped_command_is_answered_with_the_likely_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backfil", "start"]) == Exit.USAGE
    assert "No such command 'backfil'. Did you mean backfill" in capsys.readouterr().err

    assert run(["zzz"]) == Exit.USAGE
    assert "Did you mean" not in capsys.readouterr().err


def test_an_interrupt_before_a_hand_over_says_that_it_had_not_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_settings: Settings) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Settings, "connect", interrupted)

    assert run(["cutover", "switch", "--yes"]) == Exit.INTERRUPTED
    assert "The hand-over had not begun, so it changed nothing." in capsys.readouterr().err


def test_the_list_of_commands_needs_two_packages_of_others() -> None:
    """What makes it quick: each of the others costs more than all of these."""
    assert packages("--help") <= {"click", "msgspec", "typing_extensions"}


@pytest.mark.slow
def test_control_a_command_needs_more() -> None:
    assert {"rich", "psycopg2"} <= packages("phase", "--help")


def packages(*arguments: str) -> set[str]:
    """Those of others that a process imports that runs this one."""
    code = _WHAT_IS_IMPORTED.format(arguments=list(arguments), modules="sys.modules")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found = {name.partition(".")[0] for name in done.stderr.split()}
    bare = [sys.executable, "-c", "import sys; print(*sys.modules)"]  # Debian's own Python imports a `sitecustomize`
    found -= set(subprocess.run(bare, capture_output=True, text=True, check=True, timeout=60).stdout.split())
    return found - sys.stdlib_module_names - {"__main__", "tripstore", "schemaless_core", "_distutils_hack"}


@pytest.mark.slow
def test_control_a_command_is_imported_when_it_is_called() -> None:
    assert PLACES["phase"].module in imported_by("phase", "--help")
    assert PLACES["backfill"].module not in imported_by("phase", "--help")


@pytest.mark.parametrize("name", sorted(PLACES))
def test_each_name_of_the_list_is_a_command_of_that_name(name: str) -> None:
    command = root.get_command(click.Context(root), name)

    assert command is not None
    assert command.name == name


def test_each_command_has_one_line_in_the_list() -> None:
    shown = root.get_help(click.Context(root, terminal_width=80)).partition("Commands:\n")[2].splitlines()

    assert [line.split()[0] for line in shown] == sorted(PLACES)
