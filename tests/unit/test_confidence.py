"""How high a mismatch rate may be: held against the binomial distribution itself, summed term by term."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tripstore.engines.validation.confidence import comparisons_missing, upper_bound


def at_most(mismatches: int, compared: int, rate: float) -> float:
    """The chance of so few mismatches, the long way."""
    return sum(comb(compared, k) * rate**k * (1 - rate) ** (compared - k) for k in range(mismatches + 1))


@given(st.integers(1, 300), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_so_few_mismatches_would_be_a_rare_chance_at_the_bound(
    compared: int, data: st.DataObject, confidence: float
) -> None:
    mismatches = data.draw(st.integers(0, compared - 1))

    bound = upper_bound(mismatches, compared, confidence)

    assert mismatches / compared < bound < 1
    assert at_most(mismatches, compared, bound) == pytest.approx(1 - confidence, rel=1e-6)


def test_a_bound_that_promises_less_is_told_apart() -> None:
    """Wilson's, for no mismatch in 1000: the truth lies above it more often than it says."""
    z = 1.6448536269514722
    wilson = z * z / (1000 + z * z)

    assert at_most(0, 1000, wilson) > 0.067
    assert at_most(0, 1000, upper_bound(0, 1000)) == pytest.approx(0.05)


def test_without_a_mismatch_the_bound_is_that_of_the_closed_form() -> None:
    assert upper_bound(0, 2995) == pytest.approx(1 - 0.05 ** (1 / 2995), rel=1e-12)
    assert upper_bound(0, 10**12) == pytest.approx(3e-12, rel=0.01)


def test_nothing_compared_says_nothing() -> None:
    assert upper_bound(0, 0) == 1
    assert upper_bound(7, 7) == 1


def test_large_numbers_take_no_time() -> None:
    bound = upper_bound(100_000, 10_000_000)

    assert 0.01 < bound < 0.01006


@given(st.integers(0, 50), st.integers(0, 5_000), st.sampled_from([0.5, 0.01, 0.001]))
def test_so_many_more_are_enough_and_one_less_is_not(mismatches: int, equal: int, threshold: float) -> None:
    compared = mismatches + equal

    missing = comparisons_missing(mismatches, compared, threshold)

    assert upper_bound(mismatches, compared + missing) < threshold
    assert missing == 0 or upper_bound(mismatches, compared + missing - 1) >= threshold


def test_the_rule_of_three() -> None:
    assert comparisons_missing(0, 0, 0.001) == 2995
    assert comparisons_missing(0, 2000, 0.001) == 995
    assert comparisons_missing(1, 2995, 0.001) > 1700
