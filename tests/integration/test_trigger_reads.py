"""Functions of triggers behind a facade whose reads are a cohort's: they act upon what the authority says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import CellStore, Json
from schemaless_core.triggers.registry import Trigger, trigger
from tests.chaos.actors import wait_until
from tests.crew import quick
from tests.facades import Migration, in_mirror, migration
from tests.integration.trigger_serving import serving
from tests.legacy_backends import status
from tests.stores import Stores
from tripstore.cli.options import Settings
from tripstore.cli.worker.duty import opened
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore

CORRUPT = "UPDATE cell SET body = ? WHERE row_key = ? AND column_name = ? AND ref_key = ?"
#: What functions were told.
told: list[Json] = []


def free(store: CellStore, row_key: UUID) -> Json:
    cell = store.get_cell_latest(row_key, "FREE")
    assert cell is not None
    return cell.body


@trigger(column="BASE", start="beginning")
def plain(row_key: UUID, store: CellStore) -> None:
    told.append(free(store, row_key))


@trigger(column="BASE", start="beginning")
def hurried(row_key: UUID, store: CellStore) -> None:
    told.append(store.using(deadline=20).get_row(row_key, ["FREE"])["FREE"].body)


@trigger(column="BASE", start="beginning", transactional=True)
def joined(row_key: UUID, store: CellStore) -> None:
    told.append(free(store, row_key))


app: list[Trigger] = [plain, hurried, joined]


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    mirror = {"cohort_seconds": 20.0, "max_lag_seconds": 20.0}
    with migration(servers, stores, triggers=quick(), mirror=mirror) as made:
        yield made


@pytest.mark.parametrize(
    ("phase", "at_authority", "at_mirror", "served"),
    # A transactional one waits until Schemaless is the authority.
    [(Phase.SHADOW, "in Postgres", "in Schemaless", 2), (Phase.LIVE, "in Schemaless", "in Postgres", 3)],
)
def test_what_functions_of_triggers_read_is_never_a_cohorts(
    moving: Migration, tmp_path: Path, phase: Phase, at_authority: str, at_mirror: str, served: int
) -> None:
    row_key = uuid4()
    moving.store.put_cell(row_key, "FREE", 1, "in Postgres")
    moving.store.put_cell(row_key, "BASE", 1, status("a"))
    moving.phase(phase, 100.0)
    moving.carry()
    in_mirror(moving, CORRUPT, b'"in Schemaless"', row_key.bytes, b"FREE", 1)
    file = tmp_path / "tripstore.yaml"
    file.write_text(json.dumps(moving.document))
    told.clear()

    with opened(Settings(file)) as stores:
        assert stores.facade is not None
        of_cohort = TripStore(stores.facade)
        wait_until("a cohort reads the mirror", lambda: free(of_cohort, row_key) == at_mirror)
        with serving(stores, __name__):
            wait_until("all were called", lambda: len(told) == served)
        assert free(of_cohort, row_key) == at_mirror, "no other call read it either"
    assert told == [at_authority] * served
