"""Creation of a datastore: idempotent, raced, killed and resumed; one topology and one line of the audit log."""

from __future__ import annotations

import json
import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from schemaless_core import ControlUnavailable, Datastore, InvalidServer, ShardStatus, StaleEpoch, TopologyConflict
from schemaless_core.control.audit import AuditEntry, AuditLog
from schemaless_core.deadline import Deadline
from schemaless_core.servers.topologies import Topologies
from tests.factories import keys_in, make_cell
from tests.indexing import catch_up
from tests.integration.creation import finish, start
from tests.integration.written import Written
from tests.stores import ServerEngine, Stores

SHARDS = 4
_DRIVER = {"field": "driver", "type": "string"}


def audit(datastore: Datastore) -> list[AuditEntry]:
    return AuditLog(datastore.control).newest()


def assert_complete(datastore: Datastore) -> None:
    """Every shard is there, once, and takes cells."""
    topology = Topologies(datastore.control).find_newest()
    assert topology is not None
    assert topology.version == 1
    for name, cluster in datastore.clusters.items():
        assert cluster.primary.node.shards_present() == set(topology.shards_of(name))
    cells = [make_cell(next(keys_in(datastore, shard))) for shard in range(SHARDS)]
    assert {result.status for result in datastore.put_cells(cells)} == {"CREATED"}
    assert datastore.schema.plan().is_done


def test_a_schema_created_again_changes_nothing(datastore_engine: str, stores: Stores) -> None:
    datastore = stores.fresh(datastore_engine, shards=SHARDS)
    cell = make_cell()
    datastore.put_cell(*cell.key, cell.body)

    again = [datastore.create_schema() for _ in range(2)]

    assert [plan.is_done for plan in again] == [True, True]
    assert datastore.get_cell(*cell.key) == cell
    (entry,) = audit(datastore)
    assert entry.action == "schema.create"
    assert json.loads(entry.detail) == {"version": 1, "shards": SHARDS, "clusters": ["a", "b"]}
    assert all((entry.who, entry.host, entry.at))
    assert_complete(datastore)


def test_two_processes_create_one_datastore_at_once(datastore_engine: str, stores: Stores, failpoints: Path) -> None:
    config = stores.config(datastore_engine, shards=SHARDS)

    processes = [start(config, failpoints) for _ in range(2)]
    outcomes = [finish(process) for process in processes]

    assert outcomes == [0, 0]
    with Datastore.open(config) as datastore:
        # The process that came second may have found the topology and helped with the shards.
        assert [entry.action for entry in audit(datastore)].count("schema.create") == 1
        assert_complete(datastore)


def test_a_creation_while_another_session_migrates_is_refused_in_the_end(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = stores.config(server_engine, shards=SHARDS)
    monkeypatch.setattr("schemaless_core.control.database.MIGRATION_SECONDS", 0)
    name = f"{config['datastore']}_control"

    with closing(stores.clusters(server_engine)[0].primary.connect()) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", (f"{name}.migrate",))
        with (
            Datastore.open(config) as datastore,
            pytest.raises(ControlUnavailable, match="migrated by another process") as refused,
        ):
            datastore.create_schema()

    assert refused.value.hint
    assert Written(config).now() == [f"a: {name}"]  # its empty database, and no shard
    with Datastore.open(config) as datastore:
        datastore.create_schema()


@pytest.mark.parametrize("point", ["schema.tables_created", "schema.shards_opened"])
def test_a_creation_that_was_killed_is_resumed(
    datastore_engine: str, stores: Stores, failpoints: Path, point: str
) -> None:
    config = stores.config(datastore_engine, shards=SHARDS)
    (failpoints / point).write_text("kill")

    assert finish(start(config, failpoints)) == -signal.SIGKILL
    assert (failpoints / f"{point}.hit").exists()

    with Datastore.open(config) as datastore:
        plan = datastore.create_schema()
        assert not plan.is_new_topology
        # Both clusters are created at the same time: the other may have come to its end.
        assert point == "schema.shards_opened" or not plan.is_done
        resumed = [] if plan.is_done else ["schema.complete"]
        assert [entry.action for entry in audit(datastore)] == [*resumed, "schema.create"]
        assert_complete(datastore)


def test_a_creation_that_was_killed_after_its_last_shard_is_in_the_audit_log(
    datastore_engine: str, stores: Stores, failpoints: Path
) -> None:
    config = stores.config(datastore_engine, shards=SHARDS)
    config["clusters"] = {"a": config["clusters"]["a"]}
    (failpoints / "schema.shards_opened").write_text("kill")

    assert finish(start(config, failpoints)) == -signal.SIGKILL

    with Datastore.open(config) as datastore:
        datastore.create_schema()
        assert [entry.action for entry in audit(datastore)] == ["schema.create"]
        assert_complete(datastore)


def test_a_plan_changes_nothing(datastore_engine: str, stores: Stores) -> None:
    config = stores.config(datastore_engine, shards=SHARDS)
    written = Written(config)

    with Datastore.open(config) as datastore:
        plan = datastore.schema.plan()

    assert (plan.is_done, plan.is_new_topology, plan.control_version) == (False, True, None)
    assert plan.missing == {"a": [0, 1], "b": [2, 3]}
    assert written.now() == []


def test_the_progress_of_a_creation_is_told_up_to_its_end(stores: Stores) -> None:
    told: list[tuple[int, int]] = []

    with Datastore.open(stores.config("sqlite", shards=SHARDS)) as datastore:
        datastore.create_schema(progress=lambda done, total: told.append((done, total)))

    assert told[-1] == (SHARDS, SHARDS)
    assert [total for _done, total in told] == [SHARDS] * len(told)


def test_clusters_may_outnumber_shards(datastore_engine: str, stores: Stores) -> None:
    datastore = stores.fresh(datastore_engine, shards=1)
    cell = make_cell()

    datastore.put_cell(*cell.key, cell.body)

    assert datastore.get_cell(*cell.key) == cell
    assert sum(len(cluster.primary.node.shards_present()) for cluster in datastore.clusters.values()) == 1
    assert datastore.create_schema().is_done


def test_a_server_without_shards_is_ready_for_what_all_servers_have(datastore_engine: str, stores: Stores) -> None:
    """Workers look at each server that is configured, and it may be given shards."""
    index = {"table": "trips_of_driver", "column_defs": [{"column_key": "BASE", "fields": [_DRIVER]}]}
    with Datastore.open(stores.config(datastore_engine, shards=1, indexes=[index])) as datastore:
        datastore.create_schema()
        datastore.put_cell(uuid4(), "BASE", 1, {"driver": "d"})
        catch_up(datastore)

        assert len(datastore.query_index("trips_of_driver", "d").entries) == 1
        (without,) = [each for each in datastore.clusters.values() if not each.primary.node.shards_present()]
        assert without.primary.node.shard_count(Deadline(10)) == 1


def test_shards_created_as_copies_refuse_owners_and_admit_copiers(datastore_engine: str, stores: Stores) -> None:
    with Datastore.open(stores.config(datastore_engine, shards=SHARDS)) as datastore:
        datastore.create_schema(status=ShardStatus.COPY)
        row_key = uuid4()

        with pytest.raises(StaleEpoch, match="it is COPY") as refused:
            datastore.put_cell(row_key, "BASE", 1, "an owner's")
        with pytest.raises(StaleEpoch):
            datastore.append_cell(row_key, "BASE", "an owner's")
        with pytest.raises(StaleEpoch, match="is older than its 0"):
            datastore.as_copier(-1).put_cell(row_key, "BASE", 1, "from a former authority")
        copied = datastore.as_copier(0).put_cell(row_key, "BASE", 1, "a copy")
        ahead = datastore.as_copier(7).put_cell(row_key, "BASE", 2, "from the next authority")

        assert refused.value.hint
        assert [copied.status, ahead.status] == ["CREATED", "CREATED"]
        assert [cell.ref_key for cell in datastore.get_history(row_key, "BASE")] == [2, 1]


def test_creating_again_with_another_status_changes_no_shard(datastore_engine: str, stores: Stores) -> None:
    datastore = stores.fresh(datastore_engine, shards=SHARDS)

    datastore.create_schema(status=ShardStatus.COPY)

    assert datastore.put_cell(uuid4(), "BASE", 1, "an owner's").status == "CREATED"


def test_a_shard_that_was_lost_is_named_and_created_again(datastore_engine: str, stores: Stores) -> None:
    """An empty server in the place of the old one: the plan says what is missing, before anything is done."""
    config = stores.config(datastore_engine, shards=SHARDS)
    with Datastore.open(config) as datastore:
        datastore.create_schema()
    Written(config).forget("b")

    with Datastore.open(config) as datastore:
        assert datastore.schema.plan().missing == {"a": [], "b": [2, 3]}
        datastore.create_schema()
        assert [entry.action for entry in audit(datastore)] == ["schema.complete", "schema.create"]
        assert_complete(datastore)


def test_shards_are_not_placed_anew_when_the_control_database_lost_its_topology(stores: Stores, tmp_path: Path) -> None:
    """With one cluster more, a new topology would open empty shards beside those that hold the cells."""
    config = stores.config("sqlite", shards=SHARDS)
    with Datastore.open(config) as datastore:
        datastore.create_schema()
    config["control"] = f"sqlite:///{tmp_path / 'another'}"
    config["clusters"] = {"new": {"primary": f"sqlite:///{tmp_path / 'new'}"}} | config["clusters"]

    with Datastore.open(config) as datastore, pytest.raises(TopologyConflict, match="place elsewhere"):
        datastore.create_schema()

    del config["clusters"]["new"]
    with Datastore.open(config) as datastore:
        assert datastore.create_schema().missing == {"a": [], "b": []}
        assert_complete(datastore)


def grant_rows_only(stores: Stores, engine: ServerEngine, config: dict[str, Any], *databases: str) -> dict[str, Any]:
    """The configuration with a login that reads and writes rows of these databases, and creates nothing."""
    user = f"rows_{uuid4().hex[:8]}"
    for cluster in stores.clusters(engine):
        server = cluster.primary
        server.query(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'weak'")
        for database in databases:
            server.query(f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{database}`.* TO {user}@'127.0.0.1'")
    clusters = {
        name: {"primary": re.sub("//[^@]*@", f"//{user}:weak@", given["primary"])}
        for name, given in config["clusters"].items()
    }
    return {**config, "clusters": clusters}


def test_what_exists_needs_no_right_to_create(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine, shards=SHARDS)
    with closing(Datastore.open(config)) as made:
        made.create_schema()
    name = config["datastore"]
    poor = grant_rows_only(stores, server_engine, config, name.replace("_", r"\_") + r"\_%")

    with closing(Datastore.open(poor)) as again:
        again.create_schema()
        assert_complete(again)

    # The control: what does not exist needs it.
    elsewhere = {**poor, "datastore": f"{name}x"}
    with closing(Datastore.open(elsewhere)) as other, pytest.raises(InvalidServer, match=r"refused|lacks a privilege"):
        other.create_schema()
