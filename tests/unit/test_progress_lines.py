"""Without a terminal progress is a line now and then, whether it is known how much there is or not."""

from __future__ import annotations

import pytest

from tripstore.cli.progress import INTERVAL_SECONDS, ProgressLines


def test_lines_come_once_per_interval_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    lines = ProgressLines("rows", clock=lambda: now)

    for done in (1, 2, 3):
        lines(done, 3_000)
    now = INTERVAL_SECONDS
    lines(1_500, 3_000)
    lines(3_000, 3_000)

    assert capsys.readouterr().err.splitlines() == ["rows: 1 of 3,000", "rows: 1,500 of 3,000", "rows: 3,000 of 3,000"]


def test_an_unknown_total_is_not_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines("rows", clock=lambda: 5.0)

    lines(1_234, None)
    lines(1_235, None)

    assert capsys.readouterr().err.splitlines() == ["rows: 1,234"]
