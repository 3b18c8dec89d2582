"""Two repairs at work while services write, relays carry, and the test damages the mirror again and again (I4, I8)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from uuid import UUID, uuid4

import pytest

from schemaless_core import ColumnKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.errors import SchemalessError
from schemaless_core.mends import RawCell
from tests.damage import lose, spoil
from tests.facades import Migration, migration
from tests.mirrors import relaying, wait_until_delivered, wait_until_only_parked
from tests.scale import scaled
from tests.stores import Stores
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import Target
from tripstore.phase import Phase

ROWS = 12


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, shards=2) as made:
        made.phase(Phase.SHADOW)
        yield made


def writes(moving: Migration, keys: list[UUID], turns: int) -> None:
    """What a service does to its rows; now and then it deletes one, and inserts it again."""
    chance = random.Random(1)
    for turn in range(turns):
        key = str(chance.choice(keys))
        if chance.random() < 0.15:
            moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", key)
        elif not moving.legacy.sql("UPDATE trips SET status = %s WHERE trip_uuid = %s RETURNING 1", f"s{turn}", key):
            moving.legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, %s)", key, f"s{turn}")


def damages(moving: Migration, keys: list[UUID], turns: int) -> None:
    """Bytes that change, cells that go, foreign cells."""
    chance, store = random.Random(2), moving.facade.store
    for _turn in range(turns):
        key = chance.choice(keys)
        latest = store.mends.latest([ChildKey(key, "BASE")], {})[0]
        if latest is None:
            continue
        cell = moving.duo.legacy.get_cell_latest(key, "BASE")
        if cell is None or cell.ref_key != latest.key.ref_key:
            continue
        damage: Callable[[], object] = chance.choice(
            [
                lambda c=cell: spoil(store, c, b"torn"),
                lambda c=cell: spoil(store, c, b'{"status":"foreign"}'),
                lambda c=cell: lose(store, c),
                lambda k=key: store.as_copier().put_cell(k, "BASE", latest.key.ref_key + 3, "foreign"),  # noqa: B023  # called at once
            ]
        )
        try:
            damage()
        except (SchemalessError, ValueError):
            continue  # the cell went, or another was faster: no damage


def repairs_until(moving: Migration, keys: list[UUID], is_over: threading.Event, seed: int) -> None:
    chance, repairs = random.Random(seed), Repairs(moving.facade)
    repairing = repairs.repairing(Backend.LEGACY, job=f"repair-{seed}")
    while not is_over.is_set():
        repairing.repair([Target(key, "BASE") for key in chance.sample(keys, 4)])


def test_i4_i8_repairs_race_with_everybody_and_the_end_is_equal(moving: Migration) -> None:
    keys = [uuid4() for _ in range(ROWS)]
    for key in keys:
        moving.legacy.trip(row_key=key)
    moving.carry()
    over, turns, failures = threading.Event(), scaled(2000), list[BaseException]()

    def guarded(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  # told by the test's thread
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with relaying(moving, 2):
        repairers = [guarded(partial(repairs_until, moving, keys, over, seed)) for seed in (3, 4)]
        busy = [guarded(lambda: writes(moving, keys, turns)), guarded(lambda: damages(moving, keys, turns // 2))]
        for thread in busy:
            thread.join()
        over.set()
        for thread in repairers:
            thread.join()
        assert failures == []
        _finish(moving, keys)

    columns = [ColumnKey(key, "BASE") for key in keys]
    assert moving.duo.legacy.get_cells_latest(columns) == moving.facade.store.get_cells_latest(columns)
    for shard in range(moving.facade.config.core.shards):
        place = 0
        while (page := moving.facade.store.get_cells_for_shard(shard, place, 500)).next_location > place:
            place = page.next_location
        assert place == page.head


def _finish(moving: Migration, keys: list[UUID]) -> None:
    """Everybody is at rest: what is wrong now is repaired, older versions that are in the way of changes included."""
    wait_until_only_parked(moving)  # the conflict of a change that a relay holds is in no list
    repairs = Repairs(moving.facade)
    repairing = repairs.repairing(Backend.LEGACY, job="repair-last")
    latest = [Target(key, "BASE") for key in keys]
    outcomes = repairing.repair([*latest, *repairs.conflicts()])
    assert all(each.is_equal for each in outcomes), outcomes
    Mirror(moving.facade).parked(is_reverse=False).retry(None)
    wait_until_delivered(moving)
    assert [seen.step.action for seen in repairing.plan(latest)] == [Action.NOTHING] * len(latest)
    older = [Target(*raw.key) for key in keys if (raw := _unsound(moving, key)) is not None]
    while older:
        repairing.repair(older)
        older = [Target(*raw.key) for key in keys if (raw := _unsound(moving, key)) is not None]
    repairs.close(repairs.holes())


def _unsound(moving: Migration, key: UUID) -> RawCell | None:
    """A version of a row whose bytes no codec can read."""
    mends, before = moving.facade.store.mends, 2**63 - 1
    while (raw := mends.highest(ColumnKey(key, "BASE"), before)) is not None:
        if raw.body == b"torn":
            return raw
        before = raw.key.ref_key
    return None
