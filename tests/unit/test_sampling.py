"""Which reads are compared: a share, within a budget, and of each operation a few."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tripstore.engines.validation.shadow.sampling import InvalidSampling, Sampler, SamplingSettings


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(settings: SamplingSettings, reads: int, seconds: float, operations: dict[str, float]) -> dict[str, int]:
    """How many of so many reads in a time are taken, of operations with these shares of the traffic."""
    clock, chance = Clock(), random.Random(7)
    sampler = Sampler(settings, clock, chance.random)
    counts = dict.fromkeys(operations, 0)
    names, weights = list(operations), list(operations.values())
    for name in chance.choices(names, weights, k=reads):
        clock.now += seconds / reads
        counts[name] += sampler.takes(name)
    return counts


def test_a_share_is_taken() -> None:
    counts = taken(SamplingSettings(share=0.1, per_second=1e9, least_per_second=0), 20_000, 10, {"get": 1})
    assert 1_800 < counts["get"] < 2_200


def test_no_more_is_taken_than_the_budget_allows() -> None:
    counts = taken(SamplingSettings(share=1, per_second=50), 20_000, 10, {"get": 1})
    assert 500 <= counts["get"] <= 551


def test_a_rare_operation_is_not_left_out() -> None:
    settings = SamplingSettings(share=0.001, per_second=200, least_per_second=1)
    counts = taken(settings, 100_000, 100, {"get": 0.999, "history": 0.001})
    assert counts["history"] > 30
    without = taken(
        SamplingSettings(share=0.001, per_second=200, least_per_second=0),
        100_000,
        100,
        {"get": 0.999, "history": 0.001},
    )
    assert without["history"] < 5


def test_a_rare_operation_has_its_share_of_a_budget_that_others_want() -> None:
    """At 10,000 reads a second, the budget is always spent."""
    settings = SamplingSettings(share=0.1, per_second=200, least_per_second=1)
    counts = taken(settings, 300_000, 30, {"get": 0.9999, "history": 0.0001})
    assert counts["history"] > 12
    assert counts["get"] < 200 * 31


def test_everything_is_taken_without_bounds() -> None:
    settings = SamplingSettings(share=1, per_second=float("inf"))
    assert taken(settings, 1_000, 0.001, {"get": 1}) == {"get": 1_000}


def test_everything_is_taken_by_all_who_ask_at_once() -> None:
    sampler = Sampler(SamplingSettings(share=1, per_second=float("inf")))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            taken = list(threads.map(lambda _n: all(sampler.takes("get") for _ in range(5_000)), range(4)))
    finally:
        sys.setswitchinterval(interval)

    assert taken == [True] * 4


def test_a_share_of_next_to_nothing_takes_next_to_nothing() -> None:
    counts = taken(SamplingSettings(share=5e-324, per_second=1e9, least_per_second=0), 1_000, 10, {"get": 1})
    assert counts == {"get": 0}


@pytest.mark.parametrize("settings", [SamplingSettings(share=0), SamplingSettings(per_second=0)])
def test_nothing_is_taken_where_nothing_is_allowed(settings: SamplingSettings) -> None:
    assert taken(settings, 1_000, 10, {"get": 1}) == {"get": 0}


@pytest.mark.parametrize("wrong", [{"share": 1.1}, {"share": -0.1}, {"per_second": -1}, {"least_per_second": -1}])
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSampling):
        SamplingSettings(**wrong)
