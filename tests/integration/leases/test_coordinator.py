"""What the control database keeps of workers and groups beside what the coordinator's contract says."""

from __future__ import annotations

import json
import os
import socket

from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.triggers.leases.leases import Leases
from tests.integration.leases.groups import GROUP


def test_a_worker_says_where_it_runs(leases: Leases) -> None:
    leases.beat("a", [], {})

    (record,) = leases.survey().workers

    assert (record.host, record.pid) == (socket.gethostname(), os.getpid())


def test_what_people_decide_is_in_the_audit_log_once(control: ControlDatabase, leases: Leases) -> None:
    leases.register_group(GROUP, "now", 1, allowed=100)
    leases.register_group(GROUP, "now", 1, allowed=100)
    leases.halt(GROUP, "101 cells are parked")
    leases.halt(GROUP, "102 cells are parked")
    leases.resume(GROUP, 201)
    leases.remove_group(GROUP)
    leases.remove_group(GROUP)

    entries = [(entry.action, json.loads(entry.detail)) for entry in reversed(AuditLog(control).newest())]

    assert entries == [
        ("triggers.register", {"group": GROUP, "start": "now"}),
        ("triggers.halt", {"group": GROUP, "reason": "101 cells are parked"}),
        ("triggers.resume", {"group": GROUP, "allowed": 201}),
        ("triggers.remove", {"group": GROUP}),
    ]
