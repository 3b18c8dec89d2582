"""Whether a facade can serve calls now: the backend that answers callers is asked, the other one is not (I10)."""

from __future__ import annotations

from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from schemaless_core.health import Health
from tripstore.facade.facade import Duo, Facade
from tripstore.handover.authority import Backend

POSTGRES = Backend.LEGACY.value


def health(facade: Facade, seconds: float) -> Health:
    duo = facade.duo
    if duo is None or _answers(duo) is Backend.STORE:
        return facade.store.health(deadline=seconds)
    deadline = Deadline(seconds)
    try:
        duo.legacy.database.run(lambda connection: connection.rows("SELECT 1"), deadline)
    except SchemalessError:
        return Health(False, (), (POSTGRES,))
    return Health(True, (POSTGRES,), ())


def _answers(duo: Duo) -> Backend:
    """Until something is known, as before the first call, callers are answered by Postgres."""
    sight = duo.known.sight
    return Backend.LEGACY if sight is None else sight.authority.backend
