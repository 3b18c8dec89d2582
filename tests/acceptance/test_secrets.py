"""No command shows a secret of its configuration: no server answers, and every command says so, traceback and all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import pytest
import yaml

from schemaless_core.json_lines import JsonLines
from schemaless_core.urls import NodeUrl
from tests.acceptance.conftest import Shell
from tests.layouts import document
from tripstore.cli.reference import commands
from tripstore.cli.root import root
from tripstore.local.ports import free_port, release

#: As it is written in a URL; the part that no encoding changes is looked for.
SECRET, PLANTED = "pl%40nted-s3cret", "nted-s3cret"
WHATS = ("primary", "replica", "other", "control", "legacy")
LEAVES = {
    context.command_path.removeprefix("tripstore "): command
    for command, context in commands(root, click.Context(root, None, "tripstore"))
    if not isinstance(command, click.Group)
}
#: They serve until they are stopped, or make servers of their own and read no configuration.
SERVING = {"console", "demo", "dev up", "mirror run", "serve", "triggers run", "worker run"}
VALUES: dict[str, list[str]] = {
    "row_key": [str(uuid4())],
    "body": ["{}"],
    "ref_key": ["1"],
    "shard": ["0"],
    "shards": ["0"],
    "number": ["1"],
    "added_id": ["1"],
    "place": ["now"],
    "key": [f"{uuid4()}/BASE/1"],
    "keys": [f"{uuid4()}/BASE/1"],
    "path": ["code"],
    "code": ["code"],
    "file": ["statements.sql"],
    "bundle": ["statements.sql"],
    "audit": ["statements.sql"],
    "folder": ["revisions"],
    "source": [f"mysql://app:{SECRET}-old@127.0.0.9:1"],
}


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Shell]:
    """A configuration with every key that may hold a secret; nothing listens at its port."""
    port = free_port()

    def login(what: str) -> str:
        host = WHATS.index(what) + 1  # all of them are of the loopback
        return f"app:{SECRET}-{what}@127.0.0.{host}:{port}"

    config: dict[str, Any] = {
        "datastore": "trips",
        "shards": 2,
        "clusters": {
            "a": {"primary": f"mysql://{login('primary')}", "replicas": [f"mysql://{login('replica')}"]},
            "b": {"primary": f"mysql://{login('other')}"},
        },
        "control": f"mysql://{login('control')}/control",
        "legacy": {"postgres": f"postgresql://{login('legacy')}/company", "layout": "layout.yaml"},
        "replication": {"user": "replicator", "password": f"pl@{PLANTED}-replication"},
        "buffer": {},
        "http": {"tokens": [{"service": "billing", "token": f"pl@{PLANTED}-token", "rights": "read"}]},
    }
    (tmp_path / "tripstore.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "layout.yaml").write_text(yaml.safe_dump(document()))
    (tmp_path / "statements.sql").write_text("SELECT 1;\n")
    for folder in ("code", "revisions"):
        (tmp_path / folder).mkdir()
    yield Shell(tmp_path)
    release(port)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Every line that the libraries log, as text and as JSON, from the finest level on."""
    lines: list[str] = []
    every = _Kept(lines)
    base, level = logging.getLogger(), logging.getLogger().level
    base.addHandler(every)
    base.setLevel(logging.DEBUG)
    yield lines
    base.removeHandler(every)
    base.setLevel(level)


class _Kept(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines
        self._json = JsonLines()
        self._text = logging.Formatter("%(message)s %(args)s")

    def emit(self, record: logging.LogRecord) -> None:
        self._lines += [self._text.format(record), self._json.format(record), str(vars(record))]


def arguments_of(command: click.Command) -> list[str]:
    """What a command wants, with names that are of nothing."""
    said: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            said += _value(parameter)
        elif parameter.required:
            said += [parameter.opts[0], *_value(parameter)]
        elif "--yes" in parameter.opts:
            said.append("--yes")
        elif "--why" in parameter.opts:
            said += ["--why", "a test"]
    return said


def _value(parameter: click.Parameter) -> list[str]:
    if isinstance(parameter.type, click.Choice):
        return [str(parameter.type.choices[0])]
    return VALUES.get(parameter.name or "", ["BASE"])


def shown_by(shell: Shell, path: str) -> str:
    """All that a command says, to a program and to a person, and the files it leaves."""
    before = set(shell.folder.rglob("*"))
    ran = shell.call("--debug", *path.split(), *arguments_of(LEAVES[path]), "--json")
    said = ran.stdout + ran.stderr
    for left in set(shell.folder.rglob("*")) - before:
        if left.is_file():
            said += left.read_bytes().decode(errors="replace")
    return said


def test_no_command_shows_a_secret_where_nothing_answers(planted: Shell, logged: list[str]) -> None:
    said = {path: shown_by(planted, path) for path in sorted(LEAVES.keys() - SERVING)}

    assert [path for path, each in said.items() if not each] == []
    refused = {path for path, each in said.items() if "InvalidConfig" in each}
    assert refused == {"init"}, "others were refused before they used it"
    assert [path for path, each in said.items() if PLANTED in each] == []
    assert [line for line in logged if PLANTED in line] == []


def test_control_a_url_that_shows_its_password_is_seen(
    planted: Shell, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeUrl, "__str__", lambda url: f"{url.user}:{url.password}@{url.host}")

    assert PLANTED in shown_by(planted, "doctor")
    shown_by(planted, "cell get")
    assert any(PLANTED in line for line in logged)
