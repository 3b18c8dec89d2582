"""Each rewrite is run against the original: the same answers, and the same rows afterwards, whichever store decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from psycopg2 import DatabaseError
from sqlalchemy.exc import DBAPIError, OperationalError

from schemaless_core import CellConflict, InvalidRequest
from schemaless_core.errors import Conflict
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.rewritten_service import INDEXES, SCALED, imported, rewrite_service, write_service
from tests.stores import Stores
from tripstore.audit.rewrite.patches import write
from tripstore.audit.rewrite.verdicts import RewriteVerdict
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

#: `session.get(Trip, None)`, and a child whose number is taken or missing: answers are compared, though SQLAlchemy
#: would rather not be asked.
pytestmark = [
    pytest.mark.filterwarnings("ignore:fully NULL primary key identity"),
    pytest.mark.filterwarnings("ignore:New instance .* conflicts with persistent instance"),
    pytest.mark.filterwarnings("ignore:Column 'notes.n' is marked as a member of the primary key"),
]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: Of each kind of trip several: what is NULL, what is equal, what a status is.
TRIPS: list[dict[str, Any]] = [
    {"driver_id": 1, "status": "open", "fare": "12.50", "distance": 3.25, "request_at": NOON},
    {"driver_id": 1, "status": "open", "fare": None, "distance": None, "request_at": NOON + timedelta(microseconds=1)},
    {"driver_id": 2, "status": "open", "fare": "7.00", "distance": 0.1, "request_at": NOON + timedelta(hours=1)},
    {"driver_id": 2, "status": "é, 'ß", "fare": "0.00", "distance": -1.0, "request_at": NOON - timedelta(days=9)},
    {"driver_id": None, "status": None, "fare": None, "distance": None, "request_at": NOON},
]
NOWHERE = 999_999


@dataclass
class Asking:
    """Calls of a service with their answers, and what its trips and notes are then."""

    module: ModuleType
    ids: Sequence[int]
    answers: list[tuple[Any, Any]] = field(default_factory=list)

    def call(self, name: str, *arguments: Any) -> None:
        self.answers.append(((name, *arguments), getattr(self.module, name)(*arguments)))

    def refused(self, name: str, *arguments: Any) -> None:
        """A call that ends in an error: of the driver's before, of tripstore's after."""
        try:
            answer = getattr(self.module, name)(*arguments)
        except (DatabaseError, DBAPIError, Conflict, InvalidRequest) as error:
            answer = "refused" if "note" in str(error).lower() or "no row" in str(error).lower() else str(error)
        self.answers.append(((name, *arguments), answer))

    def read(self) -> None:
        for trip in (*self.ids, NOWHERE, None):
            for name in (
                "fare_of",
                "is_there",
                "has_all_null",
                "status_of",
                "fare_by_query",
                "same_id",
                "needed_status",
                "notes_of",
                "last_and_fare",
            ):
                self.call(name, trip)
        for trip, number in ((self.ids[0], 1), (self.ids[0], 2), (self.ids[0], 9), (self.ids[1], 1), (NOWHERE, 1)):
            self.call("note_of", trip, number)
            self.call("note_after", trip, number)
        for status in ("open", "é, 'ß", "none has it"):
            for name in ("with_status", "fares_with_status", "ids_with_status", "count_with_status", "only_one_with"):
                self.call(name, status)
            self.call("latest_with_status", status, 2)
            self.call("dear_with_status", status, Decimal("7.0"), NOON, NOON + timedelta(hours=1))
        for trip, status in ((self.ids[0], "open"), (self.ids[0], "other"), (self.ids[4], "open"), (NOWHERE, "open")):
            self.call("status_if", trip, status)
            self.answers.append((("its id as a text", trip, status), self.module.status_if(str(trip), status)))
        for one, other in ((self.ids[0], self.ids[1]), (NOWHERE, self.ids[1]), (None, self.ids[2]), (NOWHERE, NOWHERE)):
            self.call("first_there", one, other)
        for driver in (1, 2, 77):
            self.call("first_of_driver", driver)
            self.call("trips_of_driver", driver)

    def write(self) -> None:
        one, two, three, four, five = self.ids
        self.call("note_the_status", two, 1)
        self.call("complete", one, Decimal("0.505"))
        self.call("complete", five, Decimal(3))
        self.call("complete", NOWHERE, Decimal(3))
        self.call("move", two, datetime(2026, 7, 1, 0, 30, tzinfo=_zone(5.5)), 2)
        self.call("move", three, NOON, None)
        self.call("forget", four)
        self.call("forget", NOWHERE)
        self.call("tip", five, Decimal("-0.001"))
        self.call("tip", NOWHERE, Decimal(1))
        self.call("edit_note", one, 1, "edited")
        self.call("edit_note", one, 9, "edited")
        self.call("edit_note_by_sql", one, 2, None)
        self.call("edit_note_by_sql", two, 1, "100 %")
        self.call("add_to_fare", two, Decimal(1))  # NULL
        self.call("add_to_fare", three, Decimal("0.125"))
        self.call("add_to_note", one, 1, " twice")
        self.call("add_to_note", two, 1, None)
        self.call("add_to_note", two, 2, "nowhere")
        self.call("remove_note", (one, 2))
        self.call("remove_note", [one, 2])
        self.call("drop_note", two, 1)
        self.call("drop_note", two, 9)
        self.call("append_note", one, "a third")
        self.call("append_note", two, None)
        self.call("append_note", three, "é")
        self.call("append_note", NOWHERE, "nowhere")
        self.call("take_note", one)
        self.call("append_note", one, "again")
        self.call("append_made_note", four, 7, "seven")
        self.call("append_made_note", four, 3, "three")
        self.call("append_note", four, "eight")
        self.call("take_first_note", four)
        self.call("take_note", five)
        self.refused("append_made_note", four, 7, "seven again")
        for name in ("put_note", "put_note_over", "put_note_unless_there", "replace_note", "add_note"):
            for number in (20, 21):
                self.call(name, five, number, name)
                self.call("notes_of", five)
                self.refused("put_note", five, number, name)  # the same again, too
                self.call("remove_note", (five, 21))
            self.call("remove_note", (five, 20))
            self.refused(name, NOWHERE, 1, name)
            self.refused(name, five, None, name)
        for trip in (one, two, five):
            self.call("add_next_note", trip, "next")
        self.refused("add_next_note", NOWHERE, "next")
        self.call("fill_trip", five, Decimal("1.005"))
        self.call("put_note", three, 2, "there")
        self.call("put_note_over", three, 2, "over")
        self.call("put_note_over", three, 2, None)
        self.call("put_note_unless_there", three, 2, "late")
        self.call("replace_note", three, 1, "replaced")
        for trip in self.ids:
            self.call("notes_of", trip)
        self.call("tip_all", [four, NOWHERE, four], Decimal("4.4"))
        self.call("raise_fare", three, Decimal("0.1"), bool)
        self.call("close_either", two, three)
        self.call("close_either", NOWHERE, three)
        self.call("close_either", NOWHERE, NOWHERE)
        with self.module.factory() as session:
            self.answers.append(("rename", [self.module.rename(session, each, "é") for each in (four, NOWHERE)]))


Outcome = tuple[list[Any], list[Any]]


@dataclass(frozen=True)
class Services:
    """The company, and its service before and after the rewrite."""

    moved: Migration
    before: Path
    after: Path
    _originals: dict[Callable[[Asking], None], Outcome] = field(default_factory=dict)

    def seed(self) -> list[int]:
        """Trips of a run's own, in Postgres; those of other runs have other drivers and statuses."""
        sql = self.moved.legacy.sql
        sql("DELETE FROM trips")
        columns = ("driver_id", "status", "fare", "distance", "request_at")
        ids = []
        for trip in TRIPS:
            statement = f"INSERT INTO trips ({', '.join(columns)}) VALUES (%s, %s, %s, %s, %s) RETURNING id"
            ids.append(sql(statement, *(trip[name] for name in columns))[0][0])
        for trip_id, number, text in ((ids[0], 1, "first"), (ids[0], 2, "second"), (ids[1], 1, None)):
            sql(
                "INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, %s, %s FROM trips WHERE id = %s",
                number,
                text,
                trip_id,
            )
        return ids

    def original(self, work: Callable[[Asking], None]) -> Outcome:
        """Answers and rows of the code as it was, in Postgres alone; asked once."""
        if work not in self._originals:
            self._originals[work] = self._original(work)
        return self._originals[work]

    def _original(self, work: Callable[[Asking], None]) -> Outcome:
        self.to_postgres()
        ids = self.seed()
        with imported(self.before, self.moved.legacy.url) as service:
            asking = Asking(service, ids)
            work(asking)
        self.moved.carry()
        return _without(asking.answers, ids), self.rows(ids)

    def rewritten(self, phase: Phase, work: Callable[[Asking], None], after: Path | None = None) -> Outcome:
        """The same of the rewritten code, by the store of a phase."""
        self.to_postgres()
        ids = self.seed()
        self.moved.carry()
        if phase is Phase.LIVE:
            self.moved.phase(phase)
            catch_up(self.moved.facade.store)
        with imported(after or self.after, self.moved.legacy.url, self.moved.store) as service:
            asking = Asking(service, ids)
            work(asking)
        return _without(asking.answers, ids), self.rows(ids)

    def to_postgres(self) -> None:
        if self.moved.duo.ports.control.authority().backend is Phase.LIVE.authority:
            self.moved.phase(Phase.SHADOW)

    def rows(self, ids: Sequence[int]) -> list[Any]:
        """The latest bodies, by trip and column, and of each note."""
        found = []
        for number in ids:
            row_key = self.moved.store.resolve_id(number)
            assert row_key is not None
            latest = self.moved.store.get_row(row_key, ["BASE"])
            notes = {cell.ref_key >> 20: cell.body for cell in self.moved.store.get_history(row_key, "NOTES")[::-1]}
            found.append(({name: cell.body for name, cell in latest.items()}, notes))
        return found


def _zone(hours: float) -> Any:
    from datetime import timezone

    return timezone(timedelta(hours=hours))


def _without(answers: list[tuple[Any, Any]], ids: Sequence[int]) -> list[Any]:
    """Answers with the number of a trip in the run in place of its id; Decimal, float and zones are told apart."""
    places = {trip: place for place, trip in enumerate(ids)}

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [type(value).__name__, *map(plain, value)]
        if isinstance(value, int) and not isinstance(value, bool) and value in places:
            return f"trip {places[value]}"
        return f"{type(value).__name__} {value.astimezone(UTC) if isinstance(value, datetime) else value!r}"

    return [[plain(question), plain(answer)] for question, answer in answers]


@pytest.fixture(scope="module")
def services(servers: LocalServers, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    before, after = write_service(folder / "before"), write_service(folder / "after")
    found = rewrite_service(after)
    left = [each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    assert left == ["what it brings is handed on as objects of a model"]  # the function that no other calls any more
    assert write(after, found.changed, allow_dirty=True) == []
    with migration(servers, stores, tables=SCALED, indexes=INDEXES) as moved:
        moved.phase(Phase.SHADOW)
        moved.legacy.sql("SELECT setval('trips_id_seq', 5000)")  # no count is taken for an id
        moved.facade.begin()
        moved.duo.watch.close()
        yield Services(moved, before, after)


def test_every_rewritten_read_answers_as_the_original_did(services: Services) -> None:
    answers, _ = services.original(Asking.read)

    assert services.rewritten(Phase.SHADOW, Asking.read)[0] == answers
    assert services.rewritten(Phase.LIVE, Asking.read)[0] == answers


def test_every_rewritten_write_leaves_the_rows_that_the_original_left(services: Services) -> None:
    answers, rows = services.original(Asking.write)
    said = json.dumps(rows)
    assert all(
        each in said for each in ("tipped", "13.01", "06-30T19:00", "edited twice", "7.23", "noted")
    )  # there is something to see

    assert services.rewritten(Phase.SHADOW, Asking.write) == (answers, rows)
    assert services.rewritten(Phase.LIVE, Asking.write) == (answers, rows)


def test_i2_a_row_that_changed_since_it_was_read_is_refused_as_repeatable_read_refuses_it(services: Services) -> None:
    """By 40001 before, by a conflict after; what the other writer left stands."""
    for phase in (None, Phase.SHADOW, Phase.LIVE):
        services.to_postgres()
        [trip, *_] = services.seed()
        services.moved.carry()
        if phase is Phase.LIVE:
            services.moved.phase(phase)
        folder = services.before if phase is None else services.after
        with imported(folder, services.moved.legacy.url, services.moved.store) as service:
            expected = OperationalError if phase is None else CellConflict
            with pytest.raises(expected, match=r"could not serialize|holds another body|was to follow"):
                service.raise_fare(trip, Decimal(1), lambda: service.add_to_fare(trip, Decimal(2)))  # noqa: B023  # called at once
            assert service.fare_of(trip)[2] == Decimal("14.50")


def test_i2_of_sums_that_two_make_at_once_none_is_lost_in_silence(services: Services) -> None:
    for phase in (Phase.SHADOW, Phase.LIVE):
        services.to_postgres()
        [trip, *_] = services.seed()
        services.moved.carry()
        if phase is Phase.LIVE:
            services.moved.phase(phase)
        with imported(services.after, services.moved.legacy.url, services.moved.store) as service:

            def add(_: int, add_to_fare: Any = service.add_to_fare, to: int = trip) -> int:
                with suppress(Conflict):  # both made the same version: one of them was told
                    add_to_fare(to, Decimal(1))
                    return 1
                return 0

            with ThreadPoolExecutor(2) as pool:
                added = sum(pool.map(add, range(12)))
            assert added >= 6
            assert service.fare_of(trip)[2] == Decimal("12.50") + added


@pytest.mark.parametrize(
    ("right", "wrong", "work"),
    [
        ("descending=True", "descending=False", Asking.read),
        ("limit=count", "limit=count + 1", Asking.read),
        ('rewritten.as_decimal(trip.get("fare"))', 'trip.get("fare")', Asking.read),
        ('("fare", ">=", least)', '("fare", ">", least)', Asking.read),
        ("child_of_id(store, trip_id, ", "latest_of_id(store, trip_id, ", Asking.read),
        ("rewritten.float_value(None)", "0.0", Asking.write),
        (
            "rewritten.datetime_text(at)",
            "rewritten.datetime_text(at.replace(tzinfo=__import__('datetime').UTC))",
            Asking.write,
        ),
        ('"status": "tipped"', '"status": "tippedd"', Asking.write),
        ('rewritten.added_decimal("fare", more, 2, 12)', "rewritten.decimal_text(more, 2, 12)", Asking.write),
        (', changes=("text",)', ", unless_there=True", Asking.write),
        (", unless_there=True", "", Asking.write),
        ('{"status": rewritten.text_value(status)}', "{}", Asking.read),
        (")[-1])", ")[0])", Asking.write),
        ("max((note.number for note", "min((note.number for note", Asking.write),
        ("last + 1", "last + 2", Asking.write),
        ("bits=20, default=0", "bits=19, default=0", Asking.write),
        ("delete_child_of_id(store, key[0]", "change_child_of_id(store, changes={}, parent=key[0]", Asking.write),
    ],
)
def test_control_a_wrong_rewrite_is_found(
    services: Services, tmp_path: Path, right: str, wrong: str, work: Callable[[Asking], None]
) -> None:
    """Order, limit, type, bound, NULL, zone, value: each is seen by the comparison above."""
    broken = write_service(tmp_path / "broken")
    for file in (services.after / "rewritten_billing").glob("*.py"):
        (broken / "rewritten_billing" / file.name).write_text(file.read_text())
    service = broken / "rewritten_billing" / "service.py"
    assert right in service.read_text()
    service.write_text(service.read_text().replace(right, wrong))

    try:
        found = services.rewritten(Phase.SHADOW, work, broken)
    except Exception:  # noqa: BLE001  # loud is found, too
        return
    assert found != services.original(work)
