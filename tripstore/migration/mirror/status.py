"""`MirrorStatus`: in which direction is carried, how far the other backend is behind, what was set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.leases.coordinator import GroupState
from schemaless_core.triggers.triggers import GroupStatus
from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.backends.schemaless.shards import REVERSE_GROUP, Applied, Shards
from tripstore.handover.authority import Authority, Backend
from tripstore.phase import Phase

#: A relay that runs is never so far behind unless something is in its way.
LATE_SECONDS = 10.0


class ForwardStatus(NamedTuple):
    """The queue of Postgres."""

    #: That are not delivered and not parked.
    changes: int
    seconds: float
    parked: int


class ReverseStatus(NamedTuple):
    """The group that follows Schemaless."""

    cells: int
    seconds: float
    parked: int
    #: Why it was halted; empty while it is not.
    halted: str
    #: Shards that no worker serves, and shards whose server did not answer.
    unserved: int
    unknown: int


class MirrorStatus(NamedTuple):
    """As one look found it; None: that side did not answer, or there is nothing yet."""

    phase: Phase
    authority: Authority
    forward: ForwardStatus | None
    reverse: ReverseStatus | None
    problems: tuple[str, ...]

    @property
    def direction(self) -> str | None:
        """Where changes are carried to; None: nowhere, in this phase."""
        if not self.phase.route.is_mirrored:
            return None
        return "forward" if self.authority.backend is Backend.LEGACY else "reverse"

    @property
    def is_rehearsal(self) -> bool:
        """Whether the reverse mirror compares, and writes nothing."""
        return self.authority.backend is Backend.LEGACY

    @property
    def is_fine(self) -> bool:
        return not list(self.advice())

    def advice(self) -> Iterator[str]:
        """What is wrong, and what to do."""
        yield from self.problems
        if self.direction is None:
            return
        if self.direction == "forward":
            yield from self._forward_advice()
        yield from self._reverse_advice()

    def _forward_advice(self) -> Iterator[str]:
        if self.forward is None:
            return
        if self.forward.parked:
            yield f"{self.forward.parked:,} changes are parked; `tripstore mirror parked`"
        if self.forward.seconds > LATE_SECONDS:
            yield (
                f"the oldest change has waited for {self.forward.seconds:.0f} s: no relay is running"
                " (`tripstore worker run` starts one), or Schemaless is rejecting writes (`tripstore doctor`)"
            )

    def _reverse_advice(self) -> Iterator[str]:
        if self.reverse is None:
            if not self.problems:
                yield f"there is no group {REVERSE_GROUP} yet; `tripstore schema apply` creates it"
            return
        if self.reverse.halted:
            resume = f"`tripstore triggers resume {REVERSE_GROUP}`"
            yield f"{REVERSE_GROUP} is HALTED: {self.reverse.halted}; mend it, then {resume}"
        if self.reverse.unserved:
            yield (
                f"no worker serves {self.reverse.unserved} shards of {REVERSE_GROUP}; `tripstore worker run` starts one"
            )
        if self.reverse.unknown:
            yield f"the servers of {self.reverse.unknown} shards do not answer; `tripstore status`"
        if self.reverse.parked:
            yield f"{self.reverse.parked:,} cells are parked; `tripstore mirror parked --reverse`"


def mirror_status(
    phase_of: Callable[[Authority], Phase],
    authority: Callable[[], Authority],
    oldest: Callable[[], QueueLook],
    datastore: Datastore,
    applied: Applied,
) -> MirrorStatus:
    """Look at both directions. Postgres must answer, for it says which backend is the authority."""
    row = authority()
    problems: list[str] = []
    seen = oldest()
    forward = ForwardStatus(seen.queued - seen.parked, seen.seconds, seen.parked)
    reverse = None
    try:
        reverse = find_reverse(datastore, applied)
    except SchemalessError as error:
        problems.append(error.message)
    return MirrorStatus(phase_of(row), row, forward, reverse, tuple(problems))


def find_reverse(datastore: Datastore, applied: Applied) -> ReverseStatus | None:
    """How far the reverse mirror is; None: it is not registered."""
    if datastore.triggers.coordinator.find_group(REVERSE_GROUP) is None:
        return None
    (status,) = datastore.triggers.status(REVERSE_GROUP)
    return _reverse(status, behind_of(datastore, status, applied))


def behind_of(datastore: Datastore, status: GroupStatus, applied: Applied) -> int:
    """How many cells Postgres lacks, as it says itself. Of a server that is down it is not known: see `unknown`."""
    if status.unknown:
        return status.lag_cells
    shards = Shards(datastore, applied)
    return max(status.lag_cells, sum(map(shards.behind, datastore.clusters)))


def _reverse(status: GroupStatus, cells: int) -> ReverseStatus:
    is_halted = status.record.state is GroupState.HALTED
    return ReverseStatus(
        cells,
        status.lag_seconds,
        status.parked,
        status.record.reason if is_halted else "",
        status.unserved,
        status.unknown,
    )
