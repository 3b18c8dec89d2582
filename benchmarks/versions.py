"""Two versions of ours side by side: what capture, puts through the facade and the relay cost before and now.

`make bench-versions BEFORE=REVISION`, or `python -m benchmarks.versions BEFORE [NOW]` with revisions or folders; of a
revision a working tree is made, and removed. Each has a process, a Postgres and a mirror of its own. Their blocks take
turns, and who goes first changes, so that both meet the same hours of the machine. Only what both versions know is
called: this file runs in both. `BEFORE=HEAD` in a clean tree holds a version against itself, and shows the noise.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

TRIPS = 500
#: Rows that one statement changes.
MANY = 100
#: What is measured, and how many of it make a block.
KINDS = {
    "UPDATE of a row": 150,
    "UPDATE of 100 rows": 20,
    "UPDATE of a child": 150,
    "INSERT of a row": 150,
    "INSERT of 100 rows": 20,
    "facade, put of a version": 60,
    "facade, put of a row": 60,
    "relay, per change": 200,
}
FLAVOURS = ("postgres", "postgres18")
READY = "ready"


@click.command()
@click.argument("before")
@click.argument("now", default=".")
@click.option("--rounds", type=click.IntRange(2), default=40, show_default=True, help="Pairs of blocks of each kind.")
@click.option("--flavour", "flavours", multiple=True, default=FLAVOURS, help="Default: 15 and 18.")
def main(before: str, now: str, rounds: int, flavours: tuple[str, ...]) -> None:
    """Print the time of each operation before and now, and the median of the ratios pair by pair."""
    with ExitStack() as trees:
        compared = [trees.enter_context(_tree(named)) for named in (before, now)]
        for flavour in flavours:
            _measure(compared, flavour, rounds)


def _measure(trees: list[Path], flavour: str, rounds: int) -> None:
    with ExitStack() as stack:
        asks = [stack.enter_context(_asked(tree.resolve(), flavour)) for tree in trees]
        for kind in KINDS:
            for ask in asks:
                ask(kind)  # warm
            click.echo(f"{flavour}, {kind}: {_compared(asks, kind, rounds)}")


@contextmanager
def _tree(named: str) -> Iterator[Path]:
    """A folder as it is; of a revision a working tree that is there for so long."""
    if Path(named).is_dir():
        yield Path(named)
        return
    with tempfile.TemporaryDirectory(prefix="tripstore-versions-") as folder:
        tree = Path(folder) / "tree"
        try:
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, named], check=True)
            yield tree
        except subprocess.CalledProcessError as error:
            raise click.ClickException(f"{named} is neither a folder nor a revision.") from error
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=False, capture_output=True)


def _compared(asks: list[Callable[[str], float]], kind: str, rounds: int) -> str:
    found: list[list[float]] = [[], []]
    for round_number in range(rounds):
        for side in (0, 1) if round_number % 2 else (1, 0):
            found[side].append(asks[side](kind))
    low, middle, high = statistics.quantiles([b / a for a, b in zip(*found, strict=True)], n=4)
    before, now = map(statistics.median, found)
    verdict = "slower" if low > 1 else "faster" if high < 1 else "within noise"
    ratio = f"ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f})"
    return f"{before:.0f} µs before, {now:.0f} µs now, {ratio}: {verdict}"


@contextmanager
def _asked(tree: Path, flavour: str) -> Iterator[Callable[[str], float]]:
    """A process of one version, which measures a block when it is told the kind."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", flavour, folder],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        sent, told = process.stdin, process.stdout
        if told.readline().strip() != READY:
            raise click.ClickException(f"The version in {tree} did not begin.")

        def ask(kind: str) -> float:
            sent.write(f"{kind}\n")
            sent.flush()
            return float(told.readline())

        try:
            yield ask
        finally:
            sent.close()
            process.wait()


def _child(flavour: str, folder: str) -> None:
    from tests.facades import migration  # of the version that is measured, not of this file's
    from tests.stores import Stores  # the same
    from tripstore.local.servers import LocalServers  # the same
    from tripstore.phase import Phase  # the same

    with LocalServers() as servers, migration(servers, Stores(servers, Path(folder)), postgres=flavour) as made:
        made.phase(Phase.SHADOW)
        measured = Measured(made)
        print(READY, flush=True)
        for line in sys.stdin:
            print(measured.block(line.strip()), flush=True)


class Measured:
    """Blocks of calls in one migration; what they leave is carried, or taken away, outside of the clock."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self._cursor = made.legacy.connect(autocommit=True).cursor()
        self._cursor.execute("SET synchronous_commit = off")  # what is measured is no disk
        self._cursor.execute(f"INSERT INTO trips (status) SELECT '0' FROM generate_series(1, {TRIPS}) RETURNING id")
        self._ids = [int(row[0]) for row in self._cursor.fetchall()]
        self._cursor.execute("INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'a' FROM trips")
        self._keys = [uuid4() for _ in range(MANY)]
        self._numbers = count(1)
        made.carry()

    def block(self, kind: str) -> float:
        """Microseconds of the median call."""
        if kind.startswith("relay"):
            return self._relay(KINDS[kind])
        calls = [self._call(kind) for _ in range(KINDS[kind])]
        durations = []
        for call in calls:
            begun = time.perf_counter()
            call()
            durations.append(time.perf_counter() - begun)
        if kind.startswith("facade"):
            self._made.carry()
        else:
            self._made.legacy.sql("DELETE FROM tripstore.queue")
        return statistics.median(durations) * 1e6

    def _relay(self, changes: int) -> float:
        for _ in range(changes):
            self._call("UPDATE of a row")()
        begun = time.perf_counter()
        self._made.carry()
        return (time.perf_counter() - begun) / changes * 1e6

    def _call(self, kind: str) -> Callable[[], None]:
        n = next(self._numbers)
        id_, first, last = self._ids[n % TRIPS], self._ids[0], self._ids[MANY - 1]
        statements = {
            "UPDATE of a row": f"UPDATE trips SET status = 's{n}' WHERE id = {id_}",
            "UPDATE of 100 rows": f"UPDATE trips SET status = 's{n}' WHERE id BETWEEN {first} AND {last}",
            "UPDATE of a child": f"UPDATE notes SET text = 's{n}' WHERE trip_id = {id_} AND n = 1",
            "INSERT of a row": f"INSERT INTO trips (status) VALUES ('s{n}')",
            "INSERT of 100 rows": f"INSERT INTO trips (status) SELECT 's{n}' FROM generate_series(1, {MANY})",
        }
        if kind in statements:
            return lambda: self._cursor.execute(statements[kind])
        key, version = (uuid4(), 1) if kind.endswith("row") else (self._keys[n % MANY], n)
        return lambda: self._made.store.put_cell(key, "BASE", version, {"status": f"s{n}"})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    else:
        main()
