"""The six walks of architecture.md, followed at run time: each file that the page lists is met, in the page's order."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from schemaless_core.engine.mysql.wire import connection
from schemaless_core.engine.mysql.wire.answers import WireAnswer, read_answers
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.facades import Migration, migration
from tests.stores import Stores
from tests.walks import ROOT, Walk, walked
from tripstore.cli.run import run
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import EVERYTHING, Backfill
from tripstore.migration.mirror.mirror import Mirror
from tripstore.phase import Phase

#: Of the whole put of a service in the phase live, on MySQL: instruments, pool and checks are in it, too.
LIVE_PUT_FILES, LIVE_PUT_CHANGES = 34, 49
#: Within which a server has answered all statements of a put.
ANSWERED_SECONDS = 0.05
#: The loop of a worker and its heartbeat are threads: which of them is somewhere first is no fact.
SIDE_BY_SIDE = frozenset({"a trigger"})
SWITCH = ["cutover", "switch", "--force", "--why", "a test", "--yes"]


def listed() -> dict[str, list[str]]:
    """By the words of its link: the files of a walk, as architecture.md lists them."""
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    table = page[page.index("## Six walks") : page.index("## What is stored")]
    rows = re.findall(r"^\| \[(.*?)\]\(journey-of-[a-z-]+\.md\) \| (.*) \|$", table, re.MULTILINE)
    return {name: re.findall(r"`([a-z_/]+\.py)`", files) for name, files in rows}


WALKS = listed()


@pytest.fixture(scope="module")
def made(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """A company in the phase dualwrite, and Schemaless on MariaDB."""
    with migration(servers, stores, engine="mariadb", triggers=dict(quick()), backfill={"parts": 1}) as opened:
        opened.legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (gen_random_uuid(), 'old')")
        opened.phase(Phase.DUALWRITE)
        yield opened


def put(made: Migration, _folder: Path) -> Walk:
    made.phase(Phase.LIVE)
    made.store.put_cell(uuid4(), "FREE", 1, {"n": 1})  # the first one connects
    with walked() as walk:
        made.store.put_cell(uuid4(), "FREE", 1, {"n": 1})
    return walk


def mirrored_write(made: Migration, _folder: Path) -> Walk:
    made.phase(Phase.DUALWRITE)
    relay = Mirror(made.facade).relay()
    with walked() as walk:
        made.store.put_cell(uuid4(), "BASE", 1, {"status": "requested"})
        relay.turn()
    return walk


def shadow_read(made: Migration, _folder: Path) -> Walk:
    made.phase(Phase.SHADOW)
    row_key = uuid4()
    made.store.put_cell(row_key, "BASE", 1, {"status": "requested"})  # the mirror lacks it: it is asked again
    with walked() as walk:
        made.store.get_cell_latest(row_key, "BASE")
        made.duo.shadow.drain(20)
    made.carry()
    return walk


def chunk(made: Migration, _folder: Path) -> Walk:
    made.phase(Phase.DUALWRITE)
    backfill = Backfill(made.facade)
    job = backfill.begin(backfill.plan(EVERYTHING, None))
    with walked() as walk:
        backfill.runner(job, "w").run()
    return walk


def trigger(made: Migration, _folder: Path) -> Walk:
    made.phase(Phase.LIVE)
    store = made.facade.store
    with walked() as walk, working(store, [noting(Notebook())]):
        made.store.put_cell(uuid4(), "BASE", 1, {"status": "requested"})
        wait_until_caught_up(store, "noted")
    return walk


def switch(made: Migration, folder: Path) -> Walk:
    made.phase(Phase.DUALWRITE)
    (folder / "tripstore.yaml").write_text(json.dumps(made.document))
    with chdir(folder):
        run(["cutover", "plan"])  # the first command imports what it needs
        with walked() as walk:
            assert run(list(SWITCH)) == 0
    return walk


TAKEN: dict[str, Callable[[Migration, Path], Walk]] = {
    "a put": put,
    "a mirrored write": mirrored_write,
    "a shadow read": shadow_read,
    "a chunk": chunk,
    "a trigger": trigger,
    "a switch": switch,
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_walk_meets_the_files_of_its_page_in_their_order(name: str, made: Migration, tmp_path: Path) -> None:
    walk = TAKEN[name](made, tmp_path)

    met = [file for file in walk.files if file in WALKS[name]]
    if name in SIDE_BY_SIDE:
        assert set(met) == set(WALKS[name])
    else:
        assert met == WALKS[name]


def test_a_walk_has_seven_files_at_most_and_none_twice() -> None:
    assert WALKS.keys() == TAKEN.keys()
    for files in WALKS.values():
        assert 1 < len(files) <= 7
        assert len(set(files)) == len(files)


def once_all_has_come(its: Any) -> list[WireAnswer]:
    time.sleep(ANSWERED_SECONDS)  # no event says that a server has sent the last of its answers
    return read_answers(its)


def test_a_live_put_passes_no_more_files_than_it_did(made: Migration, tmp_path: Path) -> None:
    """A server's answer that comes in several packets is waited for more than once: the least of some puts counts."""
    with patch.object(connection, "read_answers", once_all_has_come):
        walk = min((put(made, tmp_path) for _ in range(20)), key=lambda walk: walk.changes)

    assert len(walk.files) <= LIVE_PUT_FILES, walk.files
    assert walk.changes <= LIVE_PUT_CHANGES


def test_control_another_order_and_a_file_that_is_not_passed_are_told(made: Migration, tmp_path: Path) -> None:
    walk = put(made, tmp_path)

    met = [file for file in walk.files if file in WALKS["a put"]]
    assert met != WALKS["a put"][::-1]
    reads = [file.replace("writes.py", "reads.py") for file in WALKS["a put"]]
    assert [file for file in walk.files if file in reads] != reads
