"""Ledgers on control databases of every engine, and that of shadow reads over them: exact, whatever happens between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from schemaless_core import ControlUnavailable, SchemaMissing
from schemaless_core.control.database import MIGRATIONS, ControlDatabase, newest_version
from schemaless_core.control.ledgers import ledgers as ledgers_module
from schemaless_core.control.ledgers.flushing import Flushing
from schemaless_core.control.ledgers.ledgers import LedgerBatch, Ledgers
from schemaless_core.control.tables import ledger_writer
from schemaless_core.failpoints import FailpointReached, use_folder
from tests.stores import Stores
from tripstore.engines.validation.compare import AnswerDifference, DifferenceClass
from tripstore.engines.validation.ignores import Ignore
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.shadow.ledger import KnownMismatch, OperationCounts, ShadowLedger, TallyFlush
from tripstore.engines.validation.verdicts import Outcome, Reason, Tally, Verdict

NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
Opener = Callable[[], ControlDatabase]


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Opener:
    return stores.control_opener(datastore_engine)


@pytest.fixture
def control(open_control: Opener) -> Iterator[ControlDatabase]:
    with closing(open_control()) as opened:
        yield opened


@pytest.fixture
def ledgers(control: ControlDatabase) -> Ledgers:
    return Ledgers(control)


def test_counts_add_up_by_name(ledgers: Ledgers) -> None:
    ledgers.add("shadow", {"equal": 3, "mismatch": 1, "nothing": 0}, NOON)
    ledgers.add("shadow", {"equal": 4}, NOON)
    ledgers.add("diff", {"equal": 100}, NOON)

    assert ledgers.counts("shadow") == {"equal": 7, "mismatch": 1}
    assert ledgers.counts("diff") == {"equal": 100}
    assert ledgers.counts("backfill") == {}


def test_names_are_told_apart_by_case_and_accent(ledgers: Ledgers) -> None:
    ledgers.add("shadow", {"base": 1, "BASE": 2, "bäse": 4}, NOON)

    assert ledgers.counts("shadow") == {"base": 1, "BASE": 2, "bäse": 4}


def test_a_sum_may_begin_at_an_hour(ledgers: Ledgers) -> None:
    for hours in range(4):
        ledgers.add("shadow", {"equal": 10**hours}, NOON + timedelta(hours=hours))

    assert ledgers.counts("shadow", NOON + timedelta(hours=2)) == {"equal": 1100}
    assert ledgers.counts("shadow", NOON + timedelta(hours=2, minutes=29)) == {"equal": 1100}
    assert ledgers.counts("shadow", NOON + timedelta(hours=9)) == {}


def test_many_who_add_at_once_lose_nothing(open_control: Opener, control: ControlDatabase) -> None:
    names = [f"name {number}" for number in range(5)]
    begin = threading.Barrier(4)
    failures: list[BaseException] = []

    def add() -> None:
        with closing(open_control()) as mine:
            begin.wait()
            try:
                for _ in range(10):
                    Ledgers(mine).add("shadow", dict.fromkeys(names, 1), NOON)
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    assert Ledgers(control).counts("shadow") == dict.fromkeys(names, 40)


def test_notes_are_kept_up_to_a_number_newest_first(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers_module, "NOTES_MAX", 3)
    ledgers.note("other", {"n": 0})
    for number in range(5):
        ledgers.note("shadow", {"n": number, "name": "Ærø"})

    assert [note.body for note in ledgers.notes("shadow")] == [{"n": n, "name": "Ærø"} for n in (4, 3, 2)]
    assert [note.body["n"] for note in ledgers.notes("shadow", 1)] == [4]
    assert [note.body["n"] for note in ledgers.notes("other")] == [0]


def test_a_batch_that_is_sent_again_counts_once(ledgers: Ledgers) -> None:
    for number in (1, 1, 2, 2, 1):
        ledgers.add("shadow", {"equal": 10}, NOON, notes=[{"n": number}], batch=LedgerBatch("me", number))
    ledgers.add("shadow", {"equal": 1}, NOON, batch=LedgerBatch("another", 1))

    assert ledgers.counts("shadow") == {"equal": 21}
    assert [note.body["n"] for note in ledgers.notes("shadow")] == [2, 1]


def test_control_without_a_batch_it_counts_twice(ledgers: Ledgers) -> None:
    for _ in range(2):
        ledgers.add("shadow", {"equal": 10}, NOON)

    assert ledgers.counts("shadow") == {"equal": 20}


def test_one_batch_sent_by_two_at_once_counts_once(open_control: Opener, control: ControlDatabase) -> None:
    begin = threading.Barrier(2)

    def send() -> None:
        with closing(open_control()) as mine:
            begin.wait()
            Ledgers(mine).add("shadow", {"equal": 10}, NOON, batch=LedgerBatch("me", 1))

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Ledgers(control).counts("shadow") == {"equal": 10}


def test_all_of_it_is_added_or_nothing(ledgers: Ledgers, failpoints: Path) -> None:
    (failpoints / "ledgers.added").write_text("raise")
    use_folder(failpoints)
    batch = LedgerBatch("me", 1)
    try:
        with pytest.raises(FailpointReached):
            ledgers.add("shadow", {"equal": 10}, NOON, notes=[{"n": 1}], batch=batch)
    finally:
        use_folder(None)

    assert ledgers.counts("shadow") == {}
    assert ledgers.notes("shadow") == []
    ledgers.add("shadow", {"equal": 10}, NOON, batch=batch)
    assert ledgers.counts("shadow") == {"equal": 10}


def test_writers_of_long_ago_are_forgotten(ledgers: Ledgers, control: ControlDatabase) -> None:
    for writer in ("old", "young"):
        ledgers.add("shadow", {"equal": 1}, NOON, batch=LedgerBatch(writer, 1))
    with control.begin() as connection:
        long_ago = sa.update(ledger_writer).where(ledger_writer.c.writer == "old").values(at="2020-01-01T00:00:00")
        connection.execute(long_ago)

    ledgers.add("shadow", {"equal": 1}, NOON, batch=LedgerBatch("new", 1))

    with control.begin() as connection:
        known = connection.execute(sa.select(ledger_writer.c.writer).order_by(ledger_writer.c.writer)).scalars()
        assert list(known) == ["new", "young"]


def test_without_its_tables_it_says_what_to_do(datastore_engine: str, stores: Stores) -> None:
    open_control = stores.control_opener(datastore_engine, has_tables=False)
    with closing(open_control()) as control, pytest.raises(SchemaMissing, match="schema apply"):
        Ledgers(control).counts("shadow")


def test_the_tables_can_be_taken_back_and_made_again(control: ControlDatabase) -> None:
    Ledgers(control).add("shadow", {"equal": 1}, NOON, notes=[{}])
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))

    with control.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")

    control.migrate()
    assert control.version() == newest_version()
    assert Ledgers(control).counts("shadow") == {}


# ---- the ledger of shadow reads -----------------------------------------------------------------------------------


def read(row_key: UUID | None = None) -> Read:
    return Read("get_cell_latest", {"row_key": row_key or uuid4(), "column_name": "BASE"})


def equal() -> Verdict:
    return Verdict(read(), Outcome.EQUAL)


def mismatch(path: str = "fare", row_key: UUID | None = None) -> Verdict:
    return Verdict(read(row_key), Outcome.MISMATCH, [AnswerDifference(DifferenceClass.FIELD, "BASE@3", path)])


class Unreliable(Ledgers):
    """Its answer may be lost, before or after it was done."""

    def __init__(self, control: ControlDatabase) -> None:
        super().__init__(control)
        self.losses: list[str] = []

    def add(
        self,
        ledger: str,
        counts: Mapping[str, int],
        hour: datetime,
        *,
        notes: Sequence[Mapping[str, Any]] = (),
        batch: LedgerBatch | None = None,
    ) -> None:
        loss = self.losses.pop(0) if self.losses else ""
        if loss != "before":
            super().add(ledger, counts, hour, notes=notes, batch=batch)
        if loss:
            raise ControlUnavailable(f"The answer was lost {loss} it was done.")


@pytest.fixture
def unreliable(control: ControlDatabase) -> Unreliable:
    return Unreliable(control)


def counted(ledger: ShadowLedger) -> dict[str, int]:
    (found,) = ledger.operations()
    return {"equal": found.equal, "mismatches": found.mismatches}


def test_what_was_compared_at_an_earlier_epoch_is_named_and_not_counted(ledgers: Ledgers) -> None:
    tally, ledger = Tally(), ShadowLedger(ledgers)
    for epoch, name in ((0, "get_row"), (2, "get_row"), (2, "get_cell"), (12, "get_cell")):
        tally.record(Verdict(Read(name, {}, epoch=epoch), Outcome.EQUAL))
    ledger.flush(tally)

    def equal_from(epoch: int) -> dict[str, int]:
        return {each.operation: each.equal for each in ledger.operations(epoch=epoch)}

    assert equal_from(0) == {"get_row": 2, "get_cell": 2}
    assert equal_from(2) == {"get_row": 1, "get_cell": 2}
    assert equal_from(4) == {"get_row": 0, "get_cell": 1}
    assert equal_from(13) == {"get_row": 0, "get_cell": 0}


def test_i12_a_sample_without_a_verdict_asks_for_nothing_after_the_next_hand_over(ledgers: Ledgers) -> None:
    """Two calls by hand of what one store cannot know wanted a hundred comparisons. The control: one had a verdict."""
    tally, ledger = Tally(), ShadowLedger(ledgers)
    for name in ("get_history", "get_row"):
        tally.record(Verdict(Read(name, {}, epoch=2), Outcome.NOT_COMPARED, reason=Reason.INCOMPARABLE))
    tally.record(Verdict(Read("get_row", {}, epoch=2), Outcome.EQUAL))
    ledger.flush(tally)

    assert [each.operation for each in ledger.operations(epoch=2)] == ["get_history", "get_row"]
    assert [each.operation for each in ledger.operations(epoch=4)] == ["get_row"]


def test_what_a_process_of_before_counted_without_an_epoch_is_of_the_first(ledgers: Ledgers) -> None:
    """Its hours stand for as long as they are evidence, and it may go on writing beside new processes."""
    of_before = ("get_row/equal/", "get_row/mismatch/field", "noise:get_row/equal/", "query_index:by_driver/equal/")
    ledgers.add("shadow", {**dict.fromkeys(of_before, 3), "4/get_row/equal/": 1}, NOON)
    ledger = ShadowLedger(ledgers)

    def counted_from(epoch: int) -> dict[str, tuple[int, int]]:
        return {each.operation: (each.equal, each.mismatches) for each in ledger.operations(epoch=epoch)}

    assert counted_from(0) == {"get_row": (4, 3), "query_index:by_driver": (3, 0)}
    assert counted_from(4) == {"get_row": (1, 0), "query_index:by_driver": (0, 0)}
    assert [(each.operation, each.equal) for each in ledger.noise()] == [("get_row", 3)]
    ((_hour, by_hour),) = ledger.hours().items()
    assert [(each.operation, each.equal) for each in by_hour] == [("get_row", 4), ("query_index:by_driver", 3)]


def test_what_all_processes_compared_is_read_back_by_operation(ledgers: Ledgers) -> None:
    for _process in range(2):
        tally, mine = Tally(), ShadowLedger(ledgers)
        for verdict in (
            equal(),
            Verdict(read(), Outcome.IN_FLIGHT),
            Verdict(read(), Outcome.IGNORED),
            mismatch(),
            Verdict(read(), Outcome.NOT_COMPARED, reason=Reason.QUEUE_FULL),
            Verdict(read(), Outcome.NOT_COMPARED, reason=Reason.BUSY),
            Verdict(Read("query_index", {"index": "by_driver"}), Outcome.NOT_COMPARED, reason=Reason.BUSY),
        ):
            tally.record(verdict)
        mine.flush(tally)

    gets, queries = ShadowLedger(ledgers).operations()

    assert gets == OperationCounts("get_cell_latest", 2, 2, 2, 2, {"field": 2}, {"busy": 2, "queue_full": 2})
    assert (gets.compared, gets.not_compared) == (6, 4), "I12: what is ignored is no comparison"
    assert queries.operation == "query_index:by_driver"
    assert (queries.compared, queries.equal, queries.not_compared) == (0, 0, 2), "I12: not compared is not equal"


def test_what_a_rule_ignored_is_counted_until_the_rule_ends(ledgers: Ledgers) -> None:
    """The first that ends of those that explain a read: without it the read would have been a mismatch."""
    rules = [Ignore("a trigger sets it", "billing", date(2026, 3, day), path="updated_at") for day in (20, 9)]
    tally = Tally()
    tally.record(Verdict(read(), Outcome.IGNORED, ignored_by=rules))
    tally.record(Verdict(read(), Outcome.IGNORED, ignored_by=rules[:1]))
    tally.record(equal())
    ShadowLedger(ledgers).flush(tally)

    def counted(day: int) -> tuple[int, int]:
        (found,) = ShadowLedger(ledgers, now=lambda: datetime(2026, 3, day, 23, 59, tzinfo=UTC)).operations()
        return found.ignored, found.compared

    assert [counted(day) for day in (8, 9, 19, 20)] == [(2, 1), (1, 1), (1, 1), (0, 1)]


def test_a_flush_writes_only_what_was_not_written_yet(ledgers: Ledgers) -> None:
    tally, ledger = Tally(), ShadowLedger(ledgers)
    for number in range(1, 4):
        tally.record(equal())
        tally.record(mismatch(f"path {number}"))
        ledger.flush(tally)
        ledger.flush(tally)
        assert counted(ledger) == {"equal": number, "mismatches": number}

    assert [each.path for each in ledger.mismatches()] == ["path 3", "path 2", "path 1"]


@pytest.mark.parametrize("losses", [["before"], ["after"], ["after", "before", "after"]])
def test_what_could_not_be_written_is_written_once_by_the_next_flush(unreliable: Unreliable, losses: list[str]) -> None:
    tally, ledger = Tally(), ShadowLedger(unreliable)
    unreliable.losses = list(losses)
    for _ in losses:
        tally.record(equal())
        tally.record(mismatch())
        with pytest.raises(ControlUnavailable):
            ledger.flush(tally)

    ledger.flush(tally)

    assert counted(ledger) == {"equal": len(losses), "mismatches": len(losses)}
    assert len(ledger.mismatches()) == len(losses)


def test_flushes_while_others_count_lose_nothing(ledgers: Ledgers) -> None:
    tally, ledger = Tally(), ShadowLedger(ledgers)
    is_over = threading.Event()

    def count() -> None:
        for number in range(300):
            tally.record(mismatch() if number % 30 == 0 else equal())

    def flush() -> None:
        while not is_over.is_set():
            ledger.flush(tally)

    counters = [threading.Thread(target=count) for _ in range(3)]
    flusher = threading.Thread(target=flush)
    for thread in (*counters, flusher):
        thread.start()
    for thread in counters:
        thread.join()
    is_over.set()
    flusher.join()
    ledger.flush(tally)

    assert counted(ledger) == {"equal": 870, "mismatches": 30}
    assert len(ledger.mismatches()) == 30


def test_a_fork_writes_what_it_counted_itself(ledgers: Ledgers) -> None:
    tally, ledger = Tally(), ShadowLedger(ledgers)
    tally.record(equal())
    ledger.flush(tally)

    tally.after_fork()
    ledger.after_fork()
    tally.record(equal())
    ledger.flush(tally)

    assert counted(ledger) == {"equal": 2, "mismatches": 0}


def test_a_mismatch_is_told_by_its_place_and_a_command_and_without_a_body(ledgers: Ledgers) -> None:
    tally = Tally(now=lambda: NOON)
    ledger = ShadowLedger(
        ledgers, command=lambda asked, _entry: f"tripstore cell get {asked.arguments['row_key']} BASE"
    )
    row_key = uuid4()
    tally.record(mismatch("fare." + "x" * 1000, row_key))
    ledger.flush(tally)

    (found,) = ledger.mismatches()

    assert found == KnownMismatch(
        NOON,
        "get_cell_latest",
        "field",
        "BASE@3",
        ("fare." + "x" * 1000)[:300],
        1,
        f"tripstore cell get {row_key} BASE",
    )


def test_the_rest_is_written_at_the_end_and_a_silent_database_is_borne(unreliable: Unreliable) -> None:
    """I10."""
    tally, ledger = Tally(), ShadowLedger(unreliable)
    unreliable.losses = ["before"]
    with ExitStack() as ends:
        flushing = Flushing(TallyFlush(ledger, tally), seconds=0.001)
        ends.callback(flushing.close)
        flushing.start()
        flushing.start()
        tally.record(equal())
        while unreliable.losses:
            pass
        tally.record(equal())

    assert counted(ledger) == {"equal": 2, "mismatches": 0}
