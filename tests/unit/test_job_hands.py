"""How many processes a command forks before it knows what there is to do."""

from __future__ import annotations

import pytest

from tripstore.cli.elsewhere.address import EngineAddress
from tripstore.cli.jobs.hands import spares_for

ENGINE = EngineAddress("dask", "scheduler", 8786)


@pytest.mark.parametrize(
    ("processes", "on", "is_left", "wanted"),
    [
        (4, None, False, 4),
        (1, None, False, 0),  # it works in the command's own
        (None, None, False, 0),
        (4, ENGINE, False, 0),  # tasks of an engine
        (4, None, True, 0),  # a dry run, or a job for others
    ],
)
def test_those_are_forked_that_will_work(
    processes: int | None, on: EngineAddress | None, is_left: bool, wanted: int
) -> None:
    assert spares_for(processes, on, is_left=is_left) == wanted
