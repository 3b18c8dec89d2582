"""`tripstore fsck`: what it says and exits with; jobs; what it mends; wrong input."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import click
import pytest
import yaml

from schemaless_core import Cell, Datastore, Json
from schemaless_core.control.jobs.records import Finding
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.errors import LogHole
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from schemaless_core.fsck.faults import Fault, commands_of
from tests.acceptance.conftest import SHARDS, Shell
from tests.acceptance.repaired import trip
from tests.acceptance.workers import quicken
from tests.chaos.actors import wait_until
from tests.damage import execute, lose, spoil
from tests.facades import migration
from tests.fscks import row_of
from tests.stores import Stores
from tripstore.cli.root import root
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

ROOT = Path(__file__).parents[2]


@contextmanager
def opened(store: Shell) -> Iterator[Datastore]:
    with Datastore.open(store.folder / "tripstore.yaml") as datastore:
        yield datastore


def put(store: Shell, count: int = 6) -> list[Cell]:
    """Cells of shard 0."""
    with opened(store) as datastore:
        cells = [Cell(row_of(datastore, 0), "BASE", 1, {"n": n}) for n in range(count)]
        datastore.put_cells(cells)
    return cells


def test_a_store_that_is_right_is_called_right(store: Shell) -> None:
    put(store)

    ran = store.run("fsck")
    document = store.call("fsck", "--deep", "--json")

    assert ran.code == 0
    assert "Everything that was looked at is right. Replicas and entries of indexes are compared" in ran.stdout
    assert "6 of about 6 (est.) cells, done; 6 of 6 parts" in ran.stdout
    assert document.code == 0
    assert (document.document["is_clean"], document.document["faults"]) == (True, {})


def test_each_finding_says_what_shows_and_what_mends_it_and_that_helps(store: Shell) -> None:
    cells = put(store)
    with opened(store) as datastore:
        spoil(datastore, cells[1], b'{"n" : 7}')
        lose(datastore, cells[3])

    ran = store.call("fsck")
    document = store.call("fsck", "--show", "last", "--json").document

    assert ran.code == 1
    assert "1 bytes (I2)" in ran.stdout
    assert "nothing stands at added id 4 of shard 0: readers of its log stop there" in ran.stdout
    assert "see   tripstore cell log 0 --from 3" in ran.stdout
    assert "mend  tripstore fsck --mend fsck-" in ran.stdout
    assert document["faults"] == {"bytes": 1, "hole": 1}
    (spoilt,) = [each for each in document["findings"] if each["kind"] == "bytes"]
    assert (spoilt["row_key"], spoilt["shows"]) == (
        str(cells[1].row_key),
        f"tripstore cell get {cells[1].row_key} BASE 1",
    )

    dry = store.call("fsck", "--mend", "last", "--dry-run")
    asked = store.call("fsck", "--mend", "last")
    mended = store.call("fsck", "--mend", "last", "--yes", "--json")

    assert (dry.code, asked.code) == (1, 4)
    assert "1 bytes" not in dry.stdout
    assert "2 to be mended" in dry.stdout
    assert (mended.code, mended.document["outcomes"]) == (1, {"mended": 1, "left": 1})
    given_up = store.call("fsck", "--mend", "last", "--give-up", "--yes")
    assert given_up.code == 0
    assert "1 given up" in given_up.stdout
    assert store.call("fsck").code == 0
    with opened(store) as datastore:
        bodies = [cell.body for cell in datastore.get_cells_for_shard(0, 0, 10).cells]
    assert bodies == [{"n": n} for n in (0, 7, 2, 4, 5)]
    assert "fsck.mend" in store.call("status").stdout


def test_readers_of_a_log_with_a_hole_stop_until_it_is_given_up(store: Shell) -> None:
    """The control of the above: before it no reader comes past."""
    cells = put(store)
    with opened(store) as datastore:
        lose(datastore, cells[3])
        with pytest.raises(LogHole):
            datastore.get_cells_for_shard(0, 0, 10)
    store.call("fsck")

    store.call("fsck", "--mend", "last", "--give-up", "--yes")

    with opened(store) as datastore:
        assert len(datastore.get_cells_for_shard(0, 0, 10).cells) == 5


def test_what_has_commands_of_its_own_is_named_and_left(store: Shell) -> None:
    put(store)
    with opened(store) as datastore:
        execute(datastore, 0, "UPDATE {state} SET state = 'COPY' WHERE shard = 0")

    found = store.call("fsck", "--json")
    mended = store.call("fsck", "--mend", "last", "--yes")

    assert (found.code, found.document["faults"]) == (1, {Fault.MIXED: 1})
    assert mended.code == 1
    assert "Others have commands of their own (1 mixed)" in mended.stdout


def test_what_would_be_looked_at_is_said_and_no_job_is_begun(store: Shell) -> None:
    put(store)

    said = store.call("fsck", "--dry-run")
    document = store.call("fsck", "--dry-run", "--shards", "1-2", "--json").document

    assert said.code == 0
    assert "the logs of the shards: 4 parts" in said.stdout
    assert "About 6 cells." in said.stdout
    assert document == {"parts": {"log": 2}, "cells_estimate": 0, "is_deep": False}
    assert store.call("fsck", "--show", "last").code == 2


def test_i11_one_that_is_interrupted_is_gone_on_with(store: Shell, failpoints: Path) -> None:
    cells = put(store, 40)
    with opened(store) as datastore:
        spoil(datastore, cells[0], b"{")
    (failpoints / "fsck.step").write_text("wait after=3")
    process = store.start("fsck", environment={ENVIRONMENT_VARIABLE: str(failpoints)})
    wait_until("it is at a step", (failpoints / "fsck.step.hit").exists)
    process.send_signal(signal.SIGINT)
    (failpoints / "fsck.step.go").touch()
    _stdout, stderr = process.communicate(timeout=30)

    assert process.returncode in (1, 5), "1, when it had come to the cell"
    assert "tripstore fsck --resume last" in stderr
    assert store.call("fsck", "--show", "last", "--json").document["progress"]["job"]["state"] == "running"
    seen = store.call("fsck", "--resume", "last", "--json")
    assert (seen.code, seen.document["faults"]) == (1, {"bytes": 1})
    assert seen.document["progress"]["rows"] == 40
    assert seen.document["progress"]["job"]["state"] == "done"


def test_several_processes_share_its_parts(store: Shell) -> None:
    put(store)

    ran = store.run("fsck", "--processes", "2", "--json")

    assert ran.code == 0
    assert ran.document["progress"]["rows"] == 6
    assert ran.document["progress"]["parts_done"] == 2 + SHARDS


def counted_long_ago(store: Shell, hour: datetime | None = None) -> dict[str, int]:
    """What the ledgers have of comparisons; with an hour one more is counted in it."""
    with opened(store) as datastore:
        ledgers = Ledgers(datastore.control)
        if hour is not None:
            ledgers.add("shadow", {"equal": 1}, hour)
        return ledgers.counts("shadow")


def test_one_that_is_left_to_a_worker_is_done_by_it_and_what_is_too_old_is_pruned(store: Shell) -> None:
    quicken(store)
    put(store)
    assert counted_long_ago(store, datetime.now(UTC) - timedelta(days=91))

    left = store.call("fsck", "--detach")
    assert left.code == 0
    assert "is left to `tripstore worker run`; `tripstore fsck --show" in left.stdout
    worker = store.start("worker", "run", "--only", "jobs")
    try:
        wait_until("the worker has done it", lambda: store.call("fsck", "--show", "last").code == 0)
        wait_until("it has pruned", lambda: not counted_long_ago(store))
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)


def test_one_that_is_given_up_is_not_gone_on_with(store: Shell) -> None:
    put(store)
    store.call("fsck", "--detach")

    assert store.call("fsck", "--cancel", "last").code == 4
    assert store.call("fsck", "--cancel", "last", "--yes").code == 0
    resumed = store.call("fsck", "--resume", "last")

    assert resumed.code == 2
    assert "it cannot resume" in resumed.complaint


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--shards", "3-9"), "There are no shards 3 to 9"),
        (("--shards", "all"), "are no shards: write 7, or 0-15"),
        (("--columns", ","), "is no list of columns"),
        (("--rate", "0"), "0.0 is not in the range"),
        (("--show", "last", "--deep"), "leave the other options out"),
        (("--show", "last", "--resume", "last"), "leave the other options out"),
        (("--give-up",), "--give-up goes with --mend"),
        (("--mend", "fsck-00000000"), "fsck-00000000"),
        (("--cancel", "last", "--detach"), "leave the other options out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said(store: Shell, arguments: tuple[str, ...], says: str) -> None:
    ran = store.call("fsck", *arguments)

    assert ran.code == 2
    assert says in ran.complaint


@pytest.mark.parametrize("fault", list(Fault))
def test_the_commands_that_a_finding_names_can_be_typed(fault: Fault) -> None:
    """Where the finding says what they need, and with a time for TIME."""
    where: dict[str, Json] = {
        "reason": "",
        "shard": 0,
        "before": 4,
        "group": "g",
        "index": "i",
        "version": 1,
        "cluster": "a",
    }
    body = {**where, "server": "mysql://root@127.0.0.1:1"}
    finding = Finding(fault.value, UUID(int=1), "BASE", 1, body)
    for is_beside_postgres in (False, True):
        _invariant, *said = commands_of(finding, "last", is_beside_postgres=is_beside_postgres)
        for command in (each.strip() for text in said for each in text.split(", then ")):
            if command.startswith("docs/"):
                assert (ROOT / command.partition("#")[0]).exists()
                continue
            program, *words = shlex.split(command.replace("TIME", "now"))
            assert program == "tripstore"
            parsed(root, words)


def parsed(group: click.Command, words: list[str]) -> None:
    """Raise what click says of a call that it does not take."""
    context = click.Context(group)
    while isinstance(group, click.Group):
        found = group.get_command(context, words.pop(0))
        assert found is not None
        group = found
    group.make_context("", words)


def test_i12_beside_postgres_a_lost_cell_is_for_repair_which_knows_it(
    servers: LocalServers, stores: Stores, shell: Shell
) -> None:
    """Giving it up would lose it. Control: `repair`, as fsck names it, brings it back."""
    with migration(servers, stores, shards=4) as mirrored:
        mirrored.phase(Phase.SHADOW)
        cell = trip(mirrored)
        store = mirrored.facade.store
        (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(dict(mirrored.document)))
        lose(store, cell)

        found = shell.call("fsck", "--json")
        mended = shell.call("fsck", "--mend", "last", "--give-up", "--yes")

        assert found.document["faults"] == {"hole": 1}
        assert found.document["findings"][0]["mends"] == "tripstore diff start, then tripstore repair"
        assert mended.code == 1
        assert "Others have commands of their own (1 hole)" in mended.stdout
        assert shell.call("diff", "start", "--no-indexes").code == 1
        assert shell.call("repair", "--yes").code == 0
        assert store.as_copier().get_cell(*cell.key) == cell
        assert shell.call("fsck").code == 0
