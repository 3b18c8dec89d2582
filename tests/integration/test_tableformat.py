"""The format of tables: an unknown one is refused by name, and old and new processes run one step apart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from schemaless_core import Datastore, InvalidServer, UnknownFormat, tableformat
from schemaless_core.canonical import canonical_bytes
from schemaless_core.deadline import Deadline
from schemaless_core.doctor import Doctor
from schemaless_core.engine.base import StoredDocument
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
            old._places.learn([0], Deadline(10.0))
    else:
        old._places.learn([0], Deadline(10.0))
        old.put_cell(*cells[2].key, cells[2].body)
        assert [old.get_cell(*cell.key) for cell in cells] == cells
        old._places.after_fork()  # a child is the same library
        old._places.learn([0], Deadline(10.0))
        assert old.get_cell(*cells[1].key) == cells[1]
    with Datastore(old.config) as begun, pytest.raises(UnknownFormat, match="have format 2"):
        begun.get_cell(*cells[0].key)
    with pytest.raises(UnknownFormat):
        old.create_schema()


def test_control_a_known_format_is_no_obstacle(datastore: Datastore) -> None:
    cell = make_cell(row_key=uuid4())
    with Datastore(datastore.config) as store:
        assert store.put_cell(*cell.key, cell.body).status == "CREATED"


def test_an_altered_column_is_refused_by_name(server_engine: ServerEngine, stores: Stores) -> None:
    """Control: a column that was added, and tables as they were created, are in nobody's way."""
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
