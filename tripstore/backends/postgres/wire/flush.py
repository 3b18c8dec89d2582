"""`FLUSH`: whatever this session has seen so far is durable when it answers, asynchronous commits of others included.

A commit that writes to the WAL waits until that is flushed up to its own record, and for synchronous standbys. What we
saw stands before it. A transaction that writes nothing, or only takes a number, waits for nothing; so it leaves a
message, which no table holds.
"""

from __future__ import annotations

#: One packet, outside of a transaction. The session's settings may be anybody's.
FLUSH = (
    "BEGIN READ WRITE; SET LOCAL synchronous_commit TO on; "
    "SELECT pg_catalog.pg_logical_emit_message(true, 'tripstore', ''); COMMIT"
)
