"""What walks by blocks leave behind: dropped by whatever begins or ends next, listed until then (decision 89)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from schemaless_core.failpoints import FailpointReached, use_folder
from tests.block_walks import left_in_postgres, walkable, walked
from tests.facades import Migration
from tests.legacy_databases import FLAVOURS
from tests.stores import Stores
from tripstore.backends.postgres.capture.unwanted import find_left
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.walk.moves import MoveNotes
from tripstore.backends.postgres.wire.connections import connected
from tripstore.cli.legacy.doctor import examine
from tripstore.engines.backfill.runner import Ending
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill import left_walks
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.left_walks import find_walks
from tripstore.migration.backfill.walk import BlockWalk, WalkKind

BY_KEYS, BY_BLOCKS = Wanted(walk=WalkKind.KEYS), Wanted(walk=WalkKind.BLOCKS)


@pytest.fixture(params=sorted(FLAVOURS))
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with walkable(servers, stores, request.param) as opened:
        yield opened


@pytest.fixture
def backfill(made: Migration) -> Backfill:
    return Backfill(made.facade)


def listed(made: Migration) -> list[str]:
    """What the doctor says of walks."""
    legacy = made.facade.config.legacy
    assert legacy is not None
    found = examine(legacy, (), lambda: None, find_walks=lambda: find_walks(made.facade.store.control))
    return [each.reason for each in found.complaints if "walk" in each.reason]


def noted(made: Migration, backfill: Backfill) -> MoveNotes:
    """What a command leaves that is killed before there is a job."""
    notes = MoveNotes.new()
    with connected(made.legacy.url, "test") as connection:
        notes.make(connection, backfill._layout)
    return notes


@pytest.mark.parametrize("next_one", [BY_KEYS, BY_BLOCKS], ids=["by keys", "by blocks"])
def test_of_a_job_that_was_cancelled_the_next_start_leaves_nothing(
    made: Migration, backfill: Backfill, next_one: Wanted
) -> None:
    """At once, and until then the doctor lists it. Of a job that goes on nothing is wrong."""
    first = backfill.begin(backfill.plan(BY_BLOCKS))
    with connected(made.legacy.url, "test") as connection:
        assert not find_left(connection, backfill._layout)
    assert listed(made) == []
    backfill.jobs.cancel("backfill", first.id)
    assert len(listed(made)) == 1
    of_first = set(left_in_postgres(made))
    assert of_first

    backfill.begin(backfill.plan(next_one))

    assert of_first & set(left_in_postgres(made)) == set()
    assert listed(made) == []


def test_what_has_no_job_is_kept_for_an_hour_and_then_listed_and_dropped(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that made it may be about to begin its job."""
    noted(made, backfill)
    backfill.begin(backfill.plan(BY_KEYS))
    assert left_in_postgres(made)
    assert listed(made) == []

    monkeypatch.setattr(left_walks, "FORGOTTEN_SECONDS", 0.0)

    assert len(listed(made)) == 1
    backfill.begin(backfill.plan(BY_KEYS))
    assert left_in_postgres(made) == []


def test_the_end_of_a_walk_drops_what_another_one_left(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = noted(made, backfill)

    def age(chunk: int) -> None:
        if chunk == 2:
            assert other.name in left_in_postgres(made)
            monkeypatch.setattr(left_walks, "FORGOTTEN_SECONDS", 0.0)

    walked(backfill, monkeypatch, age)

    assert left_in_postgres(made) == []


def test_a_walk_that_goes_on_is_left_alone(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = backfill.begin(backfill.plan(BY_BLOCKS))
    monkeypatch.setattr(left_walks, "FORGOTTEN_SECONDS", 0.0)
    of_first = set(left_in_postgres(made))

    walked(backfill, monkeypatch, lambda _: None)

    assert set(left_in_postgres(made)) == of_first
    assert backfill.runner(first, "w").run() is Ending.DONE
    assert left_in_postgres(made) == []


@pytest.mark.parametrize("point", ["walk.table_made", "walk.functions_dropped"])
def test_whatever_of_it_was_made_or_is_still_to_be_dropped_is_found(
    made: Migration, backfill: Backfill, failpoints: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A table that does not say of what it is would be found by nothing: it says so from its first moment."""
    (failpoints / point).write_text("raise")
    use_folder(failpoints)
    with suppress(FailpointReached), connected(made.legacy.url, "test") as connection:
        monkeypatch.setattr(MoveNotes, "drop", lambda *_: None)  # a process that was killed drops nothing
        notes = MoveNotes.new()
        notes.make(connection, backfill._layout)
        monkeypatch.undo()
        notes.drop(connection)
    monkeypatch.undo()
    use_folder(None)
    assert [name for name in left_in_postgres(made) if not name.startswith("S_")]
    monkeypatch.setattr(left_walks, "FORGOTTEN_SECONDS", 0.0)

    backfill.begin(backfill.plan(BY_KEYS))

    assert left_in_postgres(made) == []


def test_a_job_begins_though_nothing_can_be_cleared(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = backfill.plan(BY_KEYS)

    def silent(_: BlockWalk) -> None:
        raise LegacyUnavailable("It does not answer.", hint="")

    monkeypatch.setattr(BlockWalk, "_connected", silent)

    assert backfill.runner(backfill.begin(plan), "w").run() is Ending.DONE
