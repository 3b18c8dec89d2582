"""`tripstore mirror` and the relay and reverse mirror of `tripstore worker run`: look, carry, mend."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from uuid import UUID, uuid4

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.acceptance.workers import WAIT_SECONDS
from tests.chaos.actors import wait_until
from tests.facades import Migration, folder_of, migration
from tests.mirrors import QUICK, different, missing, reversing, rows_of, wait_until_delivered, wait_until_mirrored_back
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.phase import Phase

SHARDS = 4


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite; no relay carries."""
    with migration(servers, stores, shards=SHARDS, triggers=QUICK) as made:
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.fixture
def company(shell: Shell, moving: Migration) -> Shell:
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(moving.document)))
    return shell


@contextmanager
def started(shell: Shell, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until the end of the block, and does not outlive it."""
    process = shell.start(*arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=WAIT_SECONDS)


def put_foreign(moving: Migration) -> UUID:
    """A foreign cell in Schemaless, and the change that it is in the way of."""
    key = uuid4()
    moving.facade.store.as_copier().put_cell(key, "BASE", 1, {"status": "foreign"})
    moving.legacy.trip(row_key=key)
    return key


@pytest.mark.parametrize("command", [("mirror", "run"), ("worker", "run"), ("worker", "run", "--only", "mirror")])
def test_a_worker_carries_what_services_write_and_ends_when_it_is_asked_to(
    company: Shell, moving: Migration, command: tuple[str, ...]
) -> None:
    _id, key = moving.legacy.trip()
    with started(company, *command, "--json") as worker:
        wait_until_delivered(moving)
        wait_until("the rehearsal is through", lambda: Mirror(moving.facade).status().reverse.cells == 0)  # type: ignore[union-attr]  # it is registered
        seen = company.call("mirror", "status", "--json").document
        worker.send_signal(signal.SIGTERM)
        stdout, stderr = worker.communicate(timeout=WAIT_SECONDS)

    assert (worker.returncode, stdout.strip()) == (0, '{"workers":1,"restarts":0,"is_finished":true}')
    assert re.search(r"serves a relay, .*mirror:reverse", stderr)
    assert missing(moving) == []
    assert moving.facade.store.get_cell(key, "BASE", 1) is not None
    assert seen["is_fine"], seen["advice"]
    assert (seen["phase"], seen["authority"], seen["direction"]) == ("dualwrite", "postgres", "forward")
    assert seen["forward"] == {"changes": 0, "seconds": 0.0, "parked": 0}
    assert seen["reverse"]["is_rehearsal"] is True


def test_without_anybody_who_carries_the_status_says_so(company: Shell, moving: Migration) -> None:
    moving.legacy.trip()

    ran, seen = company.call("mirror", "status"), company.call("mirror", "status", "--json").document

    assert ran.code == 1
    assert "phase dualwrite: changes are carried forward; postgres is the authority (epoch 0)" in ran.stdout
    assert re.search(r"forward +1 changes", ran.stdout)
    assert "no worker serves 4 shards of mirror:reverse; `tripstore worker run` starts one" in ran.stdout
    assert (seen["forward"]["changes"], seen["is_fine"]) == (1, False)


def test_a_drain_carries_everything_forward_by_itself(company: Shell, moving: Migration) -> None:
    for _ in range(3):
        moving.legacy.trip()

    ran = company.call("mirror", "drain")
    again = company.call("mirror", "drain", "--json")

    assert (ran.code, ran.stdout.strip()) == (0, "Carried 6 forward; nothing is left.")
    assert missing(moving) == []
    assert again.document == {
        "direction": "forward", "is_empty": True, "carried": 0, "left": 0, "parked": 0, "reason": "",
    }  # fmt: skip


def test_a_drain_carries_back_while_schemaless_is_the_authority(company: Shell, moving: Migration) -> None:
    moving.phase(Phase.LIVE)
    key = uuid4()
    moving.store.put_cell(key, "BASE", 1, {"status": "requested"})

    ran = company.call("mirror", "drain")
    seen = company.call("mirror", "status", "--json").document

    assert ran.code == 0
    assert re.fullmatch(r"Carried \d reverse; nothing is left.", ran.stdout.strip())
    assert rows_of(moving, key) == [("requested", 1)]
    assert (seen["direction"], seen["authority"], seen["reverse"]["is_rehearsal"]) == ("reverse", "schemaless", False)
    assert different(moving) == []


def test_a_drain_says_what_stops_it(company: Shell, moving: Migration) -> None:
    put_foreign(moving)

    ran = company.call("mirror", "drain")

    assert ran.code == 1
    assert "1 are parked: changes are parked; `tripstore mirror parked` shows them." in ran.stdout


def test_a_drain_says_while_it_tries_why_nothing_is_carried(company: Shell, moving: Migration) -> None:
    """Another program has the files of Schemaless locked; when it lets go, the drain goes on."""
    moving.legacy.trip()
    hurried = dict(moving.document) | {"deadlines": dict(moving.document["deadlines"]) | {"put_seconds": 1.0}}
    (company.folder / "tripstore.yaml").write_text(yaml.safe_dump(hurried))
    with ExitStack() as held:
        for cluster in ("a", "b"):
            file = folder_of(moving.document) / cluster / f"{moving.document['datastore']}.db"
            program = held.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
            program.execute("BEGIN IMMEDIATE")
        process = company.start("mirror", "drain", "--patience", str(WAIT_SECONDS))
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("Nothing is carried just now: "))
    stdout, _stderr = process.communicate(timeout=WAIT_SECONDS)

    assert f"Tried again for {WAIT_SECONDS:g} s." in said
    assert (process.returncode, stdout.strip()) == (0, "Carried 2 forward; nothing is left.")
    assert missing(moving) == []


def test_a_change_in_conflict_is_listed_shown_and_retried(company: Shell, moving: Migration) -> None:
    key = put_foreign(moving)
    company.call("mirror", "drain")

    status = company.call("mirror", "status")
    assert "1 changes are parked; `tripstore mirror parked`" in status.stdout
    [listed] = company.call("mirror", "parked", "--json").document["parked"]
    assert (listed["key"], listed["kind"]) == (f"{key}/BASE/1", "conflict")
    screen = company.call("mirror", "parked")
    assert "another body" in screen.stdout
    assert '"foreign"' not in screen.stdout

    shown = company.call("mirror", "show", listed["key"])
    document = company.call("mirror", "show", listed["key"], "--json").document
    assert shown.code == 1
    assert re.search(r'postgres +\{"status":"requested"\}', shown.stdout)
    assert re.search(r'schemaless +\{"status":"foreign"\}', shown.stdout)
    assert document["is_equal"] is False
    assert document["forward"]["key"] == listed["key"]
    assert document["reverse"] is None

    assert company.call("mirror", "retry", str(uuid4())).stdout.strip() == "No such change is parked."
    assert "1 parked cell is due now" in company.call("mirror", "retry", listed["key"]).stdout
    assert company.call("mirror", "parked").stdout.strip() == "Nothing is parked."
    company.call("mirror", "drain")
    assert company.call("mirror", "retry", "--all", "--json").document == {"direction": "forward", "count": 1}


def test_a_parked_change_is_given_up_only_when_a_later_version_is_there(company: Shell, moving: Migration) -> None:
    key = put_foreign(moving)
    company.call("mirror", "drain")
    skip = ("mirror", "skip", f"{key}/BASE/1", "--why", "put by a test")

    latest = company.call(*skip, "--yes")
    assert latest.code == 2
    assert "it is the latest version of its row" in latest.complaint

    moving.legacy.sql("UPDATE trips SET status = 'completed' WHERE trip_uuid = %s", str(key))
    assert "does not have the later version 2" in company.call(*skip, "--yes").complaint

    company.call("mirror", "drain")
    assert company.call(*skip, "--dry-run").stdout.strip() == "1 could be given up."
    assert company.run(*skip).code == 4  # no terminal to ask at
    assert company.call(*skip, "--yes", "--json").document == {
        "is_done": True,
        "keys": [f"{key}/BASE/1"],
        "left": 0,
    }
    assert company.call("mirror", "parked").stdout.strip() == "Nothing is parked."
    assert company.call("mirror", "drain").code == 0
    assert company.call(*skip, "--yes").code == 2
    audit = company.call("status", "--json").document["control"]["audit"]
    assert [json.loads(entry["detail"])["why"] for entry in audit if entry["action"] == "mirror.skip"] == [
        "put by a test"
    ]


def test_all_parked_changes_that_are_replaced_are_given_up_at_once_and_the_others_stay(
    company: Shell, moving: Migration
) -> None:
    replaced, needed = put_foreign(moving), put_foreign(moving)
    company.call("mirror", "drain")
    moving.legacy.sql("UPDATE trips SET status = 'completed' WHERE trip_uuid = %s", str(replaced))
    company.call("mirror", "drain")
    skip = ("mirror", "skip", "--all", "--why", "put by a test")

    assert company.run("mirror", "skip", f"{needed}/BASE/1", "--all", "--why", "both").code == 2
    assert company.call(*skip, "--dry-run", "--json").document == {
        "is_done": False,
        "keys": [f"{replaced}/BASE/1"],
        "left": 1,
    }
    ran = company.call(*skip, "--yes")

    assert (ran.code, ran.stdout.strip()) == (0, "1 given up.")
    assert "1 stay: Schemaless cannot do without them" in ran.stderr
    [left] = company.call("mirror", "parked", "--json").document["parked"]
    assert left["key"] == f"{needed}/BASE/1"
    assert company.call(*skip, "--yes").stdout.strip() == "0 given up."


def test_a_fact_is_never_given_up(company: Shell, moving: Migration) -> None:
    id_, key = moving.legacy.trip()
    moving.facade.store.as_copier().put_cell(key, "STATUS", 1, {"result": "foreign"})
    for number in (1, 2):
        moving.legacy.sql(
            "INSERT INTO attempts (trip_id, trip_uuid, attempt_no) VALUES (%s, %s, %s)", id_, str(key), number
        )
    company.call("mirror", "drain")

    ran = company.call("mirror", "skip", f"{key}/STATUS/1", "--why", "a test", "--yes")

    assert ran.code == 2
    assert company.call("mirror", "parked", "--json").document["parked"][0]["key"] == f"{key}/STATUS/1"


def test_what_the_tables_cannot_hold_is_listed_shown_and_retried_backwards(company: Shell, moving: Migration) -> None:
    moving.phase(Phase.LIVE)
    moving.legacy.sql("ALTER TABLE trips ADD CONSTRAINT short CHECK (length(lower(status)) < 10)")
    key = uuid4()
    owner = moving.facade.store.as_owner(moving.duo.ports.control.authority().epoch)
    owner.put_cell(key, "BASE", 1, {"status": "much too long"})
    ran = company.call("mirror", "drain")
    assert ran.code == 1
    assert "1 are parked: cells are parked; `tripstore mirror parked --reverse` shows them." in ran.stdout

    status = company.call("mirror", "status")
    assert "1 cells are parked; `tripstore mirror parked --reverse`" in status.stdout
    [listed] = company.call("mirror", "parked", "--reverse", "--json").document["parked"]
    assert (listed["key"], listed["kind"]) == (f"{key}/BASE/1", "failed")
    shown = company.call("mirror", "show", listed["key"])
    assert re.search(r"postgres +nothing", shown.stdout)
    assert re.search(r"parked reverse +failed, 3 attempts", shown.stdout)

    moving.legacy.sql("ALTER TABLE trips DROP CONSTRAINT short")
    assert "1 parked cell is due now" in company.call("mirror", "retry", "--reverse", str(key)).stdout
    with reversing(moving):
        wait_until("it went", lambda: rows_of(moving, key) == [("much too long", 1)])
        wait_until_mirrored_back(moving)
    assert company.call("mirror", "parked", "--reverse").stdout.strip() == "Nothing is parked."


def test_in_a_phase_without_a_mirror_there_is_nothing_to_drain(company: Shell, moving: Migration) -> None:
    moving.phase(Phase.OFF)

    ran = company.call("mirror", "drain")

    assert ran.code == 2
    assert "In the phase off nothing is mirrored" in ran.complaint
    assert "tripstore phase set dualwrite" in ran.complaint


def test_a_watched_status_is_shown_again_until_ctrl_c(company: Shell) -> None:
    with started(company, "mirror", "status", "--watch", "--interval", "0.1") as watching:
        assert watching.stdout is not None
        for _ in range(2):
            while not watching.stdout.readline().startswith("phase dualwrite"):
                pass
        watching.send_signal(signal.SIGINT)
        watching.wait(WAIT_SECONDS)
    assert watching.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("status --watch --json", "--watch has no end"),
        ("show 1", "is no ROW_KEY/COLUMN/REF_KEY"),
        ("show 00000000-0000-0000-0000-000000000001", "is no ROW_KEY/COLUMN/REF_KEY"),
        ("retry", "Say which"),
        ("retry --all 00000000-0000-0000-0000-000000000001", "Say which"),
        ("retry trip", "neither a ROW_KEY nor"),
        ("skip 00000000-0000-0000-0000-000000000001/BASE/1", "--why"),
        ("skip 00000000-0000-0000-0000-000000000001/BASE/1 --why none --yes", "is not parked"),
        ("run --workers 0", "--workers"),
    ],
)
def test_wrong_input_is_named(company: Shell, arguments: str, complaint: str) -> None:
    ran = company.call("mirror", *arguments.split())

    assert ran.code == 2
    assert complaint in ran.complaint


@pytest.mark.parametrize("command", [("mirror", "status"), ("mirror", "run"), ("worker", "run", "--only", "mirror")])
def test_without_a_legacy_store_there_is_no_mirror(store: Shell, command: tuple[str, ...]) -> None:
    ran = store.call(*command)

    assert ran.code == 2
    assert "no `legacy:`" in ran.complaint
