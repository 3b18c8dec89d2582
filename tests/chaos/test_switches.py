"""Switches and reversals under load while processes and servers die and stop: nothing is lost, no process writes
outside its epoch, and a hand-over that cannot finish is undone by a process that is alive (I1, I2, I4, I8, I9)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.chaos.actors import running
from tests.chaos.capture_actors import WITNESS, errors_in
from tests.chaos.switch_actors import Service, Switcher, is_stopped, relay
from tests.chaos.switch_crowd import DEADLINES, Crowd, clusters_of, crowd, wait_for
from tests.chaos.switch_faults import Accidents
from tests.chaos.switch_figures import Figures
from tests.chaos.switch_hand_overs import UNDONE_SECONDS_MAX, HandOvers
from tests.chaos.switch_rules import broken, gather
from tests.facades import Migration, migration
from tests.scale import SCALE, scaled
from tests.stores import SERVER_ENGINES, ServerEngine, Stores
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.plan import Direction
from tripstore.phase import Phase

ENGINES: tuple[ServerEngine, ...] = SERVER_ENGINES if SCALE >= 1 else SERVER_ENGINES[:1]

HAND_OVERS = scaled(40, least=6)
OPEN_SECONDS = scaled(30, least=2)
#: Between two hand-overs.
REST_SECONDS = 1.0 if SCALE >= 1 else 0.3
#: Of a hand-over without accidents.
PAUSE_SECONDS_MAX = 0.5


@pytest.mark.parametrize("engine", ENGINES)
def test_i1_i9_authority_goes_to_and_fro_under_load(
    engine: ServerEngine, servers: LocalServers, stores: Stores, tmp_path: Path
) -> None:
    clusters = clusters_of(engine, servers, stores)
    with crowd(engine, clusters, servers, stores, tmp_path) as everybody:
        moving = everybody.moving
        hands = HandOvers(everybody, moving.legacy.server, [cluster.primary for cluster in clusters])
        hands.wait_for_answers()
        behind_an_open_transaction(everybody, hands)
        begun = time.monotonic()
        accidents, number = Accidents(HAND_OVERS), 0
        while number < HAND_OVERS or accidents.owed:
            assert number < 2 * HAND_OVERS, f"accidents that never happened: {accidents.owed}"
            fault = accidents.next(number, hands.direction())
            print(f"{hands.direction().value}: {fault or 'no accident'}")
            if hands.hand_over(fault):
                accidents.owed.pop(0)
            number += 1
            time.sleep(REST_SECONDS)  # services work between two hand-overs
        seconds = time.monotonic() - begun
        evidence = hands.end(tmp_path)

    figures = Figures(evidence, hands, seconds, errors_in(tmp_path))
    print(figures.line(engine))
    assert len(figures.pauses) >= len(hands.quiet)
    if SCALE >= 1:
        assert figures.pause_ms(0.99) < PAUSE_SECONDS_MAX * 1000
    assert max(figures.undone_seconds, default=0.0) < UNDONE_SECONDS_MAX


def behind_an_open_transaction(everybody: Crowd, hands: HandOvers) -> None:
    """A switch does not finish over it, and services go on."""
    moving = everybody.moving
    _id, row_key = moving.legacy.trip()
    with closing(moving.legacy.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE trips SET status = 'long' WHERE trip_uuid = %s", (str(row_key),))
        until = time.monotonic() + OPEN_SECONDS
        refused = 0
        while time.monotonic() < until:
            attempt = Switcher(moving.document, everybody.points["switcher"], Direction.FORWARD).outcome()
            assert attempt is not None
            assert not attempt.is_decided
            assert "writers stay inside" in attempt.reason
            refused += 1
            hands.wait_for_answers()
            time.sleep(REST_SECONDS)  # as an operator who tries again does
        connection.commit()
    assert refused
    assert hands.control.authority().backend is Backend.LEGACY


@pytest.fixture(params=[ENGINES[0]])
def controlled(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite, where the test alone works."""
    with migration(servers, stores, engine=request.param, deadlines=DEADLINES) as made:
        made.legacy.sql(WITNESS)
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.mark.parametrize("controlled", ["sqlite"], indirect=True)
@pytest.mark.parametrize("sabotage", ["", "marks before it sends"], ids=["as it is", "control: it marks first"])
def test_i8_a_relay_that_is_killed_before_it_sends_has_marked_nothing(
    controlled: Migration, failpoints: Path, tmp_path: Path, sabotage: str
) -> None:
    """And the control: the rules find what a relay loses that marks first."""
    controlled.legacy.trip()
    (failpoints / "relay.send").write_text("kill")
    with running([relay(controlled.document, failpoints, sabotage)]):
        wait_for("it died", (failpoints / "relay.send.hit").exists, 20)
    controlled.legacy.trip()
    wait_for("the claim ran out", lambda: _carried(controlled), 20)

    found = broken(controlled, gather(controlled, tmp_path))
    assert bool(found) is bool(sabotage), found


def _carried(moving: Migration) -> bool:
    moving.carry()
    return moving.duo.ports.legacy.queued() == 0


#: Who does what he must not.
SABOTAGES = {"neither": ("", ""), "switcher": ("opens without a look", ""), "service": ("", "no fences")}
#: Rules that see it.
FOUND = {"a write of Schemaless outside its epoch", "the stores differ", "the latest differ"}


@pytest.mark.parametrize(
    ("of_switcher", "of_service"),
    SABOTAGES.values(),
    ids=[who if who == "neither" else f"control: {who}" for who in SABOTAGES],
)
def test_i9_who_comes_late_opens_nothing_and_writes_nothing(
    controlled: Migration, tmp_path: Path, of_switcher: str, of_service: str
) -> None:
    """A switcher is stopped before it opens, a service before it puts; both go on when Postgres is it again."""
    folders = [tmp_path / name for name in ("switcher", "service")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "settle.open").write_text("stop")
    switcher = Switcher(controlled.document, folders[0], Direction.FORWARD, of_switcher)
    with closing(Service(controlled.document, folders[1], of_service)) as service:
        wait_for("it has decided", lambda: is_stopped(switcher.process.pid), 20)
        controlled.duo.watch.look()  # others open
        controlled.store.put_cell(uuid4(), "BASE", 1, {"status": "early"})
        service.call("get_row", uuid4())
        service.stop_at("call.ask")
        service.begin("put_cell", uuid4(), "BASE", 1, {"status": "late"})
        service.wait_until_stopped("call.ask")
        controlled.reverse()
        switcher.go_on()
        switcher.outcome()
        service.go_on()
        service.result()
    controlled.carry()

    found = broken(controlled, gather(controlled, tmp_path))
    assert set(found) == (FOUND if of_switcher or of_service else set()), found
