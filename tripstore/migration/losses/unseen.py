"""`KnownPostgres`: which Postgres changes are carried from. Before the phase shadow one that is promoted is not shut.

It is kept in the control database, which does not go back with Postgres: its system identifier and its timeline. Where
another one answers later, what it lacks of the mirror is looked for, and no comparison from before counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.deadline import Deadline
from schemaless_core.errors import DocumentConflict, SchemalessError
from tripstore.backends.postgres.capture.timeline import SERVER, ServerIdentity, find_server
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.errors import TripstoreError
from tripstore.facade.facade import Facade
from tripstore.handover.renewal import UNSEEN, renew
from tripstore.handover.steps import run
from tripstore.ports.control import RealControlPort

logger = logging.getLogger(__name__)

DOCUMENT = "postgres"
LOOK_SECONDS = 5.0
_IS_GUARDED = "SELECT timeline IS NOT NULL FROM tripstore.authority"


class NotRenewed(TripstoreError):
    """Another Postgres answers, and not everything that has to hear of that did."""


class KnownPostgres:
    """Of one facade with a legacy store."""

    def __init__(self, facade: Facade) -> None:
        assert facade.duo is not None
        assert isinstance(facade.duo.ports.control, RealControlPort)
        self._database: LegacyDatabase = facade.duo.legacy.database
        self._ports = facade.duo.ports
        self._control = facade.duo.ports.control
        self._documents = Documents(facade.store.control)

    def remember(self, why: str = "") -> None:
        """Keep which one it is, unless one is known: before the first change is carried."""
        if self._documents.find(DOCUMENT) is None:
            self._keep(0, self._now(), why)

    def renew(self, why: str = "") -> bool:
        """Have another one be known as such, with all that this means; whether it was another. May be repeated."""
        known, now = self._documents.find(DOCUMENT), self._now()
        if known is None or _server(known.body) == now:
            return False  # where none is known it cannot be told
        found = self._control.stated_authority()
        if found.given is not None and found.row.switch_id != UNSEEN:
            self._keep(known.version, now, why)  # it was accepted: that has said all
            return False
        if reason := run(renew(self._ports, self._control.renew)):
            hint = "Repeat the command; `tripstore doctor` says which server does not answer."
            raise NotRenewed(
                f"Postgres is another server than before, which is not written down ({reason}).", hint=hint
            )
        self._keep(known.version, now, why)
        logger.warning(
            "Postgres was promoted, or is another server: what it lacks is to be looked for",
            extra={"event": "postgres.renewed", "timeline": now.timeline},
        )
        return True

    def _now(self) -> ServerIdentity:
        return ServerIdentity(*self._database.run(lambda found: found.rows(SERVER)[0], Deadline(LOOK_SECONDS)))

    def _keep(self, version: int, server: ServerIdentity, why: str) -> None:
        detail = {**server._asdict(), "why": why}
        try:
            self._documents.put(
                DOCUMENT, dict(server._asdict()), expected_version=version, action="postgres.known", detail=detail
            )
        except DocumentConflict:  # another process was faster: it kept the server that answered it
            return


def find_known(control: ControlDatabase) -> ServerIdentity | None:
    """The one that changes are carried from; None: none was kept, or the control database does not answer."""
    with suppress(SchemalessError):
        found = Documents(control).find(DOCUMENT)
        return None if found is None else _server(found.body)
    return None


def examine_server(connection: Connection, known: ServerIdentity | None) -> Iterator[Complaint]:
    """What the doctor says where another one answers, and no timeline is compared yet."""
    now = find_server(connection)
    if known is None or known == now or rows(connection, _IS_GUARDED)[0][0]:
        return
    said = f"is at timeline {now.timeline} of system {now.system}, and was at {known.timeline} of {known.system}"
    hint = (
        "It was promoted, or is another server: it may lack what the mirror has. `tripstore cutover lost --all` names"
        " that; `tripstore phase set shadow` lets no comparison from before count."
    )
    yield error("Postgres", said, hint)


def _server(body: Mapping[str, object]) -> ServerIdentity:
    return ServerIdentity(str(body["system"]), int(str(body["timeline"])))
