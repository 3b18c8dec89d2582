"""Facade puts mixed with the company's own SQL; answers equal an oracle's that is fed with what was committed (I2, I8).

The oracle hears of direct SQL by looking at the tables before and after each statement. It keeps its own count of
versions and its own way from a row to a body: nothing of capture or the codec is in it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from itertools import count, product
from typing import Any, ClassVar
from uuid import UUID, uuid5

import psycopg2
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from schemaless_core import Cell, CellConflict, Json, MemoryStore
from tests.legacy import Legacy, layout, legacy_server
from tests.legacy_databases import PATIENT
from tests.scale import scaled
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.plan import Made
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

STEPS_PER_EXAMPLE = 25
STEPS = scaled(6_000, short=125)
SHARDS = 8
ROWS = 3
COLUMNS = ("BASE", "NOTES", "STATUS", "FREE")
FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel")
ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
UNIQUE = "23505"
DRIVERS = {1: "11111111-1111-1111-1111-111111111111", 2: "22222222-2222-2222-2222-222222222222"}

_examples = count()

rows = st.integers(0, ROWS - 1)
numbers = st.integers(1, 3)
texts = st.sampled_from(["requested", "accepted", "", "naïve 🚕", "1.10"])
fares = st.none() | st.decimals(0, 99, places=2) | st.sampled_from([Decimal("1.1"), Decimal("1.10")])
distances = st.none() | st.sampled_from([0.1 + 0.2, -0.0, 5.4e22, 1e-7])
drivers = st.none() | st.sampled_from([1, 2])
values = st.fixed_dictionaries({"status": texts, "fare": fares, "distance": distances, "driver_id": drivers})

#: Statements of a service; {row} is a key, values come by name.
DIRECT = {
    "insert": "INSERT INTO trips (trip_uuid, status, fare, distance, driver_id)"
    " VALUES (%(row)s, %(status)s, %(fare)s, %(distance)s, %(driver_id)s) ON CONFLICT DO NOTHING",
    "upsert": "INSERT INTO trips (trip_uuid, status, fare) VALUES (%(row)s, %(status)s, %(fare)s)"
    " ON CONFLICT (trip_uuid) DO UPDATE"
    " SET status = excluded.status, fare = excluded.fare, base_version = excluded.base_version",
    "update": "UPDATE trips SET fare = %(fare)s, distance = %(distance)s WHERE trip_uuid = %(row)s",
    "bulk": "UPDATE trips SET status = %(status)s WHERE trip_uuid = ANY(%(rows)s::uuid[])",
    "stale version": "UPDATE trips SET status = %(status)s, base_version = 1 WHERE trip_uuid = %(row)s",
    "lookup": "UPDATE trips SET driver_id = %(driver_id)s WHERE trip_uuid = %(row)s",
    "unmapped": "UPDATE trips SET memo = %(status)s WHERE trip_uuid = ANY(%(rows)s::uuid[])",
    "nothing": "UPDATE trips SET status = status WHERE trip_uuid = %(row)s",
    "delete": "DELETE FROM trips WHERE trip_uuid = %(row)s",
    "merge": "MERGE INTO trips AS t USING (VALUES (%(row)s::uuid, %(status)s)) AS s (k, v) ON t.trip_uuid = s.k"
    " WHEN MATCHED THEN UPDATE SET status = s.v WHEN NOT MATCHED THEN INSERT (trip_uuid, status) VALUES (s.k, s.v)",
    "note": "INSERT INTO notes (trip_id, n, text) SELECT id, %(n)s, %(status)s FROM trips WHERE trip_uuid = %(row)s"
    " ON CONFLICT (trip_id, n) DO UPDATE SET text = excluded.text",
    "note edited": "UPDATE notes SET text = text || %(status)s WHERE trip_uuid = %(row)s",
    "note deleted": "DELETE FROM notes WHERE trip_uuid = %(row)s AND n = %(n)s",
    "note renumbered": "UPDATE notes SET n = %(n)s WHERE trip_uuid = %(row)s AND n = (SELECT max(n) FROM notes"
    " WHERE trip_uuid = %(row)s) AND NOT EXISTS (SELECT FROM notes WHERE trip_uuid = %(row)s AND n = %(n)s)",
    "notes to another": "UPDATE notes SET trip_id = t.id, text = text || %(status)s FROM trips t"
    " WHERE notes.trip_uuid = %(row)s AND t.trip_uuid = %(other)s"
    " AND NOT EXISTS (SELECT FROM notes o WHERE o.trip_uuid = t.trip_uuid AND o.n = notes.n)",
    "attempt": "INSERT INTO attempts (trip_id, attempt_no, result) SELECT id, %(n)s, %(status)s FROM trips"
    " WHERE trip_uuid = %(row)s ON CONFLICT DO NOTHING",
    "attempt's memo": "UPDATE attempts SET memo = %(status)s WHERE trip_uuid = %(row)s",
}
#: A rule of the machine and its arguments.
Step = tuple[str, tuple[Any, ...]]
#: What is done, to which row, with which number and values; whether it is committed; how it is isolated.
Transaction = tuple[list[tuple[str, int, int, dict[str, Any]]], bool, str]
COPY = "COPY notes (trip_id, n, text) FROM STDIN"

actions = st.tuples(st.sampled_from([*DIRECT, "copy", "savepoint taken back"]), rows, numbers, values)
transactions = st.tuples(
    st.lists(actions, min_size=1, max_size=4),
    st.booleans() | st.just(True),
    st.sampled_from(ISOLATIONS),
)

Tables = tuple[dict[UUID, dict[str, Json]], dict[tuple[UUID, int], str], dict[tuple[UUID, int], str]]


class Watcher:
    """Makes cells of what it sees in the tables, by rules of its own."""

    def __init__(self, keys: list[UUID]) -> None:
        self.oracle = MemoryStore(shards=SHARDS)
        self._keys = [str(key) for key in keys]
        #: The highest version that a row, or a note, ever had; a tombstone's too.
        self.versions: dict[tuple[UUID, int], int] = {}
        self._pending: list[Cell] = []

    def look(self, cursor: Cursor) -> Tables:
        cursor.execute(
            "SELECT trip_uuid::text, status, fare::text, distance, driver_id FROM trips"
            " WHERE trip_uuid = ANY(%s::uuid[])",
            (self._keys,),
        )
        trips = {UUID(key): body(status, fare, km, driver) for key, status, fare, km, driver in cursor.fetchall()}
        children = []
        for table, number, text in (("notes", "n", "text"), ("attempts", "attempt_no", "result")):
            cursor.execute(
                f"SELECT trip_uuid::text, {number}, {text} FROM {table} WHERE trip_uuid = ANY(%s::uuid[])",
                (self._keys,),
            )
            children.append({(UUID(key), n): value for key, n, value in cursor.fetchall()})
        return trips, children[0], children[1]

    def saw(self, before: Tables, after: Tables) -> None:
        """What one statement did."""
        for key in before[0].keys() | after[0].keys():
            self._version("BASE", key, 0, before[0].get(key), after[0].get(key))
        for key, n in before[1].keys() | after[1].keys():
            self._version("NOTES", key, n, note(before, key, n), note(after, key, n))
        for key, n in after[2].keys() - before[2].keys():
            self._pending.append(Cell(key, "STATUS", n, {"result": after[2][key, n]}))
        for key in {key for key, _ in before[2].keys() - after[2].keys()}:
            highest = max(n for each, n in [*before[2], *self._put_facts(key)] if each == key)
            self._pending.append(Cell(key, "STATUS", highest + 1, None))

    def _put_facts(self, key: UUID) -> Iterator[tuple[UUID, int]]:
        """Facts that were put while there was no row of their parent: some may be in no table yet."""
        facts = self.oracle.get_history(key, "STATUS")
        return ((key, fact.ref_key) for fact in facts if not fact.is_tombstone)

    def _version(self, column: str, key: UUID, n: int, old: Json, new: Json) -> None:
        # As cells: 0.0 and -0.0 are equal in Python, and not here.
        if Cell(key, column, 1, old) == Cell(key, column, 1, new):
            return
        first = 1 if column == "BASE" else 0
        version = self.versions[key, n] + 1 if (key, n) in self.versions else first
        self.versions[key, n] = version
        self._pending.append(Cell(key, column, version if column == "BASE" else n << 20 | version, new))

    def commit(self) -> None:
        for cell in self._pending:
            self.oracle.put_cell(*cell.key, cell.body)
        self._pending.clear()

    def mark(self) -> tuple[dict[tuple[UUID, int], int], int]:
        return dict(self.versions), len(self._pending)

    def back_to(self, mark: tuple[dict[tuple[UUID, int], int], int]) -> None:
        self.versions = mark[0]
        del self._pending[mark[1] :]


def body(status: str | None, fare: str | None, distance: float | None, driver: int | None) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "status": status,
        "fare": fare,
        "distance": distance,
        "driver_uuid": None if driver is None else DRIVERS[driver],
    }
    return {name: value for name, value in fields.items() if value is not None}


def note(tables: Tables, key: UUID, n: int) -> Json:
    return {"text": tables[1][key, n]} if (key, n) in tables[1] else None


class LegacyMachine(RuleBasedStateMachine):
    """One store, the company's own connection, and the watcher. Each example has rows of its own."""

    legacy: ClassVar[Legacy]
    store: ClassVar[PostgresBackend]
    steps: ClassVar[int] = 0
    changes: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        space = UUID(int=next(_examples))
        self.keys = [uuid5(space, str(n)) for n in range(ROWS)]
        self.watcher = Watcher(self.keys)
        self.connection = self.legacy.connect()

    def teardown(self) -> None:
        self.connection.close()

    @initialize(given=st.lists(values, min_size=ROWS - 1, max_size=ROWS - 1))
    def begin(self, given: list[dict[str, Any]]) -> None:
        """All rows but one are there."""
        self.direct(([("insert", row, 1, each) for row, each in enumerate(given)], True, "READ COMMITTED"))

    @rule(transaction=transactions)
    def direct(self, transaction: Transaction) -> None:
        """A transaction of a service's, committed or not."""
        work, is_committed, isolation = transaction
        self.connection.set_session(isolation_level=isolation)
        begun = self.watcher.mark()
        with self.connection.cursor() as cursor:
            seen = self.watcher.look(cursor)
            for name, row, n, given in work:
                cursor.execute("SAVEPOINT statement")
                mark = self.watcher.mark()
                try:
                    self._perform(cursor, name, row, n, given)
                except psycopg2.Error as refused:
                    if not is_refused_by_capture(refused):
                        raise
                    cursor.execute("ROLLBACK TO statement")
                    continue
                if name == "savepoint taken back":
                    cursor.execute("ROLLBACK TO statement")
                    self.watcher.back_to(mark)
                    continue
                found = self.watcher.look(cursor)
                self.watcher.saw(seen, found)
                seen = found
        if is_committed:
            self.connection.commit()
            type(self).changes += len(self.watcher._pending)
            self.watcher.commit()
        else:
            self.connection.rollback()
            self.watcher.back_to(begun)
        self.compare()

    @rule(first=transactions, second=transactions)
    def direct_twice(self, first: Transaction, second: Transaction) -> None:
        """Changes by direct SQL are most of what there is to capture: also a run of few examples is to have many."""
        self.direct(first)
        self.direct(second)

    def _perform(self, cursor: Cursor, name: str, row: int, n: int, given: dict[str, Any]) -> None:
        key = str(self.keys[row])
        if name == "copy":
            cursor.execute(
                "SELECT id FROM trips WHERE trip_uuid = %s"
                " AND NOT EXISTS (SELECT FROM notes WHERE trip_id = id AND n = 9)",
                (key,),
            )
            lines = "".join(f"{trip_id}\t9\tcopied {given['status']}\n" for (trip_id,) in cursor.fetchall())
            cursor.copy_expert(COPY, io.StringIO(lines))
            return
        chosen = "update" if name == "savepoint taken back" else name
        keys = [str(each) for each in self.keys]
        cursor.execute(DIRECT[chosen], given | {"row": key, "other": keys[row - 1], "n": n, "rows": keys})

    @rule(row=rows, given=values, step=st.integers(-2, 3))
    def put_base(self, row: int, given: dict[str, Any], step: int) -> None:
        key = self.keys[row]
        ref = max(1, self.watcher.versions.get((key, 0), 0) + step)
        fare = given["fare"]
        wanted = body(given["status"], None if fare is None else str(fare), given["distance"], given["driver_id"])
        if self._put(Cell(key, "BASE", ref, wanted)):
            self.watcher.versions[key, 0] = max(ref, self.watcher.versions.get((key, 0), 0))

    @rule(row=rows, n=numbers, text=st.none() | texts, step=st.integers(-1, 2))
    def put_note(self, row: int, n: int, text: str | None, step: int) -> None:
        """There may be no row of its parent, yet or any longer; a service may insert it later, and notes of its own."""
        key = self.keys[row]
        version = max(0, self.watcher.versions.get((key, n), 0) + step)
        if self._put(Cell(key, "NOTES", n << 20 | version, None if text is None else {"text": text})):
            self.watcher.versions[key, n] = max(version, self.watcher.versions.get((key, n), 0))

    @rule(row=rows, n=st.integers(1, 6), text=texts)
    def put_attempt(self, row: int, n: int, text: str) -> None:
        """The same of facts: who inserts one of this number later is refused."""
        self._put(Cell(self.keys[row], "STATUS", n, {"result": text}))

    @rule(row=rows, ref=st.integers(-1, 4), text=st.none() | texts)
    def put_free(self, row: int, ref: int, text: str | None) -> None:
        self._put(Cell(self.keys[row], "FREE", ref, text))

    def _put(self, cell: Cell) -> bool:
        """Whether it was created; both answer alike."""
        answers = list[str]()
        for store in (self.store, self.watcher.oracle):
            try:
                answers.append(store.put_cell(*cell.key, cell.body).status)
            except CellConflict:
                answers.append("conflict")
        assert answers[0] == answers[1], cell
        self.compare()
        return answers[0] == "CREATED"

    def compare(self) -> None:
        type(self).steps += 1
        for key in self.keys:
            assert self.store.get_row(key, COLUMNS) == self.watcher.oracle.get_row(key, COLUMNS)
            for column in COLUMNS:
                expected = self.watcher.oracle.get_history(key, column)
                assert self.store.get_history(key, column) == expected
                assert self.store.get_cell_latest(key, column) == (expected[0] if expected else None)
                for cell in expected:
                    assert self.store.get_cell(*cell.key) == cell


def is_refused_by_capture(error: psycopg2.Error) -> bool:
    """What a layout forbids, as a late fact under its tombstone; and a fact that was put before its parent."""
    return str(error.pgcode).startswith("TS") or (error.pgcode == UNIQUE and error.diag.constraint_name is None)


def run(machine: type[LegacyMachine], steps: int, **more: Any) -> None:
    examples = max(1, steps // STEPS_PER_EXAMPLE)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=STEPS_PER_EXAMPLE, **more)
    )


@pytest.fixture(params=FLAVOURS)
def machine(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[type[LegacyMachine]]:
    legacy = Legacy(legacy_server(servers, request.param))
    legacy.install(layout())
    with PostgresBackend(LegacyDatabase(legacy.url, PATIENT), layout(), shards=SHARDS) as backend:
        yield type("Machine", (LegacyMachine,), {"legacy": legacy, "store": backend, "steps": 0, "changes": 0})


def test_answers_equal_those_of_an_oracle_fed_with_committed_changes(
    machine: type[LegacyMachine], request: pytest.FixtureRequest
) -> None:
    run(machine, STEPS)

    print(f"{request.node.callspec.id}: {machine.steps:,} comparisons, {machine.changes:,} changes by direct SQL")
    assert machine.changes > machine.steps / 8


VALUES = {"status": "requested", "fare": None, "distance": None, "driver_id": None}


def services(*names: str) -> Step:
    """A service's transaction, "attempt 2" with the number."""
    work = [(name.rstrip(" 123456"), 0, int(name[-1]) if name[-1].isdigit() else 1, VALUES) for name in names]
    return "direct", ((work, True),)


#: A fact of a higher number than any that is in the table.
ABOVE_THE_ROWS: list[Step] = [
    ("put_attempt", (0, 2, "x")),
    services("insert"),
    services("attempt 1"),
    services("delete"),
]
#: What happens to one row that is not there yet, children first.
BEFORE_THEIR_PARENT: list[list[Step]] = [
    [
        ("put_attempt", (0, 2, "x")),
        services("insert"),
        services("attempt 2"),
        services("attempt 3"),
        services("delete"),
        services("insert"),
        services("attempt 4", "attempt 5"),
    ],
    [
        ("put_attempt", (0, 5, "x")),
        services("insert"),
        services("delete"),
        services("insert"),
        services("attempt 5"),
        services("attempt 6"),
        services("delete"),
    ],
    [
        ("put_attempt", (0, 4, "x")),
        ("put_base", (0, VALUES, 0)),
        services("attempt 3"),
        services("delete"),
        ("put_attempt", (0, 5, "y")),
        ("put_attempt", (0, 6, "y")),
        services("insert"),
        services("attempt 6"),
        services("attempt 3"),
        services("delete"),
    ],
    [
        ("put_note", (0, 1, "x", 2)),
        services("insert"),
        services("note"),
        services("note deleted"),
        services("note"),
        services("delete"),
        ("put_note", (0, 1, "y", 2)),
        services("insert"),
        services("note", "note edited"),
    ],
    [
        ("put_note", (0, 1, "x", 2)),
        services("insert"),
        ("put_note", (0, 1, "older", -1)),
        ("put_note", (0, 1, "z", 1)),
        services("note edited"),
        services("delete"),
    ],
    [
        ("put_note", (0, 1, "x", 1)),
        services("insert"),
        ("put_note", (0, 1, "first", -1)),
        services("note"),
        services("note edited"),
        services("delete"),
    ],
    [
        ("put_note", (0, 1, "x", 2)),
        ("put_note", (0, 1, None, 1)),
        services("insert"),
        services("note"),
        services("note deleted"),
        ("put_note", (0, 1, "back", 1)),
    ],
    [
        ("put_note", (0, 1, "x", 2)),
        ("put_base", (0, VALUES, 0)),
        services("note edited"),
        services("delete"),
        services("insert"),
        services("note"),
    ],
    [
        ("put_note", (0, 1, "x", 2)),
        services("insert", "note", "delete"),
        services("insert", "note"),
        services("delete", "insert", "note"),
    ],
    [
        services("insert", "note", "attempt 1"),
        services("delete"),
        ("put_note", (0, 1, "y", 2)),
        ("put_attempt", (0, 4, "f")),
        services("insert"),
        services("note", "attempt 4", "attempt 5"),
        services("delete"),
    ],
]


def test_children_that_came_before_their_parent_and_services_that_knew_nothing_of_them(
    machine: type[LegacyMachine],
) -> None:
    """I2: what a service inserts, deletes and inserts again stands beside what was put, and under no key of it."""
    for isolation, story in product(ISOLATIONS, BEFORE_THEIR_PARENT):
        tell(machine, story, isolation)

    assert machine.steps == len(ISOLATIONS) * sum(map(len, BEFORE_THEIR_PARENT))


def test_the_tombstone_of_facts_stands_above_those_that_came_before_their_parent(
    machine: type[LegacyMachine],
) -> None:
    """I2."""
    for isolation in ISOLATIONS:
        tell(machine, ABOVE_THE_ROWS, isolation)

    assert machine.steps == len(ISOLATIONS) * len(ABOVE_THE_ROWS)


def tell(machine: type[LegacyMachine], story: list[Step], isolation: str) -> None:
    """Let a machine of its own go through a story, comparing at each step."""
    made = machine()
    try:
        for name, arguments in story:
            getattr(made, name)(*([(*arguments[0], isolation)] if name == "direct" else arguments))
    finally:
        made.teardown()


def test_control_capture_that_keeps_the_writers_version_is_caught(servers: LocalServers) -> None:
    """An upsert writes version 1 back: without the version trigger two bodies meet under one key."""

    def without_versions(made: list[Made]) -> list[Made]:
        return [each for each in made if each[0].name != "base_update"]

    legacy = Legacy(legacy_server(servers, "machine"))
    legacy.install(layout(), saboteur=without_versions)
    with PostgresBackend(LegacyDatabase(legacy.url, PATIENT), layout(), shards=SHARDS) as backend:
        broken = type("Broken", (LegacyMachine,), {"legacy": legacy, "store": backend})
        with pytest.raises((AssertionError, psycopg2.Error)):
            run(broken, 1_000, phases=[Phase.generate])
