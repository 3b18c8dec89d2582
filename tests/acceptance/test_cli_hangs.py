"""`tripstore triggers run` with a function that never returns: its process ends, another one goes on (I7)."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore
from tests.acceptance.conftest import Shell
from tests.acceptance.workers import quicken, serving
from tests.chaos.actors import wait_until
from tests.crew import wait_until_caught_up

MODULE = """
import time

from schemaless_core.triggers import trigger

@trigger(column="BASE", start="beginning", timeout=1.0)
def billed(cell):
    if cell.body == "poison":
        time.sleep(3600)  # the function hangs: its timeout ends it

@trigger(column="BASE", start="beginning")
def noted(cell):
    with open("noted", "a") as file:
        print(cell.body, file=file)
"""


def test_its_process_is_replaced_and_every_group_is_delivered(store: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(store)
    (store.folder / "shop.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        datastore.put_cells([*(Cell(uuid4(), "BASE", 1, n) for n in range(20)), Cell(uuid4(), "BASE", 1, "poison")])
        with serving(store, "shop", "--workers", "2"):
            wait_until("the group exists", lambda: datastore.triggers.coordinator.find_group("billed") is not None)
            wait_until_caught_up(datastore, "billed")
            wait_until_caught_up(datastore, "noted")

        (row,) = datastore.triggers.parked("billed")
        assert row.error == "TimeoutError: the function did not return within 1 s"
    assert set((Path(store.folder) / "noted").read_text().split()) == {*map(str, range(20)), "poison"}
