"""Processes around a hand-over: services that use the facade, services that write the tables, switchers.

Each service keeps a journal of what it was told is stored. A sabotage is what one process does wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg2
from psycopg2.extensions import connection as PgConnection  # noqa: N812  # the driver's class has a small letter

from schemaless_core import BatchFailed, Cell, PutResult, SchemalessError, Unavailable
from schemaless_core.control.audit import AuditLog
from schemaless_core.engine.mysql import authority
from schemaless_core.failpoints import use_folder
from tests.chaos.actors import end, wait_until
from tests.chaos.capture_actors import KEYS, Writer
from tests.chaos.switch_journal import Line, Stored
from tests.forking import FORK_SERVER
from tripstore.backends.postgres.cells import fence
from tripstore.backends.postgres.layout.layout import VERSION_BITS
from tripstore.handover.ports import Copies, Operation
from tripstore.migration.cutover.perform import HandoverOrder, perform
from tripstore.migration.cutover.plan import Direction
from tripstore.migration.mirror.mirror import Mirror
from tripstore.ports.legacy import RealLegacyPort
from tripstore.ports.store import SchemalessPort
from tripstore.store import TripStore
from tripstore.wiring import connect

#: Where the token of a write stands in a body; those of other columns are a list of it.
MEANT = {"BASE": "status", "STATUS": "result", "NOTES": "text"}
#: What a service of the facade keeps writing to.
OWN_ROWS = 30


def without_fences() -> None:
    """Every operation passes every gate, at whatever epoch."""

    def at_postgres(self: RealLegacyPort, operation: Operation[Any], epoch: int) -> Any:
        return operation(self._backend.as_mirror())

    def at_schemaless(self: SchemalessPort, operation: Operation[Any], epoch: int) -> Any:
        return operation(self._datastore.as_copier())

    RealLegacyPort.call = at_postgres  # type: ignore[method-assign]
    SchemalessPort.call = at_schemaless  # type: ignore[method-assign]


def without_epochs_of_reads() -> None:
    """What was read at Postgres counts, whatever its gate says afterwards."""
    vars(fence)["counts"] = lambda value, epoch: True


def marking_before_sending() -> None:
    """A change leaves the queue before the other store has it."""
    claim = RealLegacyPort.claim

    def claimed(self: RealLegacyPort, limit: int, *, from_others: bool = False) -> Copies:
        copies = claim(self, limit, from_others=from_others)
        self.mark_delivered(copies.cells)
        return copies

    RealLegacyPort.claim = claimed  # type: ignore[method-assign]


def opening_without_a_look() -> None:
    """Shards are opened at an epoch that is over."""
    authority.BEHIND = authority.BEHIND.replace("<", "<>")
    authority.OPEN = authority.OPEN.replace("authority_epoch < %s", "authority_epoch <> %s")


SABOTAGES: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "no fences": without_fences,
    "reads always count": without_epochs_of_reads,
    "marks before it sends": marking_before_sending,
    "opens without a look": opening_without_a_look,
}


class ServiceRaised(Exception):
    """What a call of a service raised, by its name."""

    def __init__(self, name: str, trace: str) -> None:
        super().__init__(trace)
        self.name = name


class Service:
    """A service in a process of its own. It does one thing after the other, as it is told."""

    def __init__(self, document: Mapping[str, Any], failpoints: Path, sabotage: str = "") -> None:
        self._failpoints = failpoints
        self._pipe, theirs = FORK_SERVER.Pipe()
        arguments = (theirs, dict(document), str(failpoints), sabotage)
        self._process: BaseProcess = FORK_SERVER.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Have it done, and return what the service was answered."""
        self.begin(operation, *arguments, **options)
        return self.result()

    def begin(self, operation: str, *arguments: Any, **options: Any) -> None:
        while self._pipe.poll():  # what a test that failed did not wait for
            self._pipe.recv()
        self._pipe.send((operation, arguments, options))

    def look(self) -> None:
        """It knows the flags of now: its next read is not of a cohort that was."""
        self.call("look")

    def stop_at(self, point: str) -> None:
        """What it does next stops it there."""
        self.pass_all()
        (self._failpoints / point).write_text("stop")

    def pass_all(self) -> None:
        """Nothing stops it, whatever a test before armed."""
        for other in self._failpoints.iterdir():
            other.unlink()

    def has_met(self, point: str) -> bool:
        return (self._failpoints / f"{point}.hit").exists()

    def wait_until_stopped(self, point: str) -> None:
        wait_until(f"it stopped at {point}", lambda: self.has_met(point), 20)
        wait_until("it is stopped", lambda: is_stopped(self._process.pid), 20)

    def go_on(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def has_answered(self, seconds: float) -> bool:
        """Wait for its answer, and leave it there."""
        return self._pipe.poll(seconds)

    def result(self, seconds: float = 60) -> Any:
        assert self._pipe.poll(seconds), "the service does not answer"
        kind, value = self._pipe.recv()
        if kind == "raised":
            raise ServiceRaised(*value)
        return value

    def close(self) -> None:
        end(self._process)
        self._pipe.close()


def is_stopped(pid: int | None) -> bool:
    return _state(pid) == "T"


def _state(pid: int | None) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return ""


def _serve(pipe: Connection, document: Mapping[str, Any], failpoints: str, sabotage: str) -> None:
    use_folder(Path(failpoints))
    SABOTAGES[sabotage]()
    with connect(document) as store, suppress(EOFError):
        while True:
            operation, arguments, options = pipe.recv()
            pipe.send(_answer(store, operation, arguments, options))


def _answer(store: TripStore, operation: str, arguments: Any, options: Any) -> tuple[str, Any]:
    try:
        work = partial(_look, store) if operation == "look" else getattr(store, operation)
        return "answered", work(*arguments, **options)
    except Exception as error:  # noqa: BLE001  # the test's own process hears of it
        return "raised", (type(error).__name__, "".join(traceback.format_exception(error)))


def _look(store: TripStore) -> None:
    assert store.facade.duo is not None
    store.facade.duo.watch.look()


class Wrong(Exception):
    """What a service must never meet."""


class Own(NamedTuple):
    """A row that one service alone writes: the latest ref key and body of each column."""

    latest: dict[str, tuple[int, Any]]
    has_children: bool


class FacadeWriter:
    """Writes through the facade, at a pace, whatever comes, and reads what it wrote."""

    def __init__(self, store: TripStore, folder: Path, per_second: float) -> None:
        self._store = store
        self._pace_seconds = 1 / per_second
        self._choose = random.Random()
        self._file = (folder / f"{os.getpid()}.lines").open("a", buffering=1)
        self._rows: dict[UUID, Own] = {}
        self._number = 0
        often = [self._create, self._next, self._next, self._put_free, self._shared, self._read]
        self._operations = [*often, *often, self._append, self._fact, self._note, self._note, self._batch, self._delete]

    def write_for_ever(self) -> None:
        due = time.monotonic()
        while True:
            self._operate()
            due = max(due + self._pace_seconds, time.monotonic() - self._pace_seconds)
            time.sleep(max(0.0, due - time.monotonic()))

    def _operate(self) -> None:
        operation = self._choose.choice(self._operations) if self._rows else self._create
        name, begun = operation.__name__.strip("_"), time.monotonic()
        event, detail, stored = "stored", "", list[Stored]()
        try:
            stored = operation()
            event = "stored" if stored else "read"
        except Wrong as error:
            event, detail = "wrong", str(error)
        except Unavailable as error:
            event, detail = "failed", f"{type(error).__name__}: {error.message}"
        except SchemalessError as error:
            event = "refused" if operation == self._shared else "wrong"
            detail = f"{type(error).__name__}: {error.message}"
        self._write(begun, name, event, detail, stored)

    def _write(self, begun: float, name: str, event: str, detail: str, stored: Sequence[Stored] = ()) -> None:
        line = Line(os.getpid(), begun, time.monotonic(), name, event, detail, tuple(stored))
        self._file.write(json.dumps(line) + "\n")

    def _body(self, column_name: str) -> Any:
        self._number += 1
        token = f"f{os.getpid()}-{self._number}"
        return {MEANT[column_name]: token} if column_name in MEANT else [token]

    def _own(self) -> tuple[UUID, Own]:
        return self._choose.choice(list(self._rows.items()))

    def _new(self) -> UUID:
        row_key = uuid4()
        self._rows[row_key] = Own({}, self._choose.random() < 0.5)
        return row_key

    def _put(self, row_key: UUID, column_name: str, ref_key: int, body: Any, **options: Any) -> list[Stored]:
        """Again until it is answered, as a service does: the outcome of one that failed is not known."""
        while True:
            begun = time.monotonic()
            try:
                result = self._store.put_cell(row_key, column_name, ref_key, body, **options)
            except Unavailable as error:
                self._write(begun, "again", "failed", f"{type(error).__name__}: {error.message}")
                time.sleep(self._pace_seconds)
            else:
                self._rows[row_key].latest[column_name] = (ref_key, body)
                return [_stored(Cell(row_key, column_name, ref_key, body), result)]

    def _create(self) -> list[Stored]:
        while len(self._rows) > OWN_ROWS:
            del self._rows[self._choose.choice(list(self._rows))]
        return self._put(self._new(), "BASE", 1, self._body("BASE"))

    def _next(self) -> list[Stored]:
        row_key, own = self._own()
        version, _body = own.latest.get("BASE", (0, None))
        options = {"expect_latest": version or None} if self._choose.random() < 0.5 else {}
        return self._put(row_key, "BASE", version + 1, self._body("BASE"), **options)

    def _put_free(self) -> list[Stored]:
        row_key, own = self._own()
        version, _body = own.latest.get("FREE", (0, None))
        body = None if self._choose.random() < 0.1 else self._body("FREE")
        return self._put(row_key, "FREE", version + 1, body)

    def _note(self) -> list[Stored]:
        """A new one, the next version of the last one, or its end."""
        row_key, own = self._own()
        if not own.has_children:
            return []
        ref_key, body = own.latest.get("NOTES", (0, None))
        if body is None or self._choose.random() < 0.3:
            return self._put(row_key, "NOTES", ((ref_key >> VERSION_BITS) + 1) << VERSION_BITS, self._body("NOTES"))
        return self._put(row_key, "NOTES", ref_key + 1, self._choose.choice([None, self._body("NOTES")]))

    def _append(self) -> list[Stored]:
        return self._appended("LINES")

    def _fact(self) -> list[Stored]:
        return self._appended("STATUS")

    def _appended(self, column_name: str) -> list[Stored]:
        """A call without an answer may have stored it, and a repeat would store it twice: such a row is left alone."""
        row_key, own = self._own()
        if column_name == "STATUS" and not own.has_children:
            return []
        body = self._body(column_name)
        try:
            result = self._store.append_cell(row_key, column_name, body)
        except Unavailable:
            del self._rows[row_key]
            raise
        own.latest[column_name] = (result.ref_key, body)
        return [_stored(Cell(row_key, column_name, result.ref_key, body), result)]

    def _batch(self) -> list[Stored]:
        cells = [Cell(self._new(), name, 1, self._body(name)) for name in ("BASE", "BASE", "FREE")]
        found: list[Stored] = []
        while cells:
            results: Sequence[PutResult | SchemalessError]
            begun = time.monotonic()
            try:
                results = self._store.put_cells(cells)
            except BatchFailed as failed:
                results = failed.results
                self._write(begun, "again", "failed", failed.message)
                time.sleep(self._pace_seconds)  # at its pace, as a service does
            except Unavailable as error:
                self._write(begun, "again", "failed", f"{type(error).__name__}: {error.message}")
                time.sleep(self._pace_seconds)  # the same
                continue
            found += [_stored(cell, each) for cell, each in zip(cells, results, strict=True) if _is_stored(each)]
            cells = [cell for cell, each in zip(cells, results, strict=True) if not _is_stored(each)]
        for each in found:
            self._rows[UUID(each.row_key)].latest[each.column_name] = (each.ref_key, each.body)
        return found

    def _shared(self) -> list[Stored]:
        """A row that everybody writes, and where others may be faster."""
        row_key = self._choose.choice(KEYS)
        latest = self._store.get_cell_latest(row_key, "BASE")
        version = None if latest is None else latest.ref_key
        cell = Cell(row_key, "BASE", (version or 0) + 1, self._body("BASE"))
        return [_stored(cell, self._store.put_cell(*cell.key, cell.body, expect_latest=version))]

    def _delete(self) -> list[Stored]:
        row_key, own = self._own()
        if own.has_children or "BASE" not in own.latest:
            return []
        stored = self._put(row_key, "BASE", own.latest["BASE"][0] + 1, None)
        del self._rows[row_key]
        return stored

    def _read(self) -> list[Stored]:
        row_key, own = self._own()
        if not own.latest:  # nothing of the row was stored yet
            return []
        if self._choose.random() < 0.5:
            row = self._store.get_row(row_key)
            found = {name: (cell.ref_key, cell.body) for name, cell in row.items() if name in own.latest}
            expected = dict(own.latest)
        else:
            name = self._choose.choice(list(own.latest))
            cell = self._store.get_cell_latest(row_key, name)
            found = {} if cell is None else {name: (cell.ref_key, cell.body)}
            expected = {name: own.latest[name]}
        if found != expected:
            raise Wrong(f"{row_key}: {expected} was stored, {found} is read")
        return []


def _is_stored(result: PutResult | SchemalessError) -> bool:
    if isinstance(result, PutResult):
        return True
    if isinstance(result, Unavailable):
        return False
    raise result


def _stored(cell: Cell, result: PutResult | SchemalessError) -> Stored:
    assert isinstance(result, PutResult)
    key = (str(cell.row_key), cell.column_name, cell.ref_key)
    return Stored(*key, cell.body, result.status, result.epoch, result.added_id, result.shard)


class SqlWriter(Writer):
    """A service with its own SQL, at a pace. Refused it is while the other store is the authority."""

    def __init__(self, url: str, folder: Path, seed: str, per_second: float) -> None:
        super().__init__(url, folder, seed)
        self._pace_seconds = 1 / per_second

    def write_for_ever(self) -> None:
        while True:
            with suppress(psycopg2.OperationalError, psycopg2.InterfaceError):  # the server is down, or has ended us
                connection = psycopg2.connect(self._url, application_name="writer")
                self._journal.pid = connection.info.backend_pid
                while True:
                    self._transaction(connection)
            time.sleep(self._pace_seconds)

    def _transaction(self, connection: PgConnection) -> None:
        super()._transaction(connection)
        time.sleep(self._pace_seconds)


class Attempt(NamedTuple):
    """A hand-over that a switcher attempted and lived to tell of."""

    begun: float
    ended: float
    is_decided: bool
    reason: str
    pause_seconds: float | None
    #: How long each of its steps took, in all.
    steps: dict[str, float]


def facade_writer(document: Mapping[str, Any], folder: Path, failpoints: Path, per_second: float) -> BaseProcess:
    """A process, not started."""
    return _process(_write_through_facade, dict(document), str(folder), str(failpoints), per_second)


def sql_writer(url: str, folder: Path, seed: str, per_second: float) -> BaseProcess:
    return _process(_write_tables, url, str(folder), seed, per_second)


def relay(document: Mapping[str, Any], failpoints: Path, sabotage: str) -> BaseProcess:
    return _process(_relay, dict(document), str(failpoints), sabotage)


class Switcher:
    """One attempt in a process of its own."""

    def __init__(self, document: Mapping[str, Any], failpoints: Path, direction: Direction, sabotage: str = "") -> None:
        self._pipe, theirs = FORK_SERVER.Pipe()
        self.process = _process(_switch, theirs, dict(document), str(failpoints), direction, sabotage)
        self.process.start()
        theirs.close()

    def go_on(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def outcome(self, seconds: float = 60) -> Attempt | None:
        """None: it died."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, "it neither ends nor dies"
        try:
            return Attempt(*self._pipe.recv()) if self._pipe.poll() else None
        except EOFError:
            return None
        finally:
            self._pipe.close()


def _process(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    process: BaseProcess = FORK_SERVER.Process(target=work, args=arguments, daemon=True)
    return process


def _write_through_facade(document: Mapping[str, Any], folder: str, failpoints: str, per_second: float) -> None:
    use_folder(Path(failpoints))
    with connect(document) as store:
        FacadeWriter(store, Path(folder), per_second).write_for_ever()


def _write_tables(url: str, folder: str, seed: str, per_second: float) -> None:
    SqlWriter(url, Path(folder), seed, per_second).write_for_ever()


def _relay(document: Mapping[str, Any], failpoints: str, sabotage: str) -> None:
    use_folder(Path(failpoints))
    SABOTAGES[sabotage]()
    with connect(document) as store:
        store.facade.begin()
        Mirror(store.facade).relay().run()


def _switch(
    pipe: Connection, document: Mapping[str, Any], failpoints: str, direction: Direction, sabotage: str
) -> None:
    """What `cutover switch --force` does."""
    use_folder(Path(failpoints))
    SABOTAGES[sabotage]()
    with connect(document) as store:
        facade = store.facade
        assert facade.duo is not None
        begun = time.monotonic()
        done = perform(
            facade.duo.ports,
            HandoverOrder(direction, "a test"),
            flags=facade.flags,
            audit=AuditLog(facade.store.control),
            max_pause_seconds=facade.config.mirror.max_pause_seconds,
        )
        steps = {each.step.name: round(each.seconds, 3) for each in done.steps}
        pipe.send((begun, time.monotonic(), done.is_decided, done.reason, done.pause_seconds, steps))
