"""Postgres is promoted before a hand-over was ever prepared: it is not shut, and goes on (I10). What it lacks is asked
for when the phase shadow is set, and no comparison from before counts (I1, I8, I12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from schemaless_core import failpoints
from tests.facades import Migration
from tests.promotions import check_accepted, check_ledger, check_mends, compared, lost, refused
from tests.scale import SCALE
from tests.standbys import FAILING_OVER, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.cli.root import root
from tripstore.handover.accept import ACCEPT, EPOCHS_PER_TIMELINE, FENCE
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

UPDATE = "UPDATE trips SET status = %s WHERE trip_uuid = %s"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        made.hands.carry()
        made.make_durable()
        made.follow()
        yield made


def tripstore(failing_over: FailingOver, folder: Path, *words: str, code: int = 0) -> Any:
    """What a command prints as JSON, and what it says beside."""
    file = folder / "tripstore.yaml"
    file.write_text(json.dumps(failing_over.document))
    result = CliRunner().invoke(root, ["-c", str(file), *words, "--json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert result.return_value in (None, code), result.stderr
    return json.loads(result.stdout) | {"said": result.stderr}


def promoted_in_dualwrite(failing_over: FailingOver, folder: Path) -> Migration:
    """A change was carried that the standby lacks; services go on in the promoted Postgres, and so does the relay."""
    hands, key = failing_over.hands, failing_over.pair.row_key
    tripstore(failing_over, folder, "phase", "set", "dualwrite")
    compared(hands)
    assert "diff" not in refused(hands)
    failing_over.pair.standby.catch_up()
    cut_off(failing_over.pair.standby)
    hands.legacy.sql(UPDATE, "lost", str(key))
    hands.legacy.trip()
    hands.carry()
    failing_over.lose_the_primary()
    sql = failing_over.pair.standby.query
    sql("INSERT INTO trips (status) VALUES ('later')", database=failing_over.pair.legacy.name)
    hands.carry()
    return hands


def test_i8_i12_what_was_lost_before_shadow_is_asked_for_when_that_is_set(
    failing_over: FailingOver, tmp_path: Path
) -> None:
    """Control: until then the gates know nothing of it."""
    hands = promoted_in_dualwrite(failing_over, tmp_path)
    assert lost(hands)[0]
    assert not refused(hands).intersection({"lost changes", "diff"})
    complaints = tripstore(failing_over, tmp_path, "doctor", code=1)["legacy"]["complaints"]
    assert [each["where"] for each in complaints if "cutover lost --all" in each["hint"]] == ["Postgres"]

    said = tripstore(failing_over, tmp_path, "phase", "set", "shadow")["said"]

    assert "tripstore cutover lost" in said
    hands.duo.watch.look()
    check_accepted(hands)
    assert {"lost changes", "diff"} <= refused(hands)
    assert len(check_ledger(hands)) >= 2
    check_mends(hands)
    assert "said" in (again := tripstore(failing_over, tmp_path, "phase", "set", "shadow"))
    assert "another server" not in again["said"]
    check_accepted(hands)


@pytest.mark.parametrize("point", [FENCE.name, ACCEPT.name] if SCALE >= 1 else [FENCE.name])
def test_a_command_that_is_killed_leaves_the_rest_to_its_repetition(
    failing_over: FailingOver, tmp_path: Path, point: str
) -> None:
    hands = promoted_in_dualwrite(failing_over, tmp_path)
    armed = tmp_path / point
    armed.write_text("raise")
    failpoints.use_folder(tmp_path)
    try:
        with pytest.raises(failpoints.FailpointReached):
            tripstore(failing_over, tmp_path, "phase", "set", "shadow")
    finally:
        failpoints.use_folder(None)
        armed.unlink(missing_ok=True)
    assert hands.facade.flags.find().legacy_phase is Phase.DUALWRITE
    hands.carry()  # the test does not wait for the rest

    tripstore(failing_over, tmp_path, "phase", "set", "shadow")

    check_accepted(hands)
    seen = hands.facade.store.authority.find()
    assert seen is not None
    assert seen.epoch == 2 * EPOCHS_PER_TIMELINE + 1
    assert "lost changes" in refused(hands)


def test_where_the_same_postgres_answers_nothing_changes(failing_over: FailingOver, tmp_path: Path) -> None:
    hands = failing_over.hands
    for phase in ("dualwrite", "shadow", "dualwrite", "shadow"):
        assert "another server" not in tripstore(failing_over, tmp_path, "phase", "set", phase)["said"]

    assert hands.duo.ports.control.authority().epoch == 0
    assert "lost changes" not in refused(hands)
