"""The limit on blocks that are read: what a chunk costs is known afterwards, and paid for all the same."""

from __future__ import annotations

import pytest

from schemaless_core import ControlUnavailable
from tests.unit.clock import FakeClock
from tests.unit.throttles import MemoryPace, Silent
from tripstore.engines.backfill.block_limit import BLOCKS_PER_ROW_FIRST, TURN_SECONDS, BlockLimit
from tripstore.engines.backfill.throttle import Limit, Pause, RateLimit, Throttle, Throttles

RATE = 100


class Forgetful(BlockLimit):
    """The control: what was read beyond what was paid for is not owed."""

    def _settle(self, blocks_read: int) -> None:
        super()._settle(min(blocks_read, self._taken))


def read_in(seconds: float, limit: Throttle, clock: FakeClock, *, per_row: float, rows: int | None = None) -> int:
    """How many blocks are read in a time, by chunks that take no time, of rows that cost so much."""
    total, begun = 0, clock()
    while clock() - begun < seconds:
        wanted = rows or limit.leave.rows_max or 1
        if (pause := limit.take(wanted)) is not None:
            clock.advance(max(pause.seconds, 0.001))
            continue
        blocks = round(wanted * per_row)
        limit.copied(wanted, 0.0, blocks)
        total += blocks
        clock.advance(0.001)
    return total


@pytest.mark.parametrize("per_row", [0.02, 1.0, 7.0])
def test_a_limit_is_kept_whatever_rows_cost(per_row: float) -> None:
    clock = FakeClock()

    assert read_in(60, BlockLimit(RATE, MemoryPace(clock)), clock, per_row=per_row) == pytest.approx(6_000, rel=0.1)


@pytest.mark.parametrize(("kind", "is_kept"), [(BlockLimit, True), (Forgetful, False)], ids=["owed", "control"])
def test_what_was_read_beyond_what_was_paid_for_is_owed(kind: type[BlockLimit], *, is_kept: bool) -> None:
    """Rows whose cost comes and goes: each time it comes more is read than was believed."""
    clock = FakeClock()
    limit = kind(RATE, MemoryPace(clock))
    total, begun = 0, clock()
    while clock() - begun < 60:
        for per_row in (0.0, 0.0, 0.0, 0.0, 20.0):
            while (pause := limit.take(10)) is not None:
                clock.advance(pause.seconds)
            blocks = round(10 * per_row)
            limit.copied(10, 0.0, blocks)
            total += blocks

    assert (total <= 60 * RATE + 400) is is_kept, total


def test_workers_share_the_limit() -> None:
    clock = FakeClock()
    pace = MemoryPace(clock)
    limits = [BlockLimit(RATE, pace), BlockLimit(RATE, pace.join()), BlockLimit(RATE, pace.join())]
    total, begun = 0, clock()
    while clock() - begun < 60:
        for limit in limits:
            if limit.take(20) is None:
                limit.copied(20, 0.0, 40)
                total += 40
        clock.advance(0.01)

    assert total <= 60 * RATE + 3 * 80


def test_a_chunk_has_as_many_rows_as_may_be_read_in_a_turn() -> None:
    clock = FakeClock()
    limit = BlockLimit(RATE, MemoryPace(clock))
    assert limit.leave.rows_max == RATE * TURN_SECONDS / BLOCKS_PER_ROW_FIRST
    assert limit.take(10) is None
    limit.copied(10, 0.0, 50)

    assert limit.leave.rows_max == 10, "rows that cost more are believed at once"
    while limit.take(10) is not None:
        clock.advance(0.1)
    limit.copied(10, 0.0, 0)
    assert 10 < (limit.leave.rows_max or 0) < 20, "rows that cost less are believed slowly"


def test_the_reason_and_the_limit_are_named_and_while_turns_are_unknown_none_begins() -> None:
    clock = FakeClock()
    limit = BlockLimit(RATE, MemoryPace(clock))
    limit.take(200)

    assert limit.take(1) == Pause(2.0, "limit of 100 blocks/s that Postgres reads", Limit.BLOCKS)
    silent = BlockLimit(RATE, Silent())
    with pytest.raises(ControlUnavailable):
        silent.take(1)
    silent.copied(1, 0.0, 0)


def test_a_rate_is_given_back_when_blocks_do_not_let_the_chunk_begin() -> None:
    """Else each look would take of the rate again, and nothing would ever begin."""
    clock = FakeClock()
    rate, blocks = MemoryPace(clock), MemoryPace(clock)
    limits = Throttles([RateLimit(10, rate), BlockLimit(RATE, blocks)])
    other = blocks.join()
    other.take(500, RATE)

    for _ in range(40):
        pause = limits.take(10)
        assert pause is not None
        assert pause.limit is Limit.BLOCKS, "the rate lets it begin each time"
        clock.advance(0.1)
    clock.advance(2)
    assert limits.take(10) is None
