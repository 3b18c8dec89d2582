"""Chunks of the past out of real Postgres: every cell once, as of one snapshot, and what no cell can hold set aside.

Then through the steps of the backfill into Schemaless, while rows change and go (I2, I4, I8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import CellConflict, CellKey, Datastore, ShardStatus, StaleEpoch, canonical_bytes
from schemaless_core.cell.encoded import encode_cell
from tests.handovers import refreshed
from tests.legacy import FLAVOURS, layout, legacy_server
from tests.legacy_backends import SHARDS, Company, company, status
from tests.legacy_databases import new_database
from tests.legacy_databases import run as run_sql
from tests.past import bodies, chunks, held, lived_in
from tests.scale import scaled
from tests.stores import Stores
from tripstore.backends.postgres.cells.past import chunk_rows as reach
from tripstore.backends.postgres.cells.past import reader as copying
from tripstore.backends.postgres.cells.past.chunk_reading import ChunkReading
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.wire import watched
from tripstore.handover.backfill import READ, WRITE, copy_chunk
from tripstore.handover.ports import Chunk, Past, Ports, Selection, Unreadable
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.ports.control import RealControlPort
from tripstore.ports.legacy import RealLegacyPort
from tripstore.ports.store import SchemalessPort

ALL_ROWS = 100_000


@pytest.fixture(params=FLAVOURS, scope="module")
def shared(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        yield made


@pytest.fixture
def trips(shared: Company) -> Company:
    """Without a row."""
    shared.legacy.sql("DELETE FROM trips")
    shared.legacy.sql("DELETE FROM tripstore.tomb; DELETE FROM tripstore.kept")
    return refreshed(shared)


@pytest.fixture
def reader(trips: Company) -> Iterator[PastReader]:
    with closing(PastReader(trips.legacy.url, layout())) as made:
        yield made


def test_i8_every_cell_that_stands_in_a_table_is_read(trips: Company, reader: PastReader) -> None:
    keys = lived_in(trips)

    past = reader.read(Chunk(rows=ALL_ROWS))

    found, whole, notes = bodies(past.cells), keys["whole"], layout().columns["NOTES"]
    assert found.items() <= held(trips, keys).items()
    latest = {(key, name, cell.ref_key) for key in keys.values() for name, cell in trips.store.get_row(key).items()}
    assert latest <= found.keys()
    assert {ref for key, name, ref in found if (key, name) == (whole, "STATUS")} == {1, 2}
    assert {ref for key, name, ref in found if (key, name) == (whole, "NOTES")} == {
        notes.compose(1, 1),
        notes.compose(2, 1),
        notes.compose(3, 0),
    }
    assert {ref for key, name, ref in found if (key, name) == (whole, "FREE")} == {5, 9}
    assert {ref for key, name, ref in found if (key, name) == (keys["late"], "BASE")} == {4, 7}
    assert found[keys["deleted"], "STATUS", 2] == b"null"
    assert (past.rows, past.unreadable, past.after, past.epoch) == (len(keys), (), None, 0)
    assert [cell.row_key for cell in past.cells] == sorted(cell.row_key for cell in past.cells)


def test_the_legacy_id_is_the_one_that_the_row_had_first(trips: Company, reader: PastReader) -> None:
    keys = lived_in(trips)

    found = bodies(reader.read(Chunk(rows=ALL_ROWS)).cells)

    for name in ("returned", "deleted", "whole"):
        latest = trips.store.get_cell_latest(keys[name], "_LEGACY_ID")
        assert latest is not None
        assert found[keys[name], "_LEGACY_ID", 0] == canonical_bytes(latest.body)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_chunks_of_any_size_are_the_whole_each_row_once_and_in_order(
    trips: Company, reader: PastReader, rows: int
) -> None:
    lived_in(trips)
    for _ in range(8):
        trips.base(1)
    whole = reader.read(Chunk(rows=ALL_ROWS))

    found = chunks(reader, Chunk(rows=rows))

    assert tuple(cell for past in found for cell in past.cells) == whole.cells
    assert sum(past.rows for past in found) == whole.rows
    assert all(cell.row_key <= past.after.bytes for past in found if past.after for cell in past.cells)


def test_bounds_are_after_one_key_and_up_to_another(trips: Company, reader: PastReader) -> None:
    keys = sorted(trips.base(1) for _ in range(6))

    found = reader.read(Chunk(keys[1], keys[4], rows=ALL_ROWS))

    assert {UUID(bytes=cell.row_key) for cell in found.cells} == set(keys[2:5])
    assert found.after is None
    assert reader.read(Chunk(keys[1], keys[4], rows=3)).after is None
    assert reader.read(Chunk(keys[1], keys[4], rows=2)).after == keys[3]
    assert reader.read(Chunk(keys[5], None))[:5] == Past((), 0)[:5]


def test_rows_without_a_parent_end_a_chunk_too(
    trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or all of them would be read in one go."""
    monkeypatch.setattr(reach, "ROWS_PER_KEY", 2)
    keys = {uuid4() for _ in range(40)}
    for key in keys:
        trips.store.put_cell(key, "FREE", 1, "free")

    found = chunks(reader, Chunk(rows=3))

    assert len(found) > 5
    assert {key for past in found for key, _, _ in bodies(past.cells)} == keys


def test_a_selection_of_columns_is_read_and_no_other(trips: Company, reader: PastReader) -> None:
    keys = lived_in(trips)
    everything = bodies(reader.read(Chunk(rows=ALL_ROWS)).cells)

    for names in (("BASE",), ("STATUS", "FREE"), ("_LEGACY_ID",), ("FREE",)):
        found = bodies(reader.read(Chunk(rows=ALL_ROWS, selection=Selection(names))).cells)
        assert found == {key: body for key, body in everything.items() if key[1] in names}
    assert keys.keys()


def test_listed_rows_are_read_and_no_others(trips: Company, reader: PastReader) -> None:
    keys = lived_in(trips)
    everything = bodies(reader.read(Chunk(rows=ALL_ROWS)).cells)
    wanted = (keys["whole"], keys["deleted"], keys["legacy"], uuid4())

    found = chunks(reader, Chunk(rows=2, keys=wanted))

    assert [past.after for past in found] == [sorted(wanted)[1], None]
    assert {key: body for past in found for key, body in bodies(past.cells).items()} == {
        key: body for key, body in everything.items() if key[0] in wanted
    }
    assert reader.read(Chunk(keys=())) == Past((), 0)


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_rows_that_a_predicate_chooses_are_read_and_no_others(
    trips: Company, reader: PastReader, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "LOOKED_AT_PER_ROW", 3)
    chosen = {trips.legacy.trip("50% off")[1] for _ in range(4)}
    child = next(iter(chosen))
    trips.store.put_cell(child, "STATUS", 1, {"result": "captured"})
    for _ in range(20):
        trips.base(1)
    selection = Selection(where="t.status LIKE '50%' AND EXISTS (SELECT FROM users AS u WHERE u.id = 1)")

    found = [bodies(past.cells) for past in chunks(reader, Chunk(rows=rows, selection=selection))]

    read = [key for part in found for key in part]
    assert len(read) == len(set(read))
    assert {key for key, name, _ in read if name == "BASE"} == chosen
    assert (child, "STATUS", 1) in read


# --------------------------------------------------------------------------------------------- what no cell can hold


def test_a_row_that_no_body_can_hold_is_told_with_its_field_and_stops_no_other(
    trips: Company, reader: PastReader
) -> None:
    good, bad, worse = trips.base(1), uuid4(), uuid4()
    for key, extra in ((bad, '{"n": 1e999}'), (worse, '{"status": "twice"}')):
        trips.legacy.sql("INSERT INTO trips (trip_uuid, status, base_extra) VALUES (%s, 'x', %s)", str(key), extra)
    trips.store.put_cell(bad, "STATUS", 1, {"result": "captured"})

    past = reader.read(Chunk(rows=ALL_ROWS))

    found = bodies(past.cells)
    assert {(key, name) for key, name, _ in found if name != "_LEGACY_ID"} == {(good, "BASE"), (bad, "STATUS")}
    told = {(each.row_key, each.column_name, each.ref_key): (each.field, each.reason) for each in past.unreadable}
    assert told == {
        (bad, "BASE", 1): ("base_extra.n", "it is a number that a 64-bit float does not hold exactly"),
        (worse, "BASE", 1): ("base_extra.status", "a field of the layout has this name"),
    }
    assert past.rows == 3


#: What capture and its indexes would not let in.
BROKEN = """
CREATE TABLE users (id int, user_uuid uuid);
CREATE TABLE trips (id bigint, trip_uuid uuid, driver_id int, status text, fare numeric, distance float8,
    request_at timestamptz, base_version bigint, base_extra json);
CREATE TABLE attempts (trip_id bigint, trip_uuid uuid, attempt_no int, result text);
CREATE TABLE notes (trip_id bigint, trip_uuid uuid, n bigint, note_version bigint, text text);
INSERT INTO trips VALUES (1, '{one}', NULL, 'a', NULL, NULL, NULL, 1), (2, '{one}', NULL, 'b', NULL, NULL, NULL, 1),
    (3, '{two}', NULL, 'a', NULL, NULL, NULL, 1), (4, '{two}', NULL, 'a', NULL, NULL, NULL, 1),
    (5, NULL, NULL, 'a', NULL, NULL, NULL, 1), (6, '{three}', 77, 'a', NULL, NULL, NULL, 1);
INSERT INTO attempts VALUES (3, '{two}', NULL, 'x'), (3, '{two}', 1, 'y'), (8, NULL, 1, 'z')
"""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_duplicates_and_nulls_are_told_whatever_let_them_in(
    servers: LocalServers, stores: Stores, flavour: Flavour
) -> None:
    one, two, three = sorted(uuid4() for _ in range(3))
    url = new_database(servers, flavour, BROKEN.format(one=one, two=two, three=three))
    run_sql(url, "UPDATE tripstore.authority SET epoch = 4")

    with closing(PastReader(url, layout())) as reader:
        past = reader.read(Chunk(rows=10))

    assert set(past.unreadable) == {
        Unreadable(None, "BASE", None, "trip_uuid", "it is NULL where id is 5"),
        Unreadable(None, "STATUS", None, "trip_uuid", "it is NULL where trip_id is 8"),
        Unreadable(two, "STATUS", None, "attempt_no", "it is NULL, and the row has no ref key"),
        Unreadable(three, "BASE", 1, "driver_uuid", "table users has no row of this id"),
    }
    assert (past.rows, past.epoch) == (3, 4)
    outcome = stores.fresh("sqlite", shards=SHARDS).as_copier(4).put_encoded(past.cells)
    conflicts = [past.cells[n][:2] for n, error in outcome.problems if isinstance(error, CellConflict)]
    assert sorted(conflicts) == sorted([(one.bytes, b"BASE"), (one.bytes, b"_LEGACY_ID"), (two.bytes, b"_LEGACY_ID")])


def test_rows_without_uuid_are_all_counted_and_some_are_named(servers: LocalServers) -> None:
    rows = "INSERT INTO trips SELECT n, NULL, NULL, 'a', NULL, NULL, NULL, 1 FROM generate_series(1, 1234) n;"
    url = new_database(servers, FLAVOURS[0], BROKEN.split("INSERT")[0] + rows)

    with closing(PastReader(url, layout())) as reader:
        past = reader.read(Chunk(rows=10))

    assert len(past.unreadable) == 101
    assert sum(each.rows for each in past.unreadable) == 1234
    assert past.unreadable[-1] == Unreadable(None, "BASE", None, "trip_uuid", "it is NULL in 1,134 more rows", 1134)


def test_a_chunk_with_large_bodies_is_shorter_than_asked(
    trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is never cut: one that is larger than a chunk may be is a chunk of its own."""
    monkeypatch.setattr(copying, "BYTES_PER_CHUNK", 20_000)
    keys = {trips.base(1) for _ in range(6)}
    large = trips.base(1)
    trips.legacy.sql(
        "UPDATE trips SET memo = 'm', base_extra = %s WHERE trip_uuid = %s", '{"x": "%s"}' % ("y" * 50_000), str(large)
    )
    trips.legacy.sql("UPDATE trips SET status = repeat('s', 6000) WHERE base_extra IS NULL")

    found = chunks(reader, Chunk(rows=50))

    assert {key for past in found for key, _, _ in bodies(past.cells)} == {*keys, large}
    assert len(found) >= 3  # the large one, and the others in two
    assert any(len(cell.body) > 50_000 for past in found for cell in past.cells)


# ------------------------------------------------------------------------------------------------------ one snapshot

_BOTH = (
    "UPDATE trips SET status = '{0}' WHERE trip_uuid = '{1}'; UPDATE attempts SET memo = memo WHERE false;"
    " INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result)"
    " SELECT id, trip_uuid, 9, '{0}' FROM trips WHERE trip_uuid = '{1}'"
)


def changed_between_two_tables(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """A service commits a change of both tables when the first was read."""
    read_table = ChunkReading.table

    def read(self: ChunkReading, *arguments: Any) -> None:
        read_table(self, *arguments)
        if arguments[0].column.name == "BASE":
            change()

    monkeypatch.setattr(ChunkReading, "table", read)


def torn_read(trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bool, int]:
    """What is read of a row while one transaction changes it, its child, and the authority's epoch."""
    row_key = trips.base(1)
    changed_between_two_tables(
        monkeypatch,
        lambda: trips.legacy.sql(_BOTH.format("new", row_key) + "; UPDATE tripstore.authority SET epoch = epoch + 1"),
    )
    past = reader.read(Chunk(rows=10))
    found = bodies(past.cells)
    trips.legacy.sql("UPDATE tripstore.authority SET epoch = 0")
    return found.get((row_key, "BASE", 1), b""), (row_key, "STATUS", 9) in found, past.epoch


def test_a_row_is_never_torn(trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torn_read(trips, reader, monkeypatch) == (canonical_bytes(status(1)), False, 0)


def test_control_without_one_snapshot_a_row_is_torn(
    trips: Company, reader: PastReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BEGIN", copying._BEGIN.replace(" ISOLATION LEVEL REPEATABLE READ, READ ONLY", ""))

    assert torn_read(trips, reader, monkeypatch) == (canonical_bytes(status(1)), True, 0)


# ------------------------------------------------------------------------------------------------- through the steps


class Copy:
    """Both stores of a company, and the ports between them."""

    def __init__(self, trips: Company, store: Datastore) -> None:
        self.trips = trips
        self.store = store
        control = RealControlPort(trips.store.database, "trips", 30.0)
        self.legacy = RealLegacyPort(trips.store)
        self.ports = Ports(self.legacy, SchemalessPort(store, lambda cell, error: None), control)


@pytest.fixture
def copy(trips: Company, stores: Stores) -> Iterator[Copy]:
    with Datastore.open(stores.config("sqlite", shards=SHARDS)) as store:
        store.create_schema(status=ShardStatus.COPY)
        made = Copy(trips, store)
        with closing(made.legacy):
            yield made


def test_i4_the_past_is_copied_as_often_as_wanted(copy: Copy) -> None:
    keys = lived_in(copy.trips)

    first, second = (run(copy_chunk(copy.ports, Chunk(rows=ALL_ROWS))) for _ in range(2))

    assert first.is_whole
    assert second.is_whole
    assert (second.outcome.created, second.outcome.existed) == (0, first.outcome.equal)
    assert first.outcome.equal == len(first.past.cells)
    copier = copy.store.as_copier()
    for key in keys.values():
        assert copier.get_row(key) == copy.trips.store.get_row(key)


@pytest.mark.parametrize("change", ["UPDATE trips SET status = 'newer'", "DELETE FROM trips"])
@pytest.mark.parametrize("is_relayed_first", [True, False])
def test_i4_what_was_deleted_or_changed_after_the_reading_is_not_brought_back(
    copy: Copy, change: str, is_relayed_first: bool
) -> None:
    key = copy.trips.base(1)
    copy.trips.store.put_cell(key, "STATUS", 1, {"result": "captured"})
    steps = copy_chunk(copy.ports, Chunk(rows=10))
    assert next(steps) == READ
    assert next(steps) == WRITE  # it was read

    copy.trips.legacy.sql(f"{change} WHERE trip_uuid = %s", str(key))
    if is_relayed_first:
        assert run(drain(copy.ports))
    with pytest.raises(StopIteration):
        next(steps)
    assert run(drain(copy.ports))

    there = copy.trips.store.get_row(key)
    assert copy.store.as_copier().get_row(key) == there
    assert (there["BASE"].body is None) == change.startswith("DELETE")


def test_i2_another_body_at_schemaless_is_a_conflict_and_stays(copy: Copy) -> None:
    good, bad = copy.trips.base(1), copy.trips.base(1)
    copy.store.as_copier().put_cell(bad, "BASE", 1, "foreign")

    copied = run(copy_chunk(copy.ports, Chunk(rows=10)))

    assert copied.is_whole
    ((position, error),) = copied.outcome.problems
    assert isinstance(error, CellConflict)
    assert copied.past.cells[position] == encode_cell(copy.trips.store.get_cells([CellKey(bad, "BASE", 1)])[0], 10**6)  # type: ignore[arg-type]  # it is there
    assert copy.store.as_copier().get_cell(bad, "BASE", 1).body == "foreign"  # type: ignore[union-attr]  # it is there
    assert copy.store.as_copier().get_cell_latest(good, "BASE") is not None


def test_i9_a_chunk_of_an_old_epoch_is_to_be_read_again(copy: Copy) -> None:
    copy.trips.base(1)
    for name in copy.store.clusters:
        copy.store.authority.close(name, 3)

    copied = run(copy_chunk(copy.ports, Chunk(rows=10)))

    assert not copied.is_whole
    assert all(isinstance(error, StaleEpoch) for _position, error in copied.outcome.problems)
    assert copied.outcome.equal == 0


def test_the_connection_may_break_between_two_chunks(copy: Copy, trips: Company) -> None:
    for _ in range(scaled(40, least=4)):
        trips.base(1)
    first = copy.legacy.read_chunk(Chunk(rows=2))
    trips.legacy.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tripstore backfill'"
    )

    second = copy.legacy.read_chunk(Chunk(first.after, rows=ALL_ROWS))

    assert first.rows == 2
    assert second.rows == scaled(40, least=4) - 2


def test_a_server_that_says_nothing_any_more_ends_the_reading(trips: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its connections and ends no statement: the driver would wait for ever."""
    monkeypatch.setattr(watched, "GRACE_SECONDS", 0.3)
    trips.base(1)
    with closing(PastReader(trips.legacy.url, layout(), statement_seconds=0.5)) as reader:
        assert reader.read(Chunk(rows=1)).rows == 1
        trips.legacy.server.pause()
        try:
            with pytest.raises(LegacyUnavailable):
                reader.read(Chunk(rows=1))
        finally:
            trips.legacy.server.resume()

        assert reader.read(Chunk(rows=1)).rows == 1
