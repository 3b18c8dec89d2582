"""`Triggers`: what a datastore offers around triggers. Registers groups, makes workers, answers the person on call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from schemaless_core.calls.lookups import Lookups
from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.cell.answers import Position, ShardPage
from schemaless_core.config import DatastoreConfig
from schemaless_core.engine.groups import OffsetSeen, ParkedRow
from schemaless_core.errors import InvalidRequest, SchemalessError, shown
from schemaless_core.habits import ReadFrom
from schemaless_core.servers.clusters import Cluster
from schemaless_core.store import CellStore
from schemaless_core.triggers.calls import RunningCalls
from schemaless_core.triggers.consumer import Consumer
from schemaless_core.triggers.deaths import Deaths
from schemaless_core.triggers.delivery import Delivery, Threads
from schemaless_core.triggers.group import Group, TriggerGroup
from schemaless_core.triggers.joined import Joined
from schemaless_core.triggers.leases.coordinator import Coordinator, GroupRecord, Lease
from schemaless_core.triggers.offsets import Offsets
from schemaless_core.triggers.parking import Parking
from schemaless_core.triggers.registry import Start, Trigger
from schemaless_core.triggers.retries import Retries
from schemaless_core.triggers.staging import StagingRules
from schemaless_core.triggers.timeouts import Timeouts
from schemaless_core.triggers.watch import HeadsWatch
from schemaless_core.triggers.worker import Worker

#: A heartbeat's read, beside what it must say in time.
HEART_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ShardOfGroup:
    """How far a group is in one shard. What a server that is down would have said is None."""

    shard: int
    owner: str | None
    heir: str | None
    epoch: int | None
    added_id: int | None
    head: int | None
    lag_cells: int | None
    lag_seconds: float | None  #: Age of the first cell that is not delivered; None when there is none.
    #: RW, COPY, RO or MOVED: transactional triggers are served only where it is RW.
    state: str | None = None
    #: Whether it stands where the log has never been: what is put there next would be passed over.
    is_beyond: bool = False


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group and its shards."""

    record: GroupRecord
    parked: int
    shards: tuple[ShardOfGroup, ...]
    #: None: its calls may take any time, or it calls no function of a module.
    timeout_seconds: float | None = None

    @property
    def lag_cells(self) -> int:
        return sum(shard.lag_cells or 0 for shard in self.shards)

    @property
    def lag_seconds(self) -> float:
        return max((shard.lag_seconds or 0.0 for shard in self.shards), default=0.0)

    @property
    def unserved(self) -> int:
        return sum(shard.owner is None for shard in self.shards)

    @property
    def beyond(self) -> tuple[int, ...]:
        """Shards whose offset is above the head of their log."""
        return tuple(shard.shard for shard in self.shards if shard.is_beyond)

    @property
    def unknown(self) -> int:
        """Shards whose server did not answer."""
        return sum(shard.added_id is None for shard in self.shards)


class Triggers:
    """The trigger half of a datastore."""

    def __init__(
        self,
        store: CellStore,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        coordinator: Coordinator,
        offsets: Offsets,
        parking: Parking,
        joined: Joined,
        deaths: Deaths,
        lookups: Lookups,
        log_of: Callable[[ReadFrom], ShardLog],
        timeouts: Timeouts,
    ) -> None:
        self.coordinator = coordinator
        self.offsets = offsets
        self.parking = parking
        self.joined = joined
        self._deaths = deaths
        self._lookups = lookups
        self._store = store
        self._config = config
        self._clusters = clusters
        self._log_of = log_of
        self._timeouts = timeouts
        self._log = log_of("primary")

    def register(self, trigger: Trigger) -> GroupRecord:
        """Create a trigger's group if it is new: first its offsets in all shards, then the group."""
        record = self._registered(trigger)
        self._timeouts.tell(trigger.name, trigger.timeout)
        return record

    def _registered(self, trigger: Trigger) -> GroupRecord:
        known = self.coordinator.find_group(trigger.name)
        if known is not None:
            return known
        if trigger.start is None:
            raise InvalidRequest(
                f"The trigger {trigger.name} runs for the first time and does not say where it starts.",
                hint='Decorate it with @trigger(…, start="now"), "beginning" or an aware datetime.',
            )
        return self.register_group(trigger.name, trigger.start)

    def register_group(self, name: str, start: Start) -> GroupRecord:
        """Create a group if it is new."""
        self.offsets.begin(name, start)
        said = start if isinstance(start, str) else start.astimezone(UTC).isoformat()
        # By the clock: a group that was removed and is registered again never repeats a fence.
        fence = time.time_ns() // 1_000_000
        allowed = self._config.triggers.halt_after
        return self.coordinator.register_group(name, said, self._config.shards, allowed=allowed, fence=fence)

    def worker(
        self,
        groups: Callable[[], Iterable[Group]] | Sequence[Trigger],
        *,
        threads: int = 1,
        read: Literal["primary", "replica"] = "primary",
        name: str | None = None,
        store: CellStore | None = None,
        rules: StagingRules | None = None,
        hung: Callable[[], None] = lambda: None,
    ) -> Worker:
        """A worker for these triggers, whose groups it registers, or for whatever groups a function lists.

        `read` says where it tails the log; a replica that is behind or down is made up for by its primary. `store` is
        handed to the triggers' functions in place of this datastore. Transactional triggers are served only where
        this datastore is the authority: what they put commits here, where `store` cannot look after it; `rules` do.
        A function that takes longer than its trigger's timeout cannot be stopped: its cell is parked, the worker gives
        everything back, and calls `hung`, which should end the process.
        """
        calls = RunningCalls()
        given, joined = (self._store, self.joined) if store is None else (store, self.joined.with_store(store, rules))
        if callable(groups):
            listed = groups
        else:
            for trigger in groups:
                self.register(trigger)
            fixed = [TriggerGroup(trigger, given, calls) for trigger in groups]

            def listed() -> list[Group]:
                return list(fixed)

        config = self._config.triggers
        log = self._log_of(read)
        retries = Retries(self.parking, joined, self._lookups, self._config.triggers)

        def consumer_of(group: Group, pool: Threads | None, stopping: threading.Event) -> Consumer:
            checkpoint_seconds = self._config.triggers.checkpoint_seconds
            delivery = Delivery(group, joined, self._deaths, checkpoint_seconds, stopping, pool)
            progress = group.progress(self.offsets, self.parking)
            return Consumer(group, delivery, progress, self.parking, retries, self._deaths, log, self._config)

        return Worker(
            self.coordinator,
            listed,
            consumer_of,
            HeadsWatch(self._clusters, read),
            config,
            calls=calls,
            heart_watch=HeadsWatch(self._clusters, read),
            heart_log=log.within(HEART_SECONDS),
            hung=hung,
            threads=threads,
            name=name,
        )

    def status(self, name: str | None = None) -> list[GroupStatus]:
        """All groups, or one: every shard's offset, head, lag and owner, and how many cells are parked."""
        groups = self.coordinator.groups()
        if name is not None:
            groups = {name: self._known(groups, name)}
        leases, timeouts = self.coordinator.survey().leases, self._timeouts.all()
        return [
            self._status(record, [lease for lease in leases if lease.group == each], timeouts.get(each))
            for each, record in groups.items()
        ]

    def parked(self, group: str, *, shard: int | None = None, limit: int = 100) -> list[ParkedRow]:
        """Parked cells of a group, in the order of their logs."""
        self._known(self.coordinator.groups(), group)
        return self.parking.listed(group, shard, limit)

    def retry(self, group: str, *, shard: int | None = None, added_id: int | None = None) -> int:
        """Have parked cells tried again at once by the workers that serve their shards; how many."""
        self._known(self.coordinator.groups(), group)
        return self.parking.retry(group, shard, added_id)

    def resume(self, group: str) -> None:
        """Deliver a halted group's cells again, until as many more are parked as halted it."""
        self._known(self.coordinator.groups(), group)
        self.coordinator.resume(group, self.parking.count(group) + self._config.triggers.halt_after)

    def reset(self, group: str, to: Start, shards: Sequence[int] | None = None) -> dict[int, int]:
        """Set a group's offsets, backwards too; the added ids they are at then. Its workers start anew there."""
        self._known(self.coordinator.groups(), group)
        chosen = list(range(self._config.shards)) if shards is None else list(shards)
        places = self._places(group, to, chosen)
        self.offsets.reset(group, places)
        self.coordinator.revoke(group, self._fences(group, chosen))
        return {shard: added_id for shard, (_epoch, added_id) in places.items()}

    def remove(self, group: str) -> None:
        """Forget a group, its offsets and its parked cells."""
        self.coordinator.remove_group(group)
        self.offsets.remove(group)

    def forget(self, group: str) -> None:
        """Forget a group, and touch no shard: another datastore leads, and copies have its offsets."""
        self.coordinator.remove_group(group)

    def _places(self, group: str, to: Start, shards: Sequence[int]) -> dict[int, tuple[int, int]]:
        if isinstance(to, datetime):
            pages = self._log.pages(dict.fromkeys(shards, to), 1)
            return {shard: (page.position.epoch, page.start) for shard, page in pages.items()}
        places: dict[int, tuple[int, int]] = {}
        for shard, seen in self.offsets.find(group, shards).items():
            if isinstance(seen, SchemalessError):
                raise seen
            places[shard] = seen.state.epoch, seen.head if to == "now" else 0
        return places

    def _fences(self, group: str, shards: Sequence[int]) -> dict[int, int]:
        fences = {}
        for shard, seen in self.offsets.find(group, shards).items():
            if isinstance(seen, SchemalessError):
                raise seen
            if seen.offset is not None:
                fences[shard] = seen.offset.fence
        return fences

    def _known(self, groups: Mapping[str, GroupRecord], name: str) -> GroupRecord:
        if name not in groups:
            known = ", ".join(sorted(groups)) or "none yet"
            raise InvalidRequest(f"There is no group {shown(name)}.", hint=f"Groups: {known}.")
        return groups[name]

    def _status(self, record: GroupRecord, leases: Sequence[Lease], timeout: float | None) -> GroupStatus:
        of_shard = {lease.shard: lease for lease in leases}
        seen = self.offsets.find(record.name)
        behind = self._behind(seen)
        shards = tuple(_shard(shard, of_shard.get(shard), answer, behind.get(shard)) for shard, answer in seen.items())
        return GroupStatus(record, self.parking.count(record.name), shards, timeout)

    def _behind(self, seen: Mapping[int, OffsetSeen | SchemalessError]) -> dict[int, ShardPage]:
        """The next page of each shard whose offset is not its head; from before a promotion, that of its fork."""
        positions = {
            shard: Position(self._config.datastore, answer.offset.epoch, answer.offset.added_id)
            for shard, answer in seen.items()
            if isinstance(answer, OffsetSeen)
            and answer.offset is not None
            and answer.offset[:2] != (answer.state.epoch, answer.head)
        }
        pages = self._log.pages_each(positions, 1)
        return {shard: page for shard, page in pages.items() if isinstance(page, ShardPage)}


def _shard(
    shard: int, lease: Lease | None, seen: OffsetSeen | SchemalessError, behind: ShardPage | None
) -> ShardOfGroup:
    owner, heir = (lease.owner, lease.heir) if lease is not None else (None, None)
    if isinstance(seen, SchemalessError) or seen.offset is None:
        return ShardOfGroup(shard, owner, heir, None, None, None, None, None)
    epoch, added_id, _fence = seen.offset
    if behind is None:
        lag = max(0, seen.head - added_id)
        is_beyond = (epoch, added_id) > (seen.state.epoch, seen.head)
        return ShardOfGroup(shard, owner, heir, epoch, added_id, seen.head, lag, None, seen.state.status, is_beyond)
    lag = behind.head - behind.start
    first = behind.cells[0].created_at if behind.cells else None
    seconds = None if first is None else max(0.0, (datetime.now(UTC) - first).total_seconds())
    return ShardOfGroup(shard, owner, heir, epoch, added_id, behind.head, lag, seconds, seen.state.status)
