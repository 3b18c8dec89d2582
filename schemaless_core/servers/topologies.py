"""The versions of the topology in the control database: the newest is read, the next is written by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import sqlalchemy as sa

from schemaless_core.control.audit import AuditLog, who_am_i
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.tables import topology as table
from schemaless_core.errors import TopologyConflict
from schemaless_core.servers.topology import Topology, from_document, to_document


class Topologies:
    """All versions of one datastore's topology."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control
        self._audit = AuditLog(control)

    def find_newest(self) -> Topology | None:
        """Return the topology that holds now, None before the first."""
        with self._control.begin() as connection:
            return self.find_within(connection)

    def find_within(self, connection: sa.Connection) -> Topology | None:
        """Return it as a transaction sees it."""
        newest = sa.select(table.c.version, table.c.document).order_by(table.c.version.desc()).limit(1)
        found = connection.execute(newest).first()
        return from_document(found.version, found.document) if found else None

    def hold(self, connection: sa.Connection) -> Topology | None:
        """Return it as a transaction sees it, which holds it until its end: another one waits here.

        By the row of the first version, which stays.
        """
        first = sa.select(table.c.version).order_by(table.c.version).limit(1)
        connection.execute(first.with_for_update()).first()
        return self.find_within(connection)

    def put_next(
        self,
        topology: Topology,
        *,
        why: str,
        action: str,
        may: Callable[[sa.Connection], object] = lambda _connection: None,
    ) -> None:
        """Store a version and its line of the audit log; `TopologyConflict` when that version is there already.

        `may`: raises if it must not be. It sees all that is committed before.
        """

        def work(connection: sa.Connection) -> None:
            self.put_within(connection, topology, why=why)
            detail = {"version": topology.version, "shards": topology.shards, "clusters": topology.clusters}
            self._audit.add_within(connection, action, detail)
            may(connection)  # behind the line: changes wait for each other from there on

        try:
            make_change(self._control, work)
        except sa.exc.IntegrityError as error:
            raise TopologyConflict(
                f"Version {topology.version} of the topology exists.", hint="Look at it, then decide again."
            ) from error

    def put_within(self, connection: sa.Connection, topology: Topology, *, why: str) -> None:
        """Store a version with other changes of one transaction."""
        row = {
            "version": topology.version,
            "document": to_document(topology),
            "at": datetime.now(UTC).isoformat(timespec="microseconds")[:32],
            "who": who_am_i(),
            "why": why,
        }
        connection.execute(sa.insert(table).values(row))
