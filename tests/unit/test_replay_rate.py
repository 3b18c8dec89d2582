"""How fast the replayer goes: at the rate that it is given, whatever its rounds take."""

from __future__ import annotations

import pytest

from schemaless_core.buffers.replayer import rest_seconds


@pytest.mark.parametrize(
    ("took_seconds", "rest"),
    [(0.0, 0.1), (0.04, 0.06), (0.1, 0.0), (3.0, 0.0)],
    ids=["at once", "quickly", "as fast as it may", "slowly"],
)
def test_a_round_and_its_rest_take_as_long_as_the_rate_says(took_seconds: float, rest: float) -> None:
    assert rest_seconds(2_000, 20_000, took_seconds) == pytest.approx(rest)
