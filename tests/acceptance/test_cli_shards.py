"""`tripstore shards`: who leads, another primary, and what the old disk alone had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine


class Told(NamedTuple):
    """A cluster, and a shell beside its configuration."""

    made: Promotable
    shell: Shell


@pytest.fixture
def told(server_engine: ServerEngine, shell: Shell, tmp_path: Path) -> Iterator[Told]:
    with promotable(server_engine, tmp_path / "control", replicas=1) as made:
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(made.document))))
        yield Told(made, shell)


def test_it_is_looked_at_done_once_and_shown(told: Told) -> None:
    made, shell = told
    cells = made.put(3)
    before = shell.call("shards", "status", "--json")
    planned = shell.call("shards", "promote", "a", "--dry-run")
    asked = shell.call("shards", "promote", "a")
    assert before.code == 0
    (cluster,) = before.document["clusters"]
    assert [(each["leads"], each["error"]) for each in cluster["servers"]] == [(True, None), (False, None)]
    assert cluster["promotion"]["state"] == "none"
    assert planned.code == 0
    assert "take all writes from a server" in planned.stdout
    assert "--yes" in asked.complaint
    assert made.leads() == made.name(made.old), "nothing was changed"

    promoted = shell.call("shards", "promote", "a", "--yes", "--json")
    to = f"127.0.0.1:{made.replica().port}"
    again = shell.call("shards", "promote", "a", "--to", to, "--yes")

    assert (promoted.code, promoted.document["left"]) == (0, [])
    assert promoted.document["promotion"] == {
        "number": 1,
        "state": "done",
        "before": None,
        "to": made.name(made.replica()),
        "given_up": [],
    }
    assert f"{to} leads cluster a (promotion 1)" in again.stdout, "what is done is not done again"
    shown = shell.call("shards", "status")
    assert shown.code == 0
    assert "Cluster b has no replica" in shown.stdout
    assert shell.call("cell", "get", str(cells[0].row_key), "BASE", "1").code == 0


def test_after_a_death_what_was_lost_is_salvaged(told: Told) -> None:
    made, shell = told
    made.cluster.wait_for_replicas()
    made.replica().query("STOP REPLICA IO_THREAD")
    lost = made.put(4)
    early = shell.call("shards", "promote", "a", "--old-is-dead", "--yes")
    assert early.code == 1
    assert "answers, so it is not dead" in early.complaint
    made.old.kill()
    down = shell.call("shards", "status")
    assert down.code == 1

    promoted = shell.call("shards", "promote", "a", "--old-is-dead", "--yes")
    made.old.start()
    dry = shell.call("shards", "salvage", "a", "--from", made.old.url, "--dry-run", "--json")
    done = shell.call("shards", "salvage", "a", "--from", made.old.url)

    assert promoted.code == 0
    assert "follows no server" in promoted.stdout
    assert (dry.code, dry.document["cells"], dry.document["salvaged"]) == (0, 4, 4)
    assert done.code == 0
    assert "4 were put" in done.stdout
    assert all(made.store.get_cell(*cell.key) == cell for cell in lost)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("promote", "nowhere", "--yes"), "There is no cluster nowhere"),
        (("promote", "a", "--to", "nowhere:1", "--yes"), "has no server nowhere:1"),
        (("promote", "b", "--dry-run"), "Cluster b has no replica"),
        (("salvage", "a", "--from", "nowhere"), "is no node URL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said(told: Told, arguments: tuple[str, ...], says: str) -> None:
    ran = told.shell.call("shards", *arguments)

    assert ran.code != 0
    assert says in ran.complaint + ran.stdout
