"""`tripstore triggers` and `tripstore worker`: run, look, mend."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.triggers.leases.coordinator import Change
from tests.acceptance.conftest import SHARDS, Shell
from tests.acceptance.workers import WAIT_SECONDS, quicken, serving
from tests.chaos.actors import wait_until
from tests.crew import wait_until_caught_up

MODULE = """
from schemaless_core.triggers import trigger

@trigger(column="BASE", start="beginning")
def noted(cell):
    if cell.body == "poison":
        raise ValueError("this cell is refused")

@trigger(column="BASE")
def unsaid(cell): ...

app = [noted]
"""


@pytest.fixture
def shop(store: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder with a module of triggers in it, and quick leases; what is imported from it is forgotten."""
    quicken(store)
    (store.folder / "shop.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield store
    sys.modules.pop("shop", None)


@pytest.fixture
def datastore(shop: Shell) -> Iterator[Datastore]:
    with Datastore.open(shop.folder / "tripstore.yaml") as opened:
        yield opened


@pytest.fixture
def registered(datastore: Datastore) -> Datastore:
    """A datastore with the group `noted`, which no worker serves, and ten cells."""
    datastore.triggers.register_group("noted", "beginning")
    datastore.put_cells(new_cells(10))
    return datastore


def new_cells(count: int) -> list[Cell]:
    return [Cell(uuid4(), "BASE", 1, n) for n in range(count)]


def offsets(datastore: Datastore) -> list[int | None]:
    return [shard.added_id for shard in datastore.triggers.status("noted")[0].shards]


def heads(datastore: Datastore) -> list[int]:
    return [datastore.get_cells_for_shard(shard, 0, 1).head for shard in range(SHARDS)]


def free_port() -> int:
    """The first of two ports in a row that no process uses."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def test_triggers_run_are_looked_at_and_a_poison_cell_is_parked_shown_and_retried(
    shop: Shell, datastore: Datastore
) -> None:
    poison = Cell(uuid4(), "BASE", 1, "poison")
    shard, port = datastore.shard_of(poison.row_key), free_port()
    datastore.put_cells([*new_cells(20), poison])

    # There is no replica: the primary of each cluster is read instead.
    options = ("--workers", "2", "--metrics-port", str(port), "--read", "replica", "--json")
    with serving(shop, "shop:app", *options) as worker:
        wait_until("registered", lambda: datastore.triggers.coordinator.find_group("noted") is not None)
        wait_until("delivered", lambda: datastore.triggers.status("noted")[0].lag_cells == 0)
        wait_until("both serve", lambda: len({s.owner for s in datastore.triggers.status("noted")[0].shards}) == 2)

        screen = shop.call("triggers", "status", "--shards")
        seen = shop.call("triggers", "status", "noted", "--shards", "--json").document
        assert (screen.code, seen["is_fine"], seen["workers"]) == (0, True, 2)
        assert "1 parked; `tripstore triggers parked list noted`" in screen.stdout
        [group] = seen["groups"]
        assert (group["state"], group["offset"], group["lag_cells"], group["parked"]) == ("running", 21, 0, 1)
        assert (group["timeout_seconds"], "60 s" in screen.stdout) == (60.0, True)
        assert [view["parked"] for view in group["shard_views"]] == [int(n == shard) for n in range(SHARDS)]
        assert all(view["is_served"] and view["offset"] == view["head"] for view in group["shard_views"])

        [parked] = shop.call("triggers", "parked", "list", "noted", "--json").document["parked"]
        place = (str(shard), str(parked["added_id"]))
        assert (parked["shard"], parked["row_key"], parked["attempts"]) == (shard, str(poison.row_key), 3)
        assert "this cell is refused" in parked["error"]
        shown = shop.call("triggers", "parked", "show", "noted", *place, "--json").document
        assert shown["cell"]["body"] == "poison"
        assert '"poison"' in shop.call("triggers", "parked", "show", "noted", *place).stdout
        assert '"poison"' not in shop.call("triggers", "parked", "list", "noted").stdout

        again = shop.call("triggers", "retry", "noted", "--shard", place[0], "--added-id", place[1], "--json")
        assert again.document == {"group": "noted", "is_done": True, "parked": 1}
        wait_until("tried again", lambda: datastore.triggers.parked("noted")[0].attempts == 4)

        metrics = [read(f"http://127.0.0.1:{port + number}/metrics") for number in range(2)]
        assert sum(map(delivered, metrics)) == 20

        worker.send_signal(signal.SIGTERM)
        stdout, stderr = worker.communicate(timeout=WAIT_SECONDS)
    assert (worker.returncode, stdout.strip()) == (0, '{"workers":2,"restarts":0,"is_finished":true}')
    assert stderr.count("what it held was given back") == 2
    # A cell that is not delivered is said without being asked for, with the name of who says it.
    assert re.search(r"\S+-\d+-[0-9a-f]{8} WARNING .*event=triggers.cell_parked", stderr)

    after = shop.call("triggers", "status", "--json")
    assert (after.code, after.document["workers"], after.document["groups"][0]["unserved"]) == (1, 0, SHARDS)

    kept = shop.call("triggers", "remove", "noted", "--yes")
    assert (kept.code, "1 cells of noted are parked" in kept.complaint) == (4, True)
    assert "--with-parked" in kept.complaint
    assert len(datastore.triggers.parked("noted")) == 1
    gone = shop.call("triggers", "remove", "noted", "--with-parked", "--yes", "--json")
    assert (gone.code, gone.document["parked"]) == (0, 1)


def read(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def delivered(metrics: str) -> int:
    pattern = r'^schemaless_trigger_cells_total\{group="noted",outcome="delivered"\} (\S+)$'
    return sum(int(float(count)) for count in re.findall(pattern, metrics, re.MULTILINE))


def test_before_the_first_run_there_is_no_group(shop: Shell) -> None:
    assert "tripstore triggers run MODULE" in shop.call("triggers", "status").stdout
    seen = shop.call("triggers", "status", "--json").document
    assert seen.pop("coordinator").startswith("control database on ")
    assert seen == {"workers": 0, "is_fine": True, "groups": []}
    assert shop.call("triggers", "status", "noted").code == 2


def test_a_group_without_a_worker_is_said_everywhere(shop: Shell, registered: Datastore) -> None:
    groups, overview = shop.call("triggers", "status"), shop.call("status")

    for ran in (groups, overview):
        assert ran.code == 1
        assert f"noted: no worker serves its {SHARDS} shards; `tripstore triggers run MODULE` does" in ran.stdout
    assert shop.call("status", "--json").document["groups"][0]["lag_cells"] == 10


def test_the_leases_of_a_dead_worker_count_as_not_served(shop: Shell, registered: Datastore) -> None:
    coordinator = registered.triggers.coordinator
    coordinator.beat("ghost", ["noted"], {})
    term = coordinator.take_lead("ghost", None)
    assert term is not None
    leases = coordinator.survey().leases
    coordinator.assign("ghost", term, [Change("noted", each.shard, None, each.fence, None, "ghost") for each in leases])

    ran = shop.call("triggers", "status", "--shards")

    assert ran.code == 1
    assert ran.stdout.count("ghost (dead)") == SHARDS
    assert f"no worker serves its {SHARDS} shards" in ran.stdout


def test_a_watched_status_is_shown_again_until_ctrl_c(shop: Shell, registered: Datastore) -> None:
    watching = shop.start("triggers", "status", "--watch")
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("0 workers are alive")
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=WAIT_SECONDS)

    assert watching.returncode == 0
    assert shop.call("triggers", "status", "--watch", "--json").code == 2


def test_a_halted_group_says_why_and_is_resumed(shop: Shell, registered: Datastore) -> None:
    registered.triggers.coordinator.halt("noted", "3 cells are parked")

    ran = shop.call("triggers", "status")
    assert ran.code == 1
    assert "HALTED: 3 cells are parked; mend it, then `tripstore triggers resume noted`" in ran.stdout

    assert shop.call("triggers", "resume", "noted").stdout.strip() == "noted runs."
    assert shop.call("triggers", "status", "--json").document["groups"][0]["state"] == "running"


def test_a_reset_shows_its_plan_and_changes_nothing_in_a_dry_run(shop: Shell, registered: Datastore) -> None:
    ran = shop.call("triggers", "reset", "noted", "--to", "now", "--dry-run")
    plan = shop.call("triggers", "reset", "noted", "--to", "now", "--dry-run", "--json").document

    assert ran.code == 0
    assert "0 cells of the log are delivered again, 10 are skipped." in ran.stdout
    assert (plan["is_done"], plan["again"], plan["skipped"]) == (False, 0, 10)
    assert [shard["after"] for shard in plan["shards"]] == heads(registered)
    assert offsets(registered) == [0] * SHARDS


def test_a_reset_asks_and_without_a_terminal_refuses(shop: Shell, registered: Datastore) -> None:
    ran = shop.run("triggers", "reset", "noted", "--to", "now")

    assert ran.code == 4
    assert "--yes" in ran.complaint
    assert offsets(registered) == [0] * SHARDS


def test_a_reset_sets_offsets_forwards_and_backwards_and_says_how_many_cells_that_are(
    shop: Shell, registered: Datastore
) -> None:
    forwards = shop.call("triggers", "reset", "noted", "--to", "now", "--yes", "--json").document
    assert (forwards["is_done"], forwards["again"], forwards["skipped"]) == (True, 0, 10)
    assert offsets(registered) == heads(registered)

    count = heads(registered)[2]
    backwards = shop.call("triggers", "reset", "noted", "--to", "beginning", "--shard", "2", "--yes")
    assert f"The offsets of 1 shards are set. {count} cells of the log are delivered again" in backwards.stdout
    assert offsets(registered)[2] == 0
    assert sum(offset or 0 for offset in offsets(registered)) == 10 - count


def test_a_reset_to_a_time_delivers_what_was_put_from_then_on(shop: Shell, registered: Datastore) -> None:
    before = heads(registered)
    time.sleep(0.002)
    moment = datetime.now(UTC).isoformat()
    time.sleep(0.002)
    registered.put_cells(new_cells(10))

    shop.call("triggers", "reset", "noted", "--to", moment, "--yes")

    assert offsets(registered) == before


def test_a_removed_group_is_forgotten(shop: Shell, registered: Datastore) -> None:
    assert "would be forgotten" in shop.call("triggers", "remove", "noted", "--dry-run").stdout
    assert shop.run("triggers", "remove", "noted").code == 4
    assert registered.triggers.coordinator.groups()

    assert shop.call("triggers", "remove", "noted", "--yes", "--json").document["is_done"] is True

    assert registered.triggers.coordinator.groups() == {}


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        ("reset mirror:reverse --to now --yes", "--to beginning"),
        ("reset mirror:reverse --to now --dry-run", "--to beginning"),
        ("reset mirror:reverse --to 2026-03-01T12:00:00+00:00 --shard 1 --yes", "--to beginning"),
        ("remove mirror:reverse --yes", "cutover complete"),
        ("remove mirror:reverse --with-parked --yes", "cutover complete"),
        ("remove index:riders:v2 --yes", "index drop riders"),
    ],
)
def test_i1_a_group_of_the_stores_own_skips_and_forgets_nothing(
    shop: Shell, datastore: Datastore, arguments: str, way_out: str
) -> None:
    """What the reverse mirror skips was acknowledged, and the way back would lose it."""
    for group in ("mirror:reverse", "index:riders:v2"):
        datastore.triggers.register_group(group, "beginning")
    datastore.put_cells(new_cells(10))

    ran = shop.call("triggers", *arguments.split())

    assert ran.code == 4
    assert way_out in ran.complaint
    for status in datastore.triggers.status():
        assert sum(shard.lag_cells or 0 for shard in status.shards) == 10
    assert set(datastore.triggers.coordinator.groups()) == {"mirror:reverse", "index:riders:v2"}


def test_the_reverse_mirror_may_look_at_everything_again(shop: Shell, datastore: Datastore) -> None:
    datastore.put_cells(new_cells(10))
    datastore.triggers.register_group("mirror:reverse", "now")

    ran = shop.call("triggers", "reset", "mirror:reverse", "--to", "beginning", "--yes", "--json")

    assert (ran.code, ran.document["again"]) == (0, 10)


def test_nothing_is_parked_and_nothing_retried_where_nothing_failed(shop: Shell, registered: Datastore) -> None:
    assert shop.call("triggers", "parked", "list", "noted").stdout.strip() == "Nothing is parked."
    assert shop.call("triggers", "retry", "noted", "--all").stdout.strip() == "No such cell is parked."
    assert shop.call("triggers", "parked", "show", "noted", "1", "7").code == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("status other", "There is no group 'other'.*noted"),
        ("parked list other", "There is no group 'other'"),
        ("retry other --all", "There is no group 'other'"),
        ("resume other", "There is no group 'other'"),
        ("reset other --to now --yes", "There is no group 'other'"),
        ("remove other --yes", "There is no group 'other'"),
        ("parked list noted --shard 99", "There is no shard 99.*0 to 3"),
        ("parked show noted 99 1", "There is no shard 99"),
        ("reset noted --to now --shard 99 --yes", "There is no shard 99"),
        ("reset noted --to yesterday", "none of now, beginning"),
        ("reset noted --to 2026-03-01T12:00:00", "no time zone"),
        ("reset noted", "Missing option '--to'"),
        ("retry noted", "Say which"),
        ("retry noted --all --shard 1", "Say which"),
        ("retry noted --all --added-id 1", "Added ids count per shard"),
        ("run shop:third", "has no third.*noted, unsaid"),
        ("run no_such_module", "There is no module"),
        ("run broken", "broken cannot be imported .SyntaxError"),
        ("run shop:unsaid", "does not say where it starts"),
        ("run shop:noted --workers 0", "--workers"),
        ("run shop:noted --workers 9 --metrics-port 65530", "need port 65536"),
        ("run shop:noted --read nearest", "'nearest' is not one of"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_done(
    shop: Shell, registered: Datastore, arguments: str, complaint: str
) -> None:
    (shop.folder / "broken.py").write_text("def\n")

    ran = shop.call("triggers", *arguments.split())

    assert ran.code == 2
    assert re.search(complaint, ran.complaint.replace("\n", " "))
    assert offsets(registered) == [0] * SHARDS


def test_a_port_in_use_is_named_before_any_process_starts(shop: Shell, registered: Datastore) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        ran = shop.call("triggers", "run", "shop:noted", "--metrics-port", port)

    assert ran.code == 2
    assert f"127.0.0.1:{port} cannot be served" in ran.complaint


def test_a_datastore_without_its_tables_is_said_so(shop: Shell, tmp_path: Path) -> None:
    empty = Shell(tmp_path / "empty")
    empty.folder.mkdir()
    empty.call("init")
    (empty.folder / "shop.py").write_text(MODULE)

    for arguments in (("triggers", "run", "shop:noted"), ("triggers", "status"), ("worker", "run")):
        ran = empty.call(*arguments)
        assert ran.code == 2
        assert "tripstore schema apply" in ran.complaint


def test_a_worker_without_built_in_groups_waits_and_says_so(shop: Shell) -> None:
    worker = shop.start("worker", "run")
    try:
        said_until(worker, "has nothing to serve yet and waits: no index")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_SECONDS) == 0
    finally:
        end(worker)


INDEX = """
indexes:
  - table: rider_index
    column_defs:
      - column_key: BASE
        fields: [{field: rider_uuid, type: UUID}]
"""


def test_a_worker_serves_an_index_that_is_created_while_it_runs(shop: Shell) -> None:
    config = shop.folder / "tripstore.yaml"
    config.write_text(config.read_text() + INDEX)
    assert "index rider_index: no version of it is kept" in shop.call("status").stdout
    worker = shop.start("worker", "run", "--read", "replica")  # there is none: its primary is read
    try:
        with Datastore.open(config) as datastore:
            said_until(worker, "waits: no index")
            datastore.indexes.create_missing()
            said_until(worker, "serves index:rider_index:v1")
            datastore.put_cells([Cell(uuid4(), "BASE", 1, {"rider_uuid": str(uuid4())}) for _ in range(10)])
            wait_until_caught_up(datastore, "index:rider_index:v1")
        served = shop.call("status")
    finally:
        end(worker)

    assert served.code == 0
    assert f"{SHARDS} of {SHARDS} shards by 1 workers" in served.stdout
    assert "`tripstore worker run` does" in shop.call("status").stdout


def said_until(process: subprocess.Popen[str], text: str) -> None:
    """Read what a process says on stderr, up to a line with this text."""
    assert process.stderr is not None
    said: list[str] = []
    while not said or text not in said[-1]:
        said.append(process.stderr.readline())
        assert said[-1], f"it ended: {said}"


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=WAIT_SECONDS)


def test_built_in_work_that_does_not_exist_is_refused(shop: Shell) -> None:
    ran = shop.call("worker", "run", "--only", "index,mirrors")

    assert ran.code == 2
    assert "'mirrors' is no built-in work. There is: index, mirror, buffer, failover, jobs." in ran.complaint
