"""`CounterVerbs`: statements of verbs that hold a shard's counter row, bound to their gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import values_of
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
from schemaless_core.engine.mysql.wire.sessions import Sessions
from schemaless_core.engine.mysql.writes import OWNER_GATE

MIRROR_GATE = "shard = %s AND epoch = %s AND authority_epoch <= %s AND state = 'COPY'"

TAKE_COUNTER = "SELECT epoch FROM {state} WHERE shard = %s FOR UPDATE"
STATE = "SELECT epoch, authority_epoch, state FROM {state} WHERE shard = %s"


class CounterVerbs:
    """What repair and purge share on one server."""

    def __init__(self, sessions: Sessions, names: Names) -> None:
        self._sessions = sessions
        self.names = names

    def _listed(
        self, connection: DeadlineConnection, gate: Gate, template: str, rows: Iterable[bytes], values: Sequence[Any]
    ) -> bytes:
        """A statement with a table of rows."""
        statement = self._bound(connection, gate, template, values)
        return statement.replace(b"VALUES ROWS", values_of(connection, rows), 1)

    def _bound(self, connection: DeadlineConnection, gate: Gate, template: str, values: Sequence[Any]) -> bytes:
        condition = (OWNER_GATE if gate.kind is Kind.OWNER else MIRROR_GATE) + self.names.leased_now
        return bound(connection, self._filled(template, gate.shard).replace("GATE", condition), values)

    def _filled(self, template: str, shard: int) -> str:
        names = self.names
        return template.format(
            cell=names.cell(shard),
            state=names.shard_state,
            mended=names.mended,
            purged=names.purged,
            purged_key=names.purged_key,
        )
