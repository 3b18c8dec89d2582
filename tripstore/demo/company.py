"""The company: its own Postgres, in use, gets UUIDs for its ids, and no change of it is missed from then on."""

from __future__ import annotations

from uuid import UUID

from schemaless_core import CellKey
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.demo.commands import Commands
from tripstore.demo.legacy.roles import create_roles
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.demo.legacy.workload import Workload
from tripstore.demo.playground import Playground
from tripstore.demo.report import StoryStep
from tripstore.demo.services import services
from tripstore.store import TripStore
from tripstore.wiring import connect

TRIPS = 2_000
ACTIONS = 150

_CAPTURED = "SELECT row_key::text, column_name, ref_key, row IS NULL FROM tripstore.queue"
_FARE = "SELECT fare_amount::text, base_version FROM public.trips WHERE trip_uuid = %s"
_KEYS = "SELECT trip_uuid::text FROM public.trips ORDER BY id"


def found_the_company(step: StoryStep, place: Playground) -> None:
    """Its tables, its past, and rights for its services."""
    CompanySchema(place.company).upgrade()
    create_roles(place.company)
    Seeds(place.company).plant(TRIPS)
    with connected(place.company, "demo") as found:
        ((version,),) = rows(found, "SHOW server_version")
    step.say(place.describe())
    step.say(f"Postgres {version} with {TRIPS:,} trips of integer ids, and services that write to them")


def prepare(step: StoryStep, place: Playground, commands: Commands) -> None:
    """Install everything while services write; then hold what was captured against what the store answers."""
    with services(place.company, seed=1) as tally:
        done = commands.run("tripstore schema apply").document
    step.say(f"{done['seconds']:.1f} s, while services did {tally.committed:,} transactions")
    step.check("no service met an error", tally.failed == 0, tally.first_failure or f"{tally.actions:,} actions")
    step.check(
        "every change is captured from now on", done["legacy"]["is_complete"], f"{len(done['legacy']['applied'])} steps"
    )
    more = Workload(place.company, seed=2).run(actions=ACTIONS)
    step.say(f"{more.committed:,} more transactions by ORM, Core, COPY and raw SQL")
    with connect(place.config) as store:
        _hold_against(step, place.company, store)
        _put(step, place.company, store)


def row_keys(company: str) -> list[UUID]:
    """Of all trips, the oldest first."""
    with connected(company, "demo") as connection:
        return [UUID(key) for (key,) in rows(connection, _KEYS)]


def _hold_against(step: StoryStep, company: str, store: TripStore) -> None:
    """Every change that was captured is a cell that a reader gets, a deletion a tombstone."""
    with connected(company, "demo") as connection:
        captured = rows(connection, _CAPTURED)
    cells = store.get_cells([CellKey(UUID(row_key), column, ref_key) for row_key, column, ref_key, _ in captured])
    deleted = [is_deleted for *_, is_deleted in captured]
    right = sum(cell is not None and (cell.body is None) == gone for cell, gone in zip(cells, deleted, strict=True))
    detail = f"{right:,} of {len(captured):,}, {sum(deleted):,} of them tombstones"
    step.check("every change is a cell", right == len(captured), detail)


def _put(step: StoryStep, company: str, store: TripStore) -> None:
    """A cell that is put is a row that SQL reads; one that no row can hold is refused by the name of its field."""
    key = row_keys(company)[0]
    latest = store.get_cell_latest(key, "BASE")
    assert latest is not None
    assert isinstance(latest.body, dict)
    version = latest.ref_key + 1
    store.put_cell(key, "BASE", version, {**latest.body, "fare": "42.50"})
    with connected(company, "demo") as connection:
        found = rows(connection, _FARE, (str(key),))
    step.check("SQL reads what was put", found == [("42.50", version)], f"fare {found[0][0]}, version {found[0][1]}")
    try:
        store.put_cell(key, "BASE", version + 1, {**latest.body, "status": "flying"})
        refused = "it was stored"
    except Unrepresentable as error:
        refused = error.path
    step.check("what no row can hold is refused by name", refused == "status", refused)
