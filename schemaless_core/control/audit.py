"""The audit log: which user changed what, when, and from which host. Lines are only ever added, and sealed."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.seals import SealedLine, SealHead, add_sealed, read_sealed
from schemaless_core.control.tables import audit as table


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change: when, by which user, from which host, and what it was."""

    at: str
    who: str
    host: str
    action: str
    detail: str


class AuditLog:
    """The changes of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control

    def add(self, action: str, detail: Mapping[str, object]) -> None:
        make_change(self._control, lambda connection: self.add_within(connection, action, detail))

    def add_within(self, connection: sa.Connection, action: str, detail: Mapping[str, object]) -> None:
        """In the transaction of the change itself: both or neither."""
        row = {
            "at": datetime.now(UTC).isoformat(timespec="microseconds")[:32],
            "who": who_am_i(),
            "host": socket.gethostname()[:128],
            "action": action,
            "detail": json.dumps(detail, sort_keys=True, default=str),
        }
        if not add_sealed(connection, row):
            connection.execute(sa.insert(table).values(row))

    def sealed(self) -> tuple[SealHead, list[SealedLine]]:
        """Return the whole log with its seals, and the head of the chain, as they are at one moment."""
        with self._control.begin() as connection:
            return read_sealed(connection)

    def newest(self, limit: int = 20) -> list[AuditEntry]:
        wanted = sa.select(table.c.at, table.c.who, table.c.host, table.c.action, table.c.detail)
        with self._control.begin() as connection:
            rows = connection.execute(wanted.order_by(table.c.id.desc()).limit(limit))
            return [AuditEntry(*row) for row in rows]


def who_am_i() -> str:
    """The user behind this process, as the system knows them."""
    try:
        return getpass.getuser()[:128]
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return "unknown"
