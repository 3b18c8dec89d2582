"""`Facade`: the parts behind a `TripStore`, put together by `tripstore.wiring`. One per process and configuration."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from schemaless_core.control.ledgers.flushing import Flushing
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.config import TripstoreConfig
from tripstore.engines.validation.shadow.shadow import Shadow
from tripstore.engines.validation.verdicts import Tally
from tripstore.facade.calls import Calls
from tripstore.facade.cohorts import Cohorts
from tripstore.facade.experiments.experiments import Experiments
from tripstore.facade.flags import FlagBook
from tripstore.facade.known import Known
from tripstore.facade.lag import Lag
from tripstore.facade.latency import Latency
from tripstore.facade.next_keys import NextKeys
from tripstore.facade.reads import ReadCalls
from tripstore.facade.rule_book import RuleBook
from tripstore.facade.staged import Staged
from tripstore.facade.watch import Watch
from tripstore.facade.writes import Writes
from tripstore.handover.ports import Ports


@dataclass(frozen=True)
class Duo:
    """What there is only with two stores."""

    legacy: PostgresBackend
    #: What is asked for shadow reads and cohorts, over connections of its own.
    legacy_mirror: PostgresBackend
    #: The watch's, over connections of its own.
    legacy_watch: PostgresBackend
    ports: Ports
    known: Known
    watch: Watch
    lag: Lag
    cohorts: Cohorts
    shadow: Shadow
    tally: Tally
    latency: Latency
    #: For functions of transactional triggers.
    staged: Staged
    #: What this process counted, on its way to the ledgers.
    flushing: tuple[Flushing, ...]
    #: The rules of the company's tables, and the ref keys of what is appended.
    book: RuleBook
    keys: NextKeys


class Facade:
    """Begins with the first call; a fork begins anew."""

    def __init__(
        self,
        config: TripstoreConfig,
        store: Datastore,
        flags: FlagBook,
        calls: Calls,
        reads: ReadCalls,
        writes: Writes,
        log_of: Callable[[str], CellStore],
        experiments: Experiments,
        duo: Duo | None = None,
    ) -> None:
        self.config = config
        #: Schemaless itself.
        self.store = store
        self.flags = flags
        self.calls = calls
        self.reads = reads
        self.writes = writes
        #: Whose shard log is the datastore's, for an operation.
        self.log_store = log_of
        self.experiments = experiments
        self.duo = duo
        #: Asked by every call.
        self.has_begun = False
        _ALL.add(self)

    @cached_property
    def reads_at_authority(self) -> ReadCalls:
        """Reads without cohorts."""
        return self.reads.at_authority()

    @property
    def layout_digest(self) -> str:
        """Of the layout that it goes by; empty without a legacy store."""
        return "" if self.config.legacy is None else self.config.legacy.layout.digest

    def begin(self) -> None:
        """Start what runs beside the calls; a second time does nothing."""
        duo = self.duo
        if duo is not None:
            duo.watch.start()
            for flushing in duo.flushing:
                flushing.start()
        self.experiments.begin()
        self.has_begun = True

    def finish(self) -> None:
        """What is to happen while calls are still taken: queries under experiment make some."""
        if self.duo is not None and self.experiments.has_any:
            self.duo.shadow.finish()

    def close(self) -> None:
        self.experiments.close()
        duo = self.duo
        if duo is not None:
            duo.watch.close()
            duo.shadow.close()
            for flushing in duo.flushing:
                flushing.close()
            duo.legacy_watch.close()
            duo.legacy_mirror.close()
            duo.legacy.close()
        self.store.close()

    def _after_fork(self) -> None:
        self.has_begun = False
        self.experiments.after_fork()
        duo = self.duo
        if duo is not None:
            duo.known.after_fork()
            duo.watch.after_fork()
            duo.lag.after_fork()
            duo.cohorts.after_fork()
            duo.book.after_fork()
            duo.keys.after_fork()
            duo.shadow.after_fork()
            for flushing in duo.flushing:
                flushing.after_fork()


_ALL: weakref.WeakSet[Facade] = weakref.WeakSet()


def _after_fork() -> None:
    for facade in list(_ALL):
        facade._after_fork()


os.register_at_fork(after_in_child=_after_fork)
