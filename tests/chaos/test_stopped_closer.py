"""A process that is stopped while it closes shards, with most of their counter rows locked, holds no writer up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pymysql

from schemaless_core import Datastore, NodeUnavailable
from tests.chaos.actors import running, wait_until, with_failpoints
from tests.factories import keys_in
from tests.forking import FORK_SERVER
from tests.stores import ServerEngine, Stores

#: Two seconds of silence, and up to one that a put waits for a lock.
HELD_SECONDS_MAX = 3.5


def close_shards(config: dict[str, Any]) -> None:
    with Datastore.open(config) as store:
        store.authority.close("a", 1)


def test_a_process_stopped_while_closing_shards_holds_no_writer_up(
    server_engine: ServerEngine, stores: Stores, failpoints: Path
) -> None:
    """It has waited for a busy shard in vain, and has locked all those before it."""
    config = stores.config(server_engine, shards=8)
    store = Datastore.open(config)
    store.create_schema()
    on_a = store.schema.plan().topology.shards_of("a")
    server, state = stores.clusters(server_engine)[0].primary, f"{store.config.datastore}_meta.shard_state"
    (failpoints / "authority.lock_waited").write_text("stop")
    stopped = FORK_SERVER.Process(target=with_failpoints, args=(str(failpoints), close_shards, config), daemon=True)
    busy = pymysql.connect(host="127.0.0.1", port=server.port, user="root", password=server.password)

    with busy, busy.cursor() as cursor, running([stopped]):
        busy.begin()
        cursor.execute(f"SELECT * FROM {state} WHERE shard = %s FOR UPDATE", (on_a[-1],))
        hit = failpoints / "authority.lock_waited.hit"
        wait_until("it has stopped", lambda: hit.exists() and _is_stopped(stopped.pid))
        started = time.monotonic()
        while not is_stored(store, on_a[0]):
            assert time.monotonic() - started < HELD_SECONDS_MAX
        held = time.monotonic() - started
        busy.rollback()
        assert store.authority.close("a", 1)

    store.close()
    print(f"{server_engine}: a put beside a stopped closer took {held:.3f} s")


def is_stored(store: Datastore, shard: int) -> bool:
    row_key: UUID = next(keys_in(store, shard))
    try:
        return store.put_cell(row_key, "BASE", 1, "held up for a while").status == "CREATED"
    except NodeUnavailable:
        return False


def _is_stopped(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
