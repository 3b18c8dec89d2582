"""`look`: asks both stores and the control database for the facts, all at once; writes down a breach that it finds.

That a server does not answer is a fact as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import psycopg2

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.timings import TimingLedger
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import BufferSize
from schemaless_core.errors import SchemalessError, first_error
from schemaless_core.indexes.versions import IndexStatus
from schemaless_core.triggers.leases.coordinator import GroupState
from schemaless_core.triggers.leases.pulse import living_workers
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture import read_state, verify
from tripstore.backends.postgres.capture.functions.gate import BARRIER, lock_class
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.checks.layout import compare
from tripstore.backends.postgres.checks.row_keys import look_at_keys
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.handover.queue import Queue
from tripstore.backends.postgres.handover.sessions import grant_to_see, stale_sessions
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.numbers.sequences import read_barred
from tripstore.backends.postgres.schema_steps import examine_left
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.config import LegacyConfig
from tripstore.engines.validation.reads import is_comparable
from tripstore.engines.validation.shadow.ledger import OperationCounts, ShadowLedger
from tripstore.errors import TripstoreError
from tripstore.facade.flags import FlagBook, Flags
from tripstore.facade.latency import calls_of
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.authority import Authority, HandOverFacts
from tripstore.handover.ports import ControlPort
from tripstore.migration.cutover.facts import (
    BreachFacts,
    CaptureFacts,
    Facts,
    IndexFacts,
    JobFacts,
    KeyFacts,
    MirrorFacts,
    OperationFacts,
    ReverseFacts,
    ServerFacts,
    Unknown,
    UseFacts,
    WriterFacts,
)
from tripstore.migration.cutover.job_facts import job_facts
from tripstore.migration.cutover.purged_rows import find_purged_rows
from tripstore.migration.cutover.standbys import find_standbys
from tripstore.migration.losses.bound import find_accepted
from tripstore.migration.mirror.rehearsal_ledger import rehearsal_counts
from tripstore.migration.mirror.status import behind_of
from tripstore.migration.rewrites.standings import Standings
from tripstore.migration.rewrites.uses import UseBooks
from tripstore.phase import Phase
from tripstore.ports.applied import applied_of
from tripstore.thresholds import CutoverSettings

T = TypeVar("T")

LOOK_SECONDS = 5.0
#: Of the last look at partitions: callers wait for it.
LAST_LOOK_TIMEOUT = "500ms"
#: All child rows of a table are compared with their parents within this time, or a sample is.
KEYS_SECONDS = 4.0
#: The log of all days since the switch is read.
LOG_SECONDS = 30.0
#: The rate of comparisons is that of the hours that began within this time.
RATE_HOURS = 1
#: Each job keeps one note in the ledger of its kind.
BACKFILL, DIFF, LOSS = "backfill", "diff", "loss"
NOTES_MAX = 100_000

# A transaction that has written a mapped table holds the barrier's lock, shared, to its end. One that is prepared has
# no session any more: the lock on its own id leads to its name.
_WRITERS = f"""\
SELECT l.pid, CASE WHEN l.pid IS NULL THEN 'Infinity'::float8
    ELSE COALESCE(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start), 0) END,
    COALESCE(a.application_name, ''), COALESCE(p.gid, ''), a.pid IS NOT NULL AND a.backend_type IS NULL, current_user
FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a USING (pid)
LEFT JOIN (pg_catalog.pg_locks AS own JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = own.transactionid)
    ON l.pid IS NULL AND own.pid IS NULL AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock'
    AND own.virtualtransaction = l.virtualtransaction
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.objid = {BARRIER} AND l.classid = %s::oid
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
ORDER BY a.xact_start"""

# While the gate is shut, what the reverse mirror writes has an origin, and the only other write that is captured is one
# that was warned instead of refused. A hand-over that was undone in between has raised the epoch: it counts from the
# decision.
_DECIDED = """\
SELECT epoch, since FROM tripstore.authority_history
WHERE epoch > (SELECT max(epoch) FROM tripstore.authority_history WHERE backend = 'postgres') ORDER BY epoch LIMIT 1"""
_DIRECT = "SELECT count(*) FROM tripstore.log WHERE at >= %s AND epoch >= %s AND origin IS NULL"
# Every change of the row is in it, those that were undone, too: what counts is that the backend is another, or that
# another Postgres was accepted: what was compared with one that is gone is no evidence.
_HANDED_OVER = f"""\
SELECT epoch, since FROM (
    SELECT epoch, since, backend, lag(backend) OVER (ORDER BY epoch) AS was, lag(epoch) OVER (ORDER BY epoch) AS before
    FROM tripstore.authority_history
) AS changed WHERE backend <> was OR epoch / {EPOCHS_PER_TIMELINE} <> before / {EPOCHS_PER_TIMELINE}
ORDER BY epoch DESC LIMIT 1"""


class Looker:
    """Knows which server to ask for each fact."""

    def __init__(
        self,
        legacy_config: LegacyConfig,
        legacy: PostgresBackend,
        store: Datastore,
        control: ControlPort,
        flags: FlagBook,
        settings: CutoverSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._legacy_config = legacy_config
        self._legacy = legacy
        self._store = store
        self._control = control
        self._flags = flags
        self._settings = settings
        self._now = now

    def facts(self) -> Facts:
        """Everything, as it is now."""
        with ThreadPoolExecutor(21, thread_name_prefix="look") as pool:
            begin = _Beginning(pool)
            authority = begin(self._control.authority)
            flags = begin(self._flags.find)
            capture = begin(self.capture)
            keys = begin(self._keys)
            mirror = begin(self._mirror)
            writers = begin(self._writers)
            direct_changes = begin(self._direct_changes)
            stale = begin(self._stale)
            handed_over = begin(lambda: find_handed_over(self._legacy))
            accepted = begin(lambda: find_accepted(self._legacy)[-1:])
            losses = begin(lambda: find_job_facts(self._store.control, LOSS))
            standbys = begin(lambda: find_standbys(self._legacy))
            buffered = begin(self._buffered)
            purged = begin(lambda: find_purged_rows(self._legacy, self._store))
            reverse = begin(self._reverse)
            indexes = begin(self._indexes)
            operations = begin(self._operations)
            experiments = begin(self._experiments)
            uses = begin(self._uses)
            backfill = begin(lambda: find_job_facts(self._store.control, BACKFILL))
            diff = begin(lambda: find_job_facts(self._store.control, DIFF))
            servers = begin(self._servers)
        found = authority.result()
        return Facts(
            at=self._now(),
            authority=found,
            phase=_phase(found, flags.result()),
            capture=capture.result(),
            backfill=backfill.result(),
            diff=diff.result(),
            mirror=mirror.result(),
            reverse=reverse.result(),
            buffered=buffered.result(),
            indexes=indexes.result(),
            operations=_unless_against_itself(operations.result(), flags.result()),
            servers=(self._postgres(found), *_all(servers.result())),
            writers=writers.result(),
            direct_changes=direct_changes.result(),
            stale=stale.result(),
            handed_over=handed_over.result(),
            keys=keys.result(),
            standbys=standbys.result(),
            accepted=_last(accepted.result()),
            losses=losses.result(),
            purged=purged.result(),
            experiments=experiments.result(),
            uses=uses.result(),
        )

    def capture(self) -> CaptureFacts:
        """Whether capture and partitions stand, and nothing of former layouts acts; raises what the database raises."""
        config = self._legacy_config
        with connected(config.postgres.text, "cutover") as connection:
            limits = config.limits
            breach = look_at_partitions(connection)
            live = LiveCatalogue.of_layout(connection, config.layout)
            found = compare(config.layout, live)
            found += verify(connection, config.layout, may_truncate=limits.may_truncate, warns=limits.warns)
            found += examine_left(connection, config.layout)
            state = read_state(connection)
            barred = read_barred(lambda sql, values: rows(connection, sql, values), config.layout)
        complaints = tuple(f"{each.where}: {each.reason}" for each in found if each.is_error)
        subscribed = tuple(
            name for table in config.layout.tables if table in live.tables for name in live.tables[table].subscribed
        )
        facts = None if breach is None else BreachFacts(*breach)
        may_not = tuple((f"{each.where}: {each.reason}", each.statement) for each in barred)
        return CaptureFacts(state.since, state.broken, complaints, facts, subscribed, may_not)

    def missed_since(self, breaches: int | None) -> str:
        """What happened to partitions since there were so many breaches, or why that is not known; "": nothing."""
        if breaches is None:
            return ""
        limits = {"lock_timeout": LAST_LOOK_TIMEOUT, "statement_timeout": LAST_LOOK_TIMEOUT}
        try:
            with connected(self._legacy_config.postgres.text, "cutover", **limits) as connection:
                breach = look_at_partitions(connection)
        except psycopg2.Error as error:
            return f"partitions could not be looked at ({str(error).strip().splitlines()[0]})"
        return breach.what if breach is not None and breach.number > breaches else ""

    def _keys(self) -> tuple[KeyFacts, ...]:
        config = self._legacy_config
        with connected(config.postgres.text, "cutover", statement_timeout=f"{KEYS_SECONDS:g}s") as connection:
            looks = look_at_keys(connection, config.layout)
        return tuple(KeyFacts(str(table), look.different, look.compared, look.is_all) for table, look in looks.items())

    def _mirror(self) -> MirrorFacts:
        queue = Queue(self._legacy.layout)
        look = self._legacy.database.run(queue.look, Deadline(LOOK_SECONDS))
        return MirrorFacts(look.queued, look.parked, look.seconds)

    def _writers(self) -> tuple[WriterFacts, ...] | Unknown:
        key = lock_class(self._legacy.layout.datastore) & 0xFFFFFFFF
        rows = self._legacy.database.run(lambda found: found.rows(_WRITERS, (key,)), Deadline(LOOK_SECONDS))
        if hidden := [role for *_found, is_hidden, role in rows if is_hidden]:
            return Unknown(f"{hidden[0]} may not see since when {len(hidden)} of them write: {grant_to_see(hidden[0])}")
        return tuple(WriterFacts(*found) for *found, _is_hidden, _role in rows)

    def _stale(self) -> tuple[str, ...]:
        found = self._legacy.database.run(lambda connection: stale_sessions(connection.rows), Deadline(LOOK_SECONDS))
        return tuple(map(str, found))

    def _direct_changes(self) -> int:
        def count(connection: LegacyConnection) -> int:
            for epoch, since in connection.rows(_DECIDED):
                return int(connection.rows(_DIRECT, (since, epoch))[0][0])
            return 0  # Postgres is the authority

        return self._legacy.database.run(count, Deadline(LOG_SECONDS))

    def _reverse(self) -> ReverseFacts | None:
        triggers = self._store.triggers
        if triggers.coordinator.find_group(REVERSE_GROUP) is None:
            return None
        living = living_workers(triggers.coordinator, self._store.config.triggers.lease_seconds)
        (status,) = triggers.status(REVERSE_GROUP)
        since = self._now() - timedelta(hours=self._settings.evidence_hours)
        accepted = find_accepted(self._legacy)
        from_epoch = accepted[-1].epoch if accepted else 0  # of a Postgres that is lost it says nothing
        rehearsed = rehearsal_counts(Ledgers(self._store.control), since, from_epoch)
        return ReverseFacts(
            is_running=status.record.state is not GroupState.HALTED,
            shards=len(status.shards),
            unserved=sum(shard.owner not in living for shard in status.shards),
            unknown=status.unknown,
            lag_cells=behind_of(self._store, status, applied_of(self._legacy.database)),
            lag_seconds=status.lag_seconds,
            parked=status.parked,
            equal=rehearsed.equal,
            different=rehearsed.different,
            not_compared=rehearsed.not_compared,
        )

    def _indexes(self) -> tuple[IndexFacts, ...]:
        configured = {definition.name for definition in self._store.config.indexes}
        return tuple(_index(status) for status in self._store.indexes.status() if status.name in configured)

    def _operations(self) -> tuple[OperationFacts, ...]:
        ledger, now = ShadowLedger(Ledgers(self._store.control)), self._now()
        since = now - timedelta(hours=self._settings.evidence_hours)
        handed_over = find_handed_over(self._legacy)
        epoch = epoch_of(handed_over)
        found = ledger.operations(since, epoch)
        lately_from = (now - timedelta(hours=RATE_HOURS)).replace(minute=0, second=0, microsecond=0)
        lately = {each.operation: each.compared for each in ledger.operations(lately_from, epoch)}
        if handed_over is not None:
            lately_from = max(lately_from, handed_over.at)  # by Postgres' clock, which may be ahead
        seconds = max((now - lately_from).total_seconds(), 1.0)
        calls = calls_of(TimingLedger(Ledgers(self._store.control)).total(since))
        found += self._uncompared(calls, {each.operation for each in found})
        return tuple(_operation(each, lately.get(each.operation, 0) / seconds, calls[each.operation]) for each in found)

    def _uncompared(self, calls: Mapping[str, int], compared: Collection[str]) -> list[OperationCounts]:
        """What was called as often as it is to be compared, and never was: no ledger of comparisons says that.

        A call now and then, by hand perhaps, is not waited for: it would be compared as often in years.
        """
        often = (name for name, count in calls.items() if count >= self._settings.comparisons_min)
        return [OperationCounts(name) for name in sorted(often) if is_comparable(name) and name not in compared]

    def _experiments(self) -> tuple[OperationFacts, ...]:
        """Those whose code is still there."""
        since = self._now() - timedelta(hours=self._settings.evidence_hours)
        epoch = epoch_of(find_handed_over(self._legacy))
        found = Standings(self._store.control).all(since, epoch)
        seconds = timedelta(hours=self._settings.evidence_hours).total_seconds()
        return tuple(
            _operation(each.counts, each.counts.compared / seconds, each.calls)
            for each in found
            if not each.flags.is_retired
        )

    def _uses(self) -> tuple[UseFacts, ...]:
        found = UseBooks(self._store.control).all()
        return tuple(
            UseFacts(code, len(each.uses), tuple(use.place for use in each.unnamed), each.is_complete, each.at.date())
            for code, each in found.items()
        )

    def _buffered(self) -> int:
        """Cells that wait, and those that wait for a person to say which of two bodies is right."""
        found = self._store.replayer().sizes()
        if (error := first_error(found.values())) is not None:
            raise error
        return sum(size.waiting + size.conflicts for size in found.values() if isinstance(size, BufferSize))

    def _servers(self) -> tuple[ServerFacts, ...]:
        seen = self._store.authority.find()
        silent = set(self._store.clusters) if seen is None else set(seen.silent)
        missing = 0 if seen is None or seen.silent else self._store.config.shards - seen.shards_seen
        servers = [
            ServerFacts(name, "does not answer, or has no shards" if name in silent else None)
            for name in sorted(self._store.clusters)
        ]
        if missing:
            servers.append(ServerFacts("all clusters together", shards_missing=missing))
        return tuple(servers)

    def _postgres(self, authority: Authority | Unknown) -> ServerFacts:
        trouble = authority.reason if isinstance(authority, Unknown) else None
        return ServerFacts(f"Postgres ({self._legacy_config.postgres})", trouble)


def find_job_facts(control: ControlDatabase, ledger: str) -> JobFacts | None | Unknown:
    """What the notes of jobs of a kind say."""
    return known(lambda: job_facts([note.body for note in Ledgers(control).notes(ledger, NOTES_MAX)]))


def find_handed_over(legacy: PostgresBackend) -> HandOverFacts | None:
    """The last hand-over; None: the legacy store was the authority ever since."""
    rows = legacy.database.run(lambda found: found.rows(_HANDED_OVER), Deadline(LOOK_SECONDS))
    return HandOverFacts(*rows[0]) if rows else None


def epoch_of(handed_over: HandOverFacts | None) -> int:
    """From which epoch on comparisons are evidence. By the epoch: the hour of a hand-over has both in it."""
    return 0 if handed_over is None else handed_over.epoch


class _Beginning:
    """Begins looks; an error of a look makes its fact `Unknown`."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, look: Callable[[], T]) -> Future[T | Unknown]:
        return self._pool.submit(known, look)


def known(look: Callable[[], T]) -> T | Unknown:
    """What a look finds, or why it is unknown."""
    try:
        return look()
    except PostgresNotAccepted as error:
        return Unknown(error.message.rstrip("."), error.hint or "")
    except (SchemalessError, TripstoreError) as error:
        return Unknown(error.message.rstrip("."))
    except psycopg2.Error as error:
        return Unknown(str(error).strip().splitlines()[0])


def _phase(authority: Authority | Unknown, flags: Flags | Unknown) -> Phase | Unknown:
    if isinstance(authority, Unknown):
        return authority
    return flags if isinstance(flags, Unknown) else flags.phase(authority)


def _last(accepted: list[HandOverFacts] | Unknown) -> HandOverFacts | None | Unknown:
    return accepted if isinstance(accepted, Unknown) else next(iter(accepted), None)


def _all(found: tuple[ServerFacts, ...] | Unknown) -> tuple[ServerFacts, ...]:
    return (ServerFacts("Schemaless", found.reason),) if isinstance(found, Unknown) else found


def _unless_against_itself(
    found: tuple[OperationFacts, ...] | Unknown, flags: Flags | Unknown
) -> tuple[OperationFacts, ...] | Unknown:
    """What is compared with itself says nothing of the other store."""
    if not isinstance(flags, Unknown) and flags.comparing.is_against_itself:
        return Unknown("the authority is compared with itself at the moment")
    return found


def _index(status: IndexStatus) -> IndexFacts:
    current = next((version for version in status.versions if version.is_current), None)
    if current is None:
        return IndexFacts(status.name, None)
    number, verified = current.record.version.number, current.record.verified
    lag = current.lag_cells
    if verified is None:
        return IndexFacts(status.name, number, lag_cells=lag)
    at = datetime.fromisoformat(verified.at)
    return IndexFacts(status.name, number, at, verified.differences, verified.not_compared, lag)


def _operation(found: OperationCounts, per_second: float, calls: int) -> OperationFacts:
    return OperationFacts(
        found.operation,
        found.compared,
        found.mismatches,
        found.not_compared,
        per_second,
        found.ignored,
        dict(found.by_reason),
        calls,
    )
