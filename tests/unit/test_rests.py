"""Rests while Postgres reads: how many there are follows from how quick it is, which a chunk without them tells."""

from __future__ import annotations

import re

import pytest

from tripstore.backends.postgres.cells.rests import CHUNKS_PER_SAMPLE, REST_SECONDS, SAMPLE_ROWS, Rests
from tripstore.handover.ports import Chunk

QUARTER = Chunk(rows=5_000, source_share=0.25)


def told(line_seconds: float) -> Rests:
    """Knows how long a line takes."""
    rests = Rests()
    rests.learn(rests.plan(QUARTER), 1_000, 1_000 * line_seconds)
    return rests


def rest_per_line(condition: str) -> tuple[float, float]:
    """How many lines there are to a rest, on average, and how long it is."""
    found = re.fullmatch(
        r" AND \(pg_catalog.random\(\) >= (\S+) OR pg_catalog.pg_sleep\((\S+)\) IS NOT NULL\)", condition
    )
    assert found is not None, condition
    return 1 / float(found[1]), float(found[2])


def test_without_a_limit_nothing_rests() -> None:
    rests = Rests()
    chunk = Chunk(rows=5_000)

    assert rests.plan(chunk) is chunk
    assert rests.condition(chunk) == ""
    assert rests.learn(chunk, 100, 0.5) == 0.5


def test_the_first_chunk_is_short_and_tells_how_quick_postgres_is() -> None:
    rests = Rests()

    first = rests.plan(QUARTER)

    assert (first.rows, first.source_share) == (SAMPLE_ROWS, 1.0)
    assert rests.condition(first) == ""
    assert rests.learn(first, 1_000, 0.02) == 0.02
    assert rests.plan(QUARTER) == QUARTER
    assert rests.condition(QUARTER) != ""


def test_a_first_chunk_without_a_line_tells_nothing_and_the_next_is_asked() -> None:
    rests = Rests()
    assert rests.learn(rests.plan(QUARTER), 0, 0.001) == 0.001

    assert rests.plan(QUARTER).rows == SAMPLE_ROWS


def test_it_is_asked_again_now_and_then() -> None:
    rests = told(0.00002)

    planned = [rests.plan(QUARTER) for _ in range(CHUNKS_PER_SAMPLE + 1)]

    assert planned == [QUARTER] * CHUNKS_PER_SAMPLE + [QUARTER._replace(rows=SAMPLE_ROWS, source_share=1.0)]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("line_seconds", [0.000002, 0.00002, 0.001])
def test_work_and_rests_together_have_the_share(line_seconds: float, share: float) -> None:
    lines, seconds = rest_per_line(told(line_seconds).condition(Chunk(source_share=share)))

    assert seconds >= REST_SECONDS * 0.999
    assert lines * line_seconds / (lines * line_seconds + seconds) == pytest.approx(share, rel=0.01)


def test_of_a_chunk_with_rests_only_the_work_counts() -> None:
    rests = told(0.00002)

    assert rests.learn(QUARTER, 5_000, 0.4) == pytest.approx(0.1)
    assert rests.learn(QUARTER, 5_000, 0.06) == 0.06
    assert rests.condition(QUARTER) == told(0.00002).condition(QUARTER)
