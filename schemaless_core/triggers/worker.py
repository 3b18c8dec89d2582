"""`Worker`: one process's share of all groups. A loop that tails, and a heartbeat that hears which shards are whose.

The loop never waits for the coordinator: without it, and without a leader, the shards that this process holds are
served as before. The coordinator only says which shards to serve; whether an offset may move, the shard's server says.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

from schemaless_core import metrics
from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.config import TriggerConfig
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.triggers.calls import Call, RunningCalls
from schemaless_core.triggers.consumer import Consumer
from schemaless_core.triggers.delivery import Threads
from schemaless_core.triggers.group import Group
from schemaless_core.triggers.leases.coordinator import (
    Coordinator,
    GroupRecord,
    GroupState,
    HeldLeases,
    Lease,
    LeaseConfig,
)
from schemaless_core.triggers.leases.leader import Leader
from schemaless_core.triggers.watch import HeadsWatch

logger = logging.getLogger(__name__)

#: How long functions that run may take to end once the worker is to stop.
FINISH_SECONDS = 30.0
#: Between two beats of a worker that waits for a shard.
HEIR_BEAT_SECONDS = 0.1
#: A loop that is silent for so long is in a function, or at a silent server.
STALL_SECONDS = 1.0
#: So many turns without anything to do, and each pause is longer than the one before.
IDLE_TURNS = 100
IDLE_GROWTH = 1.02
LONGER_MAX = 1_000


class Worker:
    """Serves groups until it is stopped."""

    def __init__(
        self,
        coordinator: Coordinator,
        groups: Callable[[], Iterable[Group]],
        consumer_of: Callable[[Group, Threads | None, threading.Event], Consumer],
        watch: HeadsWatch,
        config: TriggerConfig,
        *,
        calls: RunningCalls,
        heart_watch: HeadsWatch,
        heart_log: ShardLog,
        hung: Callable[[], None] = lambda: None,
        threads: int = 1,
        name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._coordinator = coordinator
        self._groups = groups
        self._consumer_of = consumer_of
        self._watch = watch
        self._calls = calls
        #: The heartbeat's own: it looks while the loop is in a function.
        self._heart_watch = heart_watch
        self._heart_log = heart_log
        self._hung = hung
        self._turned_at = clock()
        #: Since when, in turns, there has been nothing to deliver or to save.
        self._quiet_turns = 0
        self._config = config
        self._clock = clock
        self._hurry_loop = threading.Event()
        #: Shared by all groups; with one thread each group of several has its own, so that none waits for another's.
        self._shared = Threads(threads, self._hurry_loop.set) if threads > 1 else None
        self._pools = [self._shared] if self._shared else []
        lease_config = LeaseConfig(config.lease_seconds, config.handover_seconds)
        self._beat_seconds = lease_config.beat_seconds
        self._leader = Leader(coordinator, self.name, lease_config, clock)
        self._stop = threading.Event()
        self._heart_stop = threading.Event()
        self._failure: BaseException | None = None
        self._consumers: dict[str, Consumer] = {}
        #: What the heartbeat heard last, for the loop to act on; and what the loop wants to be told.
        self._lock = threading.Lock()
        self._leases: dict[str, tuple[Lease, ...]] = {}
        self._records: dict[str, GroupRecord] = {}
        self._halts: dict[str, str] = {}
        self._outfenced: dict[str, dict[int, int]] = {}
        self._leaving: list[Lease] = []
        self._released: list[Lease] = []
        self._is_news = False
        self._hurry = threading.Event()

    def stop(self) -> None:
        """Let the loop finish what it does, save, and give everything back."""
        self._stop.set()
        self._hurry_loop.set()
        self._hurry.set()

    def run(self) -> None:
        """Serve until `stop`."""
        heart = threading.Thread(target=self._beat_for_ever, name="trigger-heart", daemon=True)
        heart.start()
        try:
            while not self._stop.is_set():
                if not self._turn():
                    self._hurry_loop.wait(self._rest_seconds)
                    self._hurry_loop.clear()
        finally:
            self._stop.set()
            self._finish(heart)
        if self._failure is not None:
            raise self._failure

    # The loop.

    def _turn(self) -> bool:
        """One round over all groups; whether there is more to do at once."""
        self._turned_at = self._clock()
        self._hear()
        heads = self._watch.look() if self._consumers else {}
        is_busy = False
        for consumer in self._consumers.values():
            was_halted = consumer.is_halted
            with self._surviving(consumer):
                is_busy = consumer.turn(heads) or is_busy
            if consumer.is_halted and not was_halted:
                self._tell_halt(consumer)
        self._let_go()
        is_quiet = not is_busy and all(consumer.is_quiet for consumer in self._consumers.values())
        self._quiet_turns = self._quiet_turns + 1 if is_quiet else 0
        return is_busy

    @property
    def _rest_seconds(self) -> float:
        """Until the next look: not for so long as every group rests."""
        rest_seconds = min((consumer.rest_seconds for consumer in self._consumers.values()), default=0.0)
        return max(rest_seconds, self._poll_seconds)

    @property
    def _poll_seconds(self) -> float:
        """Between two looks: longer and longer where nothing has moved for a while."""
        growth = IDLE_GROWTH ** min(max(0, self._quiet_turns - IDLE_TURNS), LONGER_MAX)
        poll_seconds = self._config.poll_seconds
        return max(poll_seconds, min(poll_seconds * growth, self._config.idle_poll_seconds))

    @contextmanager
    def _surviving(self, consumer: Consumer) -> Iterator[None]:
        """A server that does not answer must not end what goes on elsewhere."""
        try:
            yield
        except SchemalessError as error:
            extra = {"event": "triggers.turn_failed", "group": consumer.group.name, "error": error.message}
            logger.warning("a group rests for a moment", extra=extra)

    def _hear(self) -> None:
        """Act on what the heartbeat heard."""
        with self._lock:
            if not self._is_news:
                return
            leases, records, self._is_news = dict(self._leases), dict(self._records), False
        groups = list(self._groups())
        for group in groups:
            if group.name in records and group.name not in self._consumers:
                pool = self._pool_of(group, is_alone=len(groups) == 1)
                self._consumers[group.name] = self._consumer_of(group, pool, self._stop)
        for name, consumer in list(self._consumers.items()):
            record = records.get(name)
            if record is None:
                consumer.claims.hold(())
                del self._consumers[name]  # the group was removed
                continue
            self._obey(consumer, record)
            with self._surviving(consumer):
                consumer.claims.hold(lease for lease in leases.get(name, ()) if lease.owner == self.name)
            self._tell_fences(consumer)

    def _pool_of(self, group: Group, *, is_alone: bool) -> Threads | None:
        if self._shared is not None or group.is_bundled or is_alone:
            return self._shared
        self._pools.append(Threads(1, self._hurry_loop.set))
        return self._pools[-1]

    def _obey(self, consumer: Consumer, record: GroupRecord) -> None:
        consumer.parked_allowed = record.parked_allowed
        consumer.claims.start, consumer.claims.registered_ms = record.start, record.registered_ms
        if record.name not in self._halts:  # else the coordinator has not heard of our halt yet
            consumer.is_halted = record.state is GroupState.HALTED

    def _tell_fences(self, consumer: Consumer) -> None:
        if consumer.claims.outfenced:
            with self._lock:
                self._outfenced[consumer.group.name] = consumer.claims.outfenced
            consumer.claims.outfenced = {}

    def _tell_halt(self, consumer: Consumer) -> None:
        with self._lock:
            self._halts[consumer.group.name] = consumer.halt_reason
        self._hurry.set()

    def _let_go(self) -> None:
        """Have shards given to their heirs once nothing of them is left to save; the heartbeat does it."""
        with self._lock:
            released, self._released = self._released, []
        for lease in released:
            if lease.group in self._consumers:
                self._consumers[lease.group].claims.let_go(lease)
        leaving = [lease for consumer in self._consumers.values() for lease in consumer.claims.leaving()]
        with self._lock:
            is_new = bool(set(leaving) - set(self._leaving))
            self._leaving = leaving
        if is_new:
            self._hurry.set()

    def _finish(self, heart: threading.Thread) -> None:
        """End what runs, save, then stop to beat: until then the shards are ours."""
        give_up_at = self._clock() + FINISH_SECONDS
        try:
            for consumer in self._consumers.values():
                consumer.finish(give_up_at)
        finally:
            self._heart_stop.set()
            self._hurry.set()
            heart.join(FINISH_SECONDS)
            for name in self._consumers:
                metrics.call_age(name, 0.0)
                metrics.oldest_age(name, 0.0)
            for threads in self._pools:
                threads.shutdown(wait=False, cancel_futures=True)
        try:
            self._coordinator.leave(self.name)
        except SchemalessError as error:
            extra = {"event": "triggers.leave_failed", "worker": self.name, "error": str(error)}
            logger.warning("its leases run out by themselves", extra=extra)

    # The heartbeat.

    def _beat_for_ever(self) -> None:
        try:
            self._beat_until_stopped()
        except BaseException as error:  # noqa: BLE001  # raised by the loop: a worker without a heart must not go on
            self._failure = error
            self._stop.set()

    def _beat_until_stopped(self) -> None:
        failures = 0
        while not self._heart_stop.is_set():
            started = self._clock()
            self._look_at_functions()
            if self._heart_stop.is_set():
                return
            try:
                self._beat()
                self._leader.step()
                failures = 0
            except SchemalessError as error:
                failures += 1
                if failures == 1:
                    extra = {"event": "triggers.coordinator_silent", "worker": self.name, "error": error.message}
                    logger.warning("cells keep flowing, shards stay where they are", extra=extra)
            self._hurry.wait(max(0.0, self._pause_seconds() - (self._clock() - started)))
            self._hurry.clear()

    def _look_at_functions(self) -> None:
        """See one that does not return; say meanwhile what the loop cannot say: how much waits."""
        ages, consumers = self._calls.ages(), dict(self._consumers)
        for name in consumers:
            metrics.call_age(name, ages.get(name, 0.0))
        for call in self._calls.overdue():
            self._give_up(call, consumers.get(call.group))
        if self._clock() - self._turned_at > STALL_SECONDS:
            heads = self._heart_watch.look()
            for consumer in consumers.values():
                consumer.claims.tell_lag(heads)
        for consumer in consumers.values():
            consumer.claims.tell_oldest(self._heart_log)

    def _give_up(self, call: Call, consumer: Consumer | None) -> None:
        """No function can be stopped from outside: park its cell, give the shards back, end.

        Killed at any line before the end, the next worker meets the cell again and does the same.
        """
        extra = {"event": "triggers.function_hangs", "group": call.group, "row_key": str(call.cells[0].row_key)}
        logger.error("a function does not return, so its worker ends", extra=extra)
        try:
            if consumer is not None:
                consumer.give_up(call)
                reach("triggers.given_up")
                if consumer.is_halted:
                    self._coordinator.halt(call.group, consumer.halt_reason)
            self._coordinator.leave(self.name)
        except SchemalessError as error:
            extra = {"event": "triggers.give_up_failed", "group": call.group, "error": str(error)}
            logger.warning("the next worker meets the cell again", extra=extra)
        self._heart_stop.set()
        self.stop()
        self._hung()

    def _pause_seconds(self) -> float:
        """An heir asks often, so that a shard rests no longer than it must."""
        with self._lock:
            is_heir = any(lease.heir == self.name for leases in self._leases.values() for lease in leases)
        return min(HEIR_BEAT_SECONDS, self._beat_seconds) if is_heir else self._beat_seconds

    def _beat(self) -> None:
        names = [group.name for group in self._groups()]
        with self._lock:
            known = {name: record.version for name, record in self._records.items()}
            halts = dict(self._halts)
            outfenced, self._outfenced = self._outfenced, {}
            leaving = list(self._leaving)
        told = self._told(halts)
        for name, fences in outfenced.items():
            self._coordinator.revoke(name, fences)
        if leaving:
            reach("triggers.before_release")
            self._coordinator.release(self.name, leaving)
            with self._lock:
                self._released += leaving
        held = self._coordinator.beat(self.name, names, known)
        reach("triggers.beaten")
        with self._lock:
            self._note(held, known)
            for name in told:
                self._halts.pop(name, None)

    def _told(self, halts: Mapping[str, str]) -> list[str]:
        """Tell of these halts; which were heard. The others are told again with each beat, and hold none up.

        Groups may be kept elsewhere than leases: a worker that stopped to beat for a halt would lose them all.
        """
        told = []
        try:
            for name, reason in halts.items():
                self._coordinator.halt(name, reason)
                told.append(name)
        except SchemalessError as error:
            logger.debug("%s", error)
        return told

    def _note(self, held: HeldLeases, known: Mapping[str, int]) -> None:
        """Keep what was heard; leases come only of groups that changed."""
        for name, record in held.groups.items():
            if known.get(name) != record.version:
                self._leases[name] = tuple(lease for lease in held.leases if lease.group == name)
        self._records = dict(held.groups)
        self._is_news = True
