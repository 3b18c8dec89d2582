"""What the doctor finds on real servers."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from schemaless_core import Datastore
from schemaless_core.engine.base import Fact
from schemaless_core.engine.sqlite.file import to_microseconds
from schemaless_core.servers.doctor import Doctor, is_ready
from schemaless_core.triggers.watch import HeadsWatch
from tests.chaos.actors import wait_until
from tests.promoted import promotable
from tests.stores import SERVER_ENGINES, ServerEngine, Stores


@pytest.mark.parametrize("engine", SERVER_ENGINES)
def test_a_table_cache_that_is_divided_too_finely_is_named(engine: str, stores: Stores) -> None:
    node = stores.fresh(engine).clusters["a"].primary.node

    def found(shards: int) -> list[Fact]:
        facts = node.facts(is_replica=False, shards=shards)
        return [fact for fact in facts if fact.name == "table_open_cache_instances"]

    if engine == "mariadb":
        assert found(8) == []  # it divides its cache only under contention
    else:
        assert [fact.is_fine for fact in found(8) + found(10_000_000)] == [True, False]


SEMI_SYNC = {
    "mariadb": ("rpl_semi_sync_master", "rpl_semi_sync_slave"),
    "mysql": ("rpl_semi_sync_source", "rpl_semi_sync_replica"),
}


def test_i1_what_a_primary_that_waits_for_no_replica_risks_is_said(server_engine: ServerEngine, tmp_path: Path) -> None:
    """Of servers without replicas nothing is; what is on, and does not do it, is not fine."""
    source, replica = SEMI_SYNC[server_engine]
    with promotable(server_engine, tmp_path, replicas=1) as made:

        def found() -> tuple[str, bool]:
            doctor = Doctor(made.store.config, made.store.clusters, made.store.control)
            facts = [each for each in doctor.findings() if each.fact.name == "semi-sync"]
            assert [each.cluster for each in facts] == ["a"], "b has no replica"
            return facts[0].fact.value, facts[0].fact.is_fine

        assert found() == ("off: acknowledged cells that no replica has yet are on this disk alone", True)
        if server_engine == "mysql":
            made.old.query("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
            made.replica().query("SET GLOBAL super_read_only = 0")
            made.replica().query("INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'")
        made.old.query(f"SET GLOBAL {source}_wait_point = 'AFTER_COMMIT'")
        made.old.query(f"SET GLOBAL {source}_timeout = 1")
        made.old.query(f"SET GLOBAL {source}_enabled = 1")
        assert found() == ("on, AFTER_COMMIT", False)
        made.old.query(f"SET GLOBAL {source}_wait_point = 'AFTER_SYNC'")
        made.put(1)
        assert found() == ("on, and has fallen back; replicas that take part: 0", False)

        made.old.query(f"SET GLOBAL {source}_timeout = 5000")
        made.replica().query(f"SET GLOBAL {replica}_enabled = 1")
        for verb in ("STOP", "START"):
            made.replica().query(f"{verb} REPLICA IO_THREAD")
        wait_until("it is on again", lambda: made.put(1) and found()[1])
        assert found() == ("on, AFTER_SYNC; replicas that take part: 1; it falls back after 5000 ms", True)


def test_a_clock_that_jumped_forwards_is_said_with_its_end(datastore_engine: str, stores: Stores) -> None:
    """It leaves its time to every later cell. Control: what is not ahead is fine."""
    store = stores.fresh(datastore_engine, shards=2)
    node = store.clusters["a"].primary.node

    def found() -> list[tuple[str, bool]]:
        facts = node.facts(is_replica=False, shards=1)
        return [(fact.value, fact.is_fine) for fact in facts if fact.name == "created_at"]

    store.put_cell(UUID(int=1), "BASE", 1, "before")
    assert found() == []

    jump(store, stores, datastore_engine, datetime(2038, 1, 19, tzinfo=UTC))
    store.put_cell(UUID(int=2), "BASE", 1, "after the clock was set right")

    cell = store.get_cell(UUID(int=2), "BASE", 1)
    assert cell is not None
    assert cell.created_at == datetime(2038, 1, 19, tzinfo=UTC)
    assert found() == [("1 shard stands in the future, until 2038-01-19 00:00:00 UTC", False)]


def test_the_metric_says_how_far_the_times_of_a_cluster_are_ahead(datastore_engine: str, stores: Stores) -> None:
    """Control: 0 before the jump, and once real time has caught up."""
    store = stores.fresh(datastore_engine, shards=2)

    def ahead_seconds() -> float:
        HeadsWatch(store.clusters).look()
        found = REGISTRY.get_sample_value("schemaless_created_ahead_seconds", {"cluster": "a"})
        assert found is not None
        return found

    store.put_cell(UUID(int=1), "BASE", 1, "before")
    assert ahead_seconds() == 0.0

    jump(store, stores, datastore_engine, datetime.now(UTC) + timedelta(days=2))
    assert ahead_seconds() == pytest.approx(2 * 86_400, abs=60)

    jump(store, stores, datastore_engine, datetime.now(UTC) - timedelta(seconds=1))
    assert ahead_seconds() == 0.0


def test_i12_a_shard_whose_database_was_dropped_is_named_and_made_anew_by_nothing(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """An empty one in its place would look as if nothing had ever been there."""
    store = stores.fresh(server_engine, shards=2)
    name = next(name for name, each in store.clusters.items() if 1 in each.primary.node.shards_present())

    def found() -> list[tuple[str, bool]]:
        facts = store.clusters[name].primary.node.facts(is_replica=False, shards=2)
        return [(fact.value, fact.is_fine) for fact in facts if fact.name == "databases"]

    assert found() == []
    server = stores.primaries(server_engine)[name]
    server.query(f"DROP DATABASE {store.config.datastore}_0001")  # type: ignore[attr-defined]  # both engines have it

    assert found() == [("the cells of shard 1 are no table any more", False)]
    assert not is_ready(Doctor(store.config, store.clusters, store.control).findings())
    assert store.schema.plan().is_done
    assert found() == [("the cells of shard 1 are no table any more", False)]


def jump(store: Datastore, stores: Stores, engine: str, moment: datetime) -> None:
    """What a put leaves that came while the clock stood there."""
    if engine == "sqlite":
        for each in store.config.clusters:
            with closing(sqlite3.connect(Path(each.primary.folder) / f"{store.config.datastore}.db")) as file, file:
                file.execute("UPDATE shard_state SET last_created_at = ?", (to_microseconds(moment),))
        return
    for server in stores.primaries(cast(ServerEngine, engine)).values():
        state, at = f"{store.config.datastore}_meta.shard_state", f"{moment:%Y-%m-%d %H:%M:%S}"
        server.query(f"UPDATE {state} SET last_created_at = %s", at)  # type: ignore[attr-defined]  # both engines have it
