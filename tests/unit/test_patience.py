"""How a caller waits for a hand-over: less and less often, and not for ever."""

from __future__ import annotations

import time

import pytest

from schemaless_core.errors import Unavailable
from tripstore.facade.calls import GROWTH, PAUSE_SECONDS_MAX, _Patience
from tripstore.handover.call import ASK

FIRST_SECONDS = 0.005


def test_pauses_grow_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    waiting = _Patience(60.0)

    for _ in range(12):
        waiting.sleep(FIRST_SECONDS)

    wanted = [min(FIRST_SECONDS * GROWTH**n, PAUSE_SECONDS_MAX) for n in range(12)]
    assert wanted[-1] == PAUSE_SECONDS_MAX
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, wanted, strict=True)), pauses


def test_a_caller_that_has_waited_long_enough_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waiting = _Patience(2.0)

    now = 101.9
    waiting(ASK)
    now = 102.1
    with pytest.raises(Unavailable, match="the authority does not open"):
        waiting(ASK)
