"""`Histogram`: how long something took, as counts per bucket: counts of many processes and hours add up exactly.

Ten buckets per power of ten, so that what is read off lies within an eighth of the truth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import exp, log

#: Upper ends in microseconds, from 0.05 ms to 28 hours; whatever took longer counts in the last one.
BOUNDS: tuple[int, ...] = tuple(
    round(step * 10**power)
    for power in range(1, 11)
    for step in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
    if step * 10**power >= 50
)
_PLACES: dict[int, int] = {bound: place for place, bound in enumerate(BOUNDS)}


def bucket_of(seconds: float) -> int:
    """The bucket's upper end, which is its name."""
    return BOUNDS[place_of(seconds)]


def place_of(seconds: float) -> int:
    """The bucket's place among all."""
    return bisect_left(BOUNDS, seconds * 1e6, 0, len(BOUNDS) - 1)


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration in seconds that this share of all did not exceed; None: there were none."""
    assert 0 <= share <= 1
    total = sum(counts.values())
    if not total:
        return None
    wanted, below = share * total, 0
    bound = BOUNDS[0]
    for bound in sorted(counts):
        inside = counts[bound]
        if inside and below + inside >= wanted:
            return _between(bound, max(0.0, wanted - below) / inside)
        below += inside
    return bound / 1e6


def _between(bound: int, share: float) -> float:
    """So far into a bucket. Durations spread over orders of magnitude: half-way is the geometric mean of its ends."""
    place = _PLACES[bound]
    low = BOUNDS[place - 1] if place else bound / 1.25
    return exp(log(low) + share * (log(bound) - log(low))) / 1e6
