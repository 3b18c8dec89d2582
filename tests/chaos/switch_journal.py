"""The journal of each service that uses the facade: what it was told is stored, and what it met."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core import Cell


class Stored(NamedTuple):
    """A cell that a service was told is stored."""

    row_key: str
    column_name: str
    ref_key: int
    body: Any
    status: str
    epoch: int
    added_id: int | None
    shard: int

    @property
    def cell(self) -> Cell:
        return Cell(UUID(self.row_key), self.column_name, self.ref_key, self.body)


class Line(NamedTuple):
    """One line of a service's journal, by the one clock of this machine."""

    pid: int
    begun: float
    ended: float
    operation: str
    #: stored, read, refused (a rival was first), failed (outcome unknown), wrong (what must not be).
    event: str
    detail: str
    stored: tuple[Stored, ...]


def journal(folder: Path) -> Iterator[Line]:
    """What services were told so far. The last line of one that was killed may be torn."""
    for path in sorted(folder.glob("*.lines")):
        with path.open() as file:
            for text in file:
                if text.endswith("\n"):
                    *line, stored = json.loads(text)
                    yield Line._make([*line, tuple(Stored(*cell) for cell in stored)])


def last_begun(folder: Path, pid: int | None) -> float:
    """When the last write was begun that a service was told of."""
    with suppress(FileNotFoundError), (folder / f"{pid}.lines").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 10_000))
        lines = [json.loads(line) for line in file.read().split(b"\n")[1:-1]]
        return max((line.begun for line in starmap(Line, lines) if line.event == "stored"), default=0.0)
    return 0.0
