"""How high a rate may be when so many of so many comparisons differed: the upper end of an exact confidence interval.

Clopper and Pearson's bound keeps its word for every rate and number. That of Wilson does not where it matters here:
without a mismatch it answers 2.7 / n, and one time in fifteen rather than twenty the truth lies above that; the exact
one is 3.0 / n. Its only function that the standard library lacks, the binomial distribution's, is a short sum, so no
library for statistics is needed.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, expm1, inf, lgamma, log, log1p

CONFIDENCE = 0.95
#: Halvings of an interval: more than a float has bits.
_HALVINGS = 60


@lru_cache(4096)  # a report draws one for each hour and call, most of them of the same few numbers
def upper_bound(mismatches: int, compared: int, confidence: float = CONFIDENCE) -> float:
    """The rate that the true one exceeds with a probability of at most 1 - confidence; 1 when nothing was compared."""
    assert 0 <= mismatches <= max(compared, 0)
    assert 0 < confidence < 1
    if mismatches >= compared:
        return 1.0
    alpha = 1 - confidence
    if mismatches == 0:
        return -expm1(log(alpha) / compared)
    low, high = mismatches / compared, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _at_most(mismatches, compared, middle) > alpha:
            low = middle
        else:
            high = middle
    return high


def comparisons_missing(mismatches: int, compared: int, threshold: float, confidence: float = CONFIDENCE) -> int:
    """How many more comparisons bring the bound below a threshold, if all of them are equal."""
    assert 0 < threshold < 1
    if upper_bound(mismatches, compared, confidence) < threshold:
        return 0
    enough = max(compared, 1)
    while upper_bound(mismatches, enough, confidence) >= threshold:
        enough *= 2
    too_few = compared
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if upper_bound(mismatches, middle, confidence) < threshold:
            enough = middle
        else:
            too_few = middle
    return enough - compared


def _at_most(mismatches: int, compared: int, rate: float) -> float:
    """The probability of no more mismatches than these. Summed from the last term down: above the mean they fall."""
    if rate >= 1:
        return 0.0
    size = _log_chance(mismatches, compared, rate)
    term = total = 1.0
    for number in range(mismatches, 0, -1):
        term *= number * (1 - rate) / ((compared - number + 1) * rate)
        total += term
        if term < total * 1e-17:
            break
    return exp(size) * total if size > -inf else 0.0


def _log_chance(mismatches: int, compared: int, rate: float) -> float:
    others = compared - mismatches
    ways = lgamma(compared + 1) - lgamma(mismatches + 1) - lgamma(others + 1)
    return ways + mismatches * log(rate) + others * log1p(-rate)
