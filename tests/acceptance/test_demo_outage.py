"""The demo's outage on real servers, without the company: what its steps say is measured, and no promise is broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from schemaless_core.cell.answers import PutStatus
from schemaless_core.cell.cell import Cell
from tests.chaos.actors import wait_until
from tests.promoted import DEADLINES
from tests.stores import ServerEngine
from tripstore.demo.commands import Commands
from tripstore.demo.crew import Crew
from tripstore.demo.journal import Acknowledged
from tripstore.demo.outage import BUFFERED_BEFORE, Outage
from tripstore.demo.report import Narrator
from tripstore.demo.story import RIDES, is_kept
from tripstore.demo.workers import Workers
from tripstore.local.binlog import REPLICATION_USER
from tripstore.local.replication import SEMI_SYNC, LocalCluster
from tripstore.local.servers import LocalServers
from tripstore.wiring import connect

SHARDS = 8


@pytest.fixture
def clusters(server_engine: ServerEngine) -> Iterator[list[LocalCluster]]:
    with LocalServers() as servers:
        yield servers.clusters(server_engine, ["a", "b"], replicas=1, shards=SHARDS, settings=SEMI_SYNC[server_engine])


def configured(clusters: list[LocalCluster], folder: Path) -> Path:
    """As the demo writes it: the control database is on the first cluster's primary."""
    document = {
        "datastore": "trips",
        "shards": SHARDS,
        "clusters": {
            each.name: {"primary": each.primary.url, "replicas": [replica.url for replica in each.replicas]}
            for each in clusters
        },
        # On a busy machine a buffer may take its time; of the dead server each put hears at once.
        "buffer": {"put_seconds": 5.0},
        "deadlines": DEADLINES,
        "replication": {"user": REPLICATION_USER, "password": clusters[0].primary.password},
    }
    config = folder / "tripstore.yaml"
    config.write_text(yaml.safe_dump(document))
    return config


@pytest.mark.shown("tests/chaos/test_always_writable.py::test_i1_i3_i5_puts_are_answered_whatever_befalls_one_server")
def test_i1_i5_every_promise_outlives_the_primary(clusters: list[LocalCluster], tmp_path: Path) -> None:
    """Puts of its shards are buffered, read back and replayed; the replica leads, and the old server follows it."""
    config = configured(clusters, tmp_path)
    commands, narrator = Commands(config), Narrator(lambda _line: None)
    commands.run("tripstore schema apply")
    with (
        connect(config) as store,
        Workers("worker", config, tmp_path, {}) as workers,
        Crew("rides", config, tmp_path) as rides,
        Crew("storm", config, tmp_path) as storm,
    ):
        workers.start("worker", "run")
        rides.start(1, RIDES)
        rides.wait()
        known, lost = rides.all_entries(), clusters[1]
        outage = Outage(lost, store, commands, storm)
        for play in (lambda step: outage.begin(step, known), outage.promote, outage.bring_back):
            with narrator.step("", "") as step:
                play(step)
        workers.finish()

        checks = {check.name: check for step in narrator.steps for check in step.checks}
        wrong = [f"{check.name}: {check.detail}" for check in checks.values() if not check.is_fine]
        assert wrong == []
        said = "\n".join(line for step in narrator.steps for line in step.lines)
        first = re.search(r"the first put was buffered ([\d,]+) ms after the kill", said)
        assert first, said
        promises = known + storm.all_entries()
        buffered = [entry for entry in promises if entry.status is PutStatus.BUFFERED]
        assert len(buffered) >= BUFFERED_BEFORE
        assert checks["include_buffered=True reads them back"].detail == f"{BUFFERED_BEFORE:,} of {BUFFERED_BEFORE:,}"
        missing = [
            entry for entry in promises if (cell := store.get_cell(*entry.key)) is None or not is_it(entry, cell)
        ]
        assert missing == []
        assert lost.replicas[0].replica_status() == {}
        wait_until("commits wait for the old server", lambda: lost.replicas[0].waits_for_a_replica)
        assert lost.primary.replica_failure() is None


def is_it(entry: Acknowledged, cell: Cell) -> bool:
    return is_kept(entry, {entry.key: cell})
