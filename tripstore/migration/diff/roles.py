"""Which backend is the authority while two stores are compared, and what the mirror has not got yet.

The authority is asked as an owner: an answer that it gave when it was the authority no more is none.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.handover.undelivered import Undelivered
from tripstore.engines.validation.diff.suspects import Roles
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.waiting import Waiting, waited
from tripstore.facade.arrivals import Arrivals
from tripstore.facade.known import Known
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import ControlPort

LOOK_SECONDS = 5.0


class AuthorityRoles:
    """Looks at the authority row each time it is asked: one hand-over may come in the midst of a comparison."""

    def __init__(self, control: ControlPort, legacy: PostgresBackend, store: Datastore, source: Backend) -> None:
        self._control = control
        self._legacy = legacy
        self._store = store
        self._copier = store.as_copier()
        self._source = source
        self._last: tuple[Authority, Roles] | None = None

    def __call__(self) -> Roles:
        return self.look()[1]

    def look(self) -> tuple[Authority, Roles]:
        """The authority row, and which store is authority and which is mirror by it."""
        row = self._control.authority()
        if self._last is None or self._last[0] != row:
            self._last = row, self._of(row)
        return self._last

    def _of(self, row: Authority) -> Roles:
        is_from = row.backend is self._source
        if row.backend is Backend.LEGACY:
            return Roles(self._legacy.as_owner(row.epoch), self._copier, is_from)
        return Roles(self._store.as_owner(row.epoch), self._legacy, is_from)


class RowsInFlight:
    """Forward the queue knows each row; backwards the reverse mirror's offsets know shards."""

    def __init__(self, roles: AuthorityRoles, legacy: PostgresBackend, store: Datastore) -> None:
        self._roles = roles
        self._known = Known()
        self._undelivered = Undelivered(legacy.database, LOOK_SECONDS)
        #: For answers of indexes as well.
        self.arrivals = Arrivals(self._known, self._undelivered, store)

    def rows(self, row_keys: Collection[UUID]) -> Collection[UUID]:
        if self.authority().backend is Backend.LEGACY:
            return self._undelivered.of_rows(row_keys)
        return () if waited(self.arrivals.arriving(Read("get_row", {}, tuple(row_keys)))) else row_keys

    def arriving(self, read: Read) -> Waiting[bool]:
        """Whether every change that this read could see has been delivered, and indexed."""
        self.authority()
        return self.arrivals.arriving(read)

    def authority(self) -> Authority:
        """The row of this moment."""
        row, _roles = self._roles.look()
        self._known.learn_authority(row)
        return row
