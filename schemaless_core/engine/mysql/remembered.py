"""The lease of a server as a session remembers it, so that not every put and read looks at its row.

A lease that was allowed lasts as long as it was said to, whatever is written later: the end that a session remembers is
the lease's own, or an earlier one. The server compares it with its own clock in each statement that goes by it.
"""

from __future__ import annotations

import time

from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

#: How long a session goes by what it saw, and after how long it looks again.
REMEMBERED_SECONDS = 0.4
LOOK_SECONDS = REMEMBERED_SECONDS / 2

# Times as numbers such as 20261129103000.123456: they are in order, and compared with less work than a difference.
_SPAN = f"INTERVAL {int(REMEMBERED_SECONDS * 1_000_000)} MICROSECOND"
#: NULL as the end where there is no lease: no condition that goes by it holds.
REMEMBER = f"""\
SELECT UTC_TIMESTAMP(6) + 0, (SELECT LEAST(UTC_TIMESTAMP(6) + {_SPAN}, MAX(lasts_until)) + 0 FROM {{lease}}
 WHERE server = @@server_id AND {{leased}}) INTO @tripstore_looked_at, @tripstore_leased_until; """
# A clock that is set back would else make what is remembered last longer.
IS_REMEMBERED = "UTC_TIMESTAMP(6) + 0 BETWEEN @tripstore_looked_at AND @tripstore_leased_until"


def look_again(connection: DeadlineConnection, remember: str, *, always: bool = False) -> str:
    """What a call to a server with leases begins with: the look, if it was long ago, or `always`."""
    now = time.monotonic()
    if not always and now - connection.looked_at < LOOK_SECONDS:
        return ""
    connection.looked_at = now
    return remember
