"""Places to put the same row in several ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing

import pytest

from tests.corpus.company import EXTENSIONS
from tests.integration.prepared_puts.ways import ODD_TYPES, TEXTS, Place, Ways, string_layout, table_sql
from tests.legacy import FLAVOURS
from tests.legacy_backends import Company, company
from tests.legacy_databases import PATIENT, new_database, postgres_server, run
from tripstore.backends.postgres.cells.put.row_writes import RowWrites
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.fixture(scope="module")
def places(servers: LocalServers) -> Iterator[Mapping[Flavour, Place]]:
    with ExitStack() as opened:
        made: dict[Flavour, Place] = {}
        for flavour in FLAVOURS:
            url = new_database(servers, flavour, "CREATE SCHEMA odd")
            made[flavour] = Place(url, opened.enter_context(closing(LegacyDatabase(url, PATIENT))))
        for extension in EXTENSIONS:
            run(made["machine"].url, f"CREATE EXTENSION {extension} SCHEMA public")
        yield made


@pytest.fixture(params=FLAVOURS)
def place(request: pytest.FixtureRequest, places: Mapping[Flavour, Place]) -> Place:
    return places[request.param]


@pytest.fixture
def ways_used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that puts went."""
    used: list[str] = []

    def spy(name: str) -> None:
        real = getattr(RowWrites, name)

        def noted(*arguments: object, **more: object) -> object:
            used.append(name)
            return real(*arguments, **more)

        monkeypatch.setattr(RowWrites, name, noted)

    for name in ("insert_first", "insert", "update"):
        spy(name)
    return used


@pytest.fixture(scope="module")
def kinds_by_flavour(places: Mapping[Flavour, Place]) -> Mapping[Flavour, Ways]:
    """A table with a column of each type, and names that mean something to `%` and `format`."""
    names = {kind: f"{kind} % {{0}}" for kind in TEXTS}
    layout = string_layout("odd", 'kinds % of "things"', names)
    for place in places.values():
        run(place.url, ODD_TYPES)
        run(place.url, table_sql(layout, {names[kind]: kind for kind in TEXTS}))
    return {flavour: Ways(place, layout) for flavour, place in places.items()}


@pytest.fixture(params=FLAVOURS)
def kinds(request: pytest.FixtureRequest, kinds_by_flavour: Mapping[Flavour, Ways]) -> Ways:
    return kinds_by_flavour[request.param]


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, request.param)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made
