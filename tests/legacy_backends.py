"""Legacy stores of the small company in `tests.legacy`: its tables, with capture installed, and a backend on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from schemaless_core import Json
from schemaless_core.definitions.index import IndexDefinition
from tests.legacy import Legacy, captured, layout
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.layout.layout import Layout, TombstonePolicy
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.local.postgres import PostgresServer

DRIVERS = ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222")
SHARDS = 8


@dataclass(frozen=True)
class Company:
    """One company's database and the store that shows it."""

    legacy: Legacy
    store: PostgresBackend

    def base(self, *refs: int, row_key: UUID | None = None) -> UUID:
        """A row whose BASE was put at these ref keys, in this order."""
        key = row_key or uuid4()
        for ref in refs or (1,):
            self.store.put_cell(key, "BASE", ref, status(ref))
        return key

    def versions(self, row_key: UUID, column: str = "BASE") -> list[int]:
        return [cell.ref_key for cell in self.store.get_history(row_key, column)]

    def queued(self, row_key: UUID, column: str = "BASE") -> list[int]:
        return [change.ref_key for change in self.legacy.changes(row_key, column)]


def status(text: object) -> dict[str, Json]:
    """A body of BASE."""
    return {"status": str(text)}


@contextmanager
def company(
    server: PostgresServer,
    wanted: Layout | None = None,
    settings: LegacySettings = PATIENT,
    *,
    altered: str = "",
    indexes: Sequence[IndexDefinition] = (),
) -> Iterator[Company]:
    """A new company, its tables altered before capture comes."""
    wanted = wanted or layout()
    if altered:
        legacy = Legacy(server)
        legacy.sql(altered)
        legacy.install(wanted)
    else:
        legacy = captured(server, wanted)
    with PostgresBackend(LegacyDatabase(legacy.url, settings), wanted, shards=SHARDS, indexes=indexes) as store:
        yield Company(legacy, store)


def deleting_layout() -> Layout:
    """Tombstones of the parent take the other columns' rows with them."""
    plain = layout()
    parent = replace(plain.parent, on_tombstone=TombstonePolicy.DELETE)
    return Layout(plain.datastore, plain.row_key, {**plain.columns, parent.name: parent})
