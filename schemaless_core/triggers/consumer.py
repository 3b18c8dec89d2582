"""`Consumer`: one group in one process. Delivers the cells of the shards that it has claimed, in order.

The order of things is the safety: first the call, then the offset. Twice is fine, never is not. A shard that fails
waits by itself; the others go on. What failures lead to is decided here: attempts, then parking, then a halt. Which
shards are claimed, and how their offsets are saved: `claims`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from schemaless_core import metrics
from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.cell.answers import Location, Position, ShardPage
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import ShardHead
from schemaless_core.config import DatastoreConfig
from schemaless_core.engine.groups import GroupStep, ParkedCell
from schemaless_core.errors import (
    LogHole,
    NodeUnavailable,
    PositionUnknown,
    SchemalessError,
    StaleEpoch,
    Unavailable,
)
from schemaless_core.failpoints import reach
from schemaless_core.process.collecting import uncollected
from schemaless_core.triggers.calls import Call
from schemaless_core.triggers.claims import REST_SECONDS, Claims
from schemaless_core.triggers.deaths import Deaths, ProcessDied
from schemaless_core.triggers.delivery import Delivery
from schemaless_core.triggers.group import Group, RunOutcome
from schemaless_core.triggers.held import Held, Run, added_id_of, parked_cell
from schemaless_core.triggers.joined import FencedOut
from schemaless_core.triggers.offsets import Progress
from schemaless_core.triggers.parking import Parking, told
from schemaless_core.triggers.portions import Portions
from schemaless_core.triggers.retries import Retries

logger = logging.getLogger(__name__)

#: How often parked cells are looked for whose next attempt is due.
DUE_SECONDS = 1.0
#: Each pause between attempts is so many times the one before, up to a longest.
PAUSE_FACTOR = 7.0
PAUSES_MAX = 9
PAUSE_SECONDS_MAX = 5.0
#: Of a page of which one cell at a time is delivered.
CAREFUL_CELLS = 20


class Consumer:
    """Delivers one group's cells. Used by one thread; functions may run in others."""

    def __init__(
        self,
        group: Group,
        delivery: Delivery,
        progress: Progress,
        parking: Parking,
        retries: Retries,
        deaths: Deaths,
        log: ShardLog,
        config: DatastoreConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group = group
        self.claims = Claims(group, progress, parking, deaths, config, clock)
        self.is_halted = False
        #: Whether the last turn found nothing to deliver or to save.
        self.is_quiet = True
        #: Why the group was halted by this process.
        self.halt_reason = ""
        self.parked_allowed = config.triggers.halt_after
        self._delivery = delivery
        self._progress = progress
        self._parking = parking
        self._retries = retries
        self._log = log
        self._datastore = config.datastore
        self._config = config.triggers
        self._shards = config.shards
        self._portions = Portions(config.triggers.page_cells)
        self._clock = clock
        self._due_at = clock()
        self._rests_until = clock()

    @property
    def rest_seconds(self) -> float:
        """How long it delivers nothing from now on, because what is new may wait for more."""
        return max(0.0, self._rests_until - self._clock())

    def turn(self, heads: Mapping[int, ShardHead]) -> bool:
        """One round: note what moved, deliver, save. Whether there is more to do at once."""
        self.claims.note(heads)
        self.is_quiet = not self.claims.active
        self._collect()
        self.claims.claim_astray()
        is_busy = False
        if not self.is_halted and not self.rest_seconds:
            self._retry_parked()
            self._deliver(self._fetch(self._ready()))
            self._collect()
            is_busy = bool(self._ready())
            if not is_busy:
                self._rests_until = self._clock() + self.group.rest_seconds
        self.claims.save_in_time()
        self.claims.rest()
        return is_busy and not self.is_halted

    def finish(self, give_up_at: float) -> None:
        """Wait for functions that run, then save everything."""
        for held in list(self.claims.active.values()):
            if held.in_flight is not None and not held.in_flight.cancel():
                try:
                    held.in_flight.result(max(0.0, give_up_at - self._clock()))
                except TimeoutError:
                    logger.warning("a function did not end", extra={"event": "triggers.function_left_running"})
        self._collect()
        self.claims.save(is_last=True)

    # Called by a thread that calls no functions: ours may be in one that never returns.

    def give_up(self, call: Call) -> None:
        """Set the cells of a call aside that does not return: the next worker goes on behind them."""
        shard = shard_of_bytes(call.cells[0].row_key.bytes, self._shards)
        held = self.claims.held.get(shard)
        if held is None:
            return
        error = TimeoutError(f"the function did not return within {call.allowed_seconds:g} s")
        run = held.run
        if run is None or not any(cell is call.cells[0] for cell in run.cells):
            self._retries.give_up(self.group, shard, held.lease.fence, call.cells[0], error)
        elif not self._must_halt(error):
            metrics.delivery_failed(self.group.name)
            self._progress.advance(self.group.name, {shard: self._step_behind(held, run, call.cells, error)})
            metrics.cell_parked(self.group.name)

    def _step_behind(self, held: Held, run: Run, cells: Sequence[Cell], error: Exception) -> GroupStep:
        """The step over these cells: those before them were delivered, these are parked with what waits."""
        reached, pause = added_id_of(cells[-1]), self._config.retry_seconds
        waiting = [each for each in [*held.parking, *run.waiting] if each.added_id <= reached]
        hung = [parked_cell(cell, held.attempts + 1, told(error), pause, is_waiting=False) for cell in cells]
        return GroupStep(held.lease.fence, held.epoch, reached, held.shard_epoch, (*waiting, *hung))

    # Delivery.

    def _ready(self) -> list[Held]:
        """The shards to serve now, those that waited longest first."""
        now = self._clock()
        ready = [
            held
            for held in self.claims.active.values()
            if held.has_more
            and held.in_flight is None
            and not held.is_leaving
            and held.not_before <= now
            and not self.claims.is_closed(held)
            and (held.is_saved or not held.is_careful)
        ]
        in_flight = sum(held.in_flight is not None for held in self.claims.active.values())
        ready.sort(key=lambda held: held.served_at)
        return ready[: self._delivery.room(in_flight, self._portions.shards)]

    def _fetch(self, ready: Sequence[Held]) -> list[tuple[Held, Run]]:
        """The next cells of these shards, as much at once as their server answers in time."""
        if not ready:
            return []
        pages: dict[int, ShardPage | SchemalessError] = {}
        for is_careful in {held.is_careful for held in ready}:
            places = {held.lease.shard: self._place(held) for held in ready if held.is_careful == is_careful}
            with uncollected():
                pages |= self._log.pages_each(places, CAREFUL_CELLS if is_careful else self._portions.cells)
        self._portions.note(is_late=any(_is_late(page) for page in pages.values()))
        runs = []
        for held in ready:
            held.served_at = self._clock()
            page = pages[held.lease.shard]
            if isinstance(page, SchemalessError):
                self._cannot_read(held, page)
            elif page.position.epoch != held.shard_epoch:
                self.claims.claim_anew([held], "its epoch changed")
            else:
                runs.append((held, self._run_of(held, page)))
        return runs

    def _place(self, held: Held) -> Location:
        """Where we are. From before a promotion it is a position, which leads back to its fork."""
        if held.epoch == held.shard_epoch:
            return held.reached
        return Position(self._datastore, held.epoch, held.reached)

    def _cannot_read(self, held: Held, error: SchemalessError) -> None:
        held.not_before = self._clock() + REST_SECONDS
        if isinstance(error, LogHole):
            held.not_before = self._clock() + PAUSE_SECONDS_MAX
            extra = {"event": "triggers.log_hole", "group": self.group.name, "shard": held.lease.shard}
            logger.error(error.message, extra=extra)
        elif isinstance(error, PositionUnknown):
            held.not_before = self._clock() + PAUSE_SECONDS_MAX
            self.claims.tell_beyond(held.lease.shard, error)

    def _run_of(self, held: Held, page: ShardPage) -> Run:
        """Choose the group's cells of a page; cells of rows that are set aside wait behind them."""
        held.epoch, held.reached = page.position.epoch, page.start
        held.head = max(held.head, page.head)
        if not page.cells:  # a source that said there is more knew less: a replica that is behind a promotion
            held.head, held.not_before = page.head, self._clock() + REST_SECONDS
        cells, waiting = [], []
        for cell in page.cells:
            if cell.column_name not in self.group.columns:
                continue
            if held.parked_rows and cell.row_key.bytes in held.parked_rows:
                waiting.append(self._waiting(cell))
            else:
                cells.append(cell)
        if held.is_careful and len(cells) > 1:
            end = added_id_of(cells[0])
            return Run(held.lease.shard, cells[:1], [each for each in waiting if each.added_id < end], end)
        return Run(held.lease.shard, cells, waiting, page.next_location)

    def _waiting(self, cell: Cell) -> ParkedCell:
        why = "waits behind a parked cell of its row"
        return parked_cell(cell, 0, why, self._config.retry_seconds, is_waiting=True)

    def _deliver(self, runs: Sequence[tuple[Held, Run]]) -> None:
        for _held, run in runs:
            if not run.cells:
                self._delivered(run, RunOutcome(0, None))
        full = [(held, run) for held, run in runs if run.cells]
        if self._delivery.is_apart:
            for held, run in full:
                self._delivery.deliver_apart(held, run, self._delivered)
        else:
            for run, outcome in self._delivery.deliver(full):
                self._delivered(run, outcome)

    def _collect(self) -> None:
        for held in list(self.claims.active.values()):
            if held.in_flight is not None and held.in_flight.done():
                done, held.in_flight = held.in_flight, None
                if not done.cancelled():
                    done.result()()

    def _delivered(self, run: Run, outcome: RunOutcome) -> None:
        held = self.claims.held.get(run.shard)
        if held is None:
            return  # it went elsewhere meanwhile: its new owner delivers again what we did not save
        metrics.cells_delivered(self.group.name, outcome.done)
        reach("triggers.delivered")
        if outcome.done:
            held.attempts = 0
        held.reached = run.reached(outcome.done)
        held.parking += [cell for cell in run.waiting if cell.added_id <= held.reached]
        if isinstance(outcome.error, FencedOut):
            metrics.owner_fenced(self.group.name)
            self.claims.drop(run.shard, "another worker has a newer fence")
        elif outcome.error is not None:
            self._failed(held, run.cells[outcome.done], outcome.error)

    # Failures.

    def _failed(self, held: Held, cell: Cell, error: Exception) -> None:
        if isinstance(error, StaleEpoch) and error.shard == held.lease.shard:
            held.status = error.status
        held.attempts = error.calls if isinstance(error, ProcessDied) else held.attempts + 1
        metrics.delivery_failed(self.group.name)
        if held.attempts < self._config.attempts or self.group.parking == "never" or _is_passing(error):
            pause = self._config.first_pause_seconds * PAUSE_FACTOR ** min(held.attempts - 1, PAUSES_MAX)
            held.not_before = self._clock() + min(pause, PAUSE_SECONDS_MAX)
            self._log_failure("triggers.attempt_failed", held, cell, error)
        elif not self._must_halt(error):
            pause = self._config.retry_seconds
            held.parking.append(parked_cell(cell, held.attempts, told(error), pause, is_waiting=False))
            if self.group.parking == "row":
                held.parked_rows.add(cell.row_key.bytes)
            metrics.cell_parked(self.group.name)
            self._log_failure("triggers.cell_parked", held, cell, error)
            held.reached, held.attempts = added_id_of(cell), 0

    def _must_halt(self, error: Exception) -> bool:
        """Too many cells fail: that is not the cells, and a person should look before all of them are set aside."""
        if self.is_halted:
            return True
        parked = self._parking.count(self.group.name)
        waiting = sum(not each.is_waiting for held in self.claims.active.values() for each in held.parking)
        if parked + waiting < self.parked_allowed:
            return False
        self.halt_reason = f"{parked + waiting} cells are parked; the last failed with {told(error)}"
        self.is_halted = True
        extra = {"event": "triggers.halted", "group": self.group.name, "reason": self.halt_reason}
        logger.error("the group is halted", extra=extra)
        return True

    def _log_failure(self, event: str, held: Held, cell: Cell, error: Exception) -> None:
        extra = {
            "event": event,
            "group": self.group.name,
            "shard": held.lease.shard,
            "added_id": cell.added_id,
            "row_key": str(cell.row_key),
            "attempt": held.attempts,
            "error": told(error),
        }
        logger.warning("a cell was not delivered", extra=extra)

    def _retry_parked(self) -> None:
        if self.group.parking == "never" or self._clock() - self._due_at < DUE_SECONDS:
            return
        self._due_at = self._clock()
        for shard in self._parking.due(self.group.name):
            held = self.claims.held.get(shard)
            if held is None or held.in_flight is not None or held.is_leaving or self.claims.is_closed(held):
                continue
            if held.parking:  # a row's waiting cells are to be there when its first is delivered
                self.claims.advance({shard: held.step()})
            if self.claims.held.get(shard) is held and not held.parking:
                self._retry(held)

    def _retry(self, held: Held) -> None:
        shard, fence, epoch = held.lease.shard, held.lease.fence, held.shard_epoch

        def work() -> Callable[[], None]:
            try:
                rows = self._retries.retry_due(self.group, shard, fence, epoch)
            except SchemalessError as error:
                extra = {
                    "event": "triggers.retry_failed",
                    "group": self.group.name,
                    "shard": shard,
                    "error": str(error),
                }
                logger.warning("parked cells are tried again later", extra=extra)
                return lambda: None
            return lambda: self._retried(held, rows)

        self._delivery.run_apart(held, work)
        self.claims.activate(held)

    def _retried(self, held: Held, rows: set[bytes]) -> None:
        """The rows that still have parked cells."""
        blocking = self.claims.blocking(rows)
        held.has_settled = held.has_settled or blocking != held.parked_rows
        held.parked_rows = blocking


def _is_passing(error: Exception) -> bool:
    """Whether a failure says nothing of the cell: a server is down, or the store is not open to owners."""
    if isinstance(error, BatchFailed):
        return all(_is_passing(each) for each in error.results if isinstance(each, Exception))
    return isinstance(error, Unavailable | StaleEpoch)


def _is_late(page: ShardPage | SchemalessError) -> bool:
    return isinstance(page, NodeUnavailable) and page.is_timeout
