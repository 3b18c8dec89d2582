"""`Promoter`: makes another server of a cluster its primary, from the first look to the last replica."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

from schemaless_core.config import ClusterConfig, DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.errors import ControlUnavailable, PromotionRefused, SchemalessError, SchemaMissing
from schemaless_core.promotion import steps
from schemaless_core.promotion.cluster import CALL_SECONDS, ClusterServers
from schemaless_core.promotion.ports import AuthorityPort, PromotionOrder, PromotionPorts, Record
from schemaless_core.promotion.record import ControlRecord
from schemaless_core.promotion.steps import Promoted, Stopped
from schemaless_core.promotion.stops import busy, refusal_of
from schemaless_core.promotion.voters import Promises, of_a_promotion, renew
from schemaless_core.servers.clusters import Cluster
from schemaless_core.steps import Step, run
from schemaless_core.urls import NodeUrl

logger = logging.getLogger(__name__)

#: A planned promotion waits for a replica with the shards closed: one that is further behind is not begun with.
BEHIND_SECONDS_MAX = 5
#: How long it waits for a replica, or for a hand-over, before it stops; it may be gone on with.
PATIENCE_SECONDS = 60.0
#: How long a server that is given up has to answer nevertheless.
GONE_SECONDS = 1.0
#: What an operator does about a control database that is in the way.
MOVE_CONTROL = "docs/howto/promotion.md says how to move it, also after the death of that server."
#: How long the process that promoted asks the servers who leads, so that its next call goes there.
FIND_SECONDS = 1.0


class AsTheyWere:
    """An `AuthorityPort` where no layer above has a say."""

    def opening(self) -> None:
        return None


class ServerSeen(NamedTuple):
    """One server of a cluster, as it is before a promotion."""

    name: str
    is_leader: bool
    is_given_up: bool
    #: None: it does not say.
    seconds_behind: int | None
    position: str
    #: Empty: it answers.
    error: str
    #: Others whose shards it holds as well.
    other_datastores: tuple[str, ...] = ()
    #: Of a version before promotions: it could be fenced, and not opened.
    tables_missing: tuple[str, ...] = ()
    #: When it heard last that its primary had a lease, by that primary's clock; None: never, or none is wanted.
    heard_at: datetime | None = None
    #: Why it could keep no lease; empty: it could, or none is wanted.
    lease_error: str = ""
    #: Whether the control database is on it, by whichever address.
    has_control: bool = False


class PromotionPlan(NamedTuple):
    """What a promotion would do."""

    record: Record
    servers: tuple[ServerSeen, ...]
    #: What keeps it from being begun.
    refusals: tuple[str, ...]


class Promoter:
    """Of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        clusters: Mapping[str, Cluster],
        config: DatastoreConfig,
        control: ControlDatabase,
        authority: AuthorityPort,
    ) -> None:
        self._cluster = cluster
        self._clusters = clusters
        self._config = config
        self._its = next(each for each in config.clusters if each.name == cluster.name)
        self._control = control
        self._authority = authority

    def name_of(self, text: str) -> str:
        """The name of a server by its URL, its host and port, or its name."""
        for url in _urls(self._its):
            if text in (str(url), f"{url.host}:{url.port}") or text.rpartition("@")[2] == f"{url.host}:{url.port}":
                return str(url)
        names = ", ".join(f"{url.host}:{url.port}" for url in _urls(self._its))
        raise PromotionRefused(f"Cluster {self._its.name} has no server {text}.", hint=f"It has: {names}.")

    def old(self) -> str:
        """The server that a promotion takes the place of: of one that is under way, or of the next one."""
        record = self.record()
        return (record.leads if record.is_done else record.before) or str(self._its.primary)

    def record(self) -> Record:
        """The newest promotion."""
        try:
            return ControlRecord(self._control, self._its.name, _no_identity).find()
        except ControlUnavailable as silence:
            if self._has_control():  # it went with the server that is to be replaced
                raise PromotionRefused(self._control_said(), hint=MOVE_CONTROL) from silence
            raise

    def plan(self, order: PromotionOrder, *, is_for_later: bool = False) -> PromotionPlan:
        """Look at the servers. Nothing is changed. `is_for_later`: servers that it gives up may answer yet."""
        unfit = self._unfit()
        if not self._its.replicas or self._its.primary.engine == "sqlite":
            return PromotionPlan(Record(), (), unfit)
        try:
            record = self.record()
        except SchemaMissing:  # the configuration names another control database than there was
            if not unfit:
                raise
            return PromotionPlan(Record(), (), unfit)
        leads = record.leads or str(self._its.primary)
        given_up = {*order.given_up, *(() if record.is_done else record.given_up)}
        is_leased = _are_leases_wanted(order, record)
        with self._control.marked() as mark:
            names = [node.node.name for node in self._cluster.nodes]
            seen = tuple(self._seen(name, leads, given_up, mark, is_leased=is_leased) for name in names)
        if unfit:
            return PromotionPlan(record, seen, unfit)
        refusals = _refusals(order, record, seen, leads, is_for_later=is_for_later)
        if order.outlasts and record.is_done:
            refusals += self._kept_by_others()
        return PromotionPlan(record, seen, tuple(refusals))

    def _kept_by_others(self) -> list[str]:
        """What of the other clusters keeps a promotion from being begun that no operator asks for.

        One that is begun without the promise of all voters closes the cluster, and goes on only when all are back.
        """
        other = ControlRecord(self._control, self._its.name, _no_identity).other_alone()
        found = [] if other is None else [busy(other.cluster)]
        silent = of_a_promotion(self._its.name, self._clusters, self._control).silent()
        return found + [
            f"Cluster {name} has no primary with a lease that answers from here: it, too, has to promise."
            for name in silent
        ]

    def check(
        self, order: PromotionOrder, refuse: Callable[[PromotionPlan], tuple[str, ...]] | None = None
    ) -> PromotionPlan:
        """Look at the servers; raise `PromotionRefused` where `promote` would begin nothing."""
        plan = self.plan(order)
        if plan.record.is_done and not steps.is_fulfilled(plan.record, order):
            refusals = (*plan.refusals, *(refuse(plan) if refuse is not None else ()))
            if refusals:
                raise PromotionRefused(refusals[0], hint=_hint_of(plan, self._its.name))
        return plan

    def promote(
        self,
        order: PromotionOrder,
        hear: Callable[[Step], None] | None = None,
        *,
        refuse: Callable[[PromotionPlan], tuple[str, ...]] | None = None,
    ) -> Promoted:
        """Do it, or go on with one that is under way; `PromotionRefused` says why it stopped.

        `refuse`: what else keeps it from being begun.
        """
        plan = self.check(order, refuse)
        its = {str(url) for url in _urls(self._its)}
        unknown = {plan.record.before, plan.record.target, *plan.record.given_up} - its - {""}
        if unknown and not plan.record.is_done:
            raise PromotionRefused(
                f"The promotion that is under way names {', '.join(sorted(unknown))}; this configuration does not.",
                hint="Go on with it from a configuration that names its servers in the same way.",
            )
        begun_at = time.monotonic()
        record = ControlRecord(self._control, self._its.name, lambda server: servers.identity(server))
        voters = of_a_promotion(self._its.name, self._clusters, self._control)
        promises = partial(self._promises, record)
        login = self._config.replication
        with ClusterServers(self._cluster, _urls(self._its), login, record.epochs, promises) as servers:
            ports = PromotionPorts(record, servers, self._authority, voters)
            result = run(steps.promote(ports, order), _Patience(hear).before)
            if isinstance(result, Stopped):
                raise refusal_of(result, self._its.name, servers)
        self._cluster.find_primary(FIND_SECONDS)
        if self._cluster.is_leased:
            renew(self._cluster, self._clusters, self._control)  # without one it takes no writes yet
        extra = {
            "event": "promotion.done",
            "cluster": self._its.name,
            "promotion": result.record.number,
            "server": result.record.target,
            "seconds": round(time.monotonic() - begun_at, 3),
        }
        logger.info("another server is the primary", extra=extra)
        return result

    def decided_at(self) -> datetime | None:
        """When the newest promotion decided on a server; None: there was none, or it was of an earlier version."""
        return ControlRecord(self._control, self._its.name, _no_identity).decided_at()

    def lease_seconds(self) -> float | None:
        """For how long the primary takes writes yet; None: it does not say."""
        deadline = Deadline(CALL_SECONDS)
        try:
            return self._cluster.ask(lambda node: 0.0 if node.leases is None else node.leases.left(deadline))
        except SchemalessError:
            return None

    def _promises(self, record: ControlRecord) -> dict[str, int] | None:
        """What the server that is opened has to know as a voter; and the old one gets no lease from here on."""
        promises, its = Promises(self._control), record.find()
        if its.was_leased or its.is_leased:
            promises.put(self._its.name, its.number)
        return promises.find_all() if its.is_leased else None

    def _seen(self, name: str, leads: str, given_up: set[str], mark: str, *, is_leased: bool) -> ServerSeen:
        deadline = Deadline(GONE_SECONDS if name in given_up else CALL_SECONDS)
        node = next(each.node for each in self._cluster.nodes if each.node.name == name)
        candidate = node.candidate()
        try:
            position = candidate.reached(deadline).position
            behind = candidate.seconds_behind(deadline)
            others = tuple(candidate.other_datastores(deadline))
            missing = tuple(node.tables_missing())
            has_control = bool(mark) and candidate.has_lock(mark, deadline)
        except SchemalessError as error:
            return ServerSeen(name, name == leads, name in given_up, None, "", error.message)
        finally:
            candidate.close()
        seen = ServerSeen(name, name == leads, name in given_up, behind, position, "", others, missing)
        seen = seen._replace(has_control=has_control)
        return _with_lease(seen, node, deadline) if is_leased and not missing else seen

    def _unfit(self) -> tuple[str, ...]:
        """What of the configuration keeps each promotion of this cluster from being begun."""
        found: list[str] = []
        if self._has_control():
            found.append(self._control_said())
        if self._config.replication.user is None:
            found.append("replication.user is missing: as whom replicas log in at a primary.")
        if not self._its.replicas:
            found.append(f"Cluster {self._its.name} has no replica: name one under clusters.{self._its.name}.replicas.")
        return tuple(found)

    def _has_control(self) -> bool:
        """Whether the configuration has the control database on a server of this cluster."""
        control = self._config.control
        return any((url.host, url.port) == (control.host, control.port) for url in _urls(self._its))

    def _control_said(self) -> str:
        return _control_refusal(f"{self._config.control.host}:{self._config.control.port}")


def _control_refusal(address: str) -> str:
    return (
        f"The control database is on {address}, a server of this cluster: what a promotion notes there would part that"
        " server from the others. Give it a server of its own: control: mysql://…"
    )


def _hint_of(plan: PromotionPlan, cluster: str) -> str:
    is_beside = any(each.has_control for each in plan.servers)
    return MOVE_CONTROL if is_beside else f"`tripstore shards promote {cluster} --dry-run` shows all of it."


def _with_lease(seen: ServerSeen, node: Node, deadline: Deadline) -> ServerSeen:
    assert node.leases is not None, "a file is never promoted"
    try:
        node.leases.clock(deadline)
        return seen._replace(heard_at=node.leases.beaten_at(deadline))
    except SchemalessError as error:
        return seen._replace(lease_error=error.message)


def _are_leases_wanted(order: PromotionOrder, record: Record) -> bool:
    return record.is_leased if order.leases is None else order.leases


def _refusals(
    order: PromotionOrder, record: Record, seen: tuple[ServerSeen, ...], leads: str, *, is_for_later: bool
) -> list[str]:
    """What the servers have against it."""
    found: list[str] = []
    found += [_control_refusal(each.name.rpartition("@")[2]) for each in seen if each.has_control]
    by_name = {each.name: each for each in seen}
    shared = next((each for each in seen if each.other_datastores), None)
    if shared is not None:
        found.append(
            f"{shared.name} holds shards of {', '.join(shared.other_datastores)}, too, which would stay at the old"
            " primary. Give each datastore a server of its own."
        )
    needed = {"primacy", *(("lease", "promise") if _are_leases_wanted(order, record) else ())}
    if any(needed.intersection(each.tables_missing) for each in seen):
        found.append("Servers lack tables of this version, by which they say who leads: run `tripstore schema apply`.")
    found += [f"{each.name} can keep no lease: {each.lease_error}" for each in seen if each.lease_error]
    silent = [each.name for each in seen if each.error and not each.is_given_up]
    if record.is_done and not is_for_later:
        found += [
            f"{name} answers, so it is not dead. Stop its process first; then nothing that it does later counts."
            for name in order.given_up
            if name in by_name and not by_name[name].error
        ]
    found += [f"{by_name[name].error} Give it up with {_option(name, leads)} only if it is stopped." for name in silent]
    if leads not in {*order.given_up, *silent} and leads in by_name and record.is_done:
        wanted = [each for each in seen if each.name == order.to or (not order.to and not each.is_leader)]
        fit = [each for each in wanted if not each.error and (each.is_leader or _is_near(each))]
        if wanted and not fit:
            found.append(
                f"No replica is within {BEHIND_SECONDS_MAX} s of the primary: its shards would be closed so long."
            )
    return found


def _is_near(seen: ServerSeen) -> bool:
    return seen.seconds_behind is not None and seen.seconds_behind <= BEHIND_SECONDS_MAX


def _option(name: str, leads: str) -> str:
    return "--old-is-dead" if name == leads else f"--dead {name.rpartition('@')[2]}"


class _Patience:
    """Ends a run that waits for too long."""

    def __init__(self, hear: Callable[[Step], None] | None) -> None:
        self._hear = hear
        self._since: dict[Step, float] = {}

    def before(self, step: Step) -> None:
        if step.pause_seconds:
            since = self._since.setdefault(step, time.monotonic())
            if time.monotonic() - since > PATIENCE_SECONDS:
                raise PromotionRefused(
                    f"It waited for {PATIENCE_SECONDS:.0f} s: {step.sentence}.",
                    hint="What is done stays done. Look what it waits for, then run it again.",
                )
        if self._hear is not None:
            self._hear(step)


def _urls(cluster: ClusterConfig) -> tuple[NodeUrl, ...]:
    return (cluster.primary, *cluster.replicas)


def _no_identity(_server: str) -> int:
    raise AssertionError("who only looks decides on no server")
