"""`Watch`: keeps what a process knows fresh, and leaves no hand-over behind unfinished.

Twice a second it reads the authority row, and the flags on a thread of their own: either is seen whatever the other's
database does. A store that is not what an open row says is mended, a
hand-over that takes too long is undone: any living process does it, several may at once (`tripstore.handover.settle`).
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from schemaless_core.errors import SchemalessError
from tripstore import metrics
from tripstore.backends.postgres.errors import LegacyUnavailable, PostgresNotAccepted, SessionRefused
from tripstore.facade.arrivals import Arrivals
from tripstore.facade.flags import FlagBook
from tripstore.facade.known import Known
from tripstore.facade.lag import Lag, LagLook
from tripstore.handover.accept import Acceptance, accept
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Ports
from tripstore.handover.settle import settle, undo
from tripstore.handover.steps import run

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
#: The first call of a process waits for the flags, no longer: without them it goes where it is right in any phase.
FIRST_LOOK_SECONDS = 0.5
#: While a cohort reads from the mirror.
LAG_SECONDS = 0.1
#: Between two looks at whether both stores are what the row says, while that does not change.
SETTLE_SECONDS = 2.0


class Watch:
    """Of one process. A fork starts its own with its first call."""

    def __init__(
        self,
        ports: Ports,
        known: Known,
        flags: FlagBook,
        lag: Lag,
        arrivals: Arrivals,
        is_open_at: Callable[[int], bool],
        seen_authority: Callable[[], Authority],
        open_now: Callable[[], int] = lambda: 0,
        told: Callable[[Acceptance], None] = lambda acceptance: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ports = ports
        self._known = known
        self._flags = flags
        self._lag = lag
        self._arrivals = arrivals
        self._is_open_at = is_open_at
        self._seen_authority = seen_authority
        self._open_now = open_now
        self._told = told
        self._settled_epoch: int | None = None
        self._settle_at = -math.inf
        self._clock = clock
        self._failing: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._ended = threading.Event()
        self._has_looked = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def after_fork(self) -> None:
        self._begin()

    def start(self) -> None:
        """Begin; a second start does nothing. Flags are known afterwards, unless the control database is slow (I10)."""
        with self._lock:
            if self._ended.is_set():
                return
            if not self._threads:
                for name, work in (("facade-flags", self._keep_flags), ("facade-watch", self._run)):
                    self._threads.append(threading.Thread(target=work, name=name, daemon=True))
                    self._threads[-1].start()
        self._has_looked.wait(FIRST_LOOK_SECONDS)

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def look(self) -> None:
        """One turn. What cannot be seen stays as it was."""
        self._try("authority", self._look_at_authority)
        self._try("flags", self._look_at_flags)
        self._try("lag", self._look_at_lag)

    def _keep_flags(self) -> None:
        behind_at = self._clock()
        while not self._ended.is_set():
            self._try("flags", self._look_at_flags)
            self._has_looked.set()
            # Here, where Schemaless is asked anyway: the other thread may not wait for it.
            if self._clock() >= behind_at:
                self._try("shards", self._look_behind)
                behind_at = self._clock() + SETTLE_SECONDS * random.uniform(0.75, 1.25)
            self._ended.wait(LOOK_SECONDS)

    def _run(self) -> None:
        look_at = self._clock()
        while not self._ended.is_set():
            if self._clock() >= look_at:
                look_at = self._clock() + LOOK_SECONDS
                self._try("authority", self._look_at_authority)
                self._try("lag", self._look_at_lag)
            else:
                self._try("lag", lambda: self._look_at_lag(is_between=True))
            self._ended.wait(LAG_SECONDS if self._known.has_cohort else max(look_at - self._clock(), 0.0))

    def _look_at_authority(self) -> None:
        control = self._ports.control
        before = self._known.sight
        try:
            row = self._accepted_row()
        except (LegacyUnavailable, SessionRefused):
            # If there was a switch, Schemaless knows of it: callers go on there without Postgres.
            with suppress(LegacyUnavailable):  # it is not open either: what Postgres said is to be mended
                self._known.learn_authority(self._seen_authority())
            raise
        # It only grows: a Postgres that says less than this process has heard of it was put back.
        if before is not None and row.epoch < before.authority.epoch:
            self._distrust(row, f"this process knows of epoch {before.authority.epoch}")
        if not row.is_open:
            if control.is_overdue(row):
                logger.warning(
                    "a hand-over took too long and is undone",
                    extra={"event": "cutover.overdue", "switch_id": row.switch_id, "epoch": row.epoch},
                )
                row = run(undo(self._ports, row))
        elif row.epoch != self._settled_epoch or self._clock() >= self._settle_at:
            row = self._settled(row)
        if row.is_open:
            self._known.learn_authority(row)
            metrics.authority_seen(row.epoch, row.backend.value)
            self._tell_phase()

    def _accepted_row(self) -> Authority:
        """The row; of a Postgres that was promoted and lost no decision, after it is accepted."""
        try:
            return self._ports.control.authority()
        except PostgresNotAccepted:
            acceptance = run(accept(self._ports))
            if not acceptance.is_accepted:
                extra = {"event": "postgres.not_accepted", "reason": acceptance.reason}
                logger.warning("a Postgres that was promoted is not accepted", extra=extra)
                raise
            logger.warning(
                "a Postgres that was promoted is accepted",
                extra={"event": "postgres.accepted", "epoch": acceptance.authority.epoch},
            )
            self._told(acceptance)
            return acceptance.authority

    def _distrust(self, row: Authority, because: str) -> None:
        """Postgres has lost a decision, whatever its timeline: no process is to write there."""
        extra = {"event": "postgres.went_back", "epoch": row.epoch, "reason": because}
        logger.error("Postgres is older than it was: it is shut until it is accepted", extra=extra)
        self._ports.control.distrust(row)
        metrics.postgres_distrusted()
        self._known.learn_authority(self._seen_authority())

    def _look_behind(self) -> None:
        """Whether Schemaless is open above the row: proof of a decision that Postgres lost."""
        row = self._ports.control.authority()
        opened = self._open_now()
        if opened > row.epoch and self._ports.control.authority() == row:
            self._distrust(row, f"shards are open at epoch {opened}")

    def _settled(self, row: Authority) -> Authority:
        """Make both stores what an open row says; where they are, that was a look. Not all processes at once."""
        if row.backend is Backend.STORE and not self._is_open_at(row.epoch):
            logger.info("a server is not what the authority row says", extra={"event": "cutover.mended"})
            row = run(settle(self._ports))
        else:
            row = self._ports.control.obey()
        self._settled_epoch = row.epoch
        self._settle_at = self._clock() + SETTLE_SECONDS * random.uniform(0.75, 1.25)
        return row

    def _look_at_flags(self) -> None:
        self._known.learn_flags(self._flags.find())
        self._tell_phase()
        self._lag.watch(is_watched=self._known.has_cohort)

    def _tell_phase(self) -> None:
        sight = self._known.sight
        if sight is not None:
            metrics.phase_seen(sight.phase)

    def _look_at_lag(self, *, is_between: bool = False) -> None:
        """Look at the mirror's lag. Between two looks, a place that it had not come to is not asked for again."""
        sight = self._known.sight
        if sight is None or not self._known.has_cohort:
            return
        self._lag.watch(is_watched=True)
        backend, epoch = sight.authority.backend, sight.authority.epoch
        begun = self._clock()
        pending = self._lag.pending(epoch)
        behind = self._arrivals.behind(backend, list(pending.rows))
        look = LagLook(begun, behind.seconds, behind.missing)
        if pending.lost is not None and (pending.lost.place is None or not is_between):
            place = self._arrivals.place(backend) if pending.lost.place is None else pending.lost.place
            left = self._arrivals.left_behind(backend, place)
            look = look._replace(place=place, is_past_place=left is not None, left=left or ())
        now = self._known.sight
        # What was written at another authority meanwhile was looked for in the wrong mirror.
        if now is not None and now.authority.epoch == epoch:
            self._lag.looked(epoch, pending, look)

    def _try(self, what: str, look: Callable[[], None]) -> None:
        """A look that fails is told of once, until it works again."""
        try:
            look()
        except SchemalessError as error:
            if what not in self._failing:
                self._failing.add(what)
                extra = {"event": "facade.not_seen", "what": what, "reason": error.message}
                logger.warning("a process goes by what it knew", extra=extra)
        except Exception:
            # This thread undoes what others leave behind: it must not end.
            logger.exception("a look failed", extra={"event": "facade.look_broken", "what": what})
        else:
            self._failing.discard(what)
