"""What a body holds does nothing to the terminal that it is shown on."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from uuid import UUID

import msgspec
import pytest

from schemaless_core.cell.sharding import shard_of
from tests.acceptance.conftest import Shell
from tests.acceptance.forked import TRIPSTORE
from tests.scale import SCALE

KEY = "7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11"
#: Of the four.
SHARD = str(shard_of(UUID(KEY), 4))
#: A sequence that clears the screen, begun by one character, and one that turns the rest of the line around.
EVIL = {"name": "\x9b2J\u202eevil\x7f"}
BODY = msgspec.json.encode(EVIL).decode()


@pytest.fixture
def hostile(store: Shell) -> Shell:
    assert store.call("cell", "put", KEY, "BASE", "1", BODY).code == 0
    return store


def on_a_terminal(shell: Shell, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    try:
        wide = {**shell.environment, "COLUMNS": "300"}
        process = subprocess.Popen([TRIPSTORE, *arguments], cwd=shell.folder, stdout=theirs, stderr=theirs, env=wide)
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # the other end is closed
            pass
        assert process.wait(60) == 0
    finally:
        os.close(ours)
    return said.decode()


@pytest.mark.parametrize(
    "arguments", [("get", KEY, "BASE"), ("get", KEY, "BASE", "--json"), ("row", KEY), ("log", SHARD)]
)
def test_control_characters_of_bodies_are_escaped_on_a_terminal(hostile: Shell, arguments: tuple[str, ...]) -> None:
    said = on_a_terminal(hostile, "cell", *arguments)

    assert "\\u009b2J\\u202eevil\\u007f" in said
    assert not {"\x9b", "\u202e", "\x7f"} & set(said)


def test_control_a_pipe_gets_the_stored_bytes(hostile: Shell) -> None:
    piped = hostile.call("cell", "get", KEY, "BASE").stdout

    assert msgspec.json.decode(piped) == EVIL
    assert "\u202e" in piped


COMMANDS = ["--help", "status --json", f"cell get {KEY} BASE", *([f"cell row {KEY}"] if SCALE >= 1 else [])]


def in_shell(shell: Shell, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command], cwd=shell.folder, env=shell.environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_or_closed_stdout_is_said_in_a_sentence_or_not_at_all(hostile: Shell, command: str) -> None:
    full = in_shell(hostile, f"{TRIPSTORE} {command} > /dev/full")
    closed = in_shell(hostile, f"{TRIPSTORE} {command} >&-")
    printed = in_shell(hostile, f"{TRIPSTORE} {command}")

    assert (full.returncode, full.stderr.splitlines()[-2]) == (
        1,
        "Error: What was to be written found no place: No space left on device.",
    )
    assert "Traceback" not in full.stderr + closed.stderr
    # The control: where it can be written it is.
    assert (closed.returncode, printed.returncode) == (0, 0)
    assert printed.stdout


def test_control_a_plain_program_says_it_in_a_traceback(hostile: Shell) -> None:
    plain = in_shell(hostile, """python3 -c 'print("x", flush=True)' > /dev/full""")

    assert plain.returncode != 0
    assert "Traceback" in plain.stderr


WIDE = "x" * 600


@pytest.mark.parametrize("terminal", [{}, {"COLUMNS": "80"}, {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "dumb"}])
def test_a_table_in_a_pipe_is_as_wide_as_its_cells(store: Shell, terminal: dict[str, str]) -> None:
    """The control is a terminal, where it folds."""
    for column, body in (("LONG", f'{{"a":"{WIDE}"}}'), ("SHORT", "1")):
        assert store.call("cell", "put", KEY, column, "1", body).code == 0

    printed = subprocess.run(
        ["sh", "-c", f"{TRIPSTORE} cell row {KEY} | cat"],
        cwd=store.folder,
        env={**store.environment, **terminal},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    _head, long, short = printed.splitlines()
    assert long.endswith(f'{{"a":"{WIDE}"}}')
    assert short.endswith("  1"), "no blanks up to the widest cell"
    assert WIDE not in on_a_terminal(store, "cell", "row", KEY)


LOADING = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["tripstore", "status"]
{then}
"""


@pytest.mark.parametrize("module", ["tripstore.cli.run", "tripstore.cli.status.commands", "click"])
def test_an_interrupt_while_the_command_is_loaded_is_an_interrupt(store: Shell, module: str) -> None:
    begun = run_python(store, LOADING.format(module=module, then="import tripstore.cli; tripstore.cli.main()"))

    assert (begun.returncode, "Traceback" in begun.stderr) == (5, False)
    assert "Interrupted." in begun.stderr


def test_next_to_nothing_is_imported_before_an_interrupt_is_told(store: Shell) -> None:
    """What Python itself loads before it looks at the command is out of reach."""
    counted = "import sys; former = {*sys.modules}; import tripstore.cli; print(*sorted({*sys.modules} - former))"
    begun = run_python(store, counted)

    assert {*begun.stdout.split()} <= {"tripstore", "tripstore.cli", "__future__", "gc"}, begun


def test_control_an_interrupted_import_is_a_traceback(store: Shell) -> None:
    begun = run_python(store, LOADING.format(module="click", then="import tripstore.cli.run"))

    assert "Traceback" in begun.stderr


def run_python(shell: Shell, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
