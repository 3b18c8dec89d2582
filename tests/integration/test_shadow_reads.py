"""Shadow reads over both stores: what is wrong in the mirror is found and told right, and nothing else is (I12)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from schemaless_core import CellKey, CellStore, ColumnKey, Json
from schemaless_core.breaker import Breaker, BreakerConfig
from tests.facades import Migration, in_mirror
from tests.indexing import catch_up, only_maintained
from tests.mirrors import relaying, reversing
from tests.scale import scaled
from tests.shadow_traffic import comparing, indexing, run_traffic
from tests.stores import Stores
from tripstore.backends.schemaless.backend import SchemalessBackend, TooManyIds
from tripstore.engines.validation.compare import BYTES, AnswerDifference, DifferenceClass
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.recheck import Recheck
from tripstore.engines.validation.verdicts import Outcome, Reason
from tripstore.engines.validation.waiting import Waiting
from tripstore.facade.flags import Comparing
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore

#: Operations of healthy traffic, all threads together, and on how many new companies: answers grow with what was
#: inserted, and after many thousands of them index queries would be all there is.
OPERATIONS = {Phase.SHADOW: scaled(200_000, short=1_500), Phase.LIVE: scaled(40_000, short=1_000)}
OF_COMPANY = 10_000


def told(moving: Migration) -> list[str]:
    """Every mismatch, in words."""
    return [
        f"{mismatch.verdict.read.name} {dict(mismatch.verdict.read.arguments)}: {list(mismatch.verdict.differences)}"
        for mismatch in moving.duo.tally.mismatches()
    ]


_COMPANIES = [(phase, number) for phase, all_of in OPERATIONS.items() for number in range(-(-all_of // OF_COMPANY))]
#: One company after the other has the next one.
ENGINES = ("sqlite", "mariadb", "mysql")


@pytest.mark.parametrize(("phase", "number"), _COMPANIES)
def test_healthy_traffic_shows_no_mismatch(servers: LocalServers, stores: Stores, phase: Phase, number: int) -> None:
    """Everything is compared while services write: through the facade, and past it while they may."""
    engine = ENGINES[number % len(ENGINES)]
    with comparing(servers, stores, engine) as moving, ExitStack() as running:
        moving.phase(phase)
        running.enter_context(relaying(moving) if phase is Phase.SHADOW else reversing(moving))
        running.enter_context(indexing(moving))

        operations = min(OF_COMPANY, OPERATIONS[phase] - number * OF_COMPANY)
        done = run_traffic(moving, operations, seed=random.randrange(1000))

        assert moving.duo.shadow.drain(600)
        tally = moving.duo.tally
        compared = tally.total(Outcome.EQUAL, Outcome.IN_FLIGHT)
        print(f"{engine}: {phase}: {done.total():,} operations, {compared:,} compared: {Counter(tally.counts())}")
        assert told(moving) == []
        assert tally.total(Outcome.NOT_COMPARED) <= compared / 50


# ------------------------------------------------------------------------------------------- injected differences


@pytest.fixture(scope="module")
def quiet(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Nothing happens but what a test does; each has a row of its own."""
    with comparing(servers, stores) as moving:
        only_maintained(moving.facade.store)
        yield moving


@dataclass(frozen=True)
class Trip:
    """A row that both stores hold, and a driver's only one."""

    key: UUID
    driver: UUID


@pytest.fixture
def trip(quiet: Migration) -> Trip:
    made = Trip(uuid4(), uuid4())
    ((number,),) = quiet.legacy.sql("SELECT max(id) + 1 FROM users")
    quiet.legacy.sql("INSERT INTO users VALUES (%s, %s, 'x')", number, str(made.driver))
    for ref_key in (1, 2):
        body: Json = {"driver_uuid": str(made.driver), "status": f"status {ref_key}", "fare": "7.25"}
        quiet.store.put_cell(made.key, "BASE", ref_key, body)
    quiet.store.put_cell(made.key, "FREE", 1, {"tags": ["a", {"b": 1}]})
    settle(quiet)
    return made


def settle(moving: Migration) -> None:
    moving.carry()
    catch_up(moving.facade.store)


Asking = Callable[[TripStore, Trip], object]

READS: dict[str, Asking] = {
    "get_cell": lambda store, trip: store.get_cell(trip.key, "BASE", 2),
    "get_cell_latest": lambda store, trip: store.get_cell_latest(trip.key, "BASE"),
    "get_cells": lambda store, trip: store.get_cells([CellKey(uuid4(), "BASE", 1), CellKey(trip.key, "BASE", 2)]),
    "get_cells_latest": lambda store, trip: store.get_cells_latest([ColumnKey(trip.key, "BASE")]),
    "get_row": lambda store, trip: store.get_row(trip.key),
    "get_history": lambda store, trip: store.get_history(trip.key, "BASE"),
    "scan_rows": lambda store, trip: store.scan_rows(store.shard_of(trip.key), UUID(int=trip.key.int - 1), 1, ["BASE"]),
    "query_index:trips_of_driver": lambda store, trip: store.query_index("trips_of_driver", trip.driver, columns="*"),
}


def differences(moving: Migration, read: Callable[[], object]) -> list[AnswerDifference]:
    """What the shadow told of one read; its caller got the same as ever."""
    tally = moving.duo.tally
    assert moving.duo.shadow.drain(60)  # of what was read before
    known, compared = tally.mismatches(), tally.total(Outcome.EQUAL, Outcome.MISMATCH)
    read()
    assert moving.duo.shadow.drain(60)
    assert tally.total(Outcome.EQUAL, Outcome.MISMATCH) == compared + 1, tally.counts()
    return [each for mismatch in tally.mismatches()[len(known) :] for each in mismatch.verdict.differences]


CORRUPT = "UPDATE cell SET body = ? WHERE row_key = ? AND column_name = ? AND ref_key = ?"
REMOVE = "DELETE FROM cell WHERE row_key = ? AND column_name = ? AND ref_key = ?"


@pytest.mark.parametrize("operation", READS)
def test_what_is_the_same_is_no_difference(quiet: Migration, trip: Trip, operation: str) -> None:
    assert differences(quiet, lambda: READS[operation](quiet.store, trip)) == []


@pytest.mark.parametrize("operation", READS)
def test_a_corrupted_cell_is_found_by_every_read(quiet: Migration, trip: Trip, operation: str) -> None:
    body = f'{{"driver_uuid":"{trip.driver}","fare":"7.26","status":"status 2"}}'.encode()
    in_mirror(quiet, CORRUPT, body, trip.key.bytes, b"BASE", 2)

    (found,) = differences(quiet, lambda: READS[operation](quiet.store, trip))

    assert found.kind is DifferenceClass.FIELD
    names = {"scan_rows": f"row {trip.key}", "query_index:trips_of_driver": f"entry of {trip.key}"}
    assert found.entry == names.get(operation, f"BASE@2 of {trip.key}")
    assert found.path == ("cells.BASE.[1].fare" if operation in names else "fare")


#: One of two notes on a trip, which is not the latest; and reads that do not ask for it.
LOWER = 1 << 20
SIBLINGS: dict[str, Asking] = {
    "get_cell": lambda store, trip: store.get_cell(trip.key, "NOTES", LOWER),
    "get_cells": lambda store, trip: store.get_cells([CellKey(trip.key, "NOTES", LOWER)]),
    "get_history": lambda store, trip: store.get_history(trip.key, "NOTES"),
}
LATEST: dict[str, Asking] = {
    "get_cell_latest": lambda store, trip: store.get_cell_latest(trip.key, "NOTES"),
    "get_row": READS["get_row"],
}


def test_i12_a_child_below_its_siblings_is_compared_by_each_read_of_it(quiet: Migration, trip: Trip) -> None:
    """Control: reads of the parent's highest child find nothing; they say nothing of its siblings."""
    for number in (1, 2):
        quiet.store.put_cell(trip.key, "NOTES", number << 20, {"text": "a"})
    settle(quiet)
    in_mirror(quiet, CORRUPT, b'{"text":"b"}', trip.key.bytes, b"NOTES", LOWER)

    for operation, read in SIBLINGS.items():
        found = differences(quiet, lambda read=read: read(quiet.store, trip))  # type: ignore[misc]  # bound to this one
        assert found == [AnswerDifference(DifferenceClass.FIELD, f"NOTES@{LOWER} of {trip.key}", "text")], operation
    for operation, read in LATEST.items():
        assert differences(quiet, lambda read=read: read(quiet.store, trip)) == [], operation  # type: ignore[misc]  # as above


@pytest.mark.parametrize("torn", [b'{"driver_uuid":"', b'{"status":"\xff"}'], ids=["cut", "no UTF-8"])
@pytest.mark.parametrize("operation", READS)
def test_a_torn_cell_is_found_by_every_read(quiet: Migration, trip: Trip, operation: str, torn: bytes) -> None:
    """Bytes that are no JSON count as a difference, not as "not compared"."""
    in_mirror(quiet, CORRUPT, torn, trip.key.bytes, b"BASE", 2)

    found = differences(quiet, lambda: READS[operation](quiet.store, trip))

    entry = f"BASE@2 of {trip.key}" if operation in ("get_cell", "get_cell_latest") else "the answer"
    assert found == [AnswerDifference(DifferenceClass.FIELD, entry, BYTES)]
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)  # no other test's scan is to meet it


def test_a_torn_cell_of_the_authority_is_found_by_a_cohorts_read(servers: LocalServers, stores: Stores) -> None:
    """Postgres answered the caller; Schemaless, which is the authority, cannot."""
    with comparing(servers, stores) as moving:
        key = uuid4()
        moving.phase(Phase.LIVE)
        moving.store.put_cell(key, "FREE", 1, "here")
        moving.carry()
        read = Read("get_cell", {"row_key": key, "column_name": "FREE", "ref_key": 1}, (key,))
        wanted = moving.store.get_cell(key, "FREE", 1)
        assert moving.duo.shadow.drain(60)
        in_mirror(moving, CORRUPT, b'"her', key.bytes, b"FREE", 1)
        authority, other = moving.facade.store, moving.duo.legacy_mirror

        moving.duo.shadow.offer(read, wanted, authority, other, is_of_other=True)

        assert moving.duo.shadow.drain(60)
        (mismatch,) = moving.duo.tally.mismatches()
        assert mismatch.verdict.differences == [AnswerDifference(DifferenceClass.FIELD, f"FREE@1 of {key}", BYTES)]


def test_a_corrupted_part_of_a_body_is_told_by_its_path(quiet: Migration, trip: Trip) -> None:
    in_mirror(quiet, CORRUPT, b'{"tags":["a",{"b":2}]}', trip.key.bytes, b"FREE", 1)

    found = differences(quiet, lambda: quiet.store.get_cell(trip.key, "FREE", 1))

    assert found == [AnswerDifference(DifferenceClass.FIELD, f"FREE@1 of {trip.key}", "tags[1].b")]


@pytest.mark.parametrize("operation", ["get_cell", "get_cells", "get_history"])
def test_a_missing_cell_is_found(quiet: Migration, trip: Trip, operation: str) -> None:
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)

    found = differences(quiet, lambda: READS[operation](quiet.store, trip))

    assert found == [AnswerDifference(DifferenceClass.MISSING, f"BASE@2 of {trip.key}")]


@pytest.mark.parametrize("operation", ["get_cell_latest", "get_cells_latest", "get_row"])
def test_an_older_cell_in_place_of_a_missing_one_is_found(quiet: Migration, trip: Trip, operation: str) -> None:
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)

    found = differences(quiet, lambda: READS[operation](quiet.store, trip))

    assert AnswerDifference(DifferenceClass.FIELD, f"BASE@2 of {trip.key}", "ref_key") in found or found == [
        AnswerDifference(DifferenceClass.MISSING, f"BASE@2 of {trip.key}"),
        AnswerDifference(DifferenceClass.EXTRA, f"BASE@1 of {trip.key}"),
    ]


@pytest.mark.parametrize("operation", ["get_cell", "get_row", "get_history"])
def test_an_extra_cell_is_found(quiet: Migration, trip: Trip, operation: str) -> None:
    quiet.facade.store.as_copier().put_cell(trip.key, "OTHER", 7, "foreign")
    reads: dict[str, Asking] = {
        "get_cell": lambda store, trip: store.get_cell(trip.key, "OTHER", 7),
        "get_row": READS["get_row"],
        "get_history": lambda store, trip: store.get_history(trip.key, "OTHER"),
    }

    found = differences(quiet, lambda: reads[operation](quiet.store, trip))

    assert found == [AnswerDifference(DifferenceClass.EXTRA, f"OTHER@7 of {trip.key}")]


def test_a_stale_index_entry_is_found(quiet: Migration, trip: Trip) -> None:
    in_mirror(quiet, "UPDATE index_trips_of_driver_v1 SET f_status = ? WHERE row_key = ?", b"status 1", trip.key.bytes)

    found = differences(quiet, lambda: quiet.store.query_index("trips_of_driver", trip.driver))

    assert found == [AnswerDifference(DifferenceClass.FIELD, f"entry of {trip.key}", "status")]


def test_a_missing_index_entry_is_found(quiet: Migration, trip: Trip) -> None:
    in_mirror(quiet, "DELETE FROM index_trips_of_driver_v1 WHERE row_key = ?", trip.key.bytes)

    found = differences(quiet, lambda: quiet.store.query_index("trips_of_driver", trip.driver))

    assert found == [AnswerDifference(DifferenceClass.MISSING, f"entry of {trip.key}")]


def test_an_extra_index_entry_is_found_on_every_page(quiet: Migration, trip: Trip) -> None:
    """The row went; its entry did not."""
    quiet.store.put_cell(trip.key, "BASE", 3, None)
    settle(quiet)
    in_mirror(quiet, "UPDATE index_trips_of_driver_v1 SET dead = 0 WHERE row_key = ?", trip.key.bytes)

    found = differences(quiet, lambda: quiet.store.query_index("trips_of_driver", trip.driver))

    assert found == [AnswerDifference(DifferenceClass.EXTRA, f"entry of {trip.key}")]


ID_READS: dict[str, Asking] = {
    "resolve_ids": lambda store, trip: store.resolve_id(of_trip(store, trip)),
    "legacy_ids": lambda store, trip: store.legacy_id(trip.key),
}


def of_trip(store: TripStore, trip: Trip) -> int:
    """Its id, from the one who gave it."""
    duo = store.facade.duo
    assert duo is not None
    return duo.legacy.legacy_ids([trip.key])[trip.key]


@pytest.mark.parametrize("operation", ID_READS)
def test_ids_that_are_the_same_are_no_difference(quiet: Migration, trip: Trip, operation: str) -> None:
    assert differences(quiet, lambda: ID_READS[operation](quiet.store, trip)) == []


def test_a_missing_pair_is_found_by_both_its_ends(quiet: Migration, trip: Trip) -> None:
    number = of_trip(quiet.store, trip)
    in_mirror(quiet, "DELETE FROM index_legacy_ids_v1 WHERE row_key = ?", trip.key.bytes)
    in_mirror(quiet, REMOVE, trip.key.bytes, b"_LEGACY_ID", 0)

    found = [differences(quiet, partial(read, quiet.store, trip)) for read in ID_READS.values()]

    assert found == [
        [AnswerDifference(DifferenceClass.MISSING, f"legacy id {number}")],
        [AnswerDifference(DifferenceClass.MISSING, f"row {trip.key}")],
    ]


@pytest.mark.parametrize(
    ("body", "path"), [(b'{"id":4711}', "$"), (b'{"id":"4711"}', BYTES), (b'{"number":4711}', BYTES), (b"4711", BYTES)]
)
def test_another_id_is_found(quiet: Migration, trip: Trip, body: bytes, path: str) -> None:
    in_mirror(quiet, CORRUPT, body, trip.key.bytes, b"_LEGACY_ID", 0)

    found = differences(quiet, lambda: quiet.store.legacy_id(trip.key))

    entry = "the answer" if path == BYTES else f"row {trip.key}"
    assert found == [AnswerDifference(DifferenceClass.FIELD, entry, path)]


@pytest.mark.parametrize("engine", ENGINES)
def test_i10_a_million_ids_have_one_deadline(
    servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Wherever it ends, between two of them or in the midst of one."""
    # On a busy machine the pings behind calls that ran out of time may be late, too: breakers are not what is tried.
    monkeypatch.setattr(Breaker, "admits", lambda _breaker: True)
    with comparing(servers, stores, engine) as moving:
        seconds = 2.0  # one question that takes half of it is the server's own fault: none does
        asked = moving.facade.store.using(deadline=seconds)
        assert isinstance(asked, SchemalessBackend)
        for _ in range(scaled(20, least=3)):
            begun = time.monotonic()

            with pytest.raises(TooManyIds, match="within the deadline"):
                asked.resolve_ids(range(1, 1_000_000))

            assert time.monotonic() - begun < 10 * seconds  # a deadline and a busy machine, not a thousand deadlines


def test_i12_more_ids_than_are_resolved_in_time_say_nothing_against_the_mirror(
    servers: LocalServers, stores: Stores
) -> None:
    """They are not compared, and no mismatch; a cohort goes on to ask the mirror what it can answer."""
    with comparing(servers, stores, deadline_seconds=0.1) as moving:
        number, row_key = moving.legacy.trip()
        many = [number, *range(10**9, 10**9 + 20_000)]
        settle(moving)
        moving.phase(Phase.SHADOW, 100)
        moving.duo.watch.look()
        times = BreakerConfig().failures + 1
        before = cohort_reads()

        for _ in range(times):
            assert moving.store.resolve_ids(many) == {number: row_key}
        assert moving.store.resolve_ids([number]) == {number: row_key}

        assert moving.duo.shadow.drain(60)
        counts = {(outcome, label): n for (_name, outcome, label), n in moving.duo.tally.counts().items()}
        assert counts == {(Outcome.NOT_COMPARED, Reason.INCOMPARABLE): times, (Outcome.EQUAL, ""): 1}
        assert cohort_reads() - before == Counter(incomparable=times, answered=1)


def cohort_reads() -> Counter[str]:
    """Of `resolve_ids`, by reason."""
    [family] = [each for each in REGISTRY.collect() if each.name == "tripstore_cohort_reads"]
    return Counter(
        {
            sample.labels["reason"]: int(sample.value)
            for sample in family.samples
            if sample.name.endswith("_total") and sample.labels["operation"] == "resolve_ids"
        }
    )


def test_what_is_still_in_the_queue_is_no_mismatch(quiet: Migration, trip: Trip) -> None:
    assert quiet.duo.shadow.drain(60)  # of what tests before have read
    quiet.store.put_cell(trip.key, "BASE", 3, {"status": "new"})
    tally = quiet.duo.tally
    busy = sum(count for (_name, _outcome, label), count in tally.counts().items() if label == Reason.BUSY)
    known = len(tally.mismatches())

    quiet.store.get_cell_latest(trip.key, "BASE")

    assert quiet.duo.shadow.drain(60)
    assert len(tally.mismatches()) == known
    assert sum(count for (_name, _outcome, label), count in tally.counts().items() if label == Reason.BUSY) == busy + 1
    settle(quiet)


def test_a_field_that_changes_there_and_back_is_in_flight(quiet: Migration, trip: Trip) -> None:
    """An entry does not say by which cells: what moved during a recheck must not seem to have rested."""
    store, moves = quiet.store, cycle(["there", "back"])
    read = Read("query_index", {"index": "trips_of_driver", "shard_value": trip.driver, "fields": ["status"]})

    def change(status: str) -> None:
        latest = store.get_cell_latest(trip.key, "BASE")
        assert latest is not None
        body: Json = {"driver_uuid": str(trip.driver), "status": status}
        store.put_cell(trip.key, "BASE", latest.ref_key + 1, body)

    class Moving:
        """The mirror has what the authority had, and then more."""

        def arriving(self, _read: Read) -> Waiting[bool]:
            yield from ()
            assert next(moves) == "there"
            change("there")
            settle(quiet)
            return True

    class AskedLast:
        """The mirror; while it answers, the field changes back."""

        def using(self, **_habits: Any) -> Any:
            return self

        def query_index(self, **arguments: Any) -> Any:
            page = quiet.facade.store.as_copier().query_index(**arguments)
            assert next(moves) == "back"
            change("back")
            return page

    change("back")
    settle(quiet)
    verdict = Recheck(Moving(), 20.0).verdict(read, store, cast(CellStore, AskedLast()))

    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_COMPARED, Reason.BUSY)


def test_old_against_old_does_not_ask_the_mirror(quiet: Migration, trip: Trip) -> None:
    """A/A: what is wrong in the mirror is none of its business."""
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)
    flags = quiet.facade.flags
    flags.change(lambda found: replace(found, comparing=Comparing(is_against_itself=True)), "test.against_itself")
    quiet.duo.watch.look()
    try:
        for read in READS.values():
            assert differences(quiet, partial(read, quiet.store, trip)) == []
    finally:
        flags.change(lambda found: replace(found, comparing=Comparing()), "test.against_the_mirror")
        quiet.duo.watch.look()
    assert differences(quiet, lambda: quiet.store.get_cell(trip.key, "BASE", 2))


def test_a_mirror_slower_than_the_deadline_is_a_timeout(servers: LocalServers, stores: Stores) -> None:
    """Schemaless is the authority; another session holds a table of Postgres."""
    with comparing(servers, stores, deadline_seconds=0.1) as moving:
        key = uuid4()
        moving.phase(Phase.LIVE)
        moving.store.put_cell(key, "FREE", 1, "here")
        moving.carry()
        assert differences(moving, lambda: moving.store.get_cell(key, "FREE", 1)) == []
        holder = moving.legacy.connect()
        with closing(holder), holder.cursor() as cursor:
            cursor.execute("LOCK TABLE tripstore.cell IN ACCESS EXCLUSIVE MODE")

            (found,) = differences(moving, lambda: moving.store.get_cell(key, "FREE", 1))

        assert found.kind is DifferenceClass.TIMEOUT
