"""A group whose offsets were lost with a primary begins again where the promotion forked the log (I7)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.errors import CoordinatorUnavailable, SchemalessError
from schemaless_core.triggers import offsets
from schemaless_core.triggers.offsets import Offsets
from schemaless_core.triggers.registry import Start, Trigger, trigger
from tests.chaos.actors import wait_until
from tests.integration.trigger_serving import running
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine, Stores
from tests.zookeepers import another_zookeeper
from tripstore.local.servers import LocalServers

TRIGGERS = {"poll_seconds": 0.02, "checkpoint_seconds": 0.05, "lease_seconds": 2.0, "handover_seconds": 0.5}


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control", replicas=1, triggers=TRIGGERS) as it:
        yield it


def noting(seen: list[Cell], start: Start) -> Trigger:
    def noted(cell: Cell) -> None:
        seen.append(cell)

    return trigger("BASE", start, name="noted")(noted)


def lose_offsets(made: Promotable, engine: ServerEngine, registered: Trigger) -> tuple[list[Cell], list[Cell]]:
    """The cells that stood there before the group was registered, and those that came after the promotion."""
    before = made.put(4)
    made.cluster.wait_for_replicas()
    made.replica().query(f"STOP {'SLAVE' if engine == 'mariadb' else 'REPLICA'} IO_THREAD")
    made.store.triggers.register(registered)
    made.old.kill()
    made.promote(made.order(dead=(made.old,)))
    return before, made.put(4)


@pytest.mark.parametrize("start", ["now", "beginning"])
def test_i7_what_comes_after_the_promotion_is_delivered(
    made: Promotable, server_engine: ServerEngine, start: Start
) -> None:
    """From the beginning all of it; from now on nothing that stood there when the group was registered."""
    seen: list[Cell] = []
    noted = noting(seen, start)
    before, after = lose_offsets(made, server_engine, noted)
    wanted = {cell.key for cell in (after if start == "now" else [*before, *after])}

    with running(made.store.triggers.worker([noted])):
        wait_until("all is delivered", lambda: {cell.key for cell in seen} >= wanted, 20.0)

    assert {cell.key for cell in seen} == wanted


def test_i7_leases_that_zookeeper_lost_do_not_hide_the_promotion(
    server_engine: ServerEngine, servers: LocalServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases that are made anew have fences by the clock, which is past the promotion by then."""
    monkeypatch.setattr(offsets, "CLOCKS_APART", timedelta())  # all run by one clock
    seen: list[Cell] = []
    noted = noting(seen, "now")
    with another_zookeeper(servers) as zookeeper:
        triggers = TRIGGERS | {"coordinator": zookeeper.url}
        with promotable(server_engine, tmp_path / "control", replicas=1, triggers=triggers) as made:
            _before, after = lose_offsets(made, server_engine, noted)
            zookeeper.kill()
            zookeeper.forget()
            zookeeper.start()
            wait_until("ZooKeeper answers again", lambda: _answers(made.store), 20.0)

            with running(made.store.triggers.worker([noted])):
                wait_until("all is delivered", lambda: len(seen) >= len(after), 20.0)

    assert {cell.key for cell in seen} == {cell.key for cell in after}


def test_control_offsets_that_are_not_begun_again_are_claimed_for_ever(
    made: Promotable, server_engine: ServerEngine
) -> None:
    seen: list[Cell] = []
    noted = noting(seen, "now")
    lose_offsets(made, server_engine, noted)
    asked = threading.Event()

    def look_on(*_given: object) -> tuple[int, ...]:
        asked.set()
        return ()

    with (
        patch.object(Offsets, "begin_again", look_on),
        running(made.store.triggers.worker([noted])),
    ):
        assert asked.wait(20.0)
        asked.clear()
        assert asked.wait(20.0), "at the next beat"
    assert seen == []


def test_without_a_promotion_since_it_was_registered_an_offset_was_removed_by_a_person(stores: Stores) -> None:
    """Of a group that began with what came then nothing tells where it was: none is made up."""
    its, now = stores.fresh("sqlite").triggers.offsets, time.time_ns() // 1_000_000

    assert list(its.begin_again("noted", "now", {0: now})) == []
    assert list(its.begin_again("noted", "beginning", {0: now})) == [0]


def test_a_group_that_is_removed_while_it_is_served_gets_no_offsets_again(stores: Stores) -> None:
    """Who registers it anew from now on would be told of everything. The control: one that stays gets them."""
    store = stores.fresh("sqlite", triggers=TRIGGERS)
    seen: list[Cell] = []
    noted = noting(seen, "beginning")
    with running(store.triggers.worker([noted])):
        store.put_cell(uuid4(), "BASE", 1, "first")
        wait_until("it is delivered", lambda: bool(seen))
        store.triggers.offsets.remove("noted")
        store.put_cell(uuid4(), "BASE", 1, "second")
        wait_until("it is begun again", lambda: _has_offsets(store), 20.0)

        store.triggers.remove("noted")
        store.put_cell(uuid4(), "BASE", 1, "third")
        time.sleep(3 * TRIGGERS["lease_seconds"])  # in which nothing is to happen
    assert not _has_offsets(store)


def _answers(store: Datastore) -> bool:
    try:
        store.triggers.coordinator.survey()
    except CoordinatorUnavailable:
        return False
    return True


def _has_offsets(store: Datastore) -> bool:
    seen = store.triggers.offsets.find("noted").values()
    return any(not isinstance(each, SchemalessError) and each.offset is not None for each in seen)
