"""`tripstore backup` beside a Postgres: what the backup of that must hold is said, and its row decides."""

from __future__ import annotations

import json

import yaml

from schemaless_core import Datastore
from schemaless_core.deadline import Deadline
from tests.acceptance.conftest import Shell
from tests.backups import logs_of
from tests.facades import migration
from tests.stores import ServerEngine, Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase


def test_postgres_is_named_and_its_row_decides_how_restored_shards_open(
    servers: LocalServers, stores: Stores, server_engine: ServerEngine, shell: Shell
) -> None:
    with migration(servers, stores, engine=server_engine, shards=4) as made:
        _id, key = made.legacy.trip("requested")
        made.phase(Phase.SHADOW)
        made.carry()
        document = json.loads(json.dumps(made.document))
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(document))

        created = shell.call("backup", "create", "kept", "--json")
        told = shell.call("backup", "create", "--show", "last")

        held = created.document["postgres"]
        assert (held["backend"], held["holds"][0]) == ("postgres", "the schema tripstore")
        assert "public.trips" in held["holds"]
        assert "is not in it" in told.stdout

        away = json.loads(json.dumps(document))
        away["legacy"]["postgres"] = "postgresql://away@127.0.0.1:1/away"
        (shell.folder / "away.yaml").write_text(yaml.safe_dump(away))
        silent = shell.call("backup", "create", "kept", "--config", "away.yaml", "--json")
        said = shell.call("backup", "create", "--show", "last", "--config", "away.yaml")

        assert (silent.code, silent.document["progress"]["job"]["state"]) == (0, "done"), silent.complaint
        assert (silent.document["postgres"]["epoch"], silent.document["postgres"]["holds"]) == (None, held["holds"])
        assert (said.code, "its authority row was not read" in said.stdout) == (0, True)

        lose_all(stores, server_engine, document["datastore"])
        there = ("--processes", "1", "--yes", "--json")
        restored = shell.call("backup", "restore", "kept", *there)

        assert restored.code == 0, restored.complaint
        with Datastore.open({name: value for name, value in document.items() if name != "legacy"}) as copy:
            states = {
                (head.state.epoch > 1, head.state.status)
                for cluster in copy.clusters.values()
                for head in cluster.primary.node.heads(None, Deadline(20)).values()
            }
            assert states == {(True, "COPY")}, "Postgres is the authority"
            assert {cell[1] for log in logs_of(copy).values() for cell in log} == {key.bytes}


def lose_all(stores: Stores, engine: ServerEngine, datastore: str) -> None:
    """All servers lose all databases of a datastore, and its control database."""
    for cluster in stores.clusters(engine):
        server = cluster.primary
        names = "SELECT schema_name AS name FROM information_schema.schemata WHERE schema_name LIKE %s"
        for row in server.query(names, f"{datastore}\\_%"):
            server.query(f"DROP DATABASE `{row['name']}`")
