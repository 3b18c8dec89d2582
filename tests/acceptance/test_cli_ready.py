"""`tripstore doctor --ready`: a deployment waits for what is wrong for good, and not for what its own workers mend."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from schemaless_core import Datastore
from schemaless_core.control.jobs.jobs import Jobs
from tests.acceptance.conftest import Shell
from tests.promoted import promotable
from tests.stores import ServerEngine


def asked(shell: Shell) -> tuple[int, bool, bool]:
    """The exit code of `--ready`, and whether its document says ready, and fine."""
    ran = shell.call("doctor", "--quick", "--ready", "--json")
    return ran.code, ran.document["is_ready"], ran.document["is_fine"]


READY, FINE, NOT_READY = (0, True, False), (0, True, True), (1, False, False)
#: MySQL 9 has no MD5 unless it is asked: that is not fine, and hinders no process.
SOUND = {"mariadb": FINE, "mysql": READY}


def test_processes_may_start_where_one_primary_answers_and_nothing_is_wrong_for_good(
    server_engine: ServerEngine, shell: Shell, tmp_path: Path
) -> None:
    with promotable(server_engine, tmp_path / "control", replicas=1) as made:
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(made.document))))
        other = made.other
        assert asked(shell) == SOUND[server_engine]

        made.replica().stop()
        assert asked(shell) == READY, "a replica is down"
        made.replica().start()

        other.query("SET GLOBAL read_only = 1")
        assert asked(shell) == READY, "a primary takes no writes, until a worker has made another one lead"
        other.query("SET GLOBAL read_only = 0")

        other.query("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        assert asked(shell) == NOT_READY, "a primary would lose cells"
        other.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")

        other.query("DELETE FROM trips_meta.shard_state WHERE shard = 3")
        assert asked(shell) == NOT_READY, "a shard is missing"

        other.stop()
        assert asked(shell) == READY, "one primary of two is down"
        assert shell.call("doctor", "--quick").code == 1
        assert "Processes may start." in shell.call("doctor", "--ready").stdout

        made.old.stop()
        assert asked(shell) == NOT_READY, "no primary answers"
        assert "Processes would not find what they need." in shell.call("doctor", "--ready").stdout


def test_a_job_that_stands_still_keeps_no_worker_from_starting(store: Shell) -> None:
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        Jobs(datastore.control).create("backfill", {}, [None])

    assert asked(store) == READY


def test_no_process_may_start_before_the_first_apply(shell: Shell) -> None:
    shell.call("init")

    assert asked(shell) == NOT_READY


def test_processes_may_start_while_the_control_database_is_down(store: Shell) -> None:
    """It says which shards belong where; without it none is known to be missing."""
    (control,) = store.folder.rglob("control.db")
    control.write_bytes(b"this is no database, and long enough to be read" * 99)

    assert asked(store) == READY
