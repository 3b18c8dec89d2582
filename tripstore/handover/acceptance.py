"""An acceptance of a Postgres that was promoted, as an operator asks for it, and as it is written down."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from schemaless_core.control.audit import AuditLog
from schemaless_core.errors import SchemalessError
from tripstore import metrics
from tripstore.handover.accept import Acceptance, accept, is_passed_by, lost_acceptance, lost_decision
from tripstore.handover.ports import Ports, StatedAuthority
from tripstore.handover.steps import run

logger = logging.getLogger(__name__)

ACTION = "cutover.accept"


class SeenPrimary(NamedTuple):
    """What an acceptance would go by."""

    found: StatedAuthority
    #: The highest epoch at which shards were open, and at which they are.
    opened: int
    reached: int

    @property
    def has_lost(self) -> bool:
        return self.opened > self.found.row.epoch

    @property
    def in_the_way(self) -> str:
        """What the operator would have to settle; empty: every process accepts it by itself."""
        if self.has_lost:
            return lost_decision(self.opened, self.found.row)
        return lost_acceptance(self.reached, self.found.row) if is_passed_by(self.found, self.reached) else ""


def look(ports: Ports, without: Collection[str] = ()) -> SeenPrimary:
    """Which Postgres answers, and what the shards say; changes nothing."""
    servers = [server for server in ports.store.servers if server not in without]
    opened = max((ports.store.opened(server) for server in servers), default=0)
    reached = max((ports.store.reached(server) for server in servers), default=0)
    return SeenPrimary(ports.control.stated_authority(), opened, reached)


def settle_lost(ports: Ports, audit: AuditLog, why: str, without: Collection[str] = ()) -> Acceptance:
    """Accept the Postgres that answers, whatever it has lost, and write that down, before and after."""
    seen = look(ports, without)
    found, opened = seen.found, seen.opened
    if found.is_accepted and seen.has_lost:
        ports.control.distrust(found.row)
    detail: dict[str, object] = {"why": why, "timeline": found.timeline, "epoch": found.row.epoch, "opened": opened}
    detail["without"] = sorted(without)
    audit.add(f"{ACTION}.begin", detail)
    acceptance = run(accept(ports, settles=True, without=tuple(without)))
    note_acceptance(audit, acceptance, why)
    return acceptance


def note_acceptance(audit: AuditLog, acceptance: Acceptance, why: str = "") -> None:
    """A control database that is down takes nothing back: Postgres has the history of its row."""
    row = acceptance.authority
    outcome = "accepted" if acceptance.is_accepted else "refused"
    metrics.postgres_accepted("lost" if acceptance.has_lost else outcome)
    detail: dict[str, object] = {
        "outcome": acceptance.reason or "accepted",
        "has_lost_a_decision": acceptance.has_lost,
        "authority": row.backend.value,
        "epoch": row.epoch,
        "why": why,
    }
    try:
        audit.add(f"{ACTION}.end", detail)
    except SchemalessError as error:
        extra = {"event": "cutover.not_written", **detail}
        logger.error("the audit log lacks an acceptance: %s", error.message, extra=extra)
