"""Repairs for tests: a mirror that is damaged, what is planned and done about it, and accidents in the middle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from schemaless_core import Cell, Json, failpoints
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.failpoints import FailpointReached
from tests.damage import execute
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.repair import TargetOutcome
from tripstore.migration.repair.targets import Target
from tripstore.phase import Phase

STATUS_INDEX: Json = {
    "table": "status_index",
    "datastore": "trips",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "status", "type": "string"}]}],
}


@contextmanager
def in_shadow(servers: LocalServers, stores: Stores, **options: Any) -> Iterator[Migration]:
    """In the phase shadow: Postgres is the authority."""
    with migration(servers, stores, **options) as made:
        made.phase(Phase.SHADOW)
        yield made


def refreshed(shared: Migration) -> Migration:
    """What earlier tests did is forgotten; their rows stay."""
    shared.legacy.sql("DELETE FROM tripstore.queue; DELETE FROM tripstore.log")
    repairs = Repairs(shared.facade)
    repairs.close(repairs.holes())
    for shard in range(shared.facade.config.core.shards):
        execute(shared.facade.store, shard, "DELETE FROM mended")
    return shared


def base(row_key: UUID, older: int | None = None) -> Target:
    """The latest version of a row's BASE, or an older one."""
    return Target(row_key, "BASE", older)


def repair(moving: Migration, *targets: Target, wanted: Backend = Backend.LEGACY) -> list[TargetOutcome]:
    """Repair them while this backend is the authority, as a job would."""
    return Repairs(moving.facade).repairing(wanted, job="repair-t").repair(targets)


def plan(moving: Migration, *targets: Target) -> list[Action]:
    """What would be done first to each."""
    backend = moving.duo.ports.control.authority().backend
    return [seen.step.action for seen in Repairs(moving.facade).repairing(backend).plan(targets)]


def done(outcomes: list[TargetOutcome]) -> list[tuple[Action, ...]]:
    """What was done to each, when all are equal by now."""
    assert all(each.is_equal for each in outcomes), outcomes
    return [each.done for each in outcomes]


def stored(moving: Migration, row_key: UUID, column: str = "BASE") -> Cell:
    """What Schemaless has."""
    found = moving.facade.store.get_cell_latest(row_key, column)
    assert found is not None
    return found


def trip(moving: Migration, status: str = "requested") -> UUID:
    """A trip that both stores have."""
    _id, key = moving.legacy.trip(status)
    moving.carry()
    return key


def foreign(moving: Migration, row_key: UUID, ref_key: int, column: str = "BASE", body: str = "foreign") -> Cell:
    """A cell that Postgres lacks. No thread writes its index entry behind the test's back: `catch_up` does."""
    cell = Cell(row_key, column, ref_key, {"status": body})
    assert moving.facade.store.as_copier().put_encoded([encode_cell(cell, 1000)]).created == 1
    return cell


def mended(moving: Migration) -> list[tuple[str, bytes | None, bytes | None]]:
    """What was written down of changes in place."""
    lines = moving.facade.store.mends.lines()
    return [(line.action, line.old_body, line.new_body) for line in reversed(lines)]


@contextmanager
def doing_at(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Once, when this thread comes to a failpoint."""
    pending, thread, others = [act], threading.get_ident(), failpoints._look

    def look(folder: Path, name: str) -> None:
        others(folder, name)
        if name == point and pending and threading.get_ident() == thread:
            pending.pop()()

    with patch.object(failpoints, "_look", look), patch.object(failpoints, "_folder", Path()):
        yield
    assert not pending, f"{point} was not reached"


def failing_at(point: str) -> AbstractContextManager[None]:
    """Once, this thread dies of a failpoint."""

    def fail() -> None:
        raise FailpointReached(point)

    return doing_at(point, fail)
