"""An acceptance of a Postgres that was promoted, as an operator asks for it, and as it is written down."""

from __future__ import annotations

import logging
from collections.abc import Collection

from schemaless_core.control.audit import AuditLog
from schemaless_core.errors import SchemalessError
from tripstore import metrics
from tripstore.handover.accept import Acceptance, accept, fence_of, lost_decision
from tripstore.handover.ports import Ports, Standing
from tripstore.handover.steps import run

logger = logging.getLogger(__name__)

ACTION = "cutover.accept"


def look(ports: Ports, without: Collection[str] = ()) -> tuple[Standing, int]:
    """Which Postgres answers, and the highest epoch at which shards were open; changes nothing."""
    servers = [server for server in ports.store.servers if server not in without]
    return ports.control.standing(), max((ports.store.opened(server) for server in servers), default=0)


def what_is_in_the_way(found: Standing, opened: int) -> str:
    """What an acceptance would have to settle; empty: nothing was lost."""
    return lost_decision(opened, found.row) if opened > found.row.epoch else ""


def settle_lost(ports: Ports, audit: AuditLog, why: str, without: Collection[str] = ()) -> Acceptance:
    """Accept the Postgres that answers, whatever it has lost, and write that down, before and after."""
    found, opened = look(ports, without)
    if found.is_accepted and opened > found.row.epoch:
        ports.control.distrust(found.row)
    detail: dict[str, object] = {"why": why, "timeline": found.timeline, "epoch": found.row.epoch, "opened": opened}
    detail["without"] = sorted(without)
    audit.add(f"{ACTION}.begin", {**detail, "fence": fence_of(found)})
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
