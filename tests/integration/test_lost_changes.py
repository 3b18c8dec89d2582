"""What the mirror has and a promoted Postgres lacks is listed, cell by cell, and mended in either direction (I1, I8).

The standby is cut off, changes are acknowledged and carried, the primary is lost. A gate refuses both hand-overs until
that was looked for (I12).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
import pytest
from click.testing import CliRunner

from schemaless_core import Cell, failpoints
from tests.facades import Migration, facts_of
from tests.standbys import FAILING_OVER, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.cli.root import root
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.losses.losses import LookStart, Losses
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

FIRST, LAST = "20.00", "30.00"
FREE = Cell(UUID(int=45), "FREE", 1, "of a column without a table")


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        yield made


def guarded(failing_over: FailingOver, phase: Phase) -> Migration:
    """In this phase, all carried; the standby has the guard and all else, and is cut off."""
    hands = failing_over.hands
    hands.carry()
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    failing_over.follow()
    assert control.guard() == []
    hands.phase(Phase.SHADOW)
    hands.phase(phase)
    hands.carry()
    failing_over.pair.standby.catch_up()
    hands.duo.watch.close()  # it looks when the test says so
    cut_off(failing_over.pair.standby)
    return hands


def lost_with_the_primary(failing_over: FailingOver) -> tuple[Migration, UUID]:
    """Two versions of a trip, a new trip, and a cell beside the tables: acknowledged, carried, lost."""
    hands = guarded(failing_over, Phase.SHADOW)
    failing_over.pair.set_fare(FIRST)
    hands.carry()
    failing_over.pair.set_fare(LAST)
    _, made = hands.legacy.trip()
    failing_over.store.put_cell(*FREE.key, FREE.body)
    hands.carry()
    failing_over.lose_the_primary()
    hands.duo.watch.look()
    return hands, made


def refused(hands: Migration, direction: Direction) -> dict[str, str]:
    verdicts = plan(direction, facts_of(hands), hands.facade.config.cutover).verdicts
    return {each.name: each.said for each in verdicts if not each.is_passed}


def lost(failing_over: FailingOver, tmp_path: Path, *words: str) -> Any:
    """What `tripstore cutover lost` prints as JSON, and its exit code."""
    file = tmp_path / "tripstore.yaml"
    file.write_text(json.dumps(failing_over.document))
    result = CliRunner().invoke(root, ["-c", str(file), "cutover", "lost", *words, "--json"], standalone_mode=False)
    assert result.exception is None, result.exception
    return json.loads(result.stdout) | {"code": result.return_value}


def pages_of(failing_over: FailingOver, tmp_path: Path) -> list[Any]:
    """The last ledger, a finding at a time."""
    pages: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = lost(failing_over, tmp_path, "--show", "--limit", "1", "--after", str(after))
        assert page["listed"] >= len(pages)
        pages.append(page["lost"])
        after = page["next_after"]
    return pages


def id_in_mirror(hands: Migration, row_key: UUID) -> object:
    cell = hands.facade.store.as_copier().get_cell_latest(row_key, LEGACY_ID)
    return cell and isinstance(cell.body, dict) and cell.body["id"]


def kinds_of(document: Any, row_key: UUID) -> list[tuple[str, str, bool]]:
    return sorted(
        (each["column_name"], each["kind"], each["is_open"])
        for each in document["lost"]
        if each["row_key"] == str(row_key)
    )


def promoted_fare(failing_over: FailingOver, row_key: UUID) -> object:
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COALESCE(fare::text, 'none yet') FROM trips WHERE trip_uuid = %s", (str(row_key),))
        return next(iter(cursor.fetchall()), (None,))[0]


def test_i1_what_was_lost_is_listed_and_taken_back_and_a_gate_waits_for_that(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    hands, made = lost_with_the_primary(failing_over)
    key = failing_over.pair.row_key
    assert promoted_fare(failing_over, key) == "4711.00"
    assert promoted_fare(failing_over, made) is None
    assert refused(hands, Direction.FORWARD)["lost changes"].startswith("not looked for since a Postgres was accepted")
    # Control: a look that begins after the loss finds nothing, and does not open the gate.
    late = lost(failing_over, tmp_path, "--since", datetime.now(UTC).isoformat())
    assert (late["cells"], late["lost"], late["code"]) == (0, [], 0)
    assert "lost changes" in refused(hands, Direction.FORWARD)

    found = lost(failing_over, tmp_path)

    assert found["code"] == 1
    assert kinds_of(found, key) == [("BASE", "lacking", True)] * 2
    assert ("BASE", "lacking", True) in kinds_of(found, made)
    assert kinds_of(found, FREE.row_key) == [("FREE", "lacking", True)]
    assert found["cells"] > len(found["lost"])  # what is the same is not listed
    assert refused(hands, Direction.FORWARD)["lost changes"] == f"{found['open']} open"

    done = lost(failing_over, tmp_path, "--take-back", "--yes")

    assert (done["open"], done["code"], done["refused"]) == (0, 0, [])
    assert promoted_fare(failing_over, key) == LAST
    assert promoted_fare(failing_over, made) is not None
    assert hands.duo.legacy.get_cell(*FREE.key) == FREE
    assert "lost changes" not in refused(hands, Direction.FORWARD)
    # The ledger outlives its mending, and is read page by page.
    ledger = lost(failing_over, tmp_path, "--show")
    assert kinds_of(ledger, key) == [("BASE", "lacking", False)] * 2
    assert ledger["next_after"] is None
    assert pages_of(failing_over, tmp_path) == [[each] for each in ledger["lost"]]
    hands.carry()
    assert failing_over.mirrored() == LAST


def test_i8_a_ref_key_that_was_given_twice_is_listed_and_the_mirror_is_mended(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    """A service has gone on by then: its version has the ref key of a lost one. A mend that is killed is repeated."""
    hands, made = lost_with_the_primary(failing_over)
    key = failing_over.pair.row_key
    with psycopg2.connect(failing_over.pair.url) as connection:
        connection.cursor().execute("UPDATE trips SET fare = 99.00 WHERE trip_uuid = %s", (str(key),))

    found = lost(failing_over, tmp_path)
    assert kinds_of(found, key) == [("BASE", "lacking", True), ("BASE", "reused", True)]
    (losses, job) = (Losses(hands.facade), Losses(hands.facade).begin(LookStart()))
    losses.serve(job)
    armed = tmp_path / "losses.mended"
    armed.write_text("raise")
    failpoints.use_folder(tmp_path)
    try:
        with pytest.raises(failpoints.FailpointReached):
            losses.mend_mirror(job)
    finally:
        failpoints.use_folder(None)
        armed.unlink(missing_ok=True)
    done = lost(failing_over, tmp_path, "--mend", "--yes")

    assert (done["open"], done["code"]) == (0, 0)
    assert promoted_fare(failing_over, key) == "99.00"
    assert promoted_fare(failing_over, made) is None
    hands.carry()
    assert failing_over.mirrored() == "99.00"
    assert "lost changes" not in refused(hands, Direction.FORWARD)
    # What was lost is named for good, whatever the mirror has now.
    assert (str(made), "BASE") in {
        (each["row_key"], each["column_name"]) for each in lost(failing_over, tmp_path, "--show", found["job"])["lost"]
    }


def test_i8_a_trip_that_is_taken_back_under_another_id_leaves_its_id_open_until_the_mirror_is_mended(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    """Since the promotion Postgres has given the integer id of the lost trip to another one."""
    hands, made = lost_with_the_primary(failing_over)
    before = id_in_mirror(hands, made)
    other = UUID(int=47)
    with psycopg2.connect(failing_over.pair.url) as connection, connection.cursor() as cursor:
        insert = "INSERT INTO trips (id, trip_uuid, status) VALUES (%s, %s, 'requested')"
        cursor.execute(insert, (before, str(other)))

    found = lost(failing_over, tmp_path)
    done = lost(failing_over, tmp_path, "--take-back", "--yes")

    assert (LEGACY_ID, "lacking", True) in kinds_of(found, made)
    assert (done["code"], done["open"], done["refused"]) == (1, 1, [])
    assert [each[:2] for each in kinds_of(done, made) if each[2]] == [(LEGACY_ID, "lacking")]
    assert "lost changes" in refused(hands, Direction.FORWARD)
    assert lost(failing_over, tmp_path, "--mend", "--yes")["open"] == 0
    hands.carry()
    assert id_in_mirror(hands, other) == before
    assert id_in_mirror(hands, made) not in (None, before)
    assert "lost changes" not in refused(hands, Direction.FORWARD)


def test_i1_two_losses_in_a_row_are_both_in_one_ledger(
    failing_over: FailingOver, servers: LocalServers, tmp_path: Path
) -> None:
    """Nothing was looked for in between: the look begins before the older of both acceptances."""
    hands, made = lost_with_the_primary(failing_over)
    first = failing_over.pair.standby
    first.query("ALTER SYSTEM RESET primary_conninfo")
    second = servers.standby(f"{first.name}-2", first)
    second.catch_up()
    cut_off(second)
    later = Cell(UUID(int=46), "FREE", 1, "lost with the second")
    failing_over.store.put_cell(*later.key, later.body)
    hands.carry()
    failing_over.proxy.lead_to(second.port)
    first.kill()
    second.promote()
    hands.duo.watch.look()

    found = lost(failing_over, tmp_path)

    rows = {each["row_key"] for each in found["lost"]}
    assert {str(failing_over.pair.row_key), str(made), str(FREE.row_key), str(later.row_key)} <= rows
    assert found["epoch"] == 3 * EPOCHS_PER_TIMELINE + 2
    done = lost(failing_over, tmp_path, "--take-back", "--yes")
    assert (done["open"], done["refused"]) == (0, [])
    assert [hands.duo.legacy.get_cell(*cell.key) for cell in (FREE, later)] == [FREE, later]
    assert "lost changes" not in refused(hands, Direction.FORWARD)


def test_i1_i8_on_live_the_way_back_is_refused_until_it_was_looked_for(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    hands = guarded(failing_over, Phase.LIVE)
    failing_over.store.put_cell(*FREE.key, FREE.body)
    hands.carry()  # into a Postgres that is lost now
    failing_over.lose_the_primary()
    hands.duo.watch.look()
    assert refused(hands, Direction.BACK)["lost changes"].startswith("not looked for")

    found = lost(failing_over, tmp_path)

    assert (found["authority"], found["code"]) == ("schemaless", 1)
    assert kinds_of(found, FREE.row_key) == [("FREE", "lacking", True)]
    assert refused(hands, Direction.BACK)["lost changes"] == "1 open"
    hands.carry()
    assert lost(failing_over, tmp_path)["open"] == 0
    assert "lost changes" not in refused(hands, Direction.BACK)
    assert hands.duo.legacy.get_cell(*FREE.key) == FREE


def test_where_no_postgres_was_accepted_there_is_nothing_to_look_for(failing_over: FailingOver, tmp_path: Path) -> None:
    assert lost(failing_over, tmp_path)["job"] is None
    assert "lost changes" not in refused(failing_over.hands, Direction.FORWARD)
