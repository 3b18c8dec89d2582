"""What a body holds does nothing to the terminal that it is shown on."""

from __future__ import annotations

import os
import pty
import subprocess
from uuid import UUID

import msgspec
import pytest

from schemaless_core.sharding import shard_of
from tests.acceptance.conftest import TRIPSTORE, Shell

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
        except OSError:  # nobody has the other end any more
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
