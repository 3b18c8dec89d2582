"""`RealLegacyPort`: what the hand-over asks of Postgres, on a backend. Threads share it, forks inherit it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.deadline import Deadline
from schemaless_core.errors import StaleEpoch
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.errors import ChangesParked
from tripstore.backends.postgres.handover.authority import AuthorityRow
from tripstore.backends.postgres.handover.barrier import barrier_of
from tripstore.backends.postgres.handover.queue import Claim, Claimant, ParkedChange, Queue, QueueLook
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.handover.accept import end_of_generation
from tripstore.handover.ports import REFUSED, Chunk, Copies, Operation, Past, Refused

T = TypeVar("T")

#: A relay that is killed keeps what it had claimed from the others for so long.
LEASE_SECONDS = 2.0


class RealLegacyPort:
    """A `LegacyPort` on a backend. Each thread claims for itself."""

    def __init__(self, backend: PostgresBackend, *, claimed_by: str = "", lease_seconds: float = LEASE_SECONDS) -> None:
        self._backend = backend
        self._database = backend.database
        self._row = AuthorityRow(backend.layout.datastore)
        self._queue = Queue(backend.layout)
        self._barrier = barrier_of(backend.database, backend.layout.datastore)
        self._claimed_by = claimed_by or socket.gethostname()
        self._lease_seconds = lease_seconds
        self._mine = threading.local()
        self._owner = (0, backend.as_owner(0))

    def call(self, operation: Operation[T], epoch: int) -> T | Refused:
        """Do it as the authority of this epoch. A batch that was refused in part raises `BatchFailed`."""
        try:
            return operation(self._as_owner(epoch))
        except StaleEpoch:
            return REFUSED
        except BatchFailed as failed:
            if all(isinstance(result, StaleEpoch) for result in failed.results):
                return REFUSED
            raise

    def take_barrier(self) -> bool:
        """Wait for the writers inside, not for long; `in_the_way` names those that stay."""
        return self._barrier.take()

    @property
    def in_the_way(self) -> str:
        """Why this thread did not get the barrier."""
        return self._barrier.in_the_way

    def queued(self) -> int:
        return self._run(self._queue.count)

    def move_sequences(self) -> list[str]:
        """Move sequences ahead of the numbers of child rows that stand in the tables; return those that were behind."""
        numbers = self._backend.numbers
        return numbers.pass_tables(numbers.deadline())

    def claim(self, limit: int, *, from_others: bool = False) -> Copies:
        """Claim changes. `ChangesParked`: those of others were asked for, too, and only parked ones are left."""

        # Of this thread alone: what others of us are sending just now is not ours.
        name = f"{self._claimed_by}/{os.getpid()}.{threading.get_native_id()}"
        claimant, with_own = Claimant(name, self._lease_seconds), bool(self._undelivered)

        def claim(connection: LegacyConnection) -> Claim:
            claimed = self._queue.claim(connection, claimant, limit, from_others=from_others, with_own=with_own)
            if from_others and not claimed.cells:
                look = self._queue.look(connection)
                if 0 < look.queued == look.parked:
                    raise ChangesParked(look.parked)
            return claimed

        claimed = self._run(claim, limit)
        self._mine.without_id = claimed.without_id
        self._mine.below = end_of_generation(claimed.epoch)
        has_all = with_own and len(claimed.cells) < limit
        self._mine.undelivered = {cell.key for cell in claimed.cells} | (set() if has_all else self._undelivered)
        return Copies(claimed.cells, claimed.epoch)

    def mark_delivered(self, cells: Sequence[Cell]) -> None:
        """Move changes to the log. The first change of a row goes with its `_LEGACY_ID`, if it has one, or stays.

        Of a Postgres that was accepted since this thread claimed, nothing that was captured there is moved.
        """
        without_id: frozenset[UUID] = getattr(self._mine, "without_id", frozenset())
        below: int | None = getattr(self._mine, "below", None)
        self._run(lambda connection: self._queue.mark_delivered(connection, cells, without_id, below), len(cells))
        self._undelivered.difference_update(cell.key for cell in cells)

    def read_chunk(self, chunk: Chunk) -> Past:
        """Read a chunk of the past, on a connection of this thread's own that is kept for the next."""
        return self._past_reader().read(chunk)

    def oldest(self) -> QueueLook:
        """How much is queued and parked, and how old the oldest change is that is not parked."""
        return self._run(self._queue.look)

    def park(self, cells: Sequence[Cell], kind: str, because: str) -> None:
        """Set the changes of these cells aside, and say why."""
        keys = [cell.key for cell in cells]
        self._run(lambda connection: self._queue.park(connection, keys, kind, because))

    def unpark(self, keys: Sequence[CellKey] | None = None) -> int:
        """Let relays try these again, or all; return how many were parked."""
        return self._run(lambda connection: self._queue.unpark(connection, keys))

    def parked(self, limit: int) -> list[ParkedChange]:
        """The oldest parked changes."""
        return self._run(lambda connection: self._queue.parked(connection, limit))

    def find_parked(self, key: CellKey) -> ParkedChange | None:
        return self._run(lambda connection: self._queue.find_parked(connection, key))

    def close(self) -> None:
        """Let go of this thread's barrier, and of its connection to the past."""
        self._barrier.release()
        self._past_reader().close()

    def _past_reader(self) -> PastReader:
        """This thread's, and this process's: a forked child must not read on its parent's connection."""
        pid, reader = getattr(self._mine, "past", (0, None))
        if pid != os.getpid() or reader is None:
            settings = self._database.settings
            reader = PastReader(self._database.url, self._backend.layout, statement_seconds=settings.statement_seconds)
            self._mine.past = (os.getpid(), reader)
        found: PastReader = reader
        return found

    def _as_owner(self, epoch: int) -> PostgresBackend:
        """The store of an epoch: made once for all its calls. Two threads that race here make it twice."""
        known, store = self._owner
        if known != epoch:
            store = self._backend.as_owner(epoch)
            self._owner = (epoch, store)
        return store

    def _run(self, verb: Callable[[LegacyConnection], T], changes: int = 0) -> T:
        deadlines = self._database.settings.deadlines
        return self._database.run(verb, Deadline(deadlines.put_seconds + changes * deadlines.batch_cell_seconds))

    @property
    def _undelivered(self) -> set[CellKey]:
        """What this thread has claimed and not marked: it is claimed again."""
        undelivered: set[CellKey] = getattr(self._mine, "undelivered", set())
        return undelivered
