"""The control database's clock: the one that leases and jobs go by, whatever the hosts of their users think."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

_NOW = {
    "sqlite": "SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "mysql": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


def now_ms(connection: sa.Connection) -> int:
    """Milliseconds since 1970 as the server counts them, at this statement: a lock may have been waited for before."""
    found = connection.execute(sa.text(_NOW.get(connection.dialect.name, _NOW["mysql"]))).scalar_one()
    return int(found)


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
