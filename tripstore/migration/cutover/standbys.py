"""What the standbys of Postgres promise: which of them confirm commits, and what is lost with the others."""

from __future__ import annotations

from collections.abc import Iterator

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.handover.sessions import grant_to_see
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.migration.cutover.facts import StandbyFacts, Unknown

LOOK_SECONDS = 2.0
CONFIRMING = ("sync", "quorum")

# Of a role that may not see them state and positions are hidden. A base backup follows nothing.
_STANDBYS = """\
SELECT COALESCE(NULLIF(application_name, ''), 'no name'), sync_state,
    COALESCE(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), flush_lsn), 0)::bigint, current_user
FROM pg_catalog.pg_stat_replication WHERE state IS NULL OR state IN ('streaming', 'catchup') ORDER BY 1"""


def find_standbys(legacy: PostgresBackend) -> tuple[StandbyFacts, ...] | Unknown:
    """Those that are connected now."""

    def look(connection: LegacyConnection) -> tuple[StandbyFacts, ...] | Unknown:
        rows = connection.rows(_STANDBYS)
        hidden = next((role for _name, state, _behind, role in rows if state is None), None)
        if hidden is not None:
            return Unknown(f"{hidden} may not see what {len(rows)} standbys do: {grant_to_see(hidden)}")
        return tuple(StandbyFacts(name, state, behind) for name, state, behind, _role in rows)

    return legacy.database.run(look, Deadline(LOOK_SECONDS))


def risks(found: tuple[StandbyFacts, ...] | Unknown) -> Iterator[str]:
    """What could be lost with the primary; nothing where some standby confirms commits, or where there is none."""
    if isinstance(found, Unknown):
        yield f"Whether a standby confirms commits is not known: {found.reason}."
    elif found and not any(each.sync_state in CONFIRMING for each in found):
        names = ", ".join(f"{each.name} ({each.behind:,} bytes behind)" for each in found)
        yield (
            f"All standbys are asynchronous: {names}. If one of them is promoted, Postgres lacks what it acknowledged"
            " last, and, within seconds after a hand-over, the decision: then `tripstore cutover settle` restores that"
            " from the shards, and `tripstore cutover lost` lists what the mirror still has. What was not carried yet"
            " is lost. `synchronous_standby_names` in Postgres lets a standby confirm first."
        )
