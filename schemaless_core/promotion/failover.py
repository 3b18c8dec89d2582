"""`Failover`: keeps the leases of primaries going, and has another server lead where one is silent for too long.

Any number of workers may do both at once. A cluster is watched on a thread of its own: one that is silent delays no
other. Only clusters whose servers have leases are promoted: what is silent from here may be alive for others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from schemaless_core import metrics
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.errors import PromotionOvertaken, PromotionRefused, SchemalessError
from schemaless_core.promotion.lease import Extension
from schemaless_core.promotion.ports import PromotionOrder, Record
from schemaless_core.promotion.promoter import Promoter, PromotionPlan
from schemaless_core.promotion.voters import renew
from schemaless_core.servers.clusters import Cluster

logger = logging.getLogger(__name__)

#: Between two extensions of a lease: a third of its length.
RENEW_SECONDS = 1.0
#: Between two looks whether a cluster has leases by now.
LOOK_SECONDS = 5.0
#: So long a primary is silent before another one leads.
SILENT_SECONDS = 2.5
#: Between two words of a primary to its replicas that it is alive.
BEAT_SECONDS = 5.0
#: What a replica may lack of a primary that has died: one that heard of it earlier before is not made one.
STALE_SECONDS = 30.0
#: How long who ends the watch waits for a promotion that is under way.
END_SECONDS = 20.0
#: Of one cluster, between two promotions that no operator asked for.
AGAIN_SECONDS = 600.0


class Outlook(NamedTuple):
    """What would be done about a cluster now."""

    plan: PromotionPlan
    #: For how long its primary has a lease yet; None: it is silent.
    lease_seconds: float | None
    #: What keeps a promotion by itself from being begun; empty: nothing.
    refusals: tuple[str, ...]


class Failover:
    """Of all clusters of a datastore. A context manager: it works until it is left."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        control: ControlDatabase,
        promoter_of: Callable[[str], Promoter],
        *,
        silent_seconds: float = SILENT_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self._clusters = clusters
        self._control = control
        self._promoter_of = promoter_of
        self._silent_seconds = silent_seconds
        self._again_seconds = again_seconds
        self._stale_seconds = stale_seconds
        self._beaten_at: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def outlook(self, name: str) -> Outlook:
        """Look at a cluster; changes nothing. Raises where the control database does not answer."""
        promoter = self._promoter_of(name)
        try:
            order = PromotionOrder(given_up=(promoter.old(),), outlasts=True)
        except PromotionRefused as refusal:  # the control database is gone with a server of this cluster
            said = (refusal.message,)
            return Outlook(PromotionPlan(Record(), (), said), promoter.lease_seconds(), said)
        plan = promoter.plan(order, is_for_later=True)
        refusals = (*self._too_soon(promoter), *plan.refusals, *self._too_old(plan, datetime.now(UTC)))
        return Outlook(plan, promoter.lease_seconds(), refusals)

    def promote(self, name: str, silent_since: datetime | None = None) -> None:
        """Have another server of the cluster lead, or go on with that; `PromotionRefused` says why not.

        `silent_since`: since when the primary has not been heard of; None: since now.
        """
        promoter = self._promoter_of(name)
        since = silent_since or datetime.now(UTC)
        if too_soon := self._too_soon(promoter):
            raise PromotionRefused(too_soon[0], hint="Look at both servers; `tripstore shards promote` asks no time.")
        order = PromotionOrder(given_up=(promoter.old(),), outlasts=True)
        promoter.promote(order, refuse=lambda plan: self._too_old(plan, since))

    def _too_old(self, plan: PromotionPlan, silent_since: datetime) -> tuple[str, ...]:
        """Nothing, if a replica heard of the primary shortly before that fell silent: it lacks no more than that.

        Nor, if the primary has no lease: that says more.
        """
        if not plan.record.is_leased:
            return ()
        heard_at = max((each.heard_at for each in plan.servers if each.heard_at and not each.is_leader), default=None)
        if heard_at is not None and heard_at >= silent_since - timedelta(seconds=self._stale_seconds):
            return ()
        when = "never heard of it" if heard_at is None else f"heard of it at {heard_at:%Y-%m-%d %H:%M:%S} UTC"
        lacks = f"a replica may lack more than the last {self._stale_seconds:g} s before that"
        return (f"The primary is silent since {silent_since:%H:%M:%S} UTC, and {lacks}: the best one {when}.",)

    def _too_soon(self, promoter: Promoter) -> tuple[str, ...]:
        record = promoter.record()  # one that is not done is gone on with; what an operator asked for does not count
        decided_at = promoter.decided_at() if record.is_done and record.outlasts else None
        if decided_at is None or datetime.now(UTC) - decided_at > timedelta(seconds=self._again_seconds):
            return ()
        return (f"The newest promotion was decided at {decided_at:%H:%M:%S} UTC, not {self._again_seconds:g} s ago.",)

    def __enter__(self) -> Failover:
        self._threads = [
            threading.Thread(target=self._watch, args=(name,), name=f"failover-{name}", daemon=True)
            for name in self._clusters
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        end = Deadline(END_SECONDS)
        for thread in self._threads:
            thread.join(max(0.0, end.remaining_seconds()))

    def _watch(self, name: str) -> None:
        cluster, lacking_since = self._clusters[name], 0.0
        while not self._ended.wait(RENEW_SECONDS if cluster.is_leased else LOOK_SECONDS):
            try:
                lacking_since = self._look(name, lacking_since)
            except Exception as error:  # a bug of ours ends no watch: without it a lease is extended by none
                extra = {"event": "failover.broken", "cluster": name, "error": f"{type(error).__name__}: {error}"}
                logger.exception("a look at a cluster broke", extra=extra)

    def _look(self, name: str, lacking_since: float) -> float:
        """Extend its lease, and promote when it could not be extended for long enough; since when it could not."""
        cluster = self._clusters[name]
        if not cluster.is_leased:
            metrics.lease_ended(name)
            cluster.find_primary(RENEW_SECONDS)  # which tells when that changes
            return 0.0
        outcome = self._renewed(cluster)
        if outcome is Extension.EXTENDED:
            self._beat(cluster)
            self._end_what_began(name)
        if outcome not in (Extension.SILENT, Extension.DENIED):
            return 0.0
        now = time.monotonic()
        lacking_since = lacking_since or now
        is_silent = now - lacking_since >= self._silent_seconds and not cluster.is_alone
        if is_silent and self._is_wanting(name, outcome):
            self._promote(name, datetime.now(UTC) - timedelta(seconds=now - lacking_since))
        return lacking_since

    def _end_what_began(self, name: str) -> None:
        """Go on with a promotion of a worker's that is gone. Until it is done no other cluster is promoted."""
        now = time.monotonic()
        if self._clusters[name].is_alone or now - self._looked_at.get(name, -LOOK_SECONDS) < LOOK_SECONDS:
            return
        self._looked_at[name] = now
        with suppress(SchemalessError):  # while the control database is silent no promotion is gone on with
            record = self._promoter_of(name).record()
            if record.outlasts and not record.is_done:
                self._promote(name, datetime.now(UTC))

    def _beat(self, cluster: Cluster) -> None:
        """Have replicas hear now and then that their primary has a lease."""
        now = time.monotonic()
        if now - self._beaten_at.get(cluster.name, -BEAT_SECONDS) < BEAT_SECONDS:
            return
        deadline = Deadline(RENEW_SECONDS)
        with suppress(SchemalessError):  # the next look extends its lease, or finds it silent
            cluster.ask(lambda node: None if node.leases is None else node.leases.beat(deadline))
            self._beaten_at[cluster.name] = now

    def _is_wanting(self, name: str, outcome: Extension) -> bool:
        """Whether to have another server lead.

        One that is denied its lease answers: voters have promised that to a promotion, and no voter takes it back. The
        process that began it may be gone, so any other goes on with it.
        """
        cluster = self._clusters[name]
        number = cluster.leader.number
        cluster.find_primary(RENEW_SECONDS)
        if cluster.leader.number > number:
            return False  # another one leads already
        try:
            return outcome is Extension.SILENT or not self._promoter_of(name).record().is_done
        except SchemalessError:
            return False

    def _renewed(self, cluster: Cluster) -> Extension:
        outcome = renew(cluster, self._clusters, self._control)
        metrics.lease_renewed(cluster.name, outcome.value)
        if outcome is Extension.EXTENDED:
            metrics.lease_extended(cluster.name)
        else:
            extra = {"event": "lease.not_extended", "cluster": cluster.name, "reason": outcome.value}
            logger.warning("the lease of a primary is not extended", extra=extra)
        return outcome

    def _promote(self, name: str, silent_since: datetime) -> None:
        try:
            self.promote(name, silent_since)
        except PromotionOvertaken:
            logger.debug("another worker promotes the cluster", extra={"event": "failover.overtaken", "cluster": name})
        except SchemalessError as error:
            metrics.failover_done(name, "refused")
            extra = {"event": "failover.refused", "cluster": name, "reason": error.message}
            logger.error("no promotion is begun, or ended, without an operator", extra=extra)
        else:
            metrics.failover_done(name, "done")
            extra = {"event": "failover.done", "cluster": name}
            logger.warning("a primary was silent, and another server leads", extra=extra)
