"""Workers, the leader, servers and the control database die: every cell is delivered, in order per shard (I7)."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.engine.groups import GroupStep
from schemaless_core.engine.mysql.groups import offsets as mysql_offsets
from tests.chaos.actors import Diary, end, put_until_acknowledged, running, wait_until
from tests.chaos.trigger_actors import GROUP, bill, deliveries, first_deliveries, server
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.forking import FORK_SERVER
from tests.scale import SCALE, scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.servers import LocalServers

SHARDS = scaled(64, short=24)
WORKERS = 4
CELLS = scaled(100_000, short=1_500)
#: In each something dies. In CI a server does once: MariaDB 10.11.19 may die of an assertion of its own
#: (flst_add_first) when it recovers from kill -9.
ROUNDS = max(3, CELLS // 5_000)
LEASE_SECONDS = 1.5
#: A shard whose worker lives rests at most this long, whatever happens to others: less than a lease, more than a poll
#: of this busy machine.
REST_SECONDS_MAX = 0.9
#: Around the commit of a transactional trigger.
POINTS = ["trigger.called", "joined.before_send", "joined.answered", "triggers.committed"]


def settings() -> Mapping[str, Any]:
    return quick(lease_seconds=LEASE_SECONDS, checkpoint_seconds=0.1)


def cells_of(count: int) -> list[Cell]:
    return [Cell(uuid4(), "BASE", 1, n) for n in range(count)]


def rows_by_shard(store: Datastore) -> dict[int, UUID]:
    rows: dict[int, UUID] = {}
    while len(rows) < store.config.shards:
        row_key = uuid4()
        rows.setdefault(store.shard_of(row_key), row_key)
    return rows


def pid_of(worker: str) -> int:
    """A worker's name holds its process id."""
    return int(worker.split("-")[-2])


def owners(store: Datastore) -> dict[int, str | None]:
    return {shard.shard: shard.owner for shard in store.triggers.status(GROUP)[0].shards}


def all_serve(store: Datastore, workers: int) -> bool:
    """Whether so many workers share all shards evenly: no shard is about to be moved any more."""
    found = owners(store) if GROUP in store.triggers.coordinator.groups() else {}
    served = Counter(found.values())
    return len(served) == workers and None not in served and max(served.values()) - min(served.values()) <= 1


@contextmanager
def opened(config: Mapping[str, Any]) -> Iterator[Datastore]:
    with Datastore.open(config) as store:
        store.create_schema()
        yield store


def test_every_cell_is_delivered_in_order_whichever_worker_is_killed(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    config = stores.config(
        server_engine, shards=SHARDS, triggers=settings(), deadlines={"put_seconds": 2.0, "read_seconds": 2.0}
    )
    choose, killed = random.Random(), {"worker": 0, "leader": 0, "server": 0}
    primaries = [cluster.primary for cluster in stores.clusters(server_engine)]
    with opened(config) as store:
        workers = [server(config, tmp_path) for _ in range(WORKERS)]
        with running(workers):
            wait_until("all serve", lambda: all_serve(store, WORKERS), 60)
            diary = Diary(tmp_path / "put")
            for round_number in range(ROUNDS):
                for _ in range(10):
                    put_until_acknowledged(store, diary, cells_of(CELLS // ROUNDS // 10))
                kind = ["worker", "leader", "server"][round_number % 3]
                killed[kind] += 1
                if kind == "server":
                    victim = choose.choice(primaries)
                    victim.kill()
                    victim.start()
                else:
                    number = choose.randrange(WORKERS) if kind == "worker" else leading(store, workers)
                    end(workers[number])
                    workers[number] = server(config, tmp_path)
                    workers[number].start()
            wait_until_caught_up(store, GROUP, 120)
        heads = {shard: store.get_cells_for_shard(shard, 0, 1).head for shard in range(SHARDS)}

    firsts = first_deliveries(tmp_path)
    missing = {s: head for s, head in heads.items() if set(firsts.get(s, {})) != set(range(1, head + 1))}
    assert missing == {}
    for of_shard in firsts.values():
        times = [of_shard[added_id] for added_id in sorted(of_shard)]
        assert times == sorted(times)
    total, distinct = sum(1 for _ in deliveries(tmp_path)), sum(heads.values())
    print(f"{server_engine}: {distinct:,} cells, {killed} killed, all delivered in order, {total - distinct:,} twice")
    assert distinct >= CELLS // ROUNDS // 10 * 10 * ROUNDS


def leading(store: Datastore, workers: list[BaseProcess]) -> int:
    """The number of the worker that leads; any, when none does."""
    record = store.triggers.coordinator.lead("no worker", None)
    pids = [worker.pid for worker in workers]
    leader = pid_of(record.owner) if record is not None and record.owner is not None else None
    return pids.index(leader) if leader in pids else 0


def test_shards_of_living_workers_do_not_rest_while_others_are_handed_over(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    """The control: the shards of the worker that was killed do rest, for about a lease."""
    config = stores.config(server_engine, shards=SHARDS, triggers=settings())
    with opened(config) as store:
        rows = rows_by_shard(store)
        put_at: dict[tuple[int, int], float] = {}

        def put_everywhere(seconds: float) -> None:
            until, ref_key = time.monotonic() + seconds, len(put_at) + 1
            while time.monotonic() < until:
                for shard, row_key in rows.items():
                    result = store.put_cell(row_key, "BASE", ref_key, ref_key)
                    put_at[shard, result.added_id or 0] = time.monotonic()
                ref_key += 1

        workers = [server(config, tmp_path) for _ in range(WORKERS - 1)]
        joining = server(config, tmp_path)
        with running(workers):
            wait_until("all serve", lambda: all_serve(store, WORKERS - 1), 60)
            before = owners(store)
            put_everywhere(0.5)
            victim = max(worker for worker in before.values() if worker is not None)
            os.kill(pid_of(victim), signal.SIGKILL)
            put_everywhere(LEASE_SECONDS * 2.5)
            wait_until("two have all", lambda: all_serve(store, WORKERS - 2), 60)
            with running([joining]):
                put_everywhere(LEASE_SECONDS)
                wait_until("three have all", lambda: all_serve(store, WORKERS - 1), 60)
                after = owners(store)
                wait_until_caught_up(store, GROUP)

    firsts = first_deliveries(tmp_path)
    rests = {key: firsts[key[0]][key[1]] - at for key, at in put_at.items()}
    untouched = {s for s, owner in before.items() if owner != victim and after[s] == owner}
    of_victim = {s for s, owner in before.items() if owner == victim}
    longest = max(rest for (shard, _), rest in rests.items() if shard in untouched)
    control = max(rest for (shard, _), rest in rests.items() if shard in of_victim)
    print(f"{server_engine}: {len(untouched)} shards of the living rested {longest:.2f} s, the dead's {control:.2f} s")
    assert len(untouched) >= SHARDS // 4
    assert longest < REST_SECONDS_MAX < control


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "control"])
def test_a_worker_stopped_past_its_lease_cannot_move_an_offset(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path, is_fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delivered ten cells and is stopped before it saves; its successor is at the second when it goes on."""
    config = stores.config(server_engine, shards=1, triggers=settings())
    failpoints = tmp_path / "failpoints"
    failpoints.mkdir()
    with opened(config) as store:
        store.put_cells(cells_of(10))
        (failpoints / "triggers.before_advance").write_text("stop")
        stopped = server(config, tmp_path, failpoints)
        with running([stopped]):
            wait_until("it is stopped", (failpoints / "triggers.before_advance.hit").exists)
            assert len(list(deliveries(tmp_path))) == 10
            notebook = Notebook()
            notebook.failing = lambda cell: cell.added_id == 3
            config_b = {**config, "triggers": {**settings(), "attempts": 1_000}}
            with Datastore.open(config_b) as successor, working(successor, [noting(notebook, name=GROUP)]):
                wait_until("its successor is at the third", lambda: _offset(store) == 2, 60)
                if is_fenced:
                    assert stopped.pid is not None
                    os.kill(stopped.pid, signal.SIGCONT)
                    time.sleep(1.0)  # it saves, or would
                    assert _offset(store) == 2
                    notebook.failing = lambda _cell: False
                    wait_until_caught_up(store, GROUP)
                    assert [cell.added_id for cell in notebook.cells] == list(range(1, 11))
                else:
                    unfenced = mysql_offsets.MINE.replace(" AND fence = {fence}", "")
                    monkeypatch.setattr(mysql_offsets, "MINE", unfenced)
                    store.triggers.offsets.advance(GROUP, {0: GroupStep(1, 1, 10, 1)})
                    assert _offset(store) == 10  # and cells 3 to 10 are lost to the worker that takes over next
                    monkeypatch.undo()


def _offset(store: Datastore) -> int:
    (shard,) = store.triggers.status(GROUP)[0].shards
    return shard.added_id or 0


def test_cells_flow_and_offsets_are_saved_while_the_control_database_is_down(
    server_engine: ServerEngine, stores: Stores, servers: LocalServers, tmp_path: Path
) -> None:
    (control,) = servers.clusters(server_engine, [f"control-{server_engine}"], replicas=0)
    config = stores.config(server_engine, shards=8, triggers=settings(), control=control.primary.url)
    with opened(config) as store:
        workers = [server(config, tmp_path) for _ in range(2)]
        with running(workers):
            wait_until("both serve", lambda: all_serve(store, 2), 60)
            store.put_cells(cells_of(80))
            wait_until_caught_up(store, GROUP)
            control.primary.kill()
            time.sleep(2 * LEASE_SECONDS)
            store.put_cells(cells_of(200))
            wait_until("all came", lambda: len(list(deliveries(tmp_path))) >= 280)
            offsets = store.triggers.offsets
            wait_until("and are saved", lambda: _saved(offsets.find(GROUP)) == 280)
            control.primary.start()
            end(workers[0])
            wait_until("the survivor has all", lambda: all_serve(store, 1), 60)
            store.put_cells(cells_of(100))
            wait_until_caught_up(store, GROUP)
    assert len({(d.shard, d.added_id) for d in deliveries(tmp_path)}) == 380


def _saved(found: Mapping[int, Any]) -> int:
    return sum(seen.offset.added_id for seen in found.values())


def test_what_a_transactional_trigger_puts_is_put_exactly_once(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    """kill -9 around the commit. A version is appended per call, so that a second commit would show."""
    config = stores.config(server_engine, shards=2, triggers=settings())
    cells = cells_of(scaled(400, least=40))
    points = POINTS if SCALE >= 1 else POINTS[server_engine == "mysql" :: 2]  # CI shares them among the engines
    with opened(config) as store:
        for number, cell in enumerate(cells):
            store.put_cell(*cell.key, cell.body)
            if number % (len(cells) // len(points)) == 0:
                point = points[number * len(points) // len(cells) % len(points)]
                (tmp_path / point).write_text("kill")
                process = FORK_SERVER.Process(target=bill, args=(config, str(tmp_path)), daemon=True)
                with running([process]):
                    wait_until(f"it died at {point}", (tmp_path / f"{point}.hit").exists, 60)
        process = FORK_SERVER.Process(target=bill, args=(config, str(tmp_path)), daemon=True)
        with running([process]):
            wait_until_caught_up(store, "billing", 60)
        versions = [len(store.get_history(cell.row_key, "STATUS")) for cell in cells]
    assert versions == [1] * len(cells)
