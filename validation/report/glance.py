"""The few numbers that stand above all tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tripstore.engines.validation.report import words
from tripstore.engines.validation.report.document import JobReport, LagNow, Report


class Figure(NamedTuple):
    """One number, and what it is of."""

    name: str
    figure: str
    note: str
    is_bad: bool = False


def glance(report: Report) -> list[Figure]:
    return [*_standing(report), *_compared(report), *_lag(report), *_jobs(report), *_open(report)]


def _standing(report: Report) -> Iterator[Figure]:
    found = report.standing
    if found is None:
        yield _unknown("Phase")
    else:
        yield Figure("Phase", found.phase, f"{found.authority} is the authority, epoch {found.epoch}")


def _compared(report: Report) -> Iterator[Figure]:
    highest = f"Highest mismatch rate ({words.percent(report.limits.confidence)} upper bound)"
    names = ("Reads compared", "Mismatches", highest)
    if not report.is_known("operations"):
        yield from map(_unknown, names)
        return
    compared = sum(each.compared for each in report.operations)
    mismatches = sum(each.mismatches for each in report.operations)
    skipped = sum(each.not_compared for each in report.operations)
    yield Figure(names[0], words.count(compared), f"{words.count(skipped)} sampled and not compared")
    yield Figure(names[1], words.count(mismatches), "of shadow reads", is_bad=mismatches > 0)
    known = [each for each in report.operations if each.is_comparable and each.compared]
    if known:
        worst = max(known, key=lambda each: each.rate_below)
        is_bad = worst.rate_below >= report.limits.mismatch_rate_max
        yield Figure(names[2], words.percent(worst.rate_below), worst.name, is_bad)
    else:
        yield Figure(names[2], "–", "nothing was compared", is_bad=True)


def _lag(report: Report) -> Iterator[Figure]:
    found: LagNow | None = next((each for each in report.lag_now if each.direction == _direction(report)), None)
    if found is None:
        yield _unknown("Mirror behind by")
        return
    is_bad = found.oldest_seconds > report.limits.lag_seconds_max
    note = f"{words.plural(found.changes, 'change')}, {found.direction}"
    yield Figure("Mirror behind by", words.duration(found.oldest_seconds), note, is_bad)


def _direction(report: Report) -> str:
    is_back = report.standing is not None and report.standing.authority == report.backends[-1]
    return "reverse" if is_back else "forward"


def _jobs(report: Report) -> Iterator[Figure]:
    for kind in ("backfill", "diff"):
        found = [job for job in report.jobs if job.kind == kind and not job.is_partial]
        if found:
            yield _job(kind, found[0])
        elif report.is_known("jobs"):
            yield Figure(kind.capitalize(), "none yet", "of all rows", is_bad=True)
        else:
            yield _unknown(kind.capitalize())


def _job(kind: str, job: JobReport) -> Figure:
    rows = words.plural(job.counts.get("rows", 0), "row")
    note = f"{rows}, {words.short_moment(job.begun_at)}"
    return Figure(kind.capitalize(), job.state, note, is_bad=job.state == "cancelled")


def _open(report: Report) -> Iterator[Figure]:
    found = report.waiting
    if found is None or not report.is_known("quarantine", "conflicts"):
        yield _unknown("Open conflicts and quarantined rows")
        return
    count = found.quarantine + found.conflicts
    note = f"{words.count(found.quarantine)} in quarantine, {words.plural(found.conflicts, 'conflict')}"
    yield Figure("Open conflicts and quarantined rows", words.count(count), note, is_bad=count > 0)


def _unknown(name: str) -> Figure:
    """The source did not answer: that is not 0 (I12)."""
    return Figure(name, "not known", "", is_bad=True)
