"""Opening and closing shards to owners, server by server: at absolute epochs, all at once, with a history (I9)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pymysql
import pytest

from schemaless_core import BatchFailed, Cell, Datastore, PutResult, SchemaMissing, ShardStatus, StaleEpoch
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import AuthorityChange
from schemaless_core.failpoints import use_folder
from schemaless_core.servers.authority import AuthoritySeen
from tests.chaos.actors import wait_until
from tests.stores import ServerEngine, Stores

SHARDS = 8
#: Under which the shards are open, one after the other.
EPOCHS = (2, 4, 6, 8)


class Rows:
    """The rows of a datastore's shards, and a way round everything that guards them."""

    def __init__(self, engine: str, stores: Stores, store: Datastore) -> None:
        self._engine = engine
        self._stores = stores
        self._store = store

    def states(self) -> dict[int, tuple[int, str]]:
        found: dict[int, tuple[int, str]] = {}
        for cluster in self._store.clusters.values():
            heads = cluster.primary.node.heads(None, Deadline(5))
            found |= {shard: (head.state.authority_epoch, head.state.status) for shard, head in heads.items()}
        return found

    def history(self, shard: int) -> list[tuple[int, str, int]]:
        return [change[:3] for change in changes_of(self._store, shard)]

    def run(self, statement: str) -> None:
        """Run a statement on all servers; STATE and HISTORY are the tables."""
        for name, cluster in self._store.clusters.items():
            if self._engine == "sqlite":
                file = cluster.primary.node.name.removeprefix("sqlite:///") + f"/{self._store.config.datastore}.db"
                statement = statement.replace("STATE", "shard_state").replace("HISTORY", "shard_authority")
                with sqlite3.connect(file) as connection:
                    connection.execute(statement)
                connection.close()
            else:
                assert self._engine in ("mariadb", "mysql")
                meta = f"{self._store.config.datastore}_meta"
                filled = statement.replace("STATE", f"{meta}.shard_state").replace("HISTORY", f"{meta}.shard_authority")
                servers = self._stores.clusters("mariadb" if self._engine == "mariadb" else "mysql")
                servers["ab".index(name)].primary.query(filled)


def changes_of(store: Datastore, shard: int) -> list[AuthorityChange]:
    (found,) = (
        history
        for cluster in store.clusters.values()
        if (history := cluster.primary.node.authority_history(shard, Deadline(5)))
    )
    return found


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    with Datastore.open(stores.config(datastore_engine, shards=SHARDS)) as datastore:
        datastore.create_schema(status=ShardStatus.COPY)
        yield datastore


@pytest.fixture
def rows(datastore_engine: str, stores: Stores, store: Datastore) -> Rows:
    return Rows(datastore_engine, stores, store)


def open_all(store: Datastore, epoch: int) -> None:
    for name in store.clusters:
        store.authority.open(name, epoch)


def close_all(store: Datastore, epoch: int) -> list[bool]:
    return [store.authority.close(name, epoch) for name in store.clusters]


def everywhere(epoch: int, state: str) -> dict[int, tuple[int, str]]:
    return dict.fromkeys(range(SHARDS), (epoch, state))


def test_a_server_is_opened_and_closed_as_a_whole(store: Datastore, rows: Rows) -> None:
    store.authority.open("a", 2)

    assert sorted(rows.states().values()) == [(0, "COPY")] * 4 + [(2, "RW")] * 4
    store.authority.open("b", 2)
    assert rows.states() == everywhere(2, "RW")
    assert close_all(store, 3) == [True, True]
    assert rows.states() == everywhere(3, "COPY")


def test_who_comes_late_or_again_changes_nothing(store: Datastore, rows: Rows) -> None:
    open_all(store, 6)

    open_all(store, 6)
    open_all(store, 4)
    assert close_all(store, 5) == [False, False]
    assert close_all(store, 6) == [False, False]
    assert rows.states() == everywhere(6, "RW")

    assert close_all(store, 7) == [True, True]
    assert close_all(store, 7) == [True, True]
    open_all(store, 7)
    assert rows.states() == everywhere(7, "COPY")
    assert rows.history(0) == [(0, "COPY", 1), (6, "RW", 1), (7, "COPY", 1)]


def test_a_shard_of_a_later_epoch_is_not_taken_for_closed(store: Datastore, rows: Rows) -> None:
    rows.run("UPDATE STATE SET authority_epoch = 9 WHERE shard = 0")

    assert close_all(store, 3) == [False, True]
    assert rows.states()[0] == (9, "COPY")
    assert rows.states()[1] == (3, "COPY")


def test_i9_shards_that_are_fenced_or_have_moved_stay_so_and_one_that_is_fenced_is_not_closed(
    store: Datastore, rows: Rows
) -> None:
    """The promotion that has fenced it may open it. The control: one that is no more counts as any other."""
    rows.run("UPDATE STATE SET state = 'MOVED' WHERE shard = 0")
    rows.run("UPDATE STATE SET state = 'RO' WHERE shard = 1")

    open_all(store, 2)
    assert [rows.states()[shard][1] for shard in (0, 1, 2)] == ["MOVED", "RO", "RW"]

    rows.run("UPDATE STATE SET authority_epoch = 1 WHERE shard = 0")
    assert close_all(store, 3) == [False, True]
    assert [rows.states()[shard][1] for shard in (0, 1, 2)] == ["MOVED", "RO", "COPY"]

    rows.run("UPDATE STATE SET state = 'COPY' WHERE shard = 1")
    assert close_all(store, 3) == [True, True]


class Written(NamedTuple):
    """An acknowledged cell: where it is, and as whose."""

    shard: int
    added_id: int
    is_owners: bool
    epoch: int


def misplaced(store: Datastore, written: Collection[Written]) -> list[Written]:
    """Those whose added ids were given under another epoch or state than they were written for."""
    history = {shard: changes_of(store, shard) for shard in range(store.config.shards)}

    def is_right(one: Written) -> bool:
        at = [change for change in history[one.shard] if change.first_added_id <= one.added_id][-1]
        if one.is_owners:
            return (at.authority_epoch, at.state) == (one.epoch, "RW")
        return at.authority_epoch <= one.epoch

    return [one for one in written if not is_right(one)]


def stored(user: Datastore, cells: list[Cell]) -> list[PutResult]:
    """What was stored of these; whatever was not was refused, and not for want of a lock."""
    try:
        return user.put_cells(cells) if len(cells) > 1 else [user.put_cell(*cells[0].key, cells[0].body)]
    except StaleEpoch:
        return []
    except BatchFailed as failed:
        for each in failed.results:
            if not isinstance(each, PutResult | StaleEpoch):
                raise each from failed
        return [each for each in failed.results if isinstance(each, PutResult)]


def write_beside_hand_overs(store: Datastore, owner: Callable[[int], Datastore]) -> list[Written]:
    """Put batches over all shards, as owners and as copiers, while the shards are opened and closed beneath them."""
    epochs, is_over, written = [2], threading.Event(), list[Written]()

    def write(n: int) -> None:
        while not is_over.is_set():
            epoch, is_owners = epochs[0], n % 2 == 0
            user = owner(epoch) if is_owners else store.as_copier(epoch)
            cells = [Cell(uuid4(), "BASE", 1, n) for _ in range(3 * SHARDS if n < 2 else 1)]
            written.extend(Written(each.shard, each.added_id or 0, is_owners, epoch) for each in stored(user, cells))

    def hand_over() -> None:
        try:
            for epoch in EPOCHS:
                seen, epochs[0] = len(written), epoch
                open_all(store, epoch)
                while sum(one[2:] == (True, epoch) for one in written[seen:]) < SHARDS:
                    is_over.wait(0.001)
                assert close_all(store, epoch + 1) == [True, True]
        finally:
            is_over.set()

    with ThreadPoolExecutor(5) as threads:
        writers = [threads.submit(write, n) for n in range(4)]
        threads.submit(hand_over).result()
        for writer in writers:
            writer.result()
    return written


def test_every_added_id_was_given_under_the_epoch_and_state_that_history_says(store: Datastore) -> None:
    """Beside puts of many shards, which are refused or stored, and never lock anybody out."""
    written = write_beside_hand_overs(store, store.as_owner)

    assert misplaced(store, written) == []
    owners = {one.epoch for one in written if one.is_owners}
    assert owners == set(EPOCHS)


@pytest.mark.parametrize("datastore_engine", ["sqlite"], indirect=True)
def test_the_check_finds_an_owner_who_shows_no_epoch(store: Datastore) -> None:
    """The control: without a facade's epoch an owner writes whenever the shard is open, at any epoch."""
    open_all(store, 2)
    first = store.put_cell(uuid4(), "BASE", 1, "in time")
    close_all(store, 3)
    open_all(store, 4)
    late = store.put_cell(uuid4(), "BASE", 1, "of epoch 2, and late")

    ours = [Written(result.shard, result.added_id or 0, True, 2) for result in (first, late)]
    assert misplaced(store, ours) == ours[1:]
    with pytest.raises(StaleEpoch):
        store.as_owner(2).put_cell(uuid4(), "BASE", 1, "of epoch 2, and late")


def test_a_shard_whose_writer_is_slow_is_waited_for(server_engine: ServerEngine, stores: Stores) -> None:
    """Longer than servers wait for a lock: a writer that was stopped keeps the counter row so long."""
    store = stores.fresh(server_engine, shards=SHARDS)
    server, state = stores.clusters(server_engine)[0].primary, f"{store.config.datastore}_meta.shard_state"
    busy = pymysql.connect(host="127.0.0.1", port=server.port, user="root", password=server.password)
    with busy, busy.cursor() as cursor:
        busy.begin()
        cursor.execute(f"SELECT * FROM {state} WHERE shard = 3 FOR UPDATE")
        release = threading.Timer(1.5, busy.rollback)
        release.start()
        is_closed = store.authority.close("a", 1)
        release.join()

    assert is_closed
    assert [change[:2] for change in changes_of(store, 3)] == [(0, "RW"), (1, "COPY")]


def test_i9_shards_are_closed_with_their_history_or_not_at_all(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    """A try whose history had to wait is rolled back: the BEGIN of the next one would commit its first half."""
    store = stores.fresh(server_engine, shards=SHARDS)
    server, history = stores.clusters(server_engine)[0].primary, f"{store.config.datastore}_meta.shard_authority"
    holder = pymysql.connect(host="127.0.0.1", port=server.port, user="root", password=server.password)
    (tmp_path / "authority.lock_waited").write_text("wait after=1")
    use_folder(tmp_path)
    try:
        with holder, holder.cursor() as cursor, ThreadPoolExecutor(1) as thread:
            holder.begin()
            cursor.execute(f"SELECT * FROM {history} FOR UPDATE")
            closing = thread.submit(store.authority.close, "a", 1, 20.0)
            wait_until("it has tried twice", (tmp_path / "authority.lock_waited.hit").exists)
            states = {head.state[1:] for head in store.clusters["a"].primary.node.heads(None, Deadline(5)).values()}
            holder.rollback()
            (tmp_path / "authority.lock_waited.go").touch()
            assert closing.result(20)
    finally:
        use_folder(None)

    assert states == {(0, "RW")}
    assert [change[:3] for change in changes_of(store, 3)] == [(0, "RW", 1), (1, "COPY", 1)]


def test_the_servers_say_who_is_the_authority(store: Datastore, rows: Rows) -> None:
    """For a process that starts while the control database cannot say it."""
    seen: list[AuthoritySeen | None] = [store.authority.find()]
    store.authority.open("a", 2)
    seen.append(store.authority.find())
    open_all(store, 2)
    seen.append(store.authority.find())
    store.authority.close("a", 3)
    seen.append(store.authority.find())

    assert seen == [
        AuthoritySeen(0, 0, SHARDS, ()),
        AuthoritySeen(2, 4, SHARDS, ()),
        AuthoritySeen(2, SHARDS, SHARDS, ()),
        AuthoritySeen(3, 0, SHARDS, ()),
    ]
    # One that is open was opened after a decision; at epoch 0 no hand-over has been decided.
    assert [each is not None and each.is_open for each in seen] == [False, True, True, False]
    rows.run("UPDATE STATE SET authority_epoch = 0, state = 'RW'")
    assert store.authority.find() == AuthoritySeen(0, SHARDS, SHARDS, ())
    assert not AuthoritySeen(0, SHARDS, SHARDS, ()).is_open


def test_i9_a_server_remembers_at_which_epoch_its_shards_were_open(store: Datastore, rows: Rows) -> None:
    """Whatever closes them later: it is the proof of a decision that Postgres has lost."""

    def opened(*, ever: bool = True) -> set[int]:
        asked = store.clusters.values()
        return {each.primary.ask(lambda node: node.opened_at(Deadline(5), ever=ever)) for each in asked}

    assert opened() == {0}
    store.authority.close("a", 3)
    assert opened() == {0}
    open_all(store, 4)
    assert opened() == {4}
    for name in store.clusters:
        assert store.authority.close(name, 2_000_001)
    assert opened() == {4}
    assert {
        each.primary.ask(lambda node: node.opened_at(Deadline(5), ever=False)) for each in store.clusters.values()
    } == {0}
    rows.run("DELETE FROM HISTORY WHERE state = 'RW'")  # the control: it is the history that remembers
    assert opened() == {0}


def test_shards_made_without_a_legacy_store_become_copies(datastore: Datastore) -> None:
    datastore.put_cells([Cell(uuid4(), "BASE", 1, n) for n in range(100)])

    assert datastore.authority.make_copies() == datastore.config.shards
    assert datastore.authority.make_copies() == 0
    with pytest.raises(StaleEpoch, match="COPY"):
        datastore.put_cell(uuid4(), "BASE", 1, "an owner's")
    head = datastore.get_cells_for_shard(0, 0, 1).head
    assert [change[:3] for change in changes_of(datastore, 0)] == [(0, "RW", 1), (0, "COPY", head + 1)]
    open_all(datastore, 2)
    assert datastore.authority.make_copies() == 0


def test_a_datastore_of_before_the_history_is_noticed_and_upgraded(store: Datastore, rows: Rows) -> None:
    rows.run("DROP TABLE HISTORY")
    copied = store.as_copier(0).put_cell(uuid4(), "BASE", 1, "cells need no history")

    plan = store.schema.plan()
    assert copied.status == "CREATED"
    assert not plan.is_done
    assert plan.missing_tables == {"a": ["shard_authority"], "b": ["shard_authority"]}
    with pytest.raises(SchemaMissing):
        store.authority.open("a", 2)
    assert rows.states() == everywhere(0, "COPY")

    store.create_schema(status=ShardStatus.COPY)
    assert store.schema.plan().is_done
    assert rows.history(0) == [(0, "COPY", 1)]
    open_all(store, 2)
    assert rows.states() == everywhere(2, "RW")
