"""A company with a table for each case of the corpus, captured, and everybody who writes to it.

Services have hostile sessions. The stores and mirrors connect as roles whose own settings are as hostile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.corpus import Case
from tests.corpus.sessions import HOSTILE, HOSTILE_SCHEMA, create_roles, hostile_session
from tests.legacy import DELIVER
from tests.legacy_databases import PATIENT, new_database, postgres_server
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture import capture_steps
from tripstore.backends.postgres.capture.install import TableTriggers
from tripstore.backends.postgres.capture.plan import Saboteur
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

SHARDS = 8
EXTENSIONS = ("citext", "hstore")
#: What only one of the two servers has.
ONLY: Mapping[str, Flavour] = {
    "citext": "machine",
    "hstore": "machine",
    "xml": "machine",
    "icu": "machine",
    "postgres17": "wheel",
}

PARENTS = """
CREATE SCHEMA corpus;
CREATE TABLE corpus.parents (id bigserial PRIMARY KEY, uuid uuid NOT NULL UNIQUE, version bigint NOT NULL DEFAULT 1,
    label text)
"""

_SPACE = UUID(int=1)
_numbers = count(1)


def has(flavour: Flavour, case: Case) -> bool:
    """Whether a server of this flavour has what a case needs."""
    return case.needs is None or ONLY.get(case.needs, flavour) == flavour


def layout_of(cases: Sequence[Case]) -> Layout:
    """All cases' columns of one datastore."""
    parents = {"table": "corpus.parents", "ref_key": {"version": "version"}, "fields": {"label": {"type": "string"}}}
    columns = {"BASE": parents} | {case.name: case.document for case in cases}
    row_key = {"table": "corpus.parents", "id": "id", "uuid": "uuid"}
    return load_layout({"datastore": "corpus", "row_key": row_key, "columns": columns})


@dataclass(frozen=True)
class Company:
    """One database. `stores` and `mirrors` are by the name of the hostile role, `sessions` of the service."""

    url: str
    layout: Layout
    own: Connection
    sessions: Mapping[str, Connection]
    stores: Mapping[str, PostgresBackend]
    mirrors: Mapping[str, Connection]

    def new_row(self) -> UUID:
        """A row of the datastore, without any cell of a case's."""
        key = uuid5(_SPACE, str(next(_numbers)))
        rows(self.own, "INSERT INTO corpus.parents (uuid) VALUES (%s)", (str(key),))
        return key

    def codec(self, case: Case) -> ColumnCodec:
        """Makes rows of bodies, and bodies of rows, for who has no store."""
        cache = LookupCache(self.layout, lambda statement, parameters: rows(self.own, statement, parameters))
        return ColumnCodec(self.layout.columns[case.name], cache)

    def deliver(self) -> None:
        """What a relay does with the queue."""
        rows(self.own, DELIVER)


@contextmanager
def company(
    servers: LocalServers, flavour: Flavour, cases: Sequence[Case], saboteur: Saboteur | None = None
) -> Iterator[Company]:
    """A company with the tables of these cases."""
    server = postgres_server(servers, flavour)
    url = new_database(servers, flavour)
    roles = create_roles(server)
    layout = layout_of(cases)
    with ExitStack() as opened:
        own = opened.enter_context(connected(url, "corpus", synchronous_commit="off"))  # nothing here has to last
        extensions = [
            f"CREATE EXTENSION {name} SCHEMA public" for name in EXTENSIONS if name in {case.needs for case in cases}
        ]
        rows(own, ";".join([HOSTILE_SCHEMA, *extensions, PARENTS, *(case.ddl for case in cases)]))
        for step in capture_steps(layout, saboteur=saboteur):
            if isinstance(step, TableTriggers) or not step.is_done(own):  # it is known that no table has triggers yet
                step.apply(own, lambda _done, _total: None)
        role_urls = {name: _as(url, role, server.password) for name, role in roles.items()}
        yield Company(
            url,
            layout,
            own,
            {name: opened.enter_context(hostile_session(url, name)) for name in HOSTILE},
            {name: opened.enter_context(store(at, layout)) for name, at in role_urls.items()},
            {
                name: opened.enter_context(connected(at, "mirror", default_transaction_read_only="off"))
                for name, at in role_urls.items()
            },
        )


def store(url: str, layout: Layout) -> PostgresBackend:
    return PostgresBackend(LegacyDatabase(url, PATIENT), layout, shards=SHARDS)


def _as(url: str, role: str, password: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{role}:{password}@{parts.hostname}:{parts.port}{parts.path}"
