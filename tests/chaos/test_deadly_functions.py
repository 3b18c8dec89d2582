"""A function that kills its process: its cell is found, set aside, and the others go on (I7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.triggers.deaths import CLAIMS_MAX
from tests.chaos.actors import end, wait_until
from tests.chaos.deadly_actors import GROUP, POISON, serve
from tests.crew import quick
from tests.forking import FORK_SERVER
from tests.stores import Stores

BODIES = ["a", "b", POISON, "c", "d"]
PLACE = BODIES.index(POISON) + 1
ATTEMPTS = 3
#: Before it is known where to look, and then one for each attempt that is noted.
DEATHS_MAX = CLAIMS_MAX + ATTEMPTS
NEVER = 1_000


class Crew:
    """One worker at a time, begun again whenever its process died, as a fleet does it."""

    def __init__(self, store: Datastore, config: Mapping[str, Any], called: Path) -> None:
        self.store = store
        self.deaths = 0
        self._config = config
        self._called = called
        self._process: BaseProcess | None = None

    def work(self, *, claims_max: int = CLAIMS_MAX, deaths_max: int = DEATHS_MAX, threads: int = 1) -> None:
        """Until all that can be delivered is, or so many processes died."""
        wait_until("all is delivered", lambda: self._is_over(claims_max, deaths_max, threads), 60)

    @property
    def calls(self) -> Counter[str]:
        return Counter(self._called.read_text().split())

    @property
    def parked(self) -> list[tuple[int, int]]:
        return [(row.added_id, row.attempts) for row in self.store.triggers.parked(GROUP)]

    def end(self) -> None:
        if self._process is not None:
            end(self._process)

    def _is_over(self, claims_max: int, deaths_max: int, threads: int) -> bool:
        if self._process is None or not self._process.is_alive():
            self.deaths += self._process is not None
            if self.deaths >= deaths_max:
                return True
            arguments = (self._config, str(self._called), claims_max, threads)
            self._process = FORK_SERVER.Process(target=serve, args=arguments, daemon=True)
            self._process.start()
        if GROUP not in self.store.triggers.coordinator.groups():
            return False
        (status,) = self.store.triggers.status(GROUP)
        return status.lag_cells == 0 and status.unknown == 0


@contextmanager
def a_crew(engine: str, stores: Stores, called: Path) -> Iterator[Crew]:
    config = stores.config(engine, shards=1, triggers=quick(lease_seconds=0.45, retry_seconds=60.0))
    with Datastore.open(config) as store:
        store.create_schema()
        store.put_cells([Cell(uuid4(), "BASE", 1, body) for body in BODIES])
        made = Crew(store, config, called)
        try:
            yield made
        finally:
            made.end()


@pytest.fixture
def crew(datastore_engine: str, stores: Stores, tmp_path: Path) -> Iterator[Crew]:
    with a_crew(datastore_engine, stores, tmp_path / "called") as made:
        yield made


@pytest.fixture
def one_crew(stores: Stores, tmp_path: Path) -> Iterator[Crew]:
    """What does not depend on the engine is tried with one."""
    with a_crew("sqlite", stores, tmp_path / "called") as made:
        yield made


def test_i7_its_cell_is_parked_after_the_usual_attempts_and_all_others_are_delivered(crew: Crew) -> None:
    crew.work()

    assert crew.deaths <= DEATHS_MAX
    assert crew.parked == [(PLACE, ATTEMPTS)]
    assert set(crew.calls) == set(BODIES)
    [row] = crew.store.triggers.parked(GROUP)
    assert "the process of the function ended during 3 calls for this cell" in row.error

    # One more attempt ends one more process, and waits for its time then.
    died = crew.deaths
    crew.store.triggers.retry(GROUP)
    wait_until("another attempt is counted", lambda: crew.parked == [(PLACE, ATTEMPTS + 1)])
    crew.store.put_cell(uuid4(), "BASE", 1, "e")
    crew.work(deaths_max=died + 2)
    assert crew.deaths == died + 1
    assert crew.calls["e"] == 1


def test_control_where_no_claim_is_counted_it_is_called_for_ever(one_crew: Crew) -> None:
    one_crew.work(claims_max=NEVER)
    assert one_crew.deaths == DEATHS_MAX
    assert one_crew.parked == []
    assert "d" not in one_crew.calls


def test_i7_threads_note_their_calls_too(one_crew: Crew) -> None:
    one_crew.work(threads=2)
    assert one_crew.parked == [(PLACE, ATTEMPTS)]
    assert set(one_crew.calls) == set(BODIES)
