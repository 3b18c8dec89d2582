"""`tripstore schema`: plan, apply, and an apply that is interrupted half-way."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.acceptance.conftest import Shell

POLL_SECONDS = 0.01
WAIT_SECONDS = 20.0


def test_apply_creates_what_plan_shows_and_then_nothing_is_missing(shell: Shell) -> None:
    shell.call("init", "--shards", "4")

    before = shell.run("schema", "plan")
    assert before.code == 0
    assert "2-3" in before.stdout
    assert "tripstore schema apply" in before.stdout
    assert shell.call("schema", "apply", "--dry-run", "--json").document["is_complete"] is False

    applied = shell.run("schema", "apply", "--json")
    assert applied.code == 0
    assert [cluster["missing_runs"] for cluster in applied.document["clusters"]] == [["0-1"], ["2-3"]]
    assert "shards: 4 of 4" in applied.complaint

    after = shell.call("schema", "plan", "--json")
    assert (after.code, after.document["is_complete"], after.document["seconds"]) == (0, True, None)
    assert "Nothing was missing" in shell.call("schema", "apply").stdout


def test_ctrl_c_leaves_an_apply_that_the_next_one_finishes(shell: Shell) -> None:
    shell.call("init", "--shards", "8192")
    failpoints = shell.folder / "failpoints"
    failpoints.mkdir()
    armed = failpoints / "schema.shards_opened"
    armed.write_text("wait after=1")

    apply = shell.start("schema", "apply", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    _wait_for(failpoints / "schema.shards_opened.hit")
    apply.send_signal(signal.SIGINT)
    (failpoints / "schema.shards_opened.go").touch()
    _stdout, stderr = apply.communicate(timeout=WAIT_SECONDS)

    assert apply.returncode == 5, stderr
    assert "Traceback" not in stderr
    assert "same command again" in stderr
    missing = sum(cluster["missing"] for cluster in shell.call("schema", "plan", "--json").document["clusters"])
    assert 0 < missing < 8192
    assert shell.call("schema", "apply").code == 0
    assert shell.call("schema", "plan", "--json").document["is_complete"] is True


def test_a_shard_count_that_changed_after_creation_is_refused(store: Shell) -> None:
    config = store.folder / "tripstore.yaml"
    config.write_text(config.read_text().replace("shards: 4", "shards: 5"))

    ran = store.call("schema", "apply", "--json")

    assert ran.code == 2
    assert ran.document["error"]["kind"] == "InvalidConfig"
    assert "shards: 4" in ran.complaint


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(POLL_SECONDS)
