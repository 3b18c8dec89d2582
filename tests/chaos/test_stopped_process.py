"""A process that was stopped across a hand-over asks no store that is not the authority any more (I9), and goes on.

It is stopped right before its packet is sent, inside its transaction, and between a read's snapshot and its answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, Json, PutResult
from tests.chaos.actors import wait_until
from tests.chaos.switch_actors import Service, ServiceRaised
from tests.chaos.switch_rules import authority_of_shards, change_at
from tests.facades import Migration, migration
from tests.scale import SCALE
from tests.stores import SERVER_ENGINES, Stores
from tripstore.handover.authority import Backend
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

ENGINES = SERVER_ENGINES if SCALE >= 1 else SERVER_ENGINES[:1]
#: Of the service: a transaction of its that is silent for longer is ended by the server.
IDLE_SECONDS = 2.0

OLD: Json = {"status": "old"}
NEW: Json = {"status": "new"}
LATE: Json = {"status": "late"}


class Case(NamedTuple):
    """Where a process stops, while who is the authority, at what."""

    backend: Backend
    point: str
    operation: str

    def __str__(self) -> str:
        return f"{self.backend.value}-{self.operation}-{self.point}"


def cases(backend: Backend, **points: str) -> list[Case]:
    return [Case(backend, point, operation) for operation, of in points.items() for point in of.split()]


READS = [
    *cases(
        Backend.LEGACY,
        get_cell_latest="call.ask",
        get_cell="read.before_gate",
        get_row="call.ask",
        get_history="call.ask read.before_gate",
        get_cells_latest="call.ask",
    ),
    *cases(Backend.STORE, get_cell_latest="call.ask", get_row="call.ask", get_history="call.ask"),
]
WRITES = [
    *cases(Backend.LEGACY, put_cell="call.ask", append_cell="call.ask", put_cells="call.ask"),
    *cases(
        Backend.STORE,
        put_cell="call.ask put.before_send",
        append_cell="put.before_send",
        put_cells="batch.before_send",
    ),
]


@pytest.fixture(scope="module", params=ENGINES)
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """All tests hand authority to and fro."""
    with migration(servers, stores, engine=request.param) as made:
        made.phase(Phase.DUALWRITE)
        yield made


class Stopped(NamedTuple):
    """A service, and where its failpoints are."""

    moving: Migration
    service: Service


@pytest.fixture(scope="module")
def stopped(moving: Migration, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    with closing(_service(moving, tmp_path_factory.mktemp("failpoints"))) as service:
        yield Stopped(moving, service)


def _service(moving: Migration, failpoints: Path, sabotage: str = "") -> Service:
    legacy = {**moving.document["legacy"], "idle_transaction_seconds": IDLE_SECONDS}
    return Service({**moving.document, "legacy": legacy}, failpoints, sabotage)


def stop_at(stopped: Stopped, case: Case, row_key: UUID) -> None:
    """The service knows who is the authority, begins, and is stopped."""
    moving, service = stopped
    service.pass_all()
    moving.phase(Phase.DUALWRITE if case.backend is Backend.LEGACY else Phase.LIVE)
    service.look()
    service.call("get_row", uuid4())
    service.call("put_cell", row_key, "BASE", 1, OLD)
    moving.carry()
    service.stop_at(case.point)
    service.begin(case.operation, *_arguments(case.operation, row_key))
    service.wait_until_stopped(case.point)


def _arguments(operation: str, row_key: UUID) -> tuple[Any, ...]:
    cells = [Cell(row_key, "FREE", 1, LATE), Cell(row_key, "BASE", 3, LATE)]
    return {
        "get_cell": (row_key, "BASE", 2),
        "get_row": (row_key,),
        "get_cells_latest": ([(row_key, "BASE"), (row_key, "FREE")],),
        "put_cell": (row_key, "BASE", 3, LATE),
        "append_cell": (row_key, "BASE", LATE),
        "put_cells": (cells,),
    }.get(operation, (row_key, "BASE"))


def hand_over(moving: Migration, row_key: UUID, times: int) -> None:
    """To the other store, which gets a new version of the row; and back."""
    moving.duo.watch.look()
    for number in range(times):
        is_forward = moving.duo.ports.control.authority().backend is Backend.LEGACY
        moving.switch() if is_forward else moving.reverse()
        if number == 0:
            moving.store.put_cell(row_key, "BASE", 2, NEW)


def latest(answer: Any) -> Any:
    """What a read said of the row's column BASE."""
    if isinstance(answer, dict):
        answer = answer.get("BASE")
    if isinstance(answer, list):
        answer = answer[0]
    return None if answer is None else answer.body


@pytest.mark.parametrize("times", [1, 2], ids=["switch", "there and back"])
@pytest.mark.parametrize("case", READS, ids=str)
def test_i9_a_read_of_a_stopped_process_is_answered_by_the_authority_of_now(
    stopped: Stopped, case: Case, times: int
) -> None:
    row_key = uuid4()
    stop_at(stopped, case, row_key)
    hand_over(stopped.moving, row_key, times)
    stopped.service.go_on()

    assert latest(stopped.service.result()) == NEW


@pytest.mark.parametrize("times", [0, 1, 2], ids=["no switch", "switch", "there and back"])
@pytest.mark.parametrize("point", ["cohort.ask", "cohort.answered"])
@pytest.mark.parametrize("backend", Backend)
def test_i9_a_cohorts_read_of_a_stopped_process_is_answered_by_the_authority_of_now(
    stopped: Stopped, backend: Backend, point: str, times: int
) -> None:
    """No store refuses it: the mirror was close when the read began, but may be late by now."""
    moving, row_key = stopped.moving, uuid4()
    stop_in_cohort_at(stopped, backend, point, row_key)
    stopped_at, seconds = time.monotonic(), moving.facade.config.mirror.cohort_seconds
    hand_over(moving, row_key, times)
    moving.store.put_cell(row_key, "BASE", 3, LATE)
    wait_until("it was stopped for longer than it may take", lambda: time.monotonic() - stopped_at > seconds)
    stopped.service.go_on()

    assert latest(stopped.service.result()) == LATE


def stop_in_cohort_at(stopped: Stopped, backend: Backend, point: str, row_key: UUID) -> None:
    """The mirror has what the service wrote, and the service has seen so: it reads from there."""
    moving, service = stopped
    service.pass_all()
    moving.phase(Phase.SHADOW if backend is Backend.LEGACY else Phase.LIVE, 100.0)
    service.look()
    service.call("put_cell", row_key, "BASE", 1, OLD)
    moving.carry()
    service.stop_at(point)

    def is_stopped() -> bool:
        service.begin("get_cell_latest", row_key, "BASE")
        wait_until("it stopped or answered", lambda: service.has_met(point) or service.has_answered(0.0), 20)
        return service.has_met(point)

    wait_until("it reads from the mirror", is_stopped, 20)
    service.wait_until_stopped(point)


@pytest.mark.parametrize("times", [1, 2], ids=["switch", "there and back"])
@pytest.mark.parametrize("case", WRITES, ids=str)
def test_i9_a_write_of_a_stopped_process_goes_to_the_authority_of_now(stopped: Stopped, case: Case, times: int) -> None:
    moving, row_key = stopped.moving, uuid4()
    stop_at(stopped, case, row_key)
    hand_over(moving, row_key, times)
    stopped.service.go_on()
    answer = stopped.service.result()
    results: list[PutResult] = answer if isinstance(answer, list) else [answer]

    authority = moving.duo.ports.control.authority().backend
    assert holders(moving, row_key, 3) == {authority}
    assert {result.ref_key for result in results} >= {3}
    for result in results:
        assert_epoch(moving, row_key, result)
    moving.carry()
    histories = [store.get_history(row_key, "BASE") for store in (moving.duo.legacy, moving.facade.store)]
    assert [cell.ref_key for cell in histories[0]] == [3, 2, 1]
    assert histories[0] == histories[1]


def holders(moving: Migration, row_key: UUID, ref_key: int) -> set[Backend]:
    """Who has the cell, whatever it is an authority of."""
    stores: dict[Backend, CellStore] = {Backend.LEGACY: moving.duo.legacy, Backend.STORE: moving.facade.store}
    return {backend for backend, store in stores.items() if store.get_cell(row_key, "BASE", ref_key) is not None}


def assert_epoch(moving: Migration, row_key: UUID, result: PutResult) -> None:
    """It was stored while the row said what it says now."""
    row = moving.duo.ports.control.authority()
    if row.backend is Backend.LEGACY:
        assert result.epoch == row.epoch
        return
    assert result.added_id is not None
    store = moving.facade.store
    given = change_at(authority_of_shards(store)[result.shard], result.added_id)
    assert (given.authority_epoch, given.state) == (row.epoch, "RW")


@pytest.mark.parametrize("point", ["put.updated", "put.before_commit"])
def test_a_process_stopped_inside_its_transaction_is_waited_for_and_then_ended(stopped: Stopped, point: str) -> None:
    moving, row_key = stopped.moving, uuid4()
    stop_at(stopped, Case(Backend.LEGACY, point, "put_cell"), row_key)
    refused = run(switch(moving.duo.ports, "too early"))
    assert (refused.is_decided, refused.authority.is_open) == (False, True)

    wait_until("the server ended it", lambda: run(switch(moving.duo.ports, "later")).is_decided, 10 * IDLE_SECONDS)
    moving.duo.watch.look()
    moving.store.put_cell(row_key, "BASE", 2, NEW)
    stopped.service.go_on()
    result: PutResult = stopped.service.result()

    assert holders(moving, row_key, 3) == {Backend.STORE}
    assert_epoch(moving, row_key, result)


def test_i2_the_condition_of_a_stopped_put_is_judged_by_the_authority_of_now(stopped: Stopped) -> None:
    moving, service = stopped
    row_key = uuid4()
    stop_at(stopped, Case(Backend.LEGACY, "call.ask", "get_row"), row_key)
    service.go_on()
    service.result()
    service.stop_at("call.ask")
    service.begin("put_cell", row_key, "BASE", 2, LATE, expect_latest=1)
    service.wait_until_stopped("call.ask")
    hand_over(moving, row_key, 1)
    service.go_on()

    with pytest.raises(ServiceRaised) as raised:
        service.result()
    assert raised.value.name == "CellConflict"
    assert moving.store.get_cell_latest(row_key, "BASE") == Cell(row_key, "BASE", 2, NEW)


@pytest.fixture
def unfenced(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """A migration of this test alone, so its damage needs no mending."""
    with migration(servers, stores) as made:
        made.phase(Phase.DUALWRITE)
        yield made


CONTROLS = [
    ("no fences", Case(Backend.LEGACY, "call.ask", "get_cell_latest")),
    ("no fences", Case(Backend.STORE, "call.ask", "get_cell_latest")),
    ("reads always count", Case(Backend.LEGACY, "read.before_gate", "get_history")),
]


@pytest.mark.parametrize(
    ("sabotage", "case"), CONTROLS, ids=[f"control: {sabotage}-{case}" for sabotage, case in CONTROLS]
)
def test_without_its_fence_a_stopped_read_is_answered_by_the_old_authority(
    unfenced: Migration, failpoints: Path, sabotage: str, case: Case
) -> None:
    """The control."""
    with closing(_service(unfenced, failpoints, sabotage)) as service:
        row_key = uuid4()
        stop_at(Stopped(unfenced, service), case, row_key)
        hand_over(unfenced, row_key, 1)
        service.go_on()

        assert latest(service.result()) == OLD


@pytest.mark.parametrize("backend", Backend)
def test_without_its_fence_a_stopped_write_is_taken_by_the_old_authority(
    unfenced: Migration, failpoints: Path, backend: Backend
) -> None:
    """The control."""
    with closing(_service(unfenced, failpoints, "no fences")) as service:
        row_key = uuid4()
        stop_at(Stopped(unfenced, service), Case(backend, "call.ask", "put_cell"), row_key)
        hand_over(unfenced, row_key, 1)
        service.go_on()
        service.result()

        assert holders(unfenced, row_key, 3) == {backend}
