"""`SchemalessPort`: what the hand-over asks of Schemaless, on a datastore."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    CellPurged,
    Datastore,
    InvalidCell,
    SchemalessError,
    StaleEpoch,
    Unavailable,
)
from schemaless_core.cell.answers import PutResult
from schemaless_core.cell.cell import checked_bytes
from schemaless_core.cell.encoded import EncodedCell, EncodedOutcome
from schemaless_core.cell.standing import PASSING
from tripstore.backends.schemaless.shards import Applied, Shards
from tripstore.handover.ports import REFUSED, Operation, Refused

T = TypeVar("T")
R = TypeVar("R", bound=PutResult | SchemalessError)

logger = logging.getLogger(__name__)

#: A batch that is carried may take so long, less than its claim's lease: one that is given up is sent once more.
COPY_SECONDS = 1.0
#: A packet of the past may take so long.
PAST_SECONDS = 10.0

#: Hears of a cell that Schemaless will never take, and why.
RefusedCell = Callable[[Cell, SchemalessError], None]


#: What a server is told of a layout, by its digest.
Said = Callable[[str], bytes]


def _told(result: R) -> R | Unavailable:
    """What a caller is told. A shard that opens in a moment, but for longer than the call could wait, is to be tried
    again: `StaleEpoch` tells of places, which behind the facade are no caller's business.
    """
    if not isinstance(result, StaleEpoch) or result.is_of_authority or result.status not in PASSING:
        return result
    hint = "Try again: it opens in a moment, here or at another server. `tripstore shards status` says what goes on."
    return Unavailable(result.message, hint=hint)


class SchemalessPort:
    """A `StorePort` on a datastore."""

    def __init__(
        self, datastore: Datastore, refused: RefusedCell, said: Said | None = None, applied: Applied | None = None
    ) -> None:
        #: All that are configured: one that holds no shards says so.
        self.servers = tuple(datastore.clusters)
        self._datastore = datastore
        self._shards = Shards(datastore, applied)
        self._mine = _Mine()
        self._refused = refused
        self._said = said
        self._owner: tuple[int, Datastore] = (0, datastore.as_owner(0))
        self._copier: tuple[int, Datastore] = (0, self._new_copier(0))
        self._past: tuple[int, Datastore] = (-1, datastore)

    def call(self, operation: Operation[T], epoch: int) -> T | Refused:
        """Do it as an owner. A batch that was refused in part raises `BatchFailed`: some of it may be stored."""
        try:
            return operation(self._as_owner(epoch))
        except StaleEpoch as refusal:
            if refusal.is_of_authority:
                return REFUSED
            raise _told(refusal) from None
        except BatchFailed as failed:
            raise BatchFailed([_told(each) for each in failed.results]) from None

    def copy(self, cells: Sequence[Cell], epoch: int) -> tuple[Cell, ...]:
        """Put cells as a copier; return those that are there now. Some may come later, of others `refused` hears."""
        try:
            return self._copy(cells, epoch)
        except InvalidCell:  # one that no store may hold refuses the whole batch
            return self._copy([cell for cell in cells if self._is_takeable(cell)], epoch)

    def put_encoded(self, cells: Sequence[EncodedCell], epoch: int) -> EncodedOutcome:
        """Put cells of the past as a copier. Nothing is told to `refused`: the outcome has every problem."""
        return self._past_copier(epoch).put_encoded(cells)

    def open(self, server: str, epoch: int, layout: str | None) -> bool:
        """Tell a cluster the layout of an epoch, open its shards whose own is older; False: it did not answer."""
        if server == self.servers[0] or self._mine.opening_epoch != epoch:
            # All of them at once: one that hangs keeps none of the others shut.
            self._mine.opening = {name: self._opening(name, epoch, layout) for name in self.servers}
            self._mine.opening_epoch = epoch
        return self._mine.opening[server].result()

    def close(self, server: str, epoch: int) -> bool:
        """Close the shards of a cluster to owners; whether it acknowledged that all are closed at this epoch."""
        return self._shards.close(server, epoch)

    def opened(self, server: str) -> int:
        """The highest epoch at which a shard of a cluster was ever open to owners."""
        return self._shards.opened(server)

    def reached(self, server: str) -> int:
        """The highest epoch at which a shard of a cluster is, open or closed."""
        return self._shards.reached(server)

    def buffered(self, server: str) -> int:
        """Count the cells that wait in the buffer of a cluster."""
        return self._shards.buffered(server)

    def unmirrored(self, server: str) -> int:
        """Count the cells of a cluster that the reverse mirror has not passed or has parked."""
        return self._shards.unmirrored(server)

    def _opening(self, server: str, epoch: int, layout: str | None) -> Future[bool]:
        """In a thread of its own, which the process does not wait for at its end."""
        opened: Future[bool] = Future()

        def work() -> None:
            try:
                said = None if layout is None or self._said is None else self._said(layout)
                opened.set_result(self._shards.open(server, epoch, said))
            except BaseException as error:  # noqa: BLE001  # raised again in the thread that asks for the result
                opened.set_exception(error)

        threading.Thread(target=work, name=f"open-{server}", daemon=True).start()
        return opened

    def _copy(self, cells: Sequence[Cell], epoch: int) -> tuple[Cell, ...]:
        if not cells:
            return ()
        outcomes: Sequence[PutResult | SchemalessError]
        try:
            outcomes = self._as_copier(epoch).put_cells(cells)
        except BatchFailed as failed:
            outcomes = failed.results
        there = []
        for cell, outcome in zip(cells, outcomes, strict=True):
            if isinstance(outcome, PutResult | CellPurged):
                there.append(cell)  # what was purged needs no copy
            elif isinstance(outcome, CellConflict):
                self._refused(cell, outcome)
        _warn_of(outcomes)
        return tuple(there)

    def _is_takeable(self, cell: Cell) -> bool:
        try:
            checked_bytes(cell, self._datastore.config.max_body_bytes)
        except InvalidCell as error:
            self._refused(cell, error)
            return False
        return True

    def _as_owner(self, epoch: int) -> Datastore:
        """The store of an epoch: made once for all its calls. Two threads that race here make it twice."""
        known, store = self._owner
        if known != epoch:
            store = self._datastore.as_owner(epoch)
            self._owner = (epoch, store)
        return store

    def _as_copier(self, epoch: int) -> Datastore:
        known, store = self._copier
        if known != epoch:
            store = self._new_copier(epoch)
            self._copier = (epoch, store)
        return store

    def _past_copier(self, epoch: int) -> Datastore:
        """One whose packets may be many and large: a backfill has no claim whose lease runs out."""
        known, store = self._past
        if known != epoch:
            store = self._datastore.as_copier(epoch).using(deadline=PAST_SECONDS)
            self._past = (epoch, store)
        return store

    def _new_copier(self, epoch: int) -> Datastore:
        seconds = max(COPY_SECONDS, self._datastore.config.deadlines.put_seconds)
        return self._datastore.as_copier(epoch).using(deadline=seconds)


class _Mine(threading.local):
    """What one thread has begun to open."""

    def __init__(self) -> None:
        self.opening_epoch: int | None = None
        self.opening: dict[str, Future[bool]] = {}


def _warn_of(outcomes: Sequence[PutResult | SchemalessError]) -> None:
    """Say once per batch why some of it has to come later."""
    purged = [each for each in outcomes if isinstance(each, CellPurged)]
    if purged:
        extra = {"event": "mirror.purged", "cells": len(purged), "row_key": str(purged[0].row_key)}
        logger.warning("the mirror did not take cells that were purged", extra=extra)
    late = [each for each in outcomes if isinstance(each, SchemalessError) and not isinstance(each, CellConflict)]
    late = [each for each in late if not isinstance(each, CellPurged)]
    if late:
        extra = {"event": "mirror.not_taken", "cells": len(late), "reason": late[0].message}
        logger.warning("the mirror did not take some cells now", extra=extra)
