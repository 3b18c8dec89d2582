"""How many rows a chunk has: as many as fit into the time that a chunk is to take."""

from __future__ import annotations

import pytest

from tripstore.engines.backfill.chunks import GROWTH_MAX, ROWS_FIRST, ROWS_RESTING_MIN, SHARE_RESTING, ChunkSize


def after(chunks: ChunkSize, rate: float, times: int) -> int:
    """The size that is chosen when so many rows are copied in a second."""
    for _ in range(times):
        chunks.copied(chunks.rows, chunks.rows / rate)
    return chunks.rows


@pytest.mark.parametrize("rate", [3.0, 90.0, 20_000.0])
def test_a_chunk_comes_to_take_the_time_that_it_should(rate: float) -> None:
    assert after(ChunkSize(seconds=0.5), rate, 30) == pytest.approx(rate / 2, rel=0.34)


def test_one_whose_source_rests_takes_a_share_of_the_time_from_the_first_on() -> None:
    chunks = ChunkSize(seconds=2.0)
    assert after(chunks, 1_000, 30) == 2_000
    assert chunks.rows_of(is_resting=True) == 2_000 * SHARE_RESTING

    for _ in range(20):  # rests make it slower
        rows = chunks.rows_of(is_resting=True)
        chunks.copied(rows, rows / 400, is_resting=True)

    assert chunks.rows_of(is_resting=True) == pytest.approx(400 * 2 * SHARE_RESTING, abs=2)
    assert after(chunks, 1_000, 30) == pytest.approx(2_000, rel=0.01)


def test_one_whose_source_rests_is_worth_its_costs_however_much_there_is_beside_the_rows() -> None:
    chunks = ChunkSize(seconds=2.0)
    for _ in range(30):
        rows = chunks.rows_of(is_resting=True)
        chunks.copied(rows, 1.0 + rows / 400, is_resting=True)

    assert chunks.rows_of(is_resting=True) == ROWS_RESTING_MIN


def test_a_fixed_size_is_fixed_whether_the_source_rests_or_not() -> None:
    assert ChunkSize(7).rows_of(is_resting=True) == 7


def test_it_never_has_less_than_a_row_nor_more_than_it_may() -> None:
    assert after(ChunkSize(seconds=0.5), 0.01, 30) == 1
    assert after(ChunkSize(seconds=0.5, most=700), 1e9, 30) == 700


def test_it_grows_step_by_step() -> None:
    assert after(ChunkSize(seconds=0.5), 1e9, 1) == GROWTH_MAX * ROWS_FIRST


def test_it_follows_when_rows_become_slower() -> None:
    chunks = ChunkSize(seconds=0.5)
    fast = after(chunks, 10_000, 20)

    assert after(chunks, 1_000, 20) < fast / 5


def test_a_last_chunk_with_few_rows_says_nothing() -> None:
    chunks = ChunkSize(seconds=0.5)
    known = after(chunks, 10_000, 20)

    chunks.copied(1, 0.5)

    assert chunks.rows == known


def test_a_chunk_that_took_much_too_long_is_believed_at_once() -> None:
    """A load limit was set, say, and leaves a fiftieth of the time."""
    chunks = ChunkSize(seconds=0.5)
    after(chunks, 10_000, 20)

    assert after(chunks, 200, 1) == 100


def test_a_few_rows_that_took_long_were_looked_for_among_too_many() -> None:
    chunks = ChunkSize(seconds=0.5)
    known = after(chunks, 10_000, 20)

    chunks.copied(3, 4.0)
    assert chunks.rows == known // 2
    for _ in range(40):
        chunks.copied(0, 4.0)
    assert chunks.rows == ROWS_FIRST, "it would look at less and less, for ever"


def test_a_chunk_that_did_not_get_through_is_halved() -> None:
    chunks = ChunkSize(seconds=0.5)
    known = after(chunks, 10_000, 20)

    chunks.failed()

    assert chunks.rows == known // 2
    for _ in range(40):
        chunks.failed()
    assert chunks.rows == 1
    assert after(chunks, 10_000, 20) > 1000


def test_a_fixed_size_stays() -> None:
    chunks = ChunkSize(7)

    chunks.copied(7, 100.0)
    chunks.failed()

    assert chunks.rows == 7
