"""A cluster that is dead, and what keeps the others going; and fsck. Whole calls and whole commands."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import yaml

from benchmarks.cells import BODY, PATIENT, SHARDS, Config, config_of, keys_of
from benchmarks.timing import Comparison, block_p50, paired
from schemaless_core import Cell, Datastore, PutStatus
from tripstore.local.replication import LocalCluster

TRIPSTORE = Path(sys.executable).with_name("tripstore")
SCRIPT = Path(__file__).with_name("by_hand") / "fsck_script.py"
#: Cells that wait, and cells that fsck looks at.
WAITING = 20_000
LOOKED_AT = 200_000
#: From kill -9 of a primary to the first put of its shards that is acknowledged.
FIRST_SECONDS = 0.5
REPLAYED_PER_SECOND = 5_000
#: Puts after which each breaker knows.
WARM = 100


def measure(clusters: list[LocalCluster], *, quick: bool) -> Iterator[Comparison]:
    """Of three clusters the last one is killed, and started again."""
    rounds, calls = (1, 60) if quick else (5, 400)
    config = config_of("available", SHARDS, clusters) | {"buffer": {}}
    del config["deadlines"]  # as a service has them
    victim = clusters[-1]
    with Datastore.open(config) as store:
        store.create_schema()
        healthy, dead, first = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            healthy.append(block_p50(lambda: _put(store), calls))
            first.append(_until_kept(store, victim) * 1e6)
            for _n in range(WARM):
                _put(store)
            dead.append(block_p50(lambda: _put(store), calls))
            victim.primary.start()
            _wait_until_stored(store, victim)
    yield paired("put, one of three clusters dead / none", dead, healthy, bound=("<=", 1.3))
    yield _double(config, rounds, calls)
    limit = [FIRST_SECONDS * 1e6] * rounds
    yield paired("kill -9 to the first buffered put / 0.5 s", first, limit, bound=("<=", 1.0))
    yield _replay(config, victim, 1 if quick else 3, WAITING // 20 if quick else WAITING)
    yield from _fsck(clusters[:1], 1 if quick else 3, LOOKED_AT // 50 if quick else LOOKED_AT)


def _double(config: Config, rounds: int, calls: int) -> Comparison:
    """What a second copy costs, all clusters alive."""
    with Datastore.open(config) as store:
        careful = store.using(durability="double")
        double, single = list[float](), list[float]()
        for _ in range(rounds):
            single.append(block_p50(lambda: _put(store), calls))
            double.append(block_p50(lambda: _put(careful), calls))
    return paired('put with durability="double" / single', double, single, bound=("<=", 2.2))


def _put(store: Datastore) -> None:
    store.put_cell(uuid4(), "BASE", 1, BODY)


def _row_of(store: Datastore, cluster: LocalCluster) -> UUID:
    shards = store.schema.plan().topology.shards_of(cluster.name)
    return next(keys_of(shards[0], SHARDS))


def _until_kept(store: Datastore, victim: LocalCluster) -> float:
    """Seconds from the kill to the first acknowledged put of its shards."""
    row = _row_of(store, victim)
    victim.primary.kill()
    begun = time.perf_counter()
    result = store.put_cell(row, "BASE", 1, BODY)
    seconds = time.perf_counter() - begun
    assert result.status is PutStatus.BUFFERED
    return seconds


def _wait_until_stored(store: Datastore, victim: LocalCluster) -> None:
    while store.put_cell(_row_of(store, victim), "BASE", 1, BODY).status is not PutStatus.CREATED:
        store.replayer().round()
    while store.replayer().round().left:
        pass


def _replay(config: Config, victim: LocalCluster, rounds: int, count: int) -> Comparison:
    """`tripstore buffer drain`, the whole command, against a bound."""
    speeds = list[float]()
    with TemporaryDirectory() as folder:
        (Path(folder) / "tripstore.yaml").write_text(yaml.safe_dump(config))
        for _ in range(rounds):
            with Datastore.open(config) as store:
                shards = store.schema.plan().topology.shards_of(victim.name)
                keys = [keys_of(shard, SHARDS) for shard in shards]
                victim.primary.kill()
                for first in range(0, count, 500):
                    cells = [Cell(next(keys[n % len(keys)]), "BASE", 1, BODY) for n in range(first, first + 500)]
                    assert {each.status for each in store.put_cells(cells)} == {PutStatus.BUFFERED}
                victim.primary.start()
            begun = time.perf_counter()
            _run([str(TRIPSTORE), "buffer", "drain"], folder)
            speeds.append(count / (time.perf_counter() - begun))
    bound = [float(REPLAYED_PER_SECOND)] * rounds
    return paired("replay of a buffer, bound", speeds, bound, unit="cells/s", bound=(">=", 1.0))


def _fsck(clusters: list[LocalCluster], rounds: int, count: int) -> Iterator[Comparison]:
    """`tripstore fsck`, the whole command, against a script that looks once."""
    config = config_of("sound", SHARDS, clusters) | {"deadlines": PATIENT}
    url = urlsplit(clusters[0].primary.url)
    login = (url.hostname or "", str(url.port), url.username or "", url.password or "")
    ours, theirs = list[float](), list[float]()
    with TemporaryDirectory() as folder:
        (Path(folder) / "tripstore.yaml").write_text(yaml.safe_dump(config))
        with Datastore.open(config) as store:
            store.create_schema()
            for _first in range(0, count, 1_000):
                store.put_cells([Cell(uuid4(), "BASE", 1, BODY) for _n in range(1_000)])
        for _ in range(rounds):
            for command, speeds in (
                ([str(TRIPSTORE), "fsck"], ours),
                ([sys.executable, str(SCRIPT), "sound", str(SHARDS), *login], theirs),
            ):
                begun = time.perf_counter()
                _run(command, folder)
                speeds.append(count / (time.perf_counter() - begun))
    yield paired("fsck, by hand", ours, theirs, unit="cells/s")


def _run(command: list[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
