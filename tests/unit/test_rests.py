"""Rests while Postgres reads: how many there are follows from how quick it is, which a chunk without them tells."""

from __future__ import annotations

import re

import pytest

from tripstore.backends.postgres.cells.rests import (
    CHUNK_SECONDS_MAX,
    CHUNKS_PER_SAMPLE,
    REST_SECONDS,
    SAMPLE_LINES_MIN,
    SAMPLE_ROWS,
    SAMPLES,
    Rests,
)
from tripstore.handover.ports import Chunk, Selection

QUARTER = Chunk(rows=3_000, source_share=0.25)
SAMPLE = QUARTER._replace(rows=SAMPLE_ROWS, source_share=1.0, is_sample=True)
LINE_SECONDS = 0.00002


def told(line_seconds: float = LINE_SECONDS, *, samples: int = SAMPLES) -> Rests:
    """Knows how long a line takes; of each row there are four."""
    rests = Rests()
    rests.plan(QUARTER)
    for _ in range(samples):
        rests.learn(SAMPLE, 250, 1_000, 1_000 * line_seconds)
    return rests


def lot(condition: str) -> tuple[float, float]:
    """How many lines there are to a rest, on average, and how long it is."""
    pattern = r" AND \(pg_catalog.random\(\) >= (\S+) OR pg_catalog.pg_sleep\((\S+)\) IS NOT NULL\)"
    found = re.fullmatch(pattern, condition)
    assert found is not None, condition
    return 1 / float(found[1]), float(found[2])


def test_without_a_limit_nothing_rests() -> None:
    rests = Rests()
    chunk = Chunk(rows=5_000)

    assert rests.plan(chunk) is chunk
    assert rests.condition(chunk) == ""
    assert rests.learn(chunk, 25, 100, 0.5) == 0.5


def test_the_first_chunk_is_short_and_tells_how_quick_postgres_is() -> None:
    rests = Rests()

    first = rests.plan(QUARTER)

    assert first == SAMPLE
    assert rests.condition(first) == ""
    assert rests.learn(first, 250, 1_000, 0.02) == 0.02
    assert rests.plan(QUARTER) == QUARTER
    assert rests.condition(QUARTER) != ""


@pytest.mark.parametrize("lines", [0, 1, SAMPLE_LINES_MIN - 1])
def test_a_few_lines_tell_nothing_and_the_next_chunk_is_asked(lines: int) -> None:
    rests = Rests()
    assert rests.learn(rests.plan(QUARTER), lines, lines, 0.9) == 0.9

    assert rests.plan(QUARTER) == SAMPLE


@pytest.mark.parametrize("rows", [20, SAMPLE_ROWS])
def test_a_chunk_that_was_to_be_short_anyway_tells_of_chunks_as_well(rows: int) -> None:
    """After failures chunks have few rows: they grow again."""
    planned = Rests().plan(QUARTER._replace(rows=rows))

    assert (planned.rows, planned.source_share, planned.is_sample) == (rows, 1.0, False)


def test_it_is_asked_again_now_and_then() -> None:
    rests = told()

    planned = [rests.plan(QUARTER) for _ in range(CHUNKS_PER_SAMPLE + 1)]

    assert planned == [QUARTER] * CHUNKS_PER_SAMPLE + [SAMPLE]


def test_one_sample_that_waited_for_somebody_is_not_believed() -> None:
    rests = told()

    rests.learn(SAMPLE, 250, 1_000, 0.9)

    assert rests.condition(QUARTER) == told().condition(QUARTER)


def test_other_columns_or_rows_are_asked_about_anew() -> None:
    rests = told()

    assert rests.plan(QUARTER._replace(selection=Selection(("BASE",)))).is_sample


@pytest.mark.parametrize("share", [0.02, 0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("line_seconds", [0.000002, 0.00002, 0.001])
def test_work_and_rests_together_have_the_share(line_seconds: float, share: float) -> None:
    lines, seconds = lot(told(line_seconds).condition(Chunk(source_share=share)))

    assert seconds >= REST_SECONDS * 0.999
    assert lines * line_seconds / (lines * line_seconds + seconds) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("share", [0.02, 0.25])
def test_however_low_the_share_a_chunk_ends_soon(share: float) -> None:
    planned = told().plan(Chunk(rows=1_000_000, source_share=share))

    assert planned.rows * 4 * LINE_SECONDS / share == pytest.approx(CHUNK_SECONDS_MAX, rel=0.01)
    assert told(10.0).plan(Chunk(rows=1_000_000, source_share=share)).rows == 1


def test_of_a_chunk_with_rests_only_the_work_counts() -> None:
    rests = told()
    expected = 5_000 * LINE_SECONDS

    assert rests.learn(QUARTER, 1_250, 5_000, 0.4) == pytest.approx(expected)
    assert rests.learn(QUARTER, 1_250, 5_000, 0.06) == 0.06
    assert rests.plan(QUARTER) == QUARTER


def test_a_postgres_that_became_slow_is_heard_of_at_once() -> None:
    rests = told()

    work = rests.learn(QUARTER, 1_250, 5_000, 2.3)

    assert work == pytest.approx(2.0, rel=0.01), "rests take 0.3 s"
    assert rests.plan(QUARTER) == SAMPLE
