"""The legacy store's step: a company's own Postgres, in use, is shown through the same API, and no change is missed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from schemaless_core import CellKey
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import examine_capture, schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.demo.legacy import LAYOUT
from tripstore.demo.legacy.roles import create_roles
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.demo.legacy.tally import Tally
from tripstore.demo.legacy.workload import Workload
from tripstore.demo.playground import SHARDS
from tripstore.demo.report import Step
from tripstore.local.servers import LocalServers

TRIPS = 200
ACTIONS = 150

_CAPTURED = "SELECT row_key::text, column_name, ref_key, row IS NULL FROM tripstore.queue"
_FARE = "SELECT fare_amount::text, base_version FROM public.trips WHERE trip_uuid = %s"


@contextmanager
def running_company() -> Iterator[str]:
    """A Postgres with the company's tables, some trips, and rights for its services; its URL."""
    with LocalServers() as servers:
        server = servers.postgres("company")
        server.query("CREATE DATABASE company")
        url = f"{server.url}/company"
        CompanySchema(url).upgrade()
        create_roles(url)
        Seeds(url).plant(TRIPS)
        yield url


def show_the_company(step: Step, url: str) -> None:
    """Install everything while services write; then hold what was captured against what the store answers."""
    with connected(url, "demo") as connection:
        ((version,),) = rows(connection, "SHOW server_version")
    step.say(f"Postgres {version} with {TRIPS} trips of integer ids, and services that write to them")
    layout = load_layout(LAYOUT)
    _install(step, url, layout)
    _work(step, url)
    with PostgresBackend(LegacyDatabase(url), layout, shards=SHARDS) as store:
        _hold_against(step, url, store)
        _put(step, url, store)


def _install(step: Step, url: str, layout: Layout) -> None:
    with Workload(url).running() as tally, connected(url, "demo") as connection:
        applied = list(apply_all(schema_steps(layout), connection, lambda _step: lambda _done, _all: None))
        complaints = [each for each in examine_capture(connection, layout) if each.is_error]
    step.say(f"{len(applied)} steps while services did {tally.committed:,} transactions")
    step.check("no service met an error", tally.failed == 0, tally.first_failure or f"{tally.actions:,} actions")
    step.check(
        "every change is captured from now on", not complaints, str(complaints[0]) if complaints else "capture is whole"
    )


def _work(step: Step, url: str) -> None:
    tally: Tally = Workload(url, seed=2).run(actions=ACTIONS)
    with connected(url, "demo") as connection:
        ((changes,),) = rows(connection, "SELECT count(*) FROM tripstore.queue")
    step.say(f"{tally.committed:,} more transactions by ORM, Core, COPY and raw SQL; {changes:,} changes in the queue")


def _hold_against(step: Step, url: str, store: PostgresBackend) -> None:
    """Every change that was captured is a cell that a reader gets, a deletion a tombstone."""
    with connected(url, "demo") as connection:
        captured = rows(connection, _CAPTURED)
    cells = store.get_cells([CellKey(UUID(row_key), column, ref_key) for row_key, column, ref_key, _ in captured])
    deleted = [is_deleted for *_, is_deleted in captured]
    right = sum(cell is not None and (cell.body is None) == gone for cell, gone in zip(cells, deleted, strict=True))
    detail = f"{right:,} of {len(captured):,}, {sum(deleted):,} of them tombstones"
    step.check("every change is a cell", right == len(captured), detail)


def _put(step: Step, url: str, store: PostgresBackend) -> None:
    """A cell that is put is a row that SQL reads; one that no row can hold is refused by the name of its field."""
    with connected(url, "demo") as connection:
        ((key,),) = rows(connection, "SELECT trip_uuid::text FROM public.trips ORDER BY id LIMIT 1")
        latest = store.get_cell_latest(UUID(key), "BASE")
        assert latest is not None
        assert isinstance(latest.body, dict)
        version = latest.ref_key + 1
        store.put_cell(UUID(key), "BASE", version, {**latest.body, "fare": "42.50"})
        found = rows(connection, _FARE, (key,))
    step.check("SQL reads what was put", found == [("42.50", version)], f"fare {found[0][0]}, version {found[0][1]}")
    try:
        store.put_cell(UUID(key), "BASE", version + 1, {**latest.body, "status": "flying"})
        refused = "it was stored"
    except Unrepresentable as error:
        refused = error.path
    step.check("what no row can hold is refused by name", refused == "status", refused)
