"""`Exporter`: carries what is new in the logs of all shards into the files of a folder, and commits as it goes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

import pyarrow.parquet as pq

from schemaless_core.cell.answers import Location, Position, ShardPage
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import PositionUnknown, Unavailable
from schemaless_core.logcopy.throttle import CopyThrottle
from tripstore.export.commits import ExportCommit, ExportedFile, ExportFolder, ExportPlace, TakenBackCell
from tripstore.export.errors import ExportRefused
from tripstore.export.fields import schemas_of
from tripstore.export.forks import NOTHING, TakenBackFiles, take_back
from tripstore.export.gathered import Gathered
from tripstore.models.shapes import ColumnShape

logger = logging.getLogger(__name__)

#: Logs that are read together, and cells of each that a page has at most.
SHARDS_AT_ONCE = 16
CELLS_PER_PAGE = 500
#: Keys that are looked up together.
KEYS_AT_ONCE = 500

#: Told how many cells are exported.
Advance = Callable[[int], None]


class ExportPlan(NamedTuple):
    """What a run would find now."""

    cells: int
    #: Shards whose log goes on before the end of what was exported: a promotion took the rest away.
    forked: tuple[int, ...]


@dataclass
class ExportReport:
    """What a run did."""

    cells: int = 0
    commits: int = 0
    files: int = 0
    misfits: Counter[str] = field(default_factory=Counter)
    #: Also by runs before this one that died before they told of it.
    lost: tuple[TakenBackCell, ...] = ()
    #: Of the lost ones, those that the store has: they were put again, or salvaged.
    found_again: set[CellKey] = field(default_factory=set)
    #: Cells that primaries had when it ended, and that it did not take: they came meanwhile, or are on no replica yet.
    #: None: a primary does not say.
    left: int | None = None


class Exporter:
    """One run into one folder. `commit_bytes`: what is held in memory until it is committed."""

    def __init__(
        self,
        store: Datastore,
        folder: ExportFolder,
        shapes: Sequence[ColumnShape],
        *,
        columns: tuple[str, ...] | None,
        commit_bytes: int,
        throttle: CopyThrottle,
    ) -> None:
        self._store = store
        self._primaries = store.using(read="primary")
        self._folder = folder
        self._columns = columns
        self._commit_bytes = commit_bytes
        self._throttle = throttle
        self._gathered = Gathered(schemas_of(shapes))
        self._places: dict[int, ExportPlace] = {}
        self._report = ExportReport()
        self._advance: Advance = lambda done: None

    def plan(self) -> ExportPlan:
        """Look how much there is, and change nothing."""
        self._read_places()
        return self._look(self._store)

    def _look(self, store: Datastore) -> ExportPlan:
        cells, forked = 0, list[int]()
        for shards in self._batches():
            self._check_log(shards)
            for shard, page in self._pages(store, shards, 1).items():
                cells += max(0, page.head - page.start)
                place = self._places.get(shard)
                if place is not None and page.position.epoch > place.epoch and page.start < place.added_id:
                    forked.append(shard)
        return ExportPlan(cells, tuple(forked))

    def run(self, advance: Advance) -> ExportReport:
        """Export what every log has now. After a death another run goes on behind the last commit."""
        self._advance = advance
        with self._folder.held():
            self._folder.check(self._store.config.datastore, self._columns)
            self._read_places()
            for shards in self._batches():
                self._check_log(shards)
                self._carry(shards)
            if self._gathered.rows or self._is_moved():
                self._commit()
            self._report.lost = self._untold
        self._look_again()
        with suppress(Unavailable):  # it is not needed
            self._report.left = self._look(self._primaries).cells
        return self._report

    def note_told(self) -> None:
        """Have the next run say nothing of what this one's report names."""
        if self._report.lost:
            with self._folder.held():
                self._read_places()
                self._commit(told=frozenset(self._report.lost))

    @property
    def _untold(self) -> tuple[TakenBackCell, ...]:
        return () if self._folder.last is None else self._folder.last.untold

    def _batches(self) -> Iterator[range]:
        shards = range(self._store.config.shards)
        return (shards[first : first + SHARDS_AT_ONCE] for first in range(0, len(shards), SHARDS_AT_ONCE))

    def _read_places(self) -> None:
        last = self._folder.last
        self._places = {} if last is None else dict(last.places)

    def _is_moved(self) -> bool:
        """Whether logs went on, or have another epoch, without a cell for the files."""
        last = self._folder.last
        return self._places != ({} if last is None else last.places)

    def _pages(self, store: Datastore, shards: Collection[int], limit: int) -> dict[int, ShardPage]:
        with self._of_this_log():
            return store.get_cells_for_shards({shard: self._location(shard) for shard in shards}, limit)

    @contextmanager
    def _of_this_log(self) -> Iterator[None]:
        try:
            yield
        except PositionUnknown as unknown:
            raise self._other_log(unknown.message) from None

    def _location(self, shard: int) -> Location:
        place = self._places.get(shard)
        return 0 if place is None else Position(self._store.config.datastore, place.epoch, place.added_id)

    def _check_log(self, shards: Collection[int]) -> None:
        """Refuse when the last cell that was exported is another one in these logs, where the log has its place yet."""
        seen = {shard: place for shard in shards if (place := self._places.get(shard)) is not None and place.seen_id}
        pages = self._store.get_cells_for_shards({shard: place.seen_id - 1 for shard, place in seen.items()}, 1)
        for shard, page in pages.items():
            place = seen[shard]
            is_its = page.cells and page.cells[0].added_id == place.seen_id and page.position.epoch == place.epoch
            if is_its and _digest(page.cells[0]) != place.seen:
                cell = page.cells[0]
                raise self._other_log(f"Shard {shard} has {cell.row_key} at added id {place.seen_id}.")

    def _other_log(self, reason: str) -> ExportRefused:
        return ExportRefused(
            f"{self._folder.path} is an export of another log. {reason}",
            hint="The datastore was restored, or made anew: export it into a new folder.",
        )

    def _carry(self, shards: Collection[int]) -> None:
        """Up to where these logs end as their first pages say: else a run beside writers has no end."""
        ends: dict[int, int] = {}
        while shards:
            began = time.monotonic()
            pages = self._pages(self._store, shards, CELLS_PER_PAGE)
            read = time.monotonic()
            others = [shard for shard, page in pages.items() if self._is_other_epoch(shard, page)]
            for shard in others:
                del pages[shard]
            shards = [shard for shard, page in pages.items() if self._take(shard, page, ends)]
            if self._gathered.bytes >= self._commit_bytes:
                self._commit()
            if others:
                shards += self._follow(others)
            self._advance(self._report.cells + self._gathered.rows)
            cells = sum(len(page.cells) for page in pages.values())
            self._throttle.rest(cells, read - began, time.monotonic() - began)

    def _is_other_epoch(self, shard: int, page: ShardPage) -> bool:
        place = self._places.get(shard)
        return place is not None and page.position.epoch != place.epoch

    def _take(self, shard: int, page: ShardPage, ends: dict[int, int]) -> bool:
        """Take a page; say whether the shard has more for this run."""
        place = self._places.get(shard)
        is_known = place is not None and page.next_location == place.added_id
        self._gathered.add(shard, page.cells, self._columns)
        seen = (0, "") if place is None else (place.seen_id, place.seen)
        if page.cells:
            seen = (page.cells[-1].added_id or 0, _digest(page.cells[-1]))
        self._places[shard] = ExportPlace(page.position.epoch, page.next_location, *seen)
        return not is_known and page.next_location < ends.setdefault(shard, page.head)

    def _follow(self, shards: Collection[int]) -> list[int]:
        """Go on in logs of other epochs, where they and those that were exported part; return those that have more.

        The primary says where. Its epoch may be the one that is known: a replica that is behind was asked, and has no
        more. What happened to these shards happened to others of their cluster, so that all are asked: their files are
        written anew once.
        """
        try:
            resumed = self._resumed(self._places)
        except Unavailable:  # a cluster that may have nothing to do with it
            resumed = self._resumed(shards)
        changed = {shard: at for shard, at in resumed.items() if at.epoch != self._places[shard].epoch}
        cut = {shard: at for shard, at in changed.items() if at.added_id < self._places[shard].added_id}
        if cut:
            self._take_back(cut)
        for shard, at in changed.items():
            place = self._places[shard]
            seen = (place.seen_id, place.seen) if place.seen_id <= at.added_id else (0, "")
            self._places[shard] = ExportPlace(at.epoch, at.added_id, *seen)
        self._check_log(changed)
        return [shard for shard in shards if shard in changed]

    def _resumed(self, shards: Collection[int]) -> dict[int, Position]:
        places = {shard: self._places[shard] for shard in shards}
        datastore = self._store.config.datastore
        with self._of_this_log():
            return self._primaries.resumes_at(
                {shard: Position(datastore, place.epoch, place.added_id) for shard, place in places.items()}
            )

    # ---------------------------------------------------------------------------------------------------- commits

    def _commit(self, taken: TakenBackFiles = NOTHING, told: Collection[TakenBackCell] = ()) -> None:
        number = self._folder.next_number
        files = list(taken.replaced)
        for portion in self._gathered.portions():
            with self._folder.new_file() as (name, file):
                pq.write_table(portion.table, file, compression="zstd")
            files.append(ExportedFile(portion.path(number), name, portion.table.num_rows, portion.shards))
        at, datastore = datetime.now(UTC), self._store.config.datastore
        misfits = dict(self._gathered.misfits)
        untold = tuple(each for each in (*self._untold, *taken.lost) if each not in told)
        its = (dict(self._places), tuple(files), taken.removed, taken.lost, untold, misfits)
        self._folder.commit(ExportCommit(number, at, datastore, self._columns, *its))
        extra = {"event": "export.committed", "number": number, "cells": self._gathered.rows, "files": len(files)}
        logger.info("cells are exported", extra=extra)
        self._report.cells += self._gathered.rows
        self._report.commits += 1
        self._report.files += len(files) - len(taken.replaced)
        self._report.misfits.update(misfits)
        self._gathered.clear()

    def _take_back(self, cut: Mapping[int, Position]) -> None:
        """Take what a promotion took out of these logs out of the files, and name it; one commit."""
        if self._gathered.rows:
            self._commit()
        taken = take_back(self._folder, {shard: at.added_id for shard, at in cut.items()})
        for shard, at in cut.items():
            self._places[shard] = ExportPlace(at.epoch, at.added_id)
        self._commit(taken)
        extra = {"event": "export.taken_back", "shards": len(cut), "cells": len(taken.lost)}
        logger.warning("a promotion took cells that were exported", extra=extra)

    def _look_again(self) -> None:
        """Whether the store has what was lost: by then it was put again, or salvaged."""
        keys = [CellKey(each.row_key, each.column, each.ref_key) for each in self._report.lost]
        for first in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[first : first + KEYS_AT_ONCE]
            cells = self._primaries.get_cells(some)
            self._report.found_again.update(key for key, cell in zip(some, cells, strict=True) if cell is not None)


def _digest(cell: Cell) -> str:
    """Of the key: repair may change a body, and fsck a time."""
    return sha256(f"{cell.row_key} {cell.ref_key} {cell.column_name}".encode()).hexdigest()[:16]
