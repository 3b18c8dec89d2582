"""`tripstore shards failover`: switched on, looked at, at work in a worker, and switched off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.promoted import promotable
from tests.stores import ServerEngine


def test_a_worker_has_another_server_lead_where_it_is_on(
    server_engine: ServerEngine, shell: Shell, tmp_path: Path
) -> None:
    with promotable(server_engine, tmp_path / "control", replicas=1) as made:
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(made.document))))
        off = shell.call("shards", "failover", "status", "--json")
        asked = shell.call("shards", "failover", "on")
        on = shell.call("shards", "failover", "on", "--yes", "--json")
        again = shell.call("shards", "failover", "on", "--yes", "--json")

        assert off.document["clusters"][0]["refusals"] == ["it is off"]
        assert (off.code, asked.code != 0, "--yes" in asked.complaint) == (0, True, True)
        assert (on.document["clusters"], again.document["clusters"]) == (["a"], [])
        made.put(5)
        made.cluster.wait_for_replicas()
        with worker_for_leases(shell):
            wait_until("the lease is extended", lambda: (_looked(shell)["lease_seconds"] or 0.0) > 1.0)
            shown = shell.call("shards", "failover", "status")
            assert shown.code == 0
            assert "s more" in shown.stdout
            refusals = _looked(shell)["refusals"]
            assert refusals == []

        taken_back = shell.call("shards", "failover", "off", "--yes")
        assert "Automatic failover is off; opened anew: a." in taken_back.stdout
        assert not _looked(shell)["is_automatic"]
        made.put(1)


@contextmanager
def worker_for_leases(shell: Shell) -> Iterator[None]:
    """A worker that extends leases, and does not outlive the block."""
    process = shell.start("worker", "run", "--only", "failover")
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _looked(shell: Shell) -> dict[str, Any]:
    document = shell.call("shards", "failover", "status", "--json").document
    found: dict[str, Any] = next(each for each in document["clusters"] if each["cluster"] == "a")
    return found
