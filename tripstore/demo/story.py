"""The story of the demo: a company moves its trips to Schemaless while its services work, and carries on there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from schemaless_core.cell.answers import Position, PutStatus
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from tripstore.demo import accidents, migration, repairs, rewriting, riders, switching
from tripstore.demo.billing import BOOKS
from tripstore.demo.commands import Commands
from tripstore.demo.company import found_the_company, prepare
from tripstore.demo.crew import Crew
from tripstore.demo.journal import Acknowledged, digest
from tripstore.demo.outage import Outage
from tripstore.demo.playground import SHARDS, Playground, WantedPlay, playground
from tripstore.demo.report import DemoReport, Narrator, Say, StorySums
from tripstore.demo.workers import Workers
from tripstore.local.replication import LocalCluster
from tripstore.store import TripStore
from tripstore.wiring import connect

PAGE_CELLS = 500
RIDES = 50
REPORT = "report.html"


class Story:
    """One run of the demo in one playground."""

    def __init__(self, place: Playground, scratch: Path, narrator: Narrator) -> None:
        self._place = place
        self._scratch = scratch
        self._narrator = narrator
        self._commands = Commands(place.config)
        self._promises: list[Acknowledged] = []

    def tell(self) -> StorySums:
        self._prepare()
        with self._workers("worker", {}) as workers, connect(self._place.config) as store:
            self._migrate(store, workers)
            self._mend(store)
            self._hand_over(store)
            self._bill(store)
            self._hold(store)
            workers.finish()
            return self._compare(self._tail(store.facade.store))

    def _prepare(self) -> None:
        title = "Give every trip a UUID, and capture every change, while its services write"
        with self._narrator.step(title, "tripstore schema apply") as step:
            prepare(step, self._place, self._commands)

    def _migrate(self, store: TripStore, workers: Workers) -> None:
        place, commands = self._place, self._commands
        title = "Mirror every change from now on"
        with self._narrator.step(title, "tripstore phase set dualwrite && tripstore worker run") as step:
            migration.begin_to_mirror(step, place, commands, workers)
        title = "Copy the past, and kill the copier in the middle"
        command = "tripstore backfill start && kill -9 <its pid> && tripstore backfill resume"
        with self._narrator.step(title, command) as step:
            migration.copy_the_past(step, place, commands, store.facade)
        title = "Answer reads from Postgres, and replay every one at Schemaless"
        command = "tripstore phase set shadow && tripstore shadow status"
        with self._narrator.step(title, command) as step:
            migration.begin_to_compare(step, place, commands)
        title = "Rewrite a query, find that it is wrong, mend it, and let it answer"
        command = f"tripstore experiment set {rewriting.MENDED} --percent 100"
        with self._narrator.step(title, command) as step:
            rewriting.rewrite_a_query(step, place, commands)

    def _mend(self, store: TripStore) -> None:
        title = "Damage some cells of the mirror behind everybody's back, and find them"
        with self._narrator.step(title, "tripstore diff start") as step:
            repairs.damage_and_find(step, self._place, self._commands, store)
        title = "Repair them, and compare everything again"
        command = "tripstore repair --dry-run && tripstore repair && tripstore diff start"
        with self._narrator.step(title, command) as step:
            repairs.repair(step, self._commands, store)

    def _hand_over(self, store: TripStore) -> None:
        place, commands = self._place, self._commands
        with self._narrator.step("Verify the indexes", "tripstore index verify driver_partner_index") as step:
            switching.verify_indexes(step, store)
        with self._narrator.step("Ask the gates", "tripstore cutover plan") as step:
            switching.ask_the_gates(step, commands, store)
        with self._narrator.step("Switch, while a service writes", "tripstore cutover switch") as step:
            switching.switch(step, place, commands, store)
        self._accident(store)
        with self._narrator.step("Go back, while a service writes", "tripstore cutover reverse") as step:
            switching.reverse(step, place, commands, store)
        title, command = "Compare everything, and switch again", "tripstore diff start && tripstore cutover switch"
        with self._narrator.step(title, command) as step:
            switching.switch_again(step, place, commands, store)

    def _accident(self, store: TripStore) -> None:
        if self._place.servers:
            self._lose_a_primary(store, self._place.servers[-1])
            return
        title = f"Kill one of {accidents.WRITERS} services while they put cells"
        with self._narrator.step(title, "kill -9 <pid of the service>") as step, self._crew("storm") as crew:
            self._promises += accidents.kill_a_writer(step, crew, store.facade.store)

    def _lose_a_primary(self, store: TripStore, cluster: LocalCluster) -> None:
        name = cluster.name
        with self._crew("storm") as crew:
            outage = Outage(cluster, store, self._commands, crew)
            title = f"Kill the primary of cluster {name} while {accidents.WRITERS} services put cells"
            with self._narrator.step(title, f"kill -9 {cluster.primary.pid} && tripstore buffer status") as step:
                known = self._rides()
                outage.begin(step, known)
            title = "Make its replica the primary, while the services go on"
            with self._narrator.step(title, f"tripstore shards promote {name} --old-is-dead") as step:
                outage.promote(step)
            title = "Salvage the old disk, make its server a replica, and look whether all is right"
            command = f"tripstore shards salvage {name} --from mysql://… && tripstore fsck --deep"
            with self._narrator.step(title, command) as step:
                outage.bring_back(step)
            self._promises += known + crew.all_entries()

    def _rides(self) -> list[Acknowledged]:
        """Cells that a service put."""
        with self._crew("rides") as crew:
            crew.start(1, RIDES)
            crew.wait()
            return crew.all_entries()

    def _bill(self, store: TripStore) -> None:
        title = f"Bill {riders.RIDERS} riders by a trigger, and kill one of its two workers"
        books = self._scratch / "books"
        books.mkdir()
        with (
            self._narrator.step(title, f"tripstore {' '.join(riders.COMMAND)}") as step,
            self._workers("billing", {BOOKS: str(books)}) as workers,
        ):
            self._promises += riders.bill_riders(step, workers, store, self._place.company, books)

    def _hold(self, store: TripStore) -> None:
        """What a person would look at before the next phase; the report is for those who decide."""
        migration.wait_until("the reverse mirror has everything", lambda: migration.is_carried(store))
        with self._narrator.step("Compare everything once more, the other way round", repairs.LAST_DIFF) as step:
            repairs.compare_everything(step, self._commands)
        with self._narrator.step("Write the report", f"tripstore report -o {REPORT}") as step:
            self._commands.run(f"tripstore report -o {REPORT}")
            size = (self._place.config.parent / REPORT).stat().st_size
            step.check("it is one file", size > 0, f"{REPORT}, {size / 1024:,.0f} kB")

    def _tail(self, store: Datastore) -> dict[CellKey, Cell]:
        with self._narrator.step("Tail the log of all shards to its end", "store.get_cells_for_shards({…})") as step:
            started = time.perf_counter()
            logs = _tail_all(store)
            seconds = time.perf_counter() - started
            cells = [cell for log in logs.values() for cell in log]
            holes = sum((log[-1].added_id or 0) - len(log) for log in logs.values() if log)
            ordered = sum(_never_falls(log) for log in logs.values())
            step.say(f"{len(cells):,} cells of {len(logs)} shards, {len(cells) / seconds:,.0f} cells/s")
            # The cell that was lost is at the head now: a reader that had passed its place would not have seen it
            # there.
            said = f"{holes} of {len(cells):,} added ids, as many as cells were lost and repaired"
            step.check("added ids rise one by one, but for the repaired hole", holes == repairs.LOST, said)
            step.check("created_at never falls", ordered == len(logs), f"{ordered} of {len(logs)} shards")
            delivered = {cell.key: cell for cell in cells}
            step.check("no cell twice", len(delivered) == len(cells), f"{len(cells) - len(delivered)} twice")
            return delivered

    def _compare(self, delivered: Mapping[CellKey, Cell]) -> StorySums:
        title = "Hold what services were promised against what is there"
        with self._narrator.step(title, "tripstore status") as step:
            promised = {entry.key: entry for entry in self._promises}
            sums = StorySums(
                acknowledged=len(promised),
                stored=len(delivered),
                missing=sum(key not in delivered for key in promised),
                different=sum(not is_kept(entry, delivered) for entry in self._promises if entry.key in delivered),
            )
            step.say(f"{sums.acknowledged:,} cells were acknowledged through kills and hand-overs")
            step.check("nothing acknowledged is missing", sums.missing == 0, f"{sums.missing} missing")
            step.check("nothing is different", sums.different == 0, f"{sums.different} different")
            return sums

    def _crew(self, name: str) -> Crew:
        return Crew(name, self._place.config, self._scratch)

    def _workers(self, name: str, environment: Mapping[str, str]) -> Workers:
        return Workers(name, self._place.config, self._scratch, environment)


def run_demo(wanted: WantedPlay, folder: Path, scratch: Path, say: Say) -> DemoReport:
    """Run the demo in a folder and return what it found; whatever cannot be done raises."""
    narrator = Narrator(say)
    with ExitStack() as stack:
        title = "Found a company with its own Postgres, and set up clusters beside it"
        with narrator.step(title, "tripstore init --from postgresql://… --table trips …") as step:
            place = stack.enter_context(playground(wanted, folder))
            found_the_company(step, place)
        sums = Story(place, scratch, narrator).tell()
    kept = str(folder) if wanted.is_kept else None
    return DemoReport(wanted.engine, narrator.is_fine, narrator.seconds, SHARDS, sums, narrator.steps, kept)


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


def is_kept(entry: Acknowledged, delivered: Mapping[CellKey, Cell]) -> bool:
    """Whether a cell is what was promised, at the place that was promised; a put that was buffered had none yet."""
    cell = delivered[entry.key]
    is_there = entry.status is PutStatus.BUFFERED or entry.added_id == cell.added_id
    return digest(cell) == entry.digest and is_there
