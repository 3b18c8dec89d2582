"""The format of tables: an unknown one is refused by name, and old and new processes run one step apart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from schemaless_core import Datastore, InvalidServer, Json, Unavailable, UnknownFormat
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.deadline import Deadline
from schemaless_core.engine import tableformat
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.servers.doctor import Doctor
from tests.factories import make_cell
from tests.stores import ServerEngine, Stores


def set_format(store: Datastore, stores: Stores, engine: str, number: int) -> None:
    """What a library to come would have left on every server."""
    for cluster in store.clusters.values():
        written = StoredDocument("format", number, canonical_bytes({"library": f"0.{number}.0"}))
        cluster.primary.node.put_document(written, Deadline(10.0))
    if engine == "sqlite":
        for each in store.config.clusters:
            with closing(sqlite3.connect(Path(each.primary.folder) / f"{store.config.datastore}.db")) as file, file:
                file.execute("UPDATE datastore SET format = ?", (number,))
        return
    for server in stores.primaries(engine).values():
        server.query(f"UPDATE {store.config.datastore}_meta.datastore SET format = {number}")  # type: ignore[attr-defined]  # both engines have it


@contextmanager
def library(newest: int) -> Iterator[None]:
    """This process is one of a library whose own format is this; the one before it knows as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tableformat, "FORMAT", newest)
        patch.setattr(tableformat, "KNOWN", frozenset({newest - 1, newest} - {0}))
        yield


def test_a_process_refuses_a_store_whose_format_it_does_not_know(
    datastore_engine: str, stores: Stores, datastore: Datastore
) -> None:
    cell = make_cell()
    datastore.put_cell(*cell.key, cell.body)
    set_format(datastore, stores, datastore_engine, 99)
    with Datastore(datastore.config) as store:
        calls: list[Callable[[], object]] = [
            lambda: store.put_cell(*cell.key, cell.body),
            lambda: store.get_cell(*cell.key),
            store.create_schema,
        ]
        for call in calls:
            with pytest.raises(UnknownFormat, match=r"format 99, and this library knows 1\. Use tripstore 0\.99\.0"):
                call()
        facts = [found.fact for found in Doctor(store.config, store.clusters, store.control).findings()]
        assert any(fact.name == "format" and fact.is_refusal and not fact.is_fine for fact in facts)


def test_old_and_new_processes_work_side_by_side_until_the_format_is_lifted(
    datastore_engine: str, stores: Stores, datastore: Datastore
) -> None:
    old, cells = datastore, [make_cell() for _ in range(3)]
    old.put_cell(*cells[0].key, cells[0].body)
    with library(2), Datastore(old.config) as new:
        new.put_cell(*cells[1].key, cells[1].body)
        assert new.get_cell(*cells[0].key) == cells[0]
    assert old.get_cell(*cells[1].key) == cells[1]

    with library(2), Datastore(old.config) as new:
        new.create_schema()
        assert new.get_cell(*cells[0].key) == cells[0]
    old.put_cell(*cells[2].key, cells[2].body)  # what still runs goes on
    with Datastore(old.config) as begun, pytest.raises(UnknownFormat, match="have format 2"):
        begun.get_cell(*cells[0].key)
    with library(3), Datastore(old.config) as next_one:
        assert next_one.get_cell(*cells[2].key) == cells[2]
    with library(4), Datastore(old.config) as too_new, pytest.raises(UnknownFormat, match="knows 3 and 4"):
        too_new.create_schema()


@pytest.mark.parametrize("readable_by", [1, 2])
def test_a_process_that_runs_goes_on_when_the_newer_format_lets_its_library(
    datastore_engine: str, stores: Stores, datastore: Datastore, monkeypatch: pytest.MonkeyPatch, readable_by: int
) -> None:
    """It looks at the servers again when a shard is refused: that must not end it. Control: a step that does."""
    old, cells = datastore, [make_cell() for _ in range(3)]
    old.put_cell(*cells[0].key, cells[0].body)
    with library(2), Datastore(old.config) as new:
        monkeypatch.setattr(tableformat, "READABLE_BY", readable_by)
        new.create_schema()
        new.put_cell(*cells[1].key, cells[1].body)

    if readable_by == 2:
        with pytest.raises(UnknownFormat, match="have format 2"):
            look_again(old)
    else:
        look_again(old)
        old.put_cell(*cells[2].key, cells[2].body)
        assert [old.get_cell(*cell.key) for cell in cells] == cells
        old._places.after_fork()  # a child is the same library
        look_again(old)
        assert old.get_cell(*cells[1].key) == cells[1]
    with Datastore(old.config) as begun, pytest.raises(UnknownFormat, match="have format 2"):
        begun.get_cell(*cells[0].key)
    with pytest.raises(UnknownFormat):
        old.create_schema()


def look_again(store: Datastore) -> None:
    """As after a call that was refused where it went."""
    deadline = Deadline(10.0)
    store._places.learn({0: store._places.get(0, deadline)}, deadline)


def test_control_a_known_format_is_no_obstacle(datastore: Datastore) -> None:
    cell = make_cell(row_key=uuid4())
    with Datastore(datastore.config) as store:
        assert store.put_cell(*cell.key, cell.body).status == "CREATED"


def test_an_altered_column_is_refused_by_name(server_engine: ServerEngine, stores: Stores) -> None:
    """Control: a column that was added, and tables as they were created, are accepted."""
    store = stores.fresh(server_engine, shards=4)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore

    def found() -> list[str]:
        facts = [each.fact for each in Doctor(store.config, store.clusters, store.control).findings()]
        return [fact.value for fact in facts if fact.name == "columns"]

    server.query(f"ALTER TABLE {name}_0000.cell ADD COLUMN note INT")
    assert found() == []
    store.create_schema()

    server.query(f"ALTER TABLE {name}_0001.cell MODIFY body BLOB NOT NULL")
    server.query(f"ALTER TABLE {name}_0001.cell MODIFY created_at DATETIME(6) NULL")

    said = [
        f"cell.{what} in 1 shards, {name}_0001 first" for what in ("body is blob", "created_at is datetime(6) NULL")
    ]
    assert sorted(found()) == said
    with pytest.raises(InvalidServer, match=r"cell\.\w+ is .*Created as"):
        store.create_schema()


def columns_found(store: Datastore) -> list[str]:
    facts = [each.fact for each in Doctor(store.config, store.clusters, store.control).findings()]
    return sorted(fact.value for fact in facts if fact.name == "columns")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE {meta}.trigger_offset MODIFY added_id INT NOT NULL", "trigger_offset.added_id is int"),
        ("ALTER TABLE {meta}.shard_state MODIFY next_added_id BIGINT UNSIGNED NULL", "is bigint unsigned NULL"),
        ("ALTER TABLE {meta}.trigger_parked DROP COLUMN token", "trigger_parked.token is missing"),
        ("ALTER TABLE {name}_0000.cell DROP COLUMN created_at", "cell.created_at is missing in 1 shards"),
    ],
    ids=["narrower", "null", "dropped", "dropped from a cell"],
)
def test_i1_altered_columns_of_every_table_of_ours_are_refused_by_name(
    server_engine: ServerEngine, stores: Stores, statement: str, said: str
) -> None:
    """Control: what was added, and tables as they were created, are accepted."""
    store = stores.fresh(server_engine, shards=4)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    server.query(f"ALTER TABLE {name}_meta.trigger_offset ADD COLUMN note INT")
    assert columns_found(store) == []
    server.query(statement.format(meta=f"{name}_meta", name=name))
    [found] = columns_found(store)
    assert said in found
    with pytest.raises(InvalidServer, match="Created as"):
        store.create_schema()


def test_altered_columns_of_a_file_are_refused_by_name(stores: Stores) -> None:
    store = stores.fresh("sqlite", shards=2)
    with closing(
        sqlite3.connect(Path(store.config.clusters[0].primary.folder) / f"{store.config.datastore}.db")
    ) as file:
        file.execute("ALTER TABLE trigger_offset ADD COLUMN note")
        assert columns_found(store) == []
        file.execute("ALTER TABLE trigger_parked DROP COLUMN error")
    assert columns_found(store) == ["trigger_parked.error is missing"]
    with pytest.raises(InvalidServer, match="Created as TEXT NOT NULL"):
        store.create_schema()


INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [
        {"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}, {"field": "seats", "type": "int"}]}
    ],
}


@pytest.fixture
def indexed(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    with Datastore.open(stores.config(server_engine, shards=4, indexes=[INDEX])) as made:
        made.create_schema()
        yield made


def index_columns_found(store: Datastore) -> list[str]:
    of_indexes = store.indexes.tables.facts
    found = [each.fact for each in Doctor(store.config, store.clusters, store.control, of_indexes).findings()]
    return sorted(fact.value for fact in found if fact.name == "columns" and not fact.is_refusal)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("MODIFY f_driver VARBINARY(8) NOT NULL", "f_driver is varbinary(8) in 1 shards"),
        ("MODIFY f_seats INT NULL", "f_seats is int NULL in 1 shards"),
        ("MODIFY ref_0 BIGINT NULL", "ref_0 is bigint NULL in 1 shards"),
        ("DROP COLUMN f_seats", "f_seats is missing in 1 shards"),
    ],
)
def test_i6_altered_columns_of_an_index_are_refused_by_name(
    server_engine: ServerEngine, stores: Stores, indexed: Datastore, change: str, said: str
) -> None:
    """Control: what was added, and tables as they were created, are accepted."""
    server, name = stores.clusters(server_engine)[0].primary, indexed.config.datastore
    server.query(f"ALTER TABLE {name}_0000.trips_of_driver_v1 ADD COLUMN note INT")
    assert index_columns_found(indexed) == []
    indexed.create_schema()

    server.query(f"ALTER TABLE {name}_0001.trips_of_driver_v1 {change}")
    [found] = index_columns_found(indexed)
    assert said in found
    with pytest.raises(InvalidServer, match=f"trips_of_driver_v1.{said[:8]}.*index create trips_of_driver"):
        indexed.create_schema()

    # The way out that is told: the next version is as it should be, and the altered one goes.
    assert indexed.indexes.create("trips_of_driver") == 2
    indexed.indexes.promote("trips_of_driver", 2, force=True)
    indexed.indexes.drop("trips_of_driver", 1)
    assert index_columns_found(indexed) == []
    indexed.create_schema()


def test_i6_altered_columns_of_an_index_in_a_file_are_refused_by_name(stores: Stores) -> None:
    """Control: a column that was added."""
    with Datastore.open(stores.config("sqlite", shards=2, indexes=[INDEX])) as store:
        store.create_schema()
        place = Path(store.config.clusters[0].primary.folder) / f"{store.config.datastore}.db"
        with closing(sqlite3.connect(place)) as file:
            file.execute("ALTER TABLE index_trips_of_driver_v1 ADD COLUMN note")
            assert index_columns_found(store) == []
            file.execute("ALTER TABLE index_trips_of_driver_v1 DROP COLUMN f_seats")
        assert index_columns_found(store) == ["index_trips_of_driver_v1.f_seats is missing"]
        with pytest.raises(InvalidServer, match="f_seats is missing"):
            store.create_schema()


def test_where_no_source_tells_of_indexes_their_tables_are_not_called_fine(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh(self: Catalogue, seconds: float | None = None) -> None:
        raise Unavailable("It is unknown which indexes there are.")

    store = stores.fresh("sqlite", shards=2)
    monkeypatch.setattr(Catalogue, "refresh", refresh)

    assert {found[:30] for found in index_columns_found(store)} == {"of indexes not compared: It is"}
