"""`tripstore backup`: made, killed, gone on with, listed, read back, restored elsewhere, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemaless_core import Cell, Datastore
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.acceptance.conftest import Shell
from tests.backups import expire, logs_of
from tests.fscks import row_of
from tests.stores import ServerEngine, Stores

SHARDS = 4


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores, shell: Shell) -> Datastore:
    """A datastore on servers with a cell in each shard, and its configuration beside the shell."""
    made = Datastore.open(written(shell, "tripstore.yaml", stores.config(server_engine, shards=SHARDS)))
    made.create_schema()
    made.put_cells([Cell(row_of(made, n % SHARDS), "BASE", 1, {"fare": n}) for n in range(40)])
    return made


def written(shell: Shell, name: str, config: dict[str, Any]) -> dict[str, Any]:
    (shell.folder / name).write_text(yaml.safe_dump(json.loads(json.dumps(config))))
    return config


def killed_at(shell: Shell, point: str, *arguments: str) -> None:
    """Run a command that is killed by SIGKILL at a failpoint."""
    folder = shell.folder / "failpoints"
    folder.mkdir(exist_ok=True)
    (folder / point).write_text("kill after=1")
    ran = shell.run(*arguments, environment={ENVIRONMENT_VARIABLE: str(folder)})
    assert (ran.code, (folder / f"{point}.hit").exists()) == (-9, True), ran.stderr


def test_a_backup_is_made_read_back_and_restored_though_each_was_killed(
    store: Datastore, shell: Shell, server_engine: ServerEngine, stores: Stores
) -> None:
    with store:
        planned = shell.call("backup", "create", "kept", "--dry-run", "--json")
        assert planned.document == {"base": "", "shards": SHARDS, "cells": 40, "there": 0}
        killed_at(shell, "backup.file_written", "backup", "create", "kept")
        unfinished = shell.call("backup", "list", "kept")
        expire(store)
        made = shell.run("backup", "create", "--resume", "last", "--json")
        again = shell.call("backup", "create", "kept", "--json")
        listed = shell.call("backup", "list", "kept", "--json").document["backups"]
        verified = shell.call("backup", "verify", "kept")

        assert "unfinished" in unfinished.stdout
        assert (made.code, made.document["progress"]["rows"], made.document["postgres"]) == (0, 40, None)
        assert (again.code, again.document["progress"]["rows"]) == (0, 0)
        assert [(each["state"], each["base"], each["cells"]) for each in listed] == [
            ("whole", made.document["backup"], 40),
            ("whole", "", 40),
        ]
        assert (verified.code, "40 cells. Everything is as it was written" in verified.stdout) == (0, True)

        config = written(shell, "copy.yaml", stores.config(server_engine, shards=SHARDS))
        there = ("--config", "copy.yaml")
        late = shell.call("backup", "restore", "kept", "--until", "2100-01-01", "--dry-run", *there)
        asked = shell.call("backup", "restore", "kept", *there)
        killed_at(shell, "restore.page_written", "backup", "restore", "kept", *there, "--yes")
        with Datastore.open(config) as copy:
            expire(copy)
        restored = shell.run("backup", "restore", "--resume", "last", *there, "--json")
        refused = shell.call("backup", "restore", "kept", *there, "--yes")

        assert f"of datastore {store.config.datastore}, begun" in late.stdout
        assert "begun before --until" in late.stdout
        assert "--yes" in asked.complaint
        assert (restored.code, restored.document["progress"]["rows"]) == (0, 40), restored.stderr
        assert (refused.code, "has shards already" in refused.stdout) == (4, True)
        with Datastore.open(config) as copy:
            assert logs_of(copy) == logs_of(store)


def test_damage_is_named_and_what_is_no_order_is_said(store: Datastore, shell: Shell) -> None:
    with store:
        made = shell.call("backup", "create", "kept", "--json").document["backup"]
        file = next((shell.folder / "kept" / made).glob("0000-0*"))
        file.write_bytes(file.read_bytes()[:-1])
        damaged = shell.call("backup", "verify", "kept", "--json")
        next_one = shell.call("backup", "create", "kept")
        neither = shell.call("backup", "create")
        mixed = shell.call("backup", "create", "kept", "--resume", "last")
        no_time = shell.call("backup", "restore", "kept", "--until", "yesterday")
        none = shell.call("backup", "verify", "elsewhere")

    assert (damaged.code, list(damaged.document["damages"])) == (1, [f"{made}/{file.name}"])
    assert (next_one.code, "create --full" in next_one.complaint) == (1, True)
    assert [each.code for each in (neither, mixed, no_time)] == [2, 2, 2]
    assert "is no time" in no_time.complaint
    assert "elsewhere has no backup" in none.complaint
    assert Path(shell.folder / "elsewhere").exists() is False
