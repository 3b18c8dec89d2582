"""The example of the articles, as its users run it: the real command, killed in the middle and started again."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from uuid import uuid4

from schemaless_core import Cell, Datastore
from tests.acceptance.conftest import Shell
from tests.acceptance.workers import WAIT_SECONDS, quicken, serving
from tests.chaos.actors import wait_until
from tests.crew import wait_until_caught_up

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "billing.py"
TRIPS, KILLED_AFTER = 80, 30


def trips(count: int) -> list[Cell]:
    return [Cell(uuid4(), "BASE", 1, {"rider_uuid": str(uuid4()), "fare": "23.50"}) for _ in range(count)]


def statuses(datastore: Datastore, cells: list[Cell]) -> list[object]:
    found = [datastore.get_cell_latest(cell.row_key, "STATUS") for cell in cells]
    return [status.body for status in found if status is not None]


def test_every_rider_is_billed_once_though_the_worker_is_killed_in_the_middle(store: Shell, failpoints: Path) -> None:
    shutil.copy(EXAMPLE, store.folder / "billing.py")
    quicken(store)
    cells = trips(TRIPS)
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        # Killed after a rider was billed and before anything of it is saved.
        (failpoints / "trigger.called").write_text(f"kill after={KILLED_AFTER}")
        with serving(store, "billing", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)}) as first:
            # It starts at `now`: a trip put before its group is there would be none of its business.
            wait_until("registered", lambda: datastore.triggers.coordinator.find_group("bill_rider") is not None)
            datastore.put_cells(cells)
            assert first.wait(WAIT_SECONDS) == -signal.SIGKILL
        midway = len(statuses(datastore, cells))

        with serving(store, "billing") as second:
            wait_until("billed", lambda: len(statuses(datastore, cells)) == TRIPS)
            wait_until_caught_up(datastore, "bill_rider")  # its own STATUS cells pass by it, too
            second.send_signal(signal.SIGTERM)
            assert second.wait(WAIT_SECONDS) == 0
        billed = statuses(datastore, cells)
        [group] = datastore.triggers.status("bill_rider")

    charges = [f"charge-{cell.row_key}" for cell in cells]
    booked = [json.loads(line)["charge"] for line in (store.folder / "books.jsonl").read_text().splitlines()]
    assert midway == KILLED_AFTER + 1
    assert billed == [{"is_completed": True, "charge": charge} for charge in charges]
    assert Counter(booked) == Counter(charges)
    assert (group.lag_cells, group.parked) == (0, 0)
