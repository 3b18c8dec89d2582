"""How far the reverse mirror is, Postgres says; what goes back with it is written again (decision 44, I1, I8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell
from schemaless_core.engine.groups import GroupStep, Offset
from tests.chaos.actors import running, wait_until
from tests.facades import Migration, migration
from tests.factories import keys_in
from tests.mirrors import (
    QUICK,
    different,
    process,
    reverse_for_ever,
    reversing,
    rows_of,
    wait_until_mirrored_back,
)
from tests.serving import serve, told
from tests.stores import Stores
from tripstore.backends.postgres.handover import applied
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.parked import Parked
from tripstore.migration.mirror.progress import ReverseProgress
from tripstore.phase import Phase

Place = tuple[int, int]


@pytest.fixture
def live(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Schemaless is the authority, and the reverse mirror has served every shard once."""
    with migration(servers, stores, triggers=QUICK) as made:
        made.phase(Phase.LIVE)
        made.carry()
        yield made


def put(moving: Migration, status: str = "requested") -> Cell:
    cell = Cell(uuid4(), "BASE", 1, {"status": status})
    moving.store.put_cell(*cell.key, cell.body)
    return cell


def shard_of(moving: Migration, cell: Cell) -> int:
    return moving.facade.store.shard_of(cell.row_key)


def position(moving: Migration, shard: int) -> Place:
    ((epoch, added_id),) = moving.legacy.sql("SELECT epoch, added_id FROM tripstore.applied WHERE shard = %s", shard)
    return epoch, added_id


def offset(moving: Migration, shard: int) -> Offset:
    found = told(moving.facade.store.triggers.offsets.find(REVERSE_GROUP, [shard]))[shard].offset
    assert found is not None
    return found


def unmirrored(moving: Migration) -> int:
    port = moving.duo.ports.store
    return sum(map(port.unmirrored, port.servers))


def lose(moving: Migration, cell: Cell, place: Place, *, timeline: int | None = 0) -> None:
    """As a Postgres that was promoted would have it: without a row, at a former position, on a former timeline."""
    moving.legacy.sql("ALTER TABLE tripstore.cell DISABLE TRIGGER ALL")  # the gate is shut
    moving.legacy.sql("DELETE FROM tripstore.cell WHERE row_key = %s", str(cell.row_key))
    moving.legacy.sql(
        "UPDATE tripstore.applied SET epoch = %s, added_id = %s, timeline = COALESCE(%s, timeline) WHERE shard = %s",
        *place,
        timeline,
        shard_of(moving, cell),
    )


def free(moving: Migration, row_key: UUID | None = None) -> Cell:
    """A cell that a row of ours holds: it can be lost by one statement."""
    cell = Cell(row_key or uuid4(), "FREE", 1, "acknowledged")
    moving.store.put_cell(*cell.key, cell.body)
    return cell


def test_i8_a_position_is_where_the_offset_is_and_the_way_back_counts_by_the_lesser(live: Migration) -> None:
    cell = free(live)
    shard = shard_of(live, cell)
    before = position(live, shard)
    assert unmirrored(live) == 1

    live.carry()

    assert before < position(live, shard) == offset(live, shard)[:2]
    assert unmirrored(live) == 0
    lose(live, cell, before)
    assert unmirrored(live) == 1
    live.legacy.sql("DELETE FROM tripstore.applied WHERE shard = %s", shard)
    assert unmirrored(live) == offset(live, shard).added_id  # without a position it counts as a whole


@pytest.mark.parametrize("timeline", [0, None], ids=["promoted", "files put back"])
def test_i1_an_idle_worker_finds_out_that_postgres_went_back_and_writes_again(
    live: Migration, timeline: int | None
) -> None:
    with reversing(live):
        cell = free(live)
        shard = shard_of(live, cell)
        before = position(live, shard)
        wait_until("it is applied", lambda: position(live, shard) > before)
        lose(live, cell, before, timeline=timeline)

        wait_until("it is applied again", lambda: position(live, shard) > before)
        wait_until_mirrored_back(live)

    assert live.duo.legacy.get_cell(*cell.key) == cell
    assert unmirrored(live) == 0


def short_only(moving: Migration) -> None:
    moving.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")


def parked(moving: Migration) -> list[Parked]:
    return Mirror(moving.facade).parked(is_reverse=True).listed(100)


def too_long(moving: Migration, shard: int) -> Cell:
    """A cell of this shard that Schemaless has and Postgres refuses."""
    key = next(keys_in(moving.facade.store, shard))
    epoch = moving.duo.ports.control.authority().epoch
    cell = Cell(key, "BASE", 1, {"status": "much too long"})
    moving.facade.store.as_owner(epoch).put_cell(*cell.key, cell.body)
    return cell


def test_a_position_stays_below_a_parked_cell_and_passes_it_when_that_is_settled(live: Migration) -> None:
    """No cell comes after it: the position moves all the same."""
    short_only(live)
    with reversing(live):
        refused = too_long(live, 3)
        wait_until("it is parked", lambda: len(parked(live)) == 1)
        wait_until_mirrored_back(live)
        assert position(live, 3) < offset(live, 3)[:2]
        assert unmirrored(live) == 1  # the parked one, and nothing else

        live.legacy.sql("ALTER TABLE trips DROP CONSTRAINT short")
        Mirror(live.facade).parked(is_reverse=True).retry(None)
        wait_until("it is settled", lambda: not parked(live))
        # The offset goes back to the position first, and both pass it together.
        wait_until("the position passes it", lambda: position(live, 3)[1] == live_head(live, 3))

    assert rows_of(live, refused.row_key) == [("much too long", 1)]
    assert unmirrored(live) == 0


@pytest.mark.parametrize("timeline", [0, None], ids=["another timeline", "control: believed the same"])
def test_i1_a_cell_that_is_lost_from_behind_a_parked_one_is_written_again(
    live: Migration, timeline: int | None
) -> None:
    """As one that was parked and settled is: it lies between the position and the offset."""
    short_only(live)
    with reversing(live):
        first = too_long(live, 3)
        wait_until("it is parked", lambda: len(parked(live)) == 1)
        second = free(live, next(keys_in(live.facade.store, 3)))
        wait_until("the other is applied", lambda: live.duo.legacy.get_cell(*second.key) is not None)
        wait_until("and passed", lambda: offset(live, 3)[1] == live_head(live, 3))
    place = position(live, 3)
    assert place[1] < offset(live, 3).added_id

    lose(live, second, place, timeline=timeline)
    with reversing(live):
        wait_until("all shards are served", lambda: unserved(live) == 0)
        wait_until_mirrored_back(live)
        third = free(live, next(keys_in(live.facade.store, 3)))
        wait_until("what follows is applied", lambda: live.duo.legacy.get_cell(*third.key) is not None)
        wait_until_mirrored_back(live)

    is_there = live.duo.legacy.get_cell(*second.key) is not None
    assert is_there == (timeline is not None)
    assert [Cell(*each.key, first.body) for each in parked(live)] == [first]


def live_head(moving: Migration, shard: int) -> int:
    return told(moving.facade.store.triggers.offsets.find(REVERSE_GROUP, [shard]))[shard].head


def unserved(moving: Migration) -> int:
    (status,) = moving.facade.store.triggers.status(REVERSE_GROUP)
    return status.unserved


def progress_of(moving: Migration) -> ReverseProgress:
    triggers = moving.facade.store.triggers
    made = moving.reverse_mirror.progress(triggers.offsets, triggers.parking)
    assert isinstance(made, ReverseProgress)
    return made


def step_of(moving: Migration, shard: int, fence: int) -> dict[int, GroupStep]:
    """To the head."""
    epoch = offset(moving, shard).epoch
    return {shard: GroupStep(fence, epoch, live_head(moving, shard), epoch)}


def claimed(moving: Migration, shard: int) -> tuple[ReverseProgress, int]:
    """Another consumer of the shard, and its fence."""
    progress, fence = progress_of(moving), offset(moving, shard).fence + 1
    told(progress.claim(REVERSE_GROUP, {shard: fence}))
    return progress, fence


def test_of_two_reverse_mirrors_the_one_that_lost_the_shard_moves_nothing_over_the_other(live: Migration) -> None:
    cell = free(live)
    shard = shard_of(live, cell)
    (old, old_fence), (new, new_fence) = claimed(live, shard), claimed(live, shard)

    assert set(new.advance(REVERSE_GROUP, step_of(live, shard, new_fence))) == {shard}
    after = position(live, shard)
    assert old.advance(REVERSE_GROUP, step_of(live, shard, old_fence)) == {}
    assert position(live, shard) == after == offset(live, shard)[:2]


def test_a_position_that_is_ahead_of_its_offset_goes_back_to_it(live: Migration) -> None:
    """The worker was killed between the two, or the shard's server went back."""
    cell = free(live)
    shard = shard_of(live, cell)
    before = offset(live, shard)
    progress, _fence = claimed(live, shard)
    live.legacy.sql("UPDATE tripstore.applied SET added_id = added_id + 100 WHERE shard = %s", shard)

    told(progress.claim(REVERSE_GROUP, {shard: offset(live, shard).fence}))

    assert position(live, shard) == before[:2]


def test_i8_what_was_passed_by_another_row_than_the_one_in_force_moves_nothing(live: Migration) -> None:
    """A cell of Schemaless' own would pass for one that came from Postgres, by a row that is none any more."""
    cell = free(live)
    shard = shard_of(live, cell)
    before = position(live, shard)
    progress, fence = claimed(live, shard)
    row = live.duo.ports.control.authority()
    live.reverse_mirror._looked.note([shard], row.opened_at - 2)

    assert progress.advance(REVERSE_GROUP, step_of(live, shard, fence)) == {}
    assert position(live, shard) == before
    told(progress.claim(REVERSE_GROUP, {shard: fence}))
    live.reverse_mirror._looked.note([shard], row.opened_at)
    assert set(progress.advance(REVERSE_GROUP, step_of(live, shard, fence))) == {shard}
    assert position(live, shard) > before
    live.reverse_mirror._looked.note([shard], row.opened_at + 2)  # others were on their way meanwhile
    assert progress.advance(REVERSE_GROUP, step_of(live, shard, fence)) == {}


def test_a_process_of_the_version_before_moves_the_offset_alone_and_the_next_one_looks_again(live: Migration) -> None:
    """Upgrade side by side: nothing that only the offset says is believed."""
    cell = free(live)
    shard = shard_of(live, cell)
    offsets, fence = live.facade.store.triggers.offsets, offset(live, shard).fence
    told(offsets.advance(REVERSE_GROUP, step_of(live, shard, fence)))  # and it wrote nothing
    assert unmirrored(live) == 1

    serve(live.facade.store, live.reverse_mirror)

    assert unmirrored(live) == 0
    assert live.duo.legacy.get_cell(*cell.key) == cell
    assert offset(live, shard).fence > fence


def test_i1_a_worker_that_is_killed_before_the_offset_goes_back_leaves_that_to_the_next(
    live: Migration, failpoints: Path
) -> None:
    cell = free(live)
    shard = shard_of(live, cell)
    before = position(live, shard)
    live.carry()
    lose(live, cell, before)
    (failpoints / "reverse.before_reset").write_text("kill")
    with running([process(reverse_for_ever, live, failpoints)]):
        wait_until("it died", (failpoints / "reverse.before_reset.hit").exists)
    with reversing(live):
        wait_until("it is applied again", lambda: position(live, shard) > before)

    assert live.duo.legacy.get_cell(*cell.key) == cell


def test_i1_where_postgres_was_promoted_before_there_were_positions_each_cell_is_looked_at(
    live: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade on live: nothing proves that this Postgres has what the offsets say."""
    cell = free(live)
    shard = shard_of(live, cell)
    live.carry()
    lose(live, cell, position(live, shard))
    live.legacy.sql("DELETE FROM tripstore.applied")
    assert applied._BEGIN.count(" = 1 OR ") == 1
    monkeypatch.setattr(applied, "_BEGIN", applied._BEGIN.replace(" = 1 OR ", " = 0 OR "))

    live.carry()

    assert live.duo.legacy.get_cell(*cell.key) == cell
    assert position(live, shard) == offset(live, shard)[:2]


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.LIVE])
def test_a_store_of_the_version_before_begins_where_its_offsets_are(
    servers: LocalServers, stores: Stores, phase: Phase
) -> None:
    """This Postgres was never promoted, or is the authority: all that was passed came from there, or stands there."""
    with migration(servers, stores, triggers=QUICK) as made:
        made.phase(phase)
        cell = free(made)
        made.carry()
        serve(made.facade.store, made.reverse_mirror)
        made.legacy.sql("DELETE FROM tripstore.applied")
        shard, fence = shard_of(made, cell), 1_000
        told(progress_of(made).claim(REVERSE_GROUP, {shard: fence}))

        assert position(made, shard) == offset(made, shard)[:2]
        assert offset(made, shard).fence == fence
        assert different(made) == []
