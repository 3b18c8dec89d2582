"""`AfterCommit`: writes index entries right after cells were committed, on a thread of its own, in batches.

Best effort, and never in the way: a put waits for nothing here, and whatever goes wrong is dropped. The maintainer's
group follows the logs and guarantees the entries; this only makes them quick.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from schemaless_core import metrics
from schemaless_core.cell.cell import Cell
from schemaless_core.deadline import Deadline
from schemaless_core.errors import IndexMissing, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.writer import CELLS_PER_WRITE, EntryWriter

logger = logging.getLogger(__name__)

#: Cells that may wait; beyond it they are left to the maintainer.
QUEUE_MAX = 10_000
#: One batch. Longer than servers wait for a lock: a busy row is no reason to take its server for dead.
BATCH_SECONDS = 2.0
#: How long a closing datastore waits for what is queued.
CLOSE_SECONDS = 1.0
#: Failures are logged once in so long.
LOG_SECONDS = 60.0

#: A cell and when it was queued; None wakes the thread up at the end.
_Queue = queue.Queue[tuple[Cell, float] | None]


class AfterCommit:
    """The thread of one datastore, and its queue. The thread starts with the first cell; a fork starts anew."""

    def __init__(
        self,
        writer: EntryWriter,
        catalogue: Catalogue,
        columns: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: The columns whose cells are to be handed over. None of them: a put looks at this and goes on.
        self.columns = frozenset(columns)
        self._configured = self.columns
        self._writer = writer
        self._catalogue = catalogue
        self._clock = clock
        self._logged_at = float("-inf")
        self.after_fork()

    def after_fork(self) -> None:
        """The parent's thread is the parent's, and so is what it has queued."""
        self._lock = threading.Lock()
        self._queue: _Queue = queue.Queue(QUEUE_MAX)
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def created(self, cell: Cell) -> None:
        """A cell of one of the columns was committed. Returns at once, whatever happens to it."""
        try:
            self._queue.put_nowait((cell, self._clock()))
        except queue.Full:
            metrics.index_cells_dropped("queue_full", 1)
            return
        if self._thread is None:
            self._start()
        reach("index.queued")

    def close(self) -> None:
        """Write what is queued if that is soon done; nothing is lost otherwise."""
        self._is_closing = True
        self.columns = frozenset()
        if self._thread is not None:
            with suppress(queue.Full):  # then it is awake
                self._queue.put_nowait(None)
            self._thread.join(CLOSE_SECONDS)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_closing:
                work = partial(_work_on, weakref.ref(self, partial(_wake, self._queue)), self._queue)
                thread = threading.Thread(target=work, name="schemaless-after-commit", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no more threads, or the interpreter ends: the put is committed
                    self._drop(1, "failed", error)
                else:
                    self._thread = thread

    def serve(self, first: tuple[Cell, float] | None) -> bool:
        """Write this cell and what else is queued; whether the thread is to wait for more."""
        self._write_or_drop(self._batch(first))
        if not self._is_closing:
            return True
        while batch := self._batch(None):
            self._write_or_drop(batch)
        return False

    def _batch(self, first: tuple[Cell, float] | None) -> list[tuple[Cell, float]]:
        """The cell with those that are queued behind it."""
        batch = [] if first is None else [first]
        with suppress(queue.Empty):
            while len(batch) < CELLS_PER_WRITE:
                if (queued := self._queue.get_nowait()) is None:
                    break
                batch.append(queued)
        return batch

    def _write_or_drop(self, batch: Sequence[tuple[Cell, float]]) -> None:
        if not batch:
            return
        try:
            self._write(batch)
        except Exception as error:  # noqa: BLE001  # a bug here must not end the thread: puts go on without it
            self._drop(len(batch), "failed", error)

    def _write(self, batch: Sequence[tuple[Cell, float]]) -> None:
        versions = self._versions()
        cells = [cell for cell, _queued_at in batch]
        if not versions:
            return
        deadline = Deadline(BATCH_SECONDS)
        for plan in self._writer.plan(versions, cells, deadline):
            concerned = [
                (cell, queued_at)
                for cell, queued_at in batch
                if cell.column_name in plan.version.definition.column_names
            ]
            if concerned:
                answers = self._writer.carry_out(plan, [cell for cell, _queued_at in concerned], deadline)
                self._account(plan.version, answers, [queued_at for _cell, queued_at in concerned])

    def _versions(self) -> list[IndexVersion]:
        """The versions to write; also learn whose cells to hear of from now on."""
        versions = self._catalogue.kept()
        names = {name for version in versions for name in version.definition.column_names}
        if not self._is_closing and not names <= self.columns:
            self.columns = frozenset(names | self._configured)
        return versions

    def _account(
        self, version: IndexVersion, answers: Sequence[SchemalessError | None], queued_at: Sequence[float]
    ) -> None:
        now = self._clock()
        failed = [error for error in answers if error is not None]
        for answer, since in zip(answers, queued_at, strict=True):
            if answer is None:
                metrics.index_cell_written(version.name, now - since)
        if any(isinstance(error, IndexMissing) for error in failed):
            self._catalogue.ask_anew()  # the version was dropped
        if failed:
            self._drop(len(failed), "failed", failed[0])

    def _drop(self, count: int, cause: str, error: Exception) -> None:
        metrics.index_cells_dropped(cause, count)
        if self._clock() - self._logged_at > LOG_SECONDS:
            self._logged_at = self._clock()
            extra = {"event": "index.left_to_maintainer", "cells": count, "error": str(error)}
            logger.warning("index entries were not written right after the commit", extra=extra)


def _work_on(reference: weakref.ref[AfterCommit], waiting: _Queue) -> None:
    """The thread. While it waits it holds only the queue, so that a datastore no longer in use is garbage-collected."""
    while True:
        first = waiting.get()
        after_commit = reference()
        if after_commit is None or not after_commit.serve(first):
            return
        del after_commit, first


def _wake(waiting: _Queue, _gone: object) -> None:
    with suppress(queue.Full):  # then it is awake
        waiting.put_nowait(None)
