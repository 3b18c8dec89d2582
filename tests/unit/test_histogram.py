"""Durations as counts per bucket: what is read off lies near the truth, and sums of sums are exact."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.control.ledgers.timings import BOUNDS, bucket_of, quantile

SECONDS = st.floats(min_value=BOUNDS[0] / 1e6, max_value=BOUNDS[-1] / 1e6)
MANY = st.lists(SECONDS, min_size=1, max_size=60)


def test_buckets_grow_by_a_quarter() -> None:
    steps = [high / low for low, high in pairwise(BOUNDS)]

    assert min(steps) > 1.24
    assert max(steps) < 1.29


@given(SECONDS)
def test_a_duration_is_in_the_first_bucket_that_holds_it(seconds: float) -> None:
    bound = bucket_of(seconds)

    assert seconds * 1e6 <= bound * (1 + 1e-9)
    assert bound == BOUNDS[0] or BOUNDS[BOUNDS.index(bound) - 1] < seconds * 1e6


def test_what_is_outside_counts_at_the_ends() -> None:
    assert bucket_of(0) == bucket_of(1e-9) == BOUNDS[0]
    assert bucket_of(1e9) == BOUNDS[-1]


@given(MANY, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_near_the_one_of_the_durations_themselves(durations: list[float], share: float) -> None:
    found = quantile(Counter(map(bucket_of, durations)), share)

    truth = sorted(durations)[max(0, ceil(share * len(durations)) - 1)]
    assert found is not None
    assert truth / 1.3 <= found <= truth * 1.3


@given(MANY, MANY)
def test_the_sum_of_two_histograms_is_that_of_all(some: list[float], others: list[float]) -> None:
    added = Counter(map(bucket_of, some)) + Counter(map(bucket_of, others))

    assert quantile(added, 0.9) == quantile(Counter(map(bucket_of, some + others)), 0.9)


def test_of_nothing_there_is_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({100: 0}, 0.5) is None
