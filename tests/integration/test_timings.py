"""How long calls took, in a ledger: exact, whatever happens to a flush, and kept by the hour."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from schemaless_core import ControlUnavailable
from schemaless_core.config import parse_config
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.flushing import Flushing
from schemaless_core.control.ledgers.timings import TimingLedger
from tests.integration.test_ledgers import Unreliable

NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
GET, PUT = ("call", "get_cell", "postgres"), ("call", "put_cell", "postgres")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def ledgers(tmp_path: Path) -> Iterator[Unreliable]:
    document = {"datastore": "trips", "shards": 1, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}"}}}
    config = parse_config(document, tmp_path)
    with closing(ControlDatabase(config.control, config.datastore, config.tls, 5.0)) as control:
        control.migrate()
        yield Unreliable(control)


def answered(ledger: TimingLedger) -> int:
    found = ledger.total().get(GET)
    return 0 if found is None else found.answered


def test_processes_add_up_by_what_was_timed(ledgers: Unreliable) -> None:
    one, other = TimingLedger(ledgers), TimingLedger(ledgers)
    for ledger in (one, other):
        for milliseconds in (1, 2, 3, 4):
            ledger.count(GET, milliseconds / 1000)
        ledger.count_unanswered(GET)
        ledger.count(PUT, 1.0)
        ledger.flush()

    found = one.total()

    assert list(found) == [GET, PUT]
    assert (found[GET].answered, found[GET].unanswered) == (8, 2)
    assert found[GET].quantile(0.5) == pytest.approx(0.002, rel=0.3)
    assert found[PUT].quantile(1.0) == pytest.approx(1.0)


def test_what_got_no_answer_makes_nothing_look_fast(ledgers: Unreliable) -> None:
    ledger = TimingLedger(ledgers)
    ledger.count_unanswered(GET)
    ledger.flush()

    (found,) = ledger.total().values()

    assert (found.answered, found.unanswered, found.quantile(0.99)) == (0, 1, None)


def test_each_hour_is_kept_apart_and_a_sum_may_begin_at_one(ledgers: Unreliable) -> None:
    clock = Clock()
    ledger = TimingLedger(ledgers, clock)
    for _ in range(3):
        ledger.count(GET, 0.001)
        ledger.flush()
        clock.now += timedelta(hours=1)

    hours = ledger.hours(NOON + timedelta(hours=1))

    assert list(hours) == [NOON.replace(hour=hour, minute=0) for hour in (13, 14)]
    assert [each[GET].answered for each in hours.values()] == [1, 1]
    assert ledger.total(NOON + timedelta(hours=2))[GET].answered == 1


@pytest.mark.parametrize("losses", [["before"], ["after"], ["after", "before", "after"]])
def test_what_could_not_be_written_is_written_once_by_the_next_flush(ledgers: Unreliable, losses: list[str]) -> None:
    ledger = TimingLedger(ledgers)
    ledgers.losses = list(losses)
    for _ in losses:
        ledger.count(GET, 0.001)
        with pytest.raises(ControlUnavailable):
            ledger.flush()

    ledger.flush()
    ledger.flush()

    assert answered(ledger) == len(losses)


def test_i10_a_control_database_that_is_silent_delays_no_call_and_loses_nothing(ledgers: Unreliable) -> None:
    """A flush that hangs holds its own lock, not the one that callers pass."""
    ledger = TimingLedger(ledgers)
    hangs, may_go = threading.Event(), threading.Event()
    add = ledgers.add

    def hanging(*arguments: object, **options: object) -> None:
        hangs.set()
        assert may_go.wait(30)
        add(*arguments, **options)  # type: ignore[arg-type]  # passed on as it came

    ledgers.add = hanging  # type: ignore[method-assign]  # hangs once
    ledger.count(GET, 0.001)
    flush = threading.Thread(target=ledger.flush)
    flush.start()
    assert hangs.wait(30)

    ledger.count(GET, 0.001)  # would wait for ever, were there one lock
    may_go.set()
    flush.join(30)
    ledger.flush()

    assert answered(ledger) == 2


def test_many_threads_lose_nothing_while_others_flush(ledgers: Unreliable) -> None:
    ledger = TimingLedger(ledgers)
    is_over = threading.Event()

    def count() -> None:
        for _ in range(500):
            ledger.count(GET, 0.001)

    def flush() -> None:
        while not is_over.is_set():
            ledger.flush()

    flusher, counters = threading.Thread(target=flush), [threading.Thread(target=count) for _ in range(3)]
    for thread in (flusher, *counters):
        thread.start()
    for thread in counters:
        thread.join()
    is_over.set()
    flusher.join()
    ledger.flush()

    assert answered(ledger) == 1500


def test_a_fork_writes_what_it_counted_itself(ledgers: Unreliable) -> None:
    ledger = TimingLedger(ledgers)
    ledger.count(GET, 0.001)

    ledger.after_fork()
    ledger.count(GET, 0.001)
    ledger.flush()

    assert answered(ledger) == 1


def test_the_rest_is_written_at_the_end(ledgers: Unreliable) -> None:
    ledger = TimingLedger(ledgers)
    flushing = Flushing(ledger, seconds=3600)
    flushing.start()
    ledger.count(GET, 0.001)

    flushing.close()

    assert answered(ledger) == 1
