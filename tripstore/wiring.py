"""`connect`: the configuration becomes a `TripStore`. The one place that knows which part needs which."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from schemaless_core.breaker import BreakerConfig
from schemaless_core.cell.cell import Cell
from schemaless_core.config import PoolConfig
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.ledgers.flushing import Flushing
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.timings import FLUSH_SECONDS as TIMINGS_SECONDS
from schemaless_core.control.ledgers.timings import TimingLedger
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import HistoryTruncated, LegacyUnavailable
from tripstore.backends.postgres.handover.sessions import application_of
from tripstore.backends.postgres.handover.undelivered import Undelivered
from tripstore.backends.postgres.rules.table_rules import read_document
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.backends.schemaless.backend import SchemalessBackend, TooManyIds
from tripstore.backends.schemaless.shards import Shards
from tripstore.config import LegacyConfig, TripstoreConfig, load_config
from tripstore.engines.validation.experiment.bench import Bench
from tripstore.engines.validation.purged import PurgedAnswers
from tripstore.engines.validation.shadow.ledger import ShadowLedger, TallyFlush
from tripstore.engines.validation.shadow.sampling import SamplingSettings
from tripstore.engines.validation.shadow.shadow import Shadow, ShadowSettings
from tripstore.engines.validation.verdicts import Tally
from tripstore.facade.arrivals import Arrivals
from tripstore.facade.calls import PATIENCE_SECONDS, AuthorityCalls, SingleCalls
from tripstore.facade.cohorts import Cohorts
from tripstore.facade.experiments.experiments import Experiments
from tripstore.facade.experiments.flags import ExperimentBook
from tripstore.facade.experiments.leftovers import beside_callers
from tripstore.facade.experiments.roll import Roll
from tripstore.facade.facade import Duo, Facade
from tripstore.facade.flags import FlagBook
from tripstore.facade.in_force import digest_said, said_of, with_layout_in_force
from tripstore.facade.known import Known
from tripstore.facade.lag import Lag
from tripstore.facade.latency import Latency
from tripstore.facade.layout_rules import LayoutRules
from tripstore.facade.next_keys import NextKeys
from tripstore.facade.reads import Reads, SingleReads
from tripstore.facade.repro import command
from tripstore.facade.rule_book import RuleBook
from tripstore.facade.shadowing import Shadowing
from tripstore.facade.staged import Staged
from tripstore.facade.taken_values import TakenValues
from tripstore.facade.watch import Watch
from tripstore.facade.writes import Writes
from tripstore.handover.accept import Acceptance
from tripstore.handover.acceptance import note_acceptance
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Ports
from tripstore.phase import Phase
from tripstore.ports.applied import applied_of
from tripstore.ports.control import RealControlPort
from tripstore.ports.legacy import RealLegacyPort
from tripstore.ports.store import SchemalessPort
from tripstore.store import TripStore

#: What a mirror raises that is well and knows no answer.
INCOMPARABLE = (HistoryTruncated, TooManyIds)
#: A look at the queue for a cohort's or a recheck's sake.
LOOK_SECONDS = 0.5
#: A thread that rechecks, beside those that compare.
MORE_CONNECTIONS = 1
#: The watch's two threads. Callers may hold all others: those that wait at the door of a hand-over need the watch.
WATCH_POOL = PoolConfig(1, 1)


def connect(source: str | os.PathLike[str] | Mapping[str, Any] | None = None) -> TripStore:
    """Open the stores of a configuration file or mapping behind one API. It connects when it is first used.

    Without one it takes `$TRIPSTORE_CONFIG`, else `tripstore.yaml`; `TRIPSTORE_SET__…` are laid over a file's keys.
    It goes by the layout in force: when that is not the one of the configuration, or not any more, it loads it.
    """
    config = load_config(source)
    return TripStore(build(config), lambda: build(with_layout_in_force(config)))


def build(config: TripstoreConfig) -> Facade:
    """The parts behind a `TripStore`; without a legacy store it is Schemaless alone."""
    store = SchemalessBackend(config.core)
    flags = FlagBook(store.control)
    if config.legacy is None:
        calls = SingleCalls(store)
        lag = Lag(config.mirror.max_lag_seconds)
        return Facade(
            config,
            store,
            flags,
            calls,
            SingleReads(store),
            Writes(calls, lag, config.core.max_body_bytes),
            lambda _operation: store,
            _experiments_alone(config, store),
        )
    return _with_legacy(config, config.legacy, store, flags)


def open_legacy(config: TripstoreConfig, legacy: LegacyConfig, *, pool: PoolConfig | None = None) -> PostgresBackend:
    """The legacy store of a configuration, over connections of its own."""
    limits = legacy.limits
    settings = LegacySettings(
        limits.deadlines,
        pool or limits.pool,
        limits.lock_seconds,
        limits.statement_seconds,
        limits.idle_transaction_seconds,
        application_of(legacy.layout),
        limits.synchronous_commit,
    )
    core = config.core
    return PostgresBackend(
        LegacyDatabase(legacy.postgres.text, settings),
        legacy.layout,
        shards=core.shards,
        indexes=core.indexes,
        max_body_bytes=core.max_body_bytes,
    )


def open_ports(
    config: TripstoreConfig,
    legacy: PostgresBackend,
    store: Datastore,
    refused: Callable[[Cell, SchemalessError], None] = lambda cell, error: None,
) -> Ports:
    """The real ports of the hand-over."""
    control = RealControlPort(legacy.database, config.core.datastore, config.mirror.max_pause_seconds)
    layout = legacy.layout

    def said(digest: str) -> bytes:
        return said_of(digest, layout, legacy.database)

    shards = SchemalessPort(store, refused, said, applied_of(legacy.database))
    return Ports(RealLegacyPort(legacy), shards, control, layout.digest)


def _with_legacy(config: TripstoreConfig, legacy_config: LegacyConfig, store: Datastore, flags: FlagBook) -> Facade:
    legacy = open_legacy(config, legacy_config)
    apart = PoolConfig(config.shadow.threads + MORE_CONNECTIONS, 4)
    legacy_mirror = open_legacy(config, legacy_config, pool=apart)
    ports = open_ports(config, legacy, store)
    legacy_watch = open_legacy(config, legacy_config, pool=WATCH_POOL)
    known = Known(legacy_config.layout.digest)
    lag = Lag(config.mirror.max_lag_seconds)
    arrivals = Arrivals(known, Undelivered(legacy_mirror.database, LOOK_SECONDS), store)
    copier = store.as_copier()

    def mirror_of(authority: Backend) -> CellStore:
        return copier if authority is Backend.LEGACY else legacy_mirror

    @lru_cache(maxsize=8)
    def owner_of(backend: Backend, epoch: int) -> CellStore:
        return legacy.as_owner(epoch) if backend is Backend.LEGACY else store.as_owner(epoch)

    timings = TimingLedger(Ledgers(store.control))
    latency = Latency(timings)
    patience_seconds = config.mirror.max_pause_seconds + PATIENCE_SECONDS
    calls = AuthorityCalls(ports, known, lambda: _seen_authority(store), patience_seconds, latency)
    cohorts = Cohorts(lag, BreakerConfig())
    tally = Tally()
    sampling, shadow = _shadow(config, arrivals, tally, latency, PurgedAnswers(store.find_purged))
    shadowing = Shadowing(shadow, sampling, owner_of, mirror_of)
    reads = Reads(calls, cohorts, shadowing, mirror_of, config.mirror.cohort_seconds, latency, INCOMPARABLE)

    def log_of(operation: str) -> CellStore:
        """Phase off has a log of its own; a place in the one is none in the other, so none is guessed."""
        sight = calls.sight()
        if sight.authority.backend is Backend.LEGACY and not known.has_flags:
            known.learn_flags(flags.find())
            sight = calls.sight()
        return owner_of(Backend.LEGACY, sight.authority.epoch) if sight.phase is Phase.OFF else copier

    def is_open_at(epoch: int) -> bool:
        seen = store.authority.find()
        return seen is None or (seen.epoch == epoch and seen.shards_open == seen.shards_seen)

    def told(acceptance: Acceptance) -> None:
        note_acceptance(AuditLog(store.control), acceptance)

    watch = Watch(
        open_ports(config, legacy_watch, store),
        known,
        flags,
        lag,
        Arrivals(known, Undelivered(legacy_watch.database, LOOK_SECONDS), store),
        is_open_at,
        lambda: _seen_authority(store),
        Shards(store).open_now,
        told,
    )
    compared = TallyFlush(ShadowLedger(Ledgers(store.control), command), tally)
    flushing = (Flushing(compared), Flushing(timings, TIMINGS_SECONDS))
    layout = legacy_config.layout
    book = RuleBook(
        layout,
        lambda deadline: legacy.database.run(lambda found: read_document(found.rows, layout), deadline),
        store.control,
        store.clusters,
    )
    keys = NextKeys(layout, legacy.numbers, book)
    rules = LayoutRules(
        layout,
        keys,
        book,
        TakenValues(layout, config.core.indexes),
        calls.is_mirrored,
    )
    staged = Staged(rules, lag, known)
    duo = Duo(
        legacy,
        legacy_mirror,
        legacy_watch,
        ports,
        known,
        watch,
        lag,
        cohorts,
        shadow,
        tally,
        latency,
        staged,
        flushing,
        book,
        keys,
    )
    writes = Writes(calls, lag, config.core.max_body_bytes, rules)
    experiments = _experiments(config, store, timings, known, shadowing)
    return Facade(config, store, flags, calls, reads, writes, log_of, experiments, duo)


def _experiments(
    config: TripstoreConfig,
    store: Datastore,
    timings: TimingLedger,
    known: Known,
    shadowing: Shadowing | None,
    flushing: Sequence[Flushing] = (),
) -> Experiments:
    return Experiments(
        ExperimentBook(store.control),
        Roll(Ledgers(store.control)),
        timings,
        Bench(beside_callers),
        known,
        shadowing,
        config.shadow.deadline_seconds,
        flushing,
    )


def _experiments_alone(config: TripstoreConfig, store: Datastore) -> Experiments:
    """With one store nothing is compared; flags still say which side answers."""
    timings = TimingLedger(Ledgers(store.control))
    return _experiments(config, store, timings, Known(), None, (Flushing(timings, TIMINGS_SECONDS),))


def _shadow(
    config: TripstoreConfig, arrivals: Arrivals, tally: Tally, latency: Latency, purged: PurgedAnswers
) -> tuple[SamplingSettings, Shadow]:
    said = config.shadow
    sampling = SamplingSettings(said.share, said.per_second, said.least_per_second)
    settings = ShadowSettings(
        sampling=sampling,
        threads=said.threads,
        queue_max=said.queue_max,
        age_seconds_max=said.age_seconds_max,
        deadline_seconds=said.deadline_seconds,
        ignores=config.ignores,
    )
    return sampling, Shadow(settings, arrivals, tally, INCOMPARABLE, answered=latency.shadow_asked, purged=purged)


def _seen_authority(store: Datastore) -> Authority:
    """The authority as Schemaless itself knows it, for a process that cannot ask Postgres. It is open if it says so."""
    seen = store.authority.find()
    if seen is None or not seen.is_open:
        raise LegacyUnavailable(
            "Postgres, which says who the authority is, cannot be reached, and Schemaless is not open.",
            hint="Check legacy.postgres; reads and writes go on when it answers.",
        )
    return Authority(seen.epoch, Backend.STORE, layout=digest_said(store.authority.said(seen.epoch)))
