"""`Consumer`: one group in one process. Delivers the cells of the shards it holds, in order, and saves how far it came.

The order of things is the safety: first the call, then the offset. Twice is fine, never is not. A shard that fails
waits by itself; the others go on. What failures lead to is decided here: attempts, then parking, then a halt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from schemaless_core import metrics
from schemaless_core.answers import Location, Position, ShardPage
from schemaless_core.cell import Cell
from schemaless_core.config import DatastoreConfig
from schemaless_core.engine.groups import ParkedCell, Step
from schemaless_core.errors import (
    BatchFailed,
    LogHole,
    NodeUnavailable,
    PositionUnknown,
    SchemalessError,
    StaleEpoch,
    Unavailable,
)
from schemaless_core.failpoints import reach
from schemaless_core.sharding import shard_of_bytes
from schemaless_core.shardlog import ShardLog
from schemaless_core.standing import ShardHead, ShardStatus
from schemaless_core.triggers.calls import Call
from schemaless_core.triggers.coordinator import Lease
from schemaless_core.triggers.delivery import Delivery
from schemaless_core.triggers.group import Group, Outcome
from schemaless_core.triggers.held import Held, Run, added_id_of, parked_cell
from schemaless_core.triggers.joined import FencedOut
from schemaless_core.triggers.offsets import Progress, is_mine
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
#: After a page or a saving that failed, and after one that had nothing although there is something.
REST_SECONDS = 0.2
#: Whoever closes shards to owners waits for their offsets, and gives up after about so long.
HURRY_SECONDS = 3.0


class Consumer:
    """Delivers one group's cells. Used by one thread; functions may run in others."""

    def __init__(
        self,
        group: Group,
        delivery: Delivery,
        progress: Progress,
        parking: Parking,
        retries: Retries,
        log: ShardLog,
        config: DatastoreConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group = group
        self.is_halted = False
        #: Why the group was halted by this process.
        self.halt_reason = ""
        self.parked_allowed = config.triggers.halt_after
        #: Fences above our leases' own that servers have shown.
        self.outfenced: dict[int, int] = {}
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
        self._held: dict[int, Held] = {}
        #: Those of them that need anything; of thousands that are held, few do at a time.
        self._active: dict[int, Held] = {}
        self._saved_at = clock()
        self._due_at = clock()
        self._rests_until = clock()
        self._is_waiting = False

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self._held)

    @property
    def rest_seconds(self) -> float:
        """How long it delivers nothing from now on, because what is new may wait for more."""
        return max(0.0, self._rests_until - self._clock())

    def hold(self, leases: Iterable[Lease]) -> None:
        """Take over these shards and let go of all others. A new fence is shown to the shard's server first."""
        wanted = {lease.shard: lease for lease in leases}
        for shard in list(self._held):
            held, lease = self._held[shard], wanted.get(shard)
            if lease is None or lease.fence != held.lease.fence:
                self._drop(shard, "given away")
            else:
                held.lease = lease
                self._activate(held)
        new = {shard: lease for shard, lease in wanted.items() if shard not in self._held}
        if new:
            self._claim(new)

    def let_go(self, lease: Lease) -> None:
        """A shard was given to its heir."""
        held = self._held.get(lease.shard)
        if held is not None and held.lease.fence == lease.fence:
            self._drop(lease.shard, "handed over")

    def leaving(self) -> list[Lease]:
        """Leases that an heir waits for and that have nothing left to save."""
        return [
            held.lease for held in self._active.values() if held.is_leaving and held.in_flight is None and held.is_saved
        ]

    def turn(self, heads: Mapping[int, ShardHead]) -> bool:
        """One round: note what moved, deliver, save. Whether there is more to do at once."""
        self._note(heads)
        self._collect()
        self._claim_astray()
        is_busy = False
        if not self.is_halted and not self.rest_seconds:
            self._retry_parked()
            self._deliver(self._fetch(self._ready()))
            self._collect()
            is_busy = bool(self._ready())
            if not is_busy:
                self._rests_until = self._clock() + self.group.rest_seconds
        self._save_in_time()
        self._active = {shard: held for shard, held in self._active.items() if not held.is_idle}
        return is_busy and not self.is_halted

    def finish(self, give_up_at: float) -> None:
        """Wait for functions that run, then save everything."""
        for held in list(self._active.values()):
            if held.in_flight is not None and not held.in_flight.cancel():
                try:
                    held.in_flight.result(max(0.0, give_up_at - self._clock()))
                except TimeoutError:
                    logger.warning("a function did not end", extra={"event": "triggers.function_left_running"})
        self._collect()
        self.save(is_last=True)

    def save(self, *, is_last: bool = False) -> None:
        """Save what was reached, each shard under its fence; let go of shards whose fence is not the newest."""
        now = self._clock()
        steps = {
            shard: held.step()
            for shard, held in self._active.items()
            if not held.is_saved and (is_last or held.save_not_before <= now)
        }
        if steps:
            self._advance(steps)
        for shard, held in self._active.items():
            metrics.lag_seen(self.group.name, shard, held.head - held.saved[1])
        self._saved_at = self._clock()

    def _save_in_time(self) -> None:
        """Offsets are saved in bundles; at once where somebody waits for it."""
        now = self._clock()
        hurries = any(
            (held.is_leaving or held.parking or now < held.hurried_until)
            and not held.is_saved
            and held.save_not_before <= now
            for held in self._active.values()
        )
        if hurries or now - self._saved_at >= self._config.checkpoint_seconds:
            self.save()

    # Called by a thread that calls no functions: ours may be in one that never returns.

    def tell_lag(self, heads: Mapping[int, ShardHead]) -> None:
        """Say what is not delivered, as these heads show it."""
        for shard, held in list(self._held.items()):
            if (head := heads.get(shard)) is not None and head.head > held.saved[1]:
                metrics.lag_seen(self.group.name, shard, head.head - held.saved[1])

    def give_up(self, call: Call) -> None:
        """Set the cells of a call aside that does not return: the next worker goes on behind them."""
        shard = shard_of_bytes(call.cells[0].row_key.bytes, self._shards)
        held = self._held.get(shard)
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

    def _step_behind(self, held: Held, run: Run, cells: Sequence[Cell], error: Exception) -> Step:
        """The step over these cells: those before them were delivered, these are parked with what waits."""
        reached, pause = added_id_of(cells[-1]), self._config.retry_seconds
        waiting = [each for each in [*held.parking, *run.waiting] if each.added_id <= reached]
        hung = [parked_cell(cell, held.attempts + 1, told(error), pause, is_waiting=False) for cell in cells]
        return Step(held.lease.fence, held.epoch, reached, held.shard_epoch, (*waiting, *hung))

    # Shards come and go.

    def _note(self, heads: Mapping[int, ShardHead]) -> None:
        for shard, head in heads.items():
            if (held := self._held.get(shard)) is None:
                continue
            if held.is_open and head.state.status == ShardStatus.COPY.value:
                held.hurried_until = self._clock() + HURRY_SECONDS
            held.status = head.state.status
            if head.state.epoch > held.shard_epoch and held.in_flight is None:
                self._claim_anew([held], "its epoch changed")
            else:
                held.head = head.head
                self._activate(held)
        self._tell_waiting()

    def _is_closed(self, held: Held) -> bool:
        """Whether puts that join the offset's commit cannot be made there: nothing is delivered until they can."""
        return self.group.is_transactional and not held.is_open

    def _tell_waiting(self) -> None:
        closed = sum(self._is_closed(held) and held.has_more for held in self._active.values())
        if bool(closed) != self._is_waiting:
            self._is_waiting = bool(closed)
            extra = {"event": "triggers.waits_for_authority", "group": self.group.name, "shards": closed}
            said = "waits until this store is the authority" if closed else "goes on: this store is the authority"
            logger.info("a transactional trigger %s", said, extra=extra)

    def _claim_anew(self, astray: Sequence[Held], why: str) -> None:
        """Another server has them, which may know less than we told the former: of offsets, of parked cells."""
        for held in astray:
            self._drop(held.lease.shard, why)
        self._claim({held.lease.shard: held.lease for held in astray})

    def _claim_astray(self) -> None:
        """A shard that is being delivered waits: what is settled meanwhile is settled under the claim it began with."""
        astray = [self._held[shard] for shard in self._progress.astray(self._held)]
        if ready := [held for held in astray if held.in_flight is None]:
            self._claim_anew(ready, "its progress went back")

    def _claim(self, new: Mapping[int, Lease]) -> None:
        seen = self._progress.claim(self.group.name, {shard: lease.fence for shard, lease in new.items()})
        claimed = {}
        for shard, answer in seen.items():
            if isinstance(answer, SchemalessError) or answer.offset is None:
                continue  # its server is down: claimed again at the next beat
            if not is_mine(answer, new[shard].fence):
                self.outfenced[shard] = answer.offset.fence  # a newer lease, or a coordinator that forgot
                continue
            epoch, added_id, _fence = answer.offset
            if (epoch, added_id) > (answer.state.epoch, answer.head):  # it would pass over what is put next
                beyond = PositionUnknown(shard, epoch, added_id, answer.state.epoch, answer.head)
                self._tell_beyond(shard, beyond)
                continue
            status = answer.state.status
            held = Held(new[shard], answer.state.epoch, epoch, added_id, (epoch, added_id), answer.head, status)
            claimed[shard] = held
        rows = self._parking.rows_of(self.group.name, list(claimed)) if claimed else {}
        for shard, held in claimed.items():
            if shard in rows:
                held.parked_rows = self._blocking(rows[shard])
                self._held[shard] = held
                self._activate(held)
        metrics.trigger_shards(self.group.name, len(self._held))

    def _drop(self, shard: int, why: str) -> None:
        del self._held[shard]
        self._active.pop(shard, None)
        metrics.lag_elsewhere(self.group.name, shard)
        metrics.trigger_shards(self.group.name, len(self._held))
        extra = {"event": "triggers.shard_dropped", "group": self.group.name, "shard": shard, "reason": why}
        logger.info("a shard goes elsewhere", extra=extra)

    def _activate(self, held: Held) -> None:
        if not held.is_idle:
            self._active[held.lease.shard] = held

    def _blocking(self, rows: set[bytes]) -> set[bytes]:
        """Of rows with parked cells, those whose later cells wait."""
        return rows if self.group.parking == "row" else set()

    # Delivery.

    def _ready(self) -> list[Held]:
        """The shards to serve now, those that waited longest first."""
        now = self._clock()
        ready = [
            held
            for held in self._active.values()
            if held.has_more
            and held.in_flight is None
            and not held.is_leaving
            and held.not_before <= now
            and not self._is_closed(held)
        ]
        in_flight = sum(held.in_flight is not None for held in self._active.values())
        ready.sort(key=lambda held: held.served_at)
        return ready[: self._delivery.room(in_flight, self._portions.shards)]

    def _fetch(self, ready: Sequence[Held]) -> list[tuple[Held, Run]]:
        """The next cells of these shards, as much at once as their server answers in time."""
        if not ready:
            return []
        pages = self._log.pages_each({held.lease.shard: self._place(held) for held in ready}, self._portions.cells)
        self._portions.note(is_late=any(_is_late(page) for page in pages.values()))
        runs = []
        for held in ready:
            held.served_at = self._clock()
            page = pages[held.lease.shard]
            if isinstance(page, SchemalessError):
                self._cannot_read(held, page)
            elif page.position.epoch != held.shard_epoch:
                self._claim_anew([held], "its epoch changed")
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
            self._tell_beyond(held.lease.shard, error)

    def _tell_beyond(self, shard: int, error: PositionUnknown) -> None:
        extra = {"event": "triggers.offset_beyond", "group": self.group.name, "shard": shard}
        logger.error(error.message, extra=extra)

    def _run_of(self, held: Held, page: ShardPage) -> Run:
        """Choose the group's cells of a page; cells of rows that are set aside wait behind them."""
        held.epoch, held.reached = page.position.epoch, page.start
        held.head = max(held.head, page.head)
        if not page.cells:  # who said that there is more knows less: a replica that is behind a promotion
            held.head, held.not_before = page.head, self._clock() + REST_SECONDS
        cells, waiting = [], []
        for cell in page.cells:
            if cell.column_name not in self.group.columns:
                continue
            if held.parked_rows and cell.row_key.bytes in held.parked_rows:
                waiting.append(self._waiting(cell))
            else:
                cells.append(cell)
        return Run(held.lease.shard, cells, waiting, page.next_location)

    def _waiting(self, cell: Cell) -> ParkedCell:
        why = "waits behind a parked cell of its row"
        return parked_cell(cell, 0, why, self._config.retry_seconds, is_waiting=True)

    def _deliver(self, runs: Sequence[tuple[Held, Run]]) -> None:
        for _held, run in runs:
            if not run.cells:
                self._delivered(run, Outcome(0, None))
        full = [(held, run) for held, run in runs if run.cells]
        if self._delivery.is_apart:
            for held, run in full:
                self._delivery.deliver_apart(held, run, self._delivered)
        else:
            for run, outcome in self._delivery.deliver(full):
                self._delivered(run, outcome)

    def _collect(self) -> None:
        for held in list(self._active.values()):
            if held.in_flight is not None and held.in_flight.done():
                done, held.in_flight = held.in_flight, None
                if not done.cancelled():
                    done.result()()

    def _delivered(self, run: Run, outcome: Outcome) -> None:
        held = self._held.get(run.shard)
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
            self._drop(run.shard, "another worker has a newer fence")
        elif outcome.error is not None:
            self._failed(held, run.cells[outcome.done], outcome.error)

    # Failures.

    def _failed(self, held: Held, cell: Cell, error: Exception) -> None:
        if isinstance(error, StaleEpoch) and error.shard == held.lease.shard:
            held.status = error.status
        held.attempts += 1
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
        waiting = sum(not each.is_waiting for held in self._active.values() for each in held.parking)
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
            held = self._held.get(shard)
            if held is None or held.in_flight is not None or held.is_leaving or self._is_closed(held):
                continue
            if held.parking:  # a row's waiting cells are to be there when its first is delivered
                self._advance({shard: held.step()})
            if self._held.get(shard) is held and not held.parking:
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
        self._activate(held)

    def _retried(self, held: Held, rows: set[bytes]) -> None:
        """The rows that still have parked cells."""
        blocking = self._blocking(rows)
        held.has_settled = held.has_settled or blocking != held.parked_rows
        held.parked_rows = blocking

    # Offsets.

    def _advance(self, steps: Mapping[int, Step]) -> None:
        reach("triggers.before_advance")
        answers = self._progress.advance(self.group.name, steps)
        lost = [self._held[shard] for shard in steps if shard not in answers]
        for held in lost:
            held.save_not_before = self._clock() + REST_SECONDS
        if ready := [held for held in lost if held.in_flight is None]:
            self._claim_anew(ready, "its progress went back")
        for shard, answer in answers.items():
            held = self._held[shard]
            if isinstance(answer, SchemalessError):
                held.save_not_before = self._clock() + REST_SECONDS
            elif not is_mine(answer, steps[shard].fence):
                metrics.owner_fenced(self.group.name)
                self._drop(shard, "another worker has a newer fence")
            elif answer.state.epoch == held.shard_epoch:  # else by a server that is claimed anew at the next look
                self._saved(held, steps[shard])

    def _saved(self, held: Held, step: Step) -> None:
        held.saved = step.epoch, step.added_id
        held.has_settled = False
        parked = {cell.added_id for cell in step.parked}
        held.parking = [cell for cell in held.parking if cell.added_id not in parked]


def _is_passing(error: Exception) -> bool:
    """Whether a failure says nothing of the cell: a server is down, or the store is not open to owners."""
    if isinstance(error, BatchFailed):
        return all(_is_passing(each) for each in error.results if isinstance(each, Exception))
    return isinstance(error, Unavailable | StaleEpoch)


def _is_late(page: ShardPage | SchemalessError) -> bool:
    return isinstance(page, NodeUnavailable) and page.is_timeout
