"""A service rewrites a query: the first try is wrong, and found to be; the mended one is proven, and answers callers.

What a rider pays is a column that Postgres computes, so no cell has it: the rewrite has to know how.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tripstore.demo.commands import Commands
from tripstore.demo.company import row_keys
from tripstore.demo.legacy.models.trips import Trip
from tripstore.demo.migration import WAIT_SECONDS, wait_until
from tripstore.demo.playground import Playground
from tripstore.demo.report import StoryStep
from tripstore.engines.validation.reads import EXPERIMENT
from tripstore.engines.validation.verdicts import Outcome
from tripstore.store import TripStore
from tripstore.wiring import connect

FIRST, MENDED = "receipts.payable", "receipts.payable_with_tip"
#: Enough to see that it is wrong, and for the gate.
CALLS_FIRST, CALLS = 60, 320
#: Where a busy machine compares fewer of them, the query is called again.
ENOUGH, ROUNDS = 310, 5
#: What waits for its comparison grows old.
ROUND_CALLS = 40

Payable = Decimal | None


def rewrite_a_query(step: StoryStep, place: Playground, commands: Commands) -> None:
    """Callers get what the old query answers, until the new one is proven."""
    keys = row_keys(place.company)[:CALLS]
    with receipts(place) as service:
        found, is_right = service.ask(FIRST, without_tip, keys[:CALLS_FIRST])
    step.say(f"the first rewrite forgets tips: {found[Outcome.MISMATCH]} of {CALLS_FIRST} answers were others")
    step.check("its experiment finds a wrong rewrite", found[Outcome.MISMATCH] > 0, FIRST)
    step.check("no caller got its answers", is_right, f"{CALLS_FIRST} answers of the old query")
    refused = commands.run(f"tripstore experiment set {FIRST} --percent 100 --why 'the demo'", codes=(0, 4))
    step.check("it answers nothing", refused.code == 4, "`tripstore experiment set` refuses: it is not proven")
    commands.run(f"tripstore experiment set {FIRST} --retired --why 'it forgets tips'")
    compare_the_rewrite(step, place, keys)
    commands.run(f"tripstore experiment set {MENDED} --percent 100 --why 'proven'")
    with receipts(place) as service:
        wait_until("the rewrite answers callers", lambda: service.is_answered_by_rewrite(keys[0]))
    step.check("the mended one is proven, and answers", True, f"{MENDED}, all callers, without a deploy")


def compare_the_rewrite(step: StoryStep, place: Playground, keys: list[UUID] | None = None) -> None:
    """Of each of so many calls, whichever side answers it: the gate counts those since the last hand-over."""
    keys = row_keys(place.company)[:CALLS] if keys is None else keys
    with receipts(place) as service:
        for _round in range(ROUNDS):
            found, is_right = service.ask(MENDED, with_tip, keys)
            compared = found[Outcome.EQUAL] + found[Outcome.IN_FLIGHT]
            if compared >= ENOUGH or not is_right:
                break
    detail = f"{compared} compared, {found[Outcome.NOT_COMPARED]} not compared"
    step.check("the rewritten query answers as the old one", is_right and not found[Outcome.MISMATCH], detail)


def without_tip(body: Mapping[str, Any]) -> Payable:
    """As its author remembers the column."""
    return None if body.get("fare") is None else Decimal(body["fare"])


def with_tip(body: Mapping[str, Any]) -> Payable:
    """As Postgres computes it: fare_amount + coalesce(tip_amount, 0)."""
    fare = without_tip(body)
    return None if fare is None else fare + Decimal(body.get("tip") or 0)


class Receipts:
    """One process of the service that writes receipts."""

    def __init__(self, store: TripStore, engine: sa.Engine) -> None:
        self.store = store
        self._engine = engine

    def ask(
        self, name: str, rewrite: Callable[[Mapping[str, Any]], Payable], keys: Sequence[UUID]
    ) -> tuple[dict[Outcome, int], bool]:
        """What became of the comparisons, and whether each caller got what the tables say."""
        duo = self.store.facade.duo
        assert duo is not None
        duo.watch.look()
        payable = self.store.experiment(name, key=str)(self._in_sql)
        payable.candidate(lambda trip: self._in_cells(trip, rewrite))
        is_right = True
        for first in range(0, len(keys), ROUND_CALLS):
            for trip in keys[first : first + ROUND_CALLS]:
                is_right = payable(trip) == self._in_sql(trip) and is_right
            is_right = duo.shadow.drain(WAIT_SECONDS) and is_right
        found = {each: duo.tally.total(each, operation=f"{EXPERIMENT}{name}") for each in Outcome}
        return found, is_right

    def is_answered_by_rewrite(self, trip: UUID) -> bool:
        """Whether the rewrite was asked on this thread, its caller's."""
        asked_on = list[int]()

        def rewritten(trip: UUID) -> Payable:
            asked_on.append(threading.get_ident())
            return self._in_cells(trip, with_tip)

        payable = self.store.experiment(MENDED, key=str)(self._in_sql)
        payable.candidate(rewritten)
        return payable(trip) == self._in_sql(trip) and threading.get_ident() in asked_on

    def _in_sql(self, trip: UUID) -> Payable:
        with Session(self._engine) as session:
            wanted = sa.select(Trip.payable_amount).where(sa.text("trip_uuid = :trip"))
            return session.execute(wanted, {"trip": str(trip)}).scalar_one_or_none()  # it may be deleted by now

    def _in_cells(self, trip: UUID, rewrite: Callable[[Mapping[str, Any]], Payable]) -> Payable:
        found = self.store.get_cell_latest(trip, "BASE")
        body: Any = None if found is None else found.body
        return None if body is None else rewrite(body)


@contextmanager
def receipts(place: Playground) -> Iterator[Receipts]:
    """The service, as long as the block lasts."""
    engine = sa.create_engine(place.company.replace("postgresql://", "postgresql+psycopg2://"))
    try:
        with connect(place.config) as store:
            yield Receipts(store, engine)
    finally:
        engine.dispose()
