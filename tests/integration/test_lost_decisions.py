"""A Postgres that is promoted without the decision of a switch: never two owners, not for one statement (I1, I9).

The guard is on the standby before the switch begins; then the standby is cut off, the switch decided, the primary lost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
import pytest
from click.testing import CliRunner

from schemaless_core import Cell, StaleEpoch, failpoints
from schemaless_core.control.audit import AuditLog
from tests.chaos.actors import wait_until
from tests.facades import Migration, as_other_role
from tests.standbys import FAILING_OVER, TRUE, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.handover.sessions import grant_to_see
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.cli.root import root
from tripstore.handover import accept, settle
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.steps import Step, run
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.look import find_handed_over
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

LATE = "2.50"
ACKNOWLEDGED = Cell(UUID(int=44), "FREE", 1, "acknowledged")
UPDATE = "UPDATE trips SET fare = fare + 1 WHERE trip_uuid = %s"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        yield made


def control_of(hands: Migration) -> RealControlPort:
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    return control


def switched_and_lost(failing_over: FailingOver, *, guards: bool = True) -> Migration:
    """Schemaless is the authority, and its cell is acknowledged; the promoted Postgres has no word of that."""
    hands = failing_over.hands
    hands.carry()
    if guards:
        assert failing_over.pair.standby.query("SELECT pg_wal_replay_resume()")
        assert control_of(hands).guard() == []
    failing_over.follow()
    cut_off(failing_over.pair.standby)
    failing_over.pair.set_fare(LATE)
    hands.phase(Phase.SHADOW)
    hands.carry()
    hands.phase(Phase.LIVE)
    failing_over.store.put_cell(*ACKNOWLEDGED.key, ACKNOWLEDGED.body)
    hands.duo.watch.close()  # it looks when the test says so
    failing_over.lose_the_primary()
    return hands


def promoted(failing_over: FailingOver, sql: str, *values: object) -> list[Any]:
    """A statement of the company's own, on the promoted server."""
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def is_shut(failing_over: FailingOver) -> bool:
    try:
        promoted(failing_over, UPDATE, str(failing_over.pair.row_key))
    except psycopg2.DatabaseError as error:
        if error.pgcode != GATE_SHUT:
            raise
        return True
    return False


def killed_at(hands: Migration, step: Step, folder: Path) -> None:
    """An operator settles it, and the command ends before this step."""
    armed = folder / step.name
    armed.write_text("raise")
    failpoints.use_folder(folder)
    try:
        with pytest.raises(failpoints.FailpointReached):
            run(accept.accept(hands.duo.ports, settles=True))
    finally:
        failpoints.use_folder(None)
        armed.unlink(missing_ok=True)


def cutover(failing_over: FailingOver, tmp_path: Path, *words: str) -> Any:
    """What `tripstore cutover` prints as JSON, and its exit code."""
    file = tmp_path / "tripstore.yaml"
    file.write_text(json.dumps(failing_over.document))
    result = CliRunner().invoke(root, ["-c", str(file), "cutover", *words, "--json"], standalone_mode=False)
    return json.loads(result.stdout) | {"code": result.return_value}


def test_i9_a_postgres_that_lacks_the_decision_is_shut_from_its_first_statement(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    hands = switched_and_lost(failing_over)
    key = failing_over.pair.row_key

    # Of tripstore no process has looked yet: the server knows it by itself.
    assert promoted(failing_over, "SELECT epoch, backend FROM tripstore.authority") == [(0, "postgres")]
    assert is_shut(failing_over)
    owner = hands.duo.legacy.as_owner(0)  # of a process that slept
    with pytest.raises(StaleEpoch):
        owner.put_cell(key, "FREE", 7, "stale")
    with pytest.raises(StaleEpoch):
        owner.get_cell_latest(key, "BASE")
    with pytest.raises(PostgresNotAccepted, match="timeline 1, and it is at 2"):
        hands.duo.ports.legacy.claim(10)
    # Callers go on where the authority is, also in a process that begins now.
    failing_over.store.put_cell(key, "FREE", 2, "on live")
    with hands.connect() as fresh:
        assert fresh.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED
        fresh.put_cell(key, "FREE", 3, "of a process that began later")
    hands.duo.watch.look()
    with pytest.raises(PostgresNotAccepted):  # the watch settles nothing that was lost
        hands.duo.ports.control.authority()
    seen = cutover(failing_over, tmp_path, "status")
    assert seen["code"] == 1
    assert any("`tripstore cutover settle" in advice for advice in seen["advice"])

    planned = cutover(failing_over, tmp_path, "settle", "--dry-run")
    assert planned["lost"].startswith("Postgres has lost a decision: shards were opened at epoch 2")
    for step in (accept.LOOK, accept.ASK, accept.FENCE, accept.ACCEPT):
        killed_at(hands, step, tmp_path)
        assert is_shut(failing_over)
    done = cutover(failing_over, tmp_path, "settle", "--yes", "--why", "a test")

    assert (done["code"], done["is_done"], done["authority"]) == (0, True, "schemaless")
    assert done["epoch"] == 2 * EPOCHS_PER_TIMELINE + 2
    assert is_shut(failing_over)  # by the row, as after any switch
    hands.duo.watch.look()
    failing_over.store.put_cell(key, "FREE", 4, "afterwards")
    hands.carry()
    # What Postgres had acknowledged and lost comes back to it, and what Schemaless acknowledged meanwhile.
    assert promoted(failing_over, "SELECT fare::text FROM trips WHERE trip_uuid = %s", str(key)) == [(LATE,)]
    assert hands.duo.legacy.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED
    assert [hands.duo.legacy.get_cell(key, "FREE", version) is not None for version in (2, 3, 4)] == [True] * 3
    entries = AuditLog(hands.facade.store.control).newest(50)
    assert {"cutover.accept.begin", "cutover.accept.end"} <= {entry.action for entry in entries}


def test_control_without_the_guard_both_are_open_until_a_process_looks(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    """No hand-over was prepared on the promoted server. It cannot know; the first watch that looks shuts it."""
    hands = switched_and_lost(failing_over, guards=False)
    row = hands.duo.ports.control.authority()

    assert row.is_open_for(Backend.LEGACY)
    assert not is_shut(failing_over)
    failing_over.store.put_cell(failing_over.pair.row_key, "FREE", 2, "the other owner")

    hands.duo.watch.look()

    assert is_shut(failing_over)
    with pytest.raises(PostgresNotAccepted, match="older than Schemaless"):
        hands.duo.ports.control.authority()
    killed_at(hands, settle.OBEY, tmp_path)  # decided, and nothing knows of it yet
    assert is_shut(failing_over)
    hands.duo.watch.look()
    assert hands.duo.ports.control.authority().is_open_for(Backend.STORE)
    assert is_shut(failing_over)
    failing_over.store.put_cell(failing_over.pair.row_key, "FREE", 3, "afterwards")


def test_i9_what_a_process_that_knew_nothing_finds_in_the_shards_shuts_a_postgres(failing_over: FailingOver) -> None:
    hands = switched_and_lost(failing_over, guards=False)

    with hands.connect() as fresh:
        duo = fresh.facade.duo
        assert duo is not None
        duo.watch.start()
        wait_until("its watch has looked", lambda: is_shut(failing_over))
        assert fresh.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED


def test_a_promotion_that_loses_nothing_is_noticed_and_accepted_by_itself(failing_over: FailingOver) -> None:
    """The facade's caller waits; SQL is refused until then, and may be repeated. What was compared before is void."""
    hands = failing_over.hands
    hands.carry()
    failing_over.follow()
    assert control_of(hands).guard() == []
    failing_over.pair.standby.catch_up()
    assert find_handed_over(hands.duo.legacy) is None
    failing_over.lose_the_primary()
    assert is_shut(failing_over)

    failing_over.store.put_cell(failing_over.pair.row_key, "FREE", 2, "after the promotion")

    assert not is_shut(failing_over)
    row = hands.duo.ports.control.authority()
    assert row == Authority(2 * EPOCHS_PER_TIMELINE + 2, Backend.LEGACY, layout=row.layout)
    handed_over = find_handed_over(hands.duo.legacy)
    assert handed_over is not None
    assert handed_over.epoch == row.epoch
    (entry,) = (each for each in AuditLog(hands.facade.store.control).newest(9) if each.action == "cutover.accept.end")
    assert '"has_lost_a_decision": false' in json.dumps(json.loads(entry.detail))
    assert failing_over.relay()
    assert failing_over.mirrored() == "4712.00"


def test_i9_a_decision_whose_opening_comes_while_a_postgres_is_accepted_is_found_by_the_second_look(
    failing_over: FailingOver,
) -> None:
    """The first look finds no shard open above the row. Control: without the opening Postgres stays the authority."""
    hands = failing_over.hands
    hands.carry()
    failing_over.follow()
    assert control_of(hands).guard() == []
    failing_over.pair.standby.catch_up()
    row = hands.duo.ports.control.authority()
    failing_over.lose_the_primary()
    store, late = hands.duo.ports.store, row.closing("of the lost Postgres").decided()
    heard: list[Step] = []

    def hear(step: Step) -> None:
        if step == accept.FENCE and step not in heard:
            assert store.open(store.servers[-1], late.epoch, None)
        heard.append(step)

    acceptance = run(accept.accept(hands.duo.ports), hear)

    assert heard[: len(store.servers) + 1] == [accept.LOOK, *[accept.ASK] * len(store.servers)]
    assert (acceptance.is_accepted, acceptance.has_lost) == (True, True)
    assert acceptance.authority.is_open_for(Backend.STORE)
    hands.duo.watch.look()
    assert is_shut(failing_over)
    failing_over.store.put_cell(*ACKNOWLEDGED.key, ACKNOWLEDGED.body)
    assert hands.facade.store.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED


def test_i12_a_standby_that_the_role_may_not_see_is_named_as_late(failing_over: FailingOver) -> None:
    """Control: with the right it is seen to have the guard."""
    hands = failing_over.hands
    assert failing_over.pair.standby.query("SELECT pg_wal_replay_resume()")
    with as_other_role(hands) as (store, role):
        control = control_of(replace(hands, store=store))
        assert len(control.guard()) == 1
        hands.legacy.sql(grant_to_see(role))
        assert control.guard() == []


def test_a_server_that_does_not_acknowledge_keeps_postgres_shut_until_the_operator_vouches_for_it(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    hands = failing_over.hands
    failing_over.follow()
    assert control_of(hands).guard() == []
    failing_over.lose_the_primary()
    name, cluster = next(iter(hands.facade.store.clusters.items()))
    file = f"{cluster.primary.node.name.removeprefix('sqlite:///')}/{hands.facade.config.core.datastore}.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # no other connection writes there
        acceptance = run(accept.accept(hands.duo.ports))
        assert acceptance.reason == f"{name} did not acknowledge"
        assert is_shut(failing_over)

        done = cutover(failing_over, tmp_path, "settle", "--without", name, "--yes")

        writer.execute("ROLLBACK")
    assert (done["is_done"], done["authority"]) == (True, "postgres")
    assert not is_shut(failing_over)


def test_i9_a_promotion_on_live_that_loses_nothing_costs_one_acceptance(failing_over: FailingOver) -> None:
    hands = failing_over.hands
    hands.carry()
    failing_over.follow()
    control_of(hands).guard()
    hands.phase(Phase.LIVE)
    failing_over.pair.standby.catch_up()
    failing_over.lose_the_primary()
    assert is_shut(failing_over)

    hands.duo.watch.look()

    row = hands.duo.ports.control.authority()
    assert row.is_open_for(Backend.STORE)
    assert row.epoch == 2 * EPOCHS_PER_TIMELINE + 2
    failing_over.store.put_cell(*ACKNOWLEDGED.key, ACKNOWLEDGED.body)
    assert failing_over.fare() == TRUE
    hands.reverse()
    assert failing_over.store.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED
    assert not is_shut(failing_over)
