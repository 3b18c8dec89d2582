"""A walk by blocks goes on while another Postgres is promoted, which lacks what changed on the one before (I12).

Which blocks were read of it is then worth nothing, and nothing in the promoted one tells: files, triggers and notes are
as they were when the walk began.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import psycopg2
import pytest

from tests.block_walks import (
    MOVE_BACK,
    fill,
    has_read_all_blocks,
    is_at_its_last_part,
    lacking,
    left_in_postgres,
    walked,
)
from tests.facades import Migration
from tests.standbys import FAILING_OVER, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.walk import moves
from tripstore.backends.postgres.walk.moves import MoveNotes
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.walk import BlockWalk, WalkKind
from tripstore.phase import Phase

#: By the chunk before which the first Postgres does it; the standby does not hear of it.
MOVED = {
    chunk: MOVE_BACK.format(table=table, rows=6)
    for chunk, table in {3: "attempts", 8: "notes_0", 12: "notes_1", 17: "trips"}.items()
}
LOST = {
    "a table that was written anew": {5: "VACUUM FULL trips"},
    "rows that moved to blocks that were read": MOVED,
}


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    options = {"parts": 6, "lease_seconds": 5.0, "patience_seconds": 30.0}
    with fail_over(servers, stores, request.param, backfill=options) as made:
        made.make_durable()
        made.pair.legacy.sql("DELETE FROM trips")
        fill(made.hands)
        made.hands.phase(Phase.DUALWRITE)
        made.follow()
        yield made


class Promoting:
    """Loses a Postgres, with what it did alone, before one of the last chunks of a walk."""

    def __init__(
        self, failing_over: FailingOver, backfill: Backfill, lost: Mapping[int, str], end_chunk: int | None
    ) -> None:
        self._failing_over = failing_over
        self._backfill = backfill
        self._lost = lost
        self._is_time = is_at_its_last_part if end_chunk is None else has_read_all_blocks
        self._end_chunks = [self._do_nothing] * (end_chunk or 0) + [self.lose]

    def __call__(self, chunk: int) -> None:
        pair = self._failing_over.pair
        if chunk == 0:
            pair.standby.catch_up()
            cut_off(pair.standby)
        if (deed := self._lost.get(chunk)) is not None:
            pair.legacy.sql(deed)
        if self._end_chunks and self._is_time(self._backfill):
            self._end_chunks.pop(0)()

    @property
    def is_done(self) -> bool:
        return not self._end_chunks

    def lose(self) -> None:
        self._failing_over.lose_the_primary()

    @staticmethod
    def _do_nothing() -> None:
        """An earlier chunk of the end, of the first Postgres."""


def promoted(failing_over: FailingOver) -> Migration:
    """The migration as services see it afterwards."""
    legacy = copy.copy(failing_over.pair.legacy)
    legacy.url = failing_over.pair.url
    return Migration(failing_over.store, legacy, failing_over.document)


@pytest.mark.parametrize(
    "end_chunk", [0, 1, None], ids=["before the end", "when the end had looked", "at the very last"]
)
@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_i12_on_a_promoted_postgres_everything_is_read_again(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch, lost: Mapping[int, str], end_chunk: int | None
) -> None:
    """Also if notes were kept there: a promotion empties them, which would tell as well."""
    monkeypatch.setattr(MoveNotes, "are_kept", lambda *_: True)
    backfill = Backfill(failing_over.store.facade)
    promoting = Promoting(failing_over, backfill, lost, end_chunk)

    job = walked(backfill, monkeypatch, promoting)

    assert promoting.is_done
    assert lacking(promoted(failing_over)) == set()
    assert left_in_postgres(promoted(failing_over)) == []
    assert backfill.jobs.findings(job.id) == []


class Crashing(Promoting):
    """Postgres crashes before one of the last chunks, and is back."""

    def lose(self) -> None:
        self._failing_over.pair.primary.kill()
        self._failing_over.pair.primary.start()


@pytest.mark.parametrize("end_chunk", [0, 1], ids=["before the end", "when the end had looked"])
def test_i12_after_a_crash_which_empties_the_notes_everything_is_read_again(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch, end_chunk: int
) -> None:
    backfill = Backfill(failing_over.store.facade)
    crashing = Crashing(failing_over, backfill, MOVED, end_chunk)

    walked(backfill, monkeypatch, crashing)

    assert crashing.is_done
    assert lacking(failing_over.hands) == set()


def test_i12_control_notes_that_a_crash_emptied_look_like_no_moves(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MoveNotes, "are_kept", lambda *_: True)
    backfill = Backfill(failing_over.store.facade)

    walked(backfill, monkeypatch, Crashing(failing_over, backfill, MOVED, 0))

    assert lacking(failing_over.hands)


def write(failing_over: FailingOver) -> None:
    """A service moves rows to other blocks while a walk goes on that began on another server."""
    backfill = Backfill(failing_over.store.facade)
    backfill.begin(backfill.plan(Wanted(walk=WalkKind.BLOCKS)))
    failing_over.pair.standby.catch_up()
    failing_over.lose_the_primary()
    made = promoted(failing_over)
    assert left_in_postgres(made)
    made.legacy.sql("UPDATE trips SET memo = repeat('n', 900)")


def test_i10_on_a_promoted_postgres_services_write_as_before(failing_over: FailingOver) -> None:
    write(failing_over)


def test_i10_control_with_a_sequence_that_is_not_logged_each_move_would_be_an_error(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Postgres makes it for a serial column of a table that is not, since version 15."""
    monkeypatch.setattr(moves, "_TABLE", moves._TABLE.replace("CREATE SEQUENCE", "CREATE UNLOGGED SEQUENCE"))

    with pytest.raises(psycopg2.Error):
        write(failing_over)


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_i12_control_without_a_look_at_which_postgres_it_is_rows_are_missed(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch, lost: Mapping[int, str]
) -> None:
    monkeypatch.setattr(MoveNotes, "are_kept", lambda *_: True)
    monkeypatch.setattr(BlockWalk, "_of_one_server", lambda _self, _connection, _record, portion: portion)
    backfill = Backfill(failing_over.store.facade)

    walked(backfill, monkeypatch, Promoting(failing_over, backfill, lost, 0))

    assert lacking(promoted(failing_over))
