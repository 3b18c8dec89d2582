"""The story of the demo: clusters, schema, cells, an accident, reads, a trigger, an index, and every promise kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from schemaless_core.answers import Position
from schemaless_core.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from tripstore.config import load_config
from tripstore.demo import accidents, drivers, riders
from tripstore.demo.billing import BOOKS
from tripstore.demo.company import running_company, show_the_company
from tripstore.demo.crew import Crew
from tripstore.demo.journal import Acknowledged, digest
from tripstore.demo.migration import COMMAND, move_the_company
from tripstore.demo.playground import SHARDS, Engine, Playground, playground
from tripstore.demo.report import DemoReport, Narrator, Step, Sums
from tripstore.demo.workers import Workers

WRITERS = 4
TRIPS_PER_WRITER = 300
READS = 500
PAGE_CELLS = 500

Say = Callable[[str], None]


class Story:
    """One run of the demo in one playground."""

    def __init__(self, place: Playground, scratch: Path, narrator: Narrator) -> None:
        self._place = place
        self._scratch = scratch
        self._narrator = narrator
        self._promises: list[Acknowledged] = []

    def tell(self) -> Sums:
        with Datastore(load_config(self._place.config).core) as store:
            self._apply(store)
            self._put()
            self._accident(store)
            self._read(store)
            self._bill(store)
            self._find()
            self._company()
            delivered = self._tail(store)
            return self._compare(delivered)

    def _apply(self, store: Datastore) -> None:
        with self._narrator.step("Create the shards on both clusters", "tripstore schema apply") as step:
            started = time.perf_counter()
            plan = store.create_schema()
            created = sum(len(shards) for shards in plan.missing.values())
            step.say(f"{created} shards on {len(plan.missing)} clusters in {time.perf_counter() - started:.2f} s")
            step.check("nothing is missing", store.schema.plan().is_done, f"{store.config.shards} shards")

    def _put(self) -> None:
        title = f"Put the cells of {WRITERS * TRIPS_PER_WRITER:,} trips from {WRITERS} processes"
        with (
            self._narrator.step(title, "store.put_cells([…]) and store.put_cell(…)") as step,
            self._crew("put") as crew,
        ):
            crew.start(WRITERS, TRIPS_PER_WRITER)
            crew.wait()
            entries = crew.all_entries()
            _say_speed(step, entries)
            wanted = WRITERS * TRIPS_PER_WRITER * 3
            step.check("every put is acknowledged", len(entries) == wanted, f"{len(entries):,} of {wanted:,} cells")
            self._promises += entries

    def _accident(self, store: Datastore) -> None:
        if self._place.servers:
            cluster = self._place.servers[0]
            title = f"Kill the primary of cluster {cluster.name} while {accidents.WRITERS} processes put cells"
            with self._narrator.step(title, f"kill -9 {cluster.primary.pid}") as step, self._crew("storm") as crew:
                self._promises += accidents.kill_a_primary(step, crew, store, cluster, self._promises)
            return
        title = f"Kill one of {accidents.WRITERS} processes while they put cells"
        with self._narrator.step(title, "kill -9 <pid of the writer>") as step, self._crew("storm") as crew:
            self._promises += accidents.kill_a_writer(step, crew, store, self._promises)
            seed, first_life = crew.seed(0), crew.entries(0)
        title = "Put everything again that the dead process may have put"
        with self._narrator.step(title, "store.put_cells([…])") as step, self._crew("repeat") as crew:
            self._promises += accidents.repeat_a_life(step, crew, seed, first_life)

    def _read(self, store: Datastore) -> None:
        with self._narrator.step("Read on", "store.get_cell_latest(row_key, 'STATUS')") as step:
            completed = [entry for entry in self._promises if entry.ref_key == 2][-READS:]
            seconds, right = [], 0
            for entry in completed:
                started = time.perf_counter()
                found = store.get_cell_latest(entry.row_key, entry.column_name)
                seconds.append(time.perf_counter() - started)
                right += found is not None and found.ref_key == 2 and digest(found) == entry.digest
            step.say(f"{len(seconds)} reads, {_percentiles(seconds)}")
            step.check("each answers the latest cell", right == len(completed), f"{right} of {len(completed)}")

    def _bill(self, store: Datastore) -> None:
        title = f"Bill {riders.RIDERS} riders by a trigger, and kill one of its two workers"
        books = self._scratch / "books"
        books.mkdir()
        with (
            self._narrator.step(title, f"tripstore {' '.join(riders.COMMAND)}") as step,
            self._workers("billing", {BOOKS: str(books)}) as workers,
        ):
            self._promises += riders.bill_riders(step, workers, store, books)

    def _find(self) -> None:
        title = "Find the trips of each driver by an index, and give some trips another driver"
        with (
            self._narrator.step(title, f"tripstore index create {drivers.INDEX} && tripstore worker run") as step,
            self._workers("index", {}) as workers,
        ):
            self._promises += drivers.find_drives(step, workers, self._place.config)

    def _company(self) -> None:
        with running_company() as url:
            title = "Show a company's own Postgres through the same API, while its services write"
            with self._narrator.step(title, "tripstore init --from postgresql://… && tripstore schema apply") as step:
                show_the_company(step, url)
            title = "Move its trips to Schemaless, switch while a service writes, go back, and switch again"
            with self._narrator.step(title, COMMAND) as step:
                move_the_company(step, url, self._scratch / "migration")

    def _tail(self, store: Datastore) -> dict[CellKey, Cell]:
        with self._narrator.step("Tail the log of all shards to its end", "store.get_cells_for_shards({…})") as step:
            started = time.perf_counter()
            logs = _tail_all(store)
            seconds = time.perf_counter() - started
            cells = [cell for log in logs.values() for cell in log]
            dense = sum([cell.added_id for cell in log] == list(range(1, len(log) + 1)) for log in logs.values())
            ordered = sum(_never_falls(log) for log in logs.values())
            step.say(f"{len(cells):,} cells of {len(logs)} shards, {len(cells) / seconds:,.0f} cells/s")
            step.check("added ids are 1, 2, 3 … without a hole", dense == len(logs), f"{dense} of {len(logs)} shards")
            step.check("created_at never falls", ordered == len(logs), f"{ordered} of {len(logs)} shards")
            delivered = {cell.key: cell for cell in cells}
            step.check("no cell twice", len(delivered) == len(cells), f"{len(cells) - len(delivered)} twice")
            return delivered

    def _compare(self, delivered: Mapping[CellKey, Cell]) -> Sums:
        title = "Hold what was acknowledged against what is there"
        with self._narrator.step(title, "tripstore status") as step:
            promised = {entry.key: entry for entry in self._promises}
            sums = Sums(
                acknowledged=len(promised),
                stored=len(delivered),
                missing=sum(key not in delivered for key in promised),
                different=sum(not _is_kept(entry, delivered) for entry in self._promises if entry.key in delivered),
                unacknowledged=sum(key not in promised for key in delivered),
            )
            step.check("nothing acknowledged is missing", sums.missing == 0, f"{sums.missing} missing")
            step.check("nothing is different", sums.different == 0, f"{sums.different} different")
            step.check("nothing else is there", sums.unacknowledged == 0, f"{sums.unacknowledged} unexpected")
            return sums

    def _crew(self, name: str) -> Crew:
        return Crew(name, self._place.config, self._scratch)

    def _workers(self, name: str, environment: Mapping[str, str]) -> Workers:
        return Workers(name, self._place.config, self._scratch, environment)


def run_demo(engine: Engine, folder: Path, scratch: Path, say: Say, *, is_kept: bool) -> DemoReport:
    """Run the demo in a folder and return what it found; whatever cannot be done raises."""
    narrator = Narrator(say)
    with ExitStack() as stack:
        with narrator.step("Set up two clusters", _SETUP[engine]) as step:
            place = stack.enter_context(playground(engine, folder))
            step.say(place.describe())
        sums = Story(place, scratch, narrator).tell()
    kept = str(folder) if is_kept else None
    return DemoReport(engine, narrator.is_fine, narrator.seconds, SHARDS, sums, narrator.steps, kept)


_SETUP: dict[Engine, str] = {
    "sqlite": "tripstore init --sqlite",
    "mariadb": "tripstore dev up --engine mariadb",
    "mysql": "tripstore dev up --engine mysql",
}


def _tail_all(store: Datastore) -> dict[int, list[Cell]]:
    """Page through all shards at once, each from its own position."""
    logs: dict[int, list[Cell]] = {shard: [] for shard in range(store.config.shards)}
    places: dict[int, int | Position] = dict.fromkeys(logs, 0)
    while places:
        pages = store.get_cells_for_shards(places, PAGE_CELLS)
        for shard, page in pages.items():
            logs[shard] += page.cells
        places = {shard: page.position for shard, page in pages.items() if page.next_location < page.head}
    return logs


def _never_falls(log: Sequence[Cell]) -> bool:
    times = [cell.created_at for cell in log if cell.created_at is not None]
    return len(times) == len(log) and times == sorted(times)


def _is_kept(entry: Acknowledged, delivered: Mapping[CellKey, Cell]) -> bool:
    """Whether a cell is what was promised, at the place that was promised."""
    cell = delivered[entry.key]
    return digest(cell) == entry.digest and cell.added_id == entry.added_id


def _say_speed(step: Step, entries: Sequence[Acknowledged]) -> None:
    if not entries:
        return
    span = max(entry.at for entry in entries) - min(entry.at for entry in entries)
    singles = [entry.seconds for entry in entries if entry.seconds is not None]
    step.say(f"{len(entries):,} cells acknowledged, {len(entries) / span:,.0f} cells/s over all processes")
    step.say(f"put_cell: {_percentiles(singles)}")


def _percentiles(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return "too few to say"
    return f"p50 {median(seconds) * 1000:.2f} ms, p99 {quantiles(seconds, n=100)[98] * 1000:.2f} ms"
