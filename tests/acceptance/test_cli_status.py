"""`tripstore status` and `tripstore doctor`: the whole datastore on one screen, and what is wrong with it."""

from __future__ import annotations

import shutil
import signal

from tests.acceptance.conftest import SHARDS, Shell


def test_status_counts_shards_by_state_and_all_cells(store: Shell) -> None:
    store.call("cell", "put", "new", "BASE", "1", "{}")
    store.call("cell", "put", "new", "BASE", "1", "{}")

    screen = store.run("status")
    seen = store.call("status", "--json").document

    assert screen.code == 0
    assert f"datastore trips, {SHARDS} shards" in screen.stdout
    assert "2 cells" in screen.stdout
    assert "2 RW" in screen.stdout
    assert "topology version 1" in screen.stdout
    assert (seen["cells"], seen["cells_of_shards"], seen["is_fine"]) == (2, SHARDS, True)
    assert [cluster["shards"]["RW"] for cluster in seen["clusters"]] == [2, 2]
    assert seen["control"]["audit"] != []


def test_status_says_what_it_could_not_count(store: Shell) -> None:
    (store.folder / "trips-data" / "b" / "trips.db").write_bytes(
        b"this is no database, and long enough to be read" * 99
    )

    ran = store.call("status")
    seen = store.call("status", "--json").document

    assert ran.code == 1
    assert "DOWN" in ran.stdout
    assert "0 cells in the 2 shards that answered, 2 did not" in ran.stdout
    assert (seen["cells_of_shards"], seen["is_fine"]) == (2, False)
    assert [cluster["shards"] is None for cluster in seen["clusters"]] == [False, True]


def test_a_watched_status_is_shown_again_until_ctrl_c(store: Shell) -> None:
    watching = store.start("status", "--watch", "--interval", "0.1")
    assert watching.stdout is not None
    screens = 0
    while screens < 3:
        screens += watching.stdout.readline().startswith("datastore trips")
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)

    assert screens == 3
    assert watching.returncode == 0
    assert store.call("status", "--watch", "--json").code == 2


def test_doctor_is_content_with_a_datastore_that_has_all_its_shards(store: Shell) -> None:
    ran = store.run("doctor")
    document = store.call("doctor", "--json").document

    assert (ran.code, ran.stdout.strip().splitlines()[-1]) == (0, "Everything is fine.")
    assert document["is_fine"] is True
    assert {(found["cluster"], found["role"]) for found in document["findings"]} == {
        (None, "control"),
        ("a", "primary"),
        ("b", "primary"),
    }


def test_doctor_finds_what_is_missing_and_gives_an_advice_with_each(store: Shell) -> None:
    shutil.rmtree(store.folder / "trips-data" / "b")

    ran = store.call("doctor", "--json")

    troubles = [found for found in ran.document["findings"] if not found["is_fine"]]
    assert ran.code == 1
    assert [(found["cluster"], found["name"], found["value"]) for found in troubles] == [("b", "shards", "0 of 2")]
    assert all(found["advice"] for found in troubles)
    assert "tripstore schema apply" in store.call("doctor").stdout


def test_doctor_before_the_first_apply_changes_nothing(shell: Shell) -> None:
    shell.call("init")

    assert shell.call("doctor").code == 1
    assert shell.call("status").code == 1
    assert shell.call("schema", "plan").code == 0
    assert [entry.name for entry in shell.folder.iterdir()] == ["tripstore.yaml"]


def test_a_server_that_is_not_there_is_a_finding_and_not_an_exception(shell: Shell) -> None:
    shell.call("init", "--mysql", "mysql://app:x@127.0.0.1:1")

    doctor = shell.run("doctor", "--json")
    status = shell.call("status")

    assert doctor.code == 1
    assert [found["name"] for found in doctor.document["findings"]] == ["reachable", "reachable"]
    assert doctor.document["is_refused"] is True
    assert all(found["advice"] for found in doctor.document["findings"])
    assert status.code == 1
    assert status.stdout.count("DOWN") == 2
