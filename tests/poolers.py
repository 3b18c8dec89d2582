"""PgBouncers before the servers of the legacy tests: one per server, mode and settings, for a whole run."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from tests.absence import absent
from tests.legacy import Legacy
from tripstore.local.pgbouncer import PgBouncer, PoolMode, find_pgbouncer
from tripstore.local.postgres import PostgresServer
from tripstore.local.server import NO_SETTINGS
from tripstore.local.servers import LocalServers

MODES: tuple[PoolMode, ...] = ("session", "transaction")

_STARTED: dict[tuple[str, PoolMode, str], PgBouncer] = {}


def pooler(
    servers: LocalServers, upstream: PostgresServer, mode: PoolMode, settings: Mapping[str, str] = NO_SETTINGS
) -> PgBouncer:
    """This run's PgBouncer of a kind. A missing one fails in CI; elsewhere the test is skipped."""
    if find_pgbouncer() is None:
        absent("PgBouncer is not installed; run `python -m tripstore.local.install`")
    key = (upstream.url, mode, repr(sorted(settings.items())))
    if key not in _STARTED:
        _STARTED[key] = servers.pgbouncer(f"pooler-{len(_STARTED)}-{mode}", upstream, mode, settings=settings)
    return _STARTED[key]


def through(pooler: PgBouncer, legacy: Legacy) -> Legacy:
    """The same company, as a service sees it whose address is the pooler's."""
    found = copy(legacy)
    found.url = f"{pooler.url}/{legacy.name}"
    return found
