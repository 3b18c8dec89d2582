"""`Gathered`: cells that wait for a commit, as rows by column and day."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date
from urllib.parse import quote, unquote

import pyarrow as pa

from schemaless_core.cell.cell import Cell
from tripstore.export.fields import ExportSchema

_COLUMN, _DAY = "column_name=", "day="


@dataclass
class DayOfColumn:
    """What one file will have."""

    column: str
    day: date
    batches: list[pa.RecordBatch] = field(default_factory=list)
    shards: dict[int, int] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)

    def path(self, number: int) -> str:
        """Its place, by the number of its commit; names of columns may hold anything that is printable."""
        return f"{_COLUMN}{quote(self.column, safe='')}/{_DAY}{self.day.isoformat()}/{number:010d}.parquet"


def column_of(path: str) -> str:
    return unquote(path.split("/")[0].removeprefix(_COLUMN))


class Gathered:
    """Rows in memory, and how many bytes they are."""

    def __init__(self, schemas: Mapping[str, ExportSchema]) -> None:
        self._schemas = schemas
        self.clear()

    def clear(self) -> None:
        self._portions: dict[tuple[str, date], DayOfColumn] = {}
        self.misfits: Counter[str] = Counter()
        self.rows = 0
        self.bytes = 0

    def add(self, shard: int, cells: Sequence[Cell], columns: Collection[str] | None) -> None:
        """Add a page, or what it has of these columns."""
        by_place: defaultdict[tuple[str, date], list[Cell]] = defaultdict(list)
        for cell in cells:
            if columns is None or cell.column_name in columns:
                assert cell.created_at is not None  # it is from a log
                by_place[cell.column_name, cell.created_at.astimezone(UTC).date()].append(cell)
        for place, its in by_place.items():
            batch = self._schemas[place[0]].rows([(shard, cell) for cell in its], self.misfits)
            portion = self._portions.setdefault(place, DayOfColumn(*place))
            portion.batches.append(batch)
            last = its[-1].added_id
            assert last is not None  # it is from a log
            portion.shards[shard] = last
            self.rows += batch.num_rows
            self.bytes += batch.nbytes

    def portions(self) -> Iterator[DayOfColumn]:
        yield from (self._portions[place] for place in sorted(self._portions))
