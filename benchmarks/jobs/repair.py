"""Repair: cells a second, by what is wrong with them, and each as a whole command.

Schemaless lacks the cells, or holds other bytes, or lost them so that the log has holes, or holds cells
that Postgres lacks. Ours is `tripstore repair --diff KEYS --yes`, which looks at each cell in both stores, two or
three times. The peer is a script by hand that changes the same cells and looks at nothing, and a command as well.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

import pymysql
import yaml

from benchmarks.cells import Config
from benchmarks.jobs.diff import arguments_of, made
from benchmarks.timing import Comparison, paired
from schemaless_core import Cell
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.cell.sharding import shard_of
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import Target
from tripstore.store import TripStore
from tripstore.wiring import connect

CELLS = 40_000
SHARDS = 64
ROUNDS = 3
#: Of every kind, of the whole command.
CELLS_PER_SECOND = 5_000
#: Cells that are looked at, outside of the clock.
CHECKED = 2_000

TRIPSTORE = Path(sys.executable).with_name("tripstore")
SCRIPT = Path(__file__).parents[1] / "by_hand" / "repair_script.py"

Damage = Callable[[TripStore, BinlogServer, list[UUID]], list[UUID]]


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """Cells a second of both; at scale 1 forty thousand of each kind."""
    count = max(round(CELLS * scale), 500)
    logging.getLogger("schemaless_core.mends").setLevel(logging.ERROR)  # a line for each transaction
    config = made(postgres, mirror, count)
    with connected(f"{postgres.url}/flat", "benchmark") as connection:
        keys = [UUID(str(key)) for (key,) in rows(connection, "SELECT trip_uuid FROM public.trips ORDER BY id")]
    with TemporaryDirectory() as folder:
        commands = _Commands(Path(folder), config, mirror)
        for name, (damage, kind) in _DAMAGES.items():
            speeds, by_hand = [], []
            for _ in range(ROUNDS):
                speeds.append(count / _seconds(config, mirror, damage, keys, commands.ours))
                by_hand.append(count / _seconds(config, mirror, damage, keys, commands.by_hand(kind)))
            bound = [float(CELLS_PER_SECOND)] * ROUNDS
            yield paired(f"repair of cells {name}, bound", speeds, bound, unit="cells/s", bound=(">=", 1.0))
            yield paired(f"repair of cells {name}, by hand", speeds, by_hand, unit="cells/s")


class _Commands:
    """Both commands, in a folder with a configuration and a key list."""

    def __init__(self, folder: Path, config: Config, mirror: BinlogServer) -> None:
        self._folder = folder
        self._keys = folder / "keys.jsonl"
        (folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
        node = arguments_of(mirror)
        parts = [
            config["legacy"]["postgres"],
            *(str(node[name] or "") for name in ("host", "port", "user", "password")),
        ]
        self._servers = parts

    def ours(self, targets: list[UUID]) -> None:
        self._list(targets)
        self._run([str(TRIPSTORE), "repair", "--diff", str(self._keys), "--yes"])

    def by_hand(self, kind: str) -> Callable[[list[UUID]], None]:
        def run(targets: list[UUID]) -> None:
            self._list(targets)
            self._run([sys.executable, str(SCRIPT), kind, str(self._keys), *self._servers])

        return run

    def _list(self, targets: list[UUID]) -> None:
        found = (Difference(CellClass.DIFFERS, key, "BASE", 1, 1) for key in targets)
        lines = [json.dumps(each.document() | {"row_key": str(each.row_key)}) for each in found]
        self._keys.write_text("\n".join(lines) + "\n")

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]


def _seconds(
    config: Config, mirror: BinlogServer, damage: Damage, keys: list[UUID], repair: Callable[[list[UUID]], None]
) -> float:
    """How long a command takes that makes damaged cells right; that they are is looked at afterwards."""
    with connect(config) as store:
        targets = damage(store, mirror, keys)
    begun = time.perf_counter()
    repair(targets)
    seconds = time.perf_counter() - begun
    with connect(config) as store:
        seen = Repairs(store.facade).repairing(Backend.LEGACY).plan([Target(key, "BASE") for key in targets[:CHECKED]])
        assert all(each.step.action is Action.NOTHING for each in seen), seen[0]
    return seconds


def _lacking(store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    """As if they had never been copied: with their holes passed."""
    _execute(
        mirror,
        keys,
        "INSERT IGNORE INTO flat_meta.purged (shard, added_id, at) "
        "SELECT {shard}, added_id, UTC_TIMESTAMP(6) FROM flat_{shard:04d}.cell WHERE column_name = 'BASE'",
    )
    return _lost(store, mirror, keys)


def _changed(_store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    _execute(
        mirror, keys, "UPDATE flat_{shard:04d}.cell SET body = '{{\"status\":\"foreign\"}}' WHERE column_name = 'BASE'"
    )
    return keys


def _torn(_store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    _execute(mirror, keys, "UPDATE flat_{shard:04d}.cell SET body = 'torn' WHERE column_name = 'BASE'")
    return keys


def _lost(_store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    _execute(mirror, keys, "DELETE FROM flat_{shard:04d}.cell WHERE column_name = 'BASE'")
    return keys


def _extra(store: TripStore, _mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    found = [uuid4() for _ in keys]
    copier = store.facade.store.as_copier().using(deadline=60.0)
    for first in range(0, len(found), 1_000):
        copier.put_encoded(
            [encode_cell(Cell(key, "BASE", 1, {"status": "x"}), 1000) for key in found[first : first + 1_000]]
        )
    return found


def _execute(mirror: BinlogServer, keys: list[UUID], statement: str) -> None:
    """In every shard that has rows."""
    with closing(pymysql.connect(**arguments_of(mirror), autocommit=True)) as connection, connection.cursor() as cursor:
        for shard in {shard_of(key, SHARDS) for key in keys}:
            cursor.execute(statement.format(shard=shard))


#: What was done to the cells, and what the script by hand calls it.
_DAMAGES: dict[str, tuple[Damage, str]] = {
    "that the mirror lacks": (_lacking, "lacking"),
    "with other bytes": (_changed, "changed"),
    "whose bytes are torn": (_torn, "torn"),
    "that left holes": (_lost, "lost"),
    "that Postgres lacks": (_extra, "extra"),
}
