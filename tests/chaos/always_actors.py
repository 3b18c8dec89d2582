"""Services that put until they are told that it is enough, and time each call; and what they wrote down of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from schemaless_core import CellConflict, Datastore, PutStatus, StaleEpoch, Unavailable
from tests.forking import FORK_SERVER

COLUMN = "BASE"
#: Puts whose notes go into one write of the file: what the kernel was given outlives a kill.
BATCH = 20


class Noted(NamedTuple):
    """One put, acknowledged or not."""

    row_key: UUID
    seconds: float
    #: As it was answered; else why it was not.
    status: str

    @property
    def is_acknowledged(self) -> bool:
        return self.status in PutStatus.__members__


def put_on(config: Mapping[str, Any], path: str, end: str) -> None:
    """Put one cell after the other until a file says that it is the end. What is not acknowledged is let be."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Datastore.open(config) as store:
        store.put_cell(uuid4(), "WARM", 1, "up")
        while not Path(end).exists():
            os.write(file, "".join(_line(_put(store, uuid4())) for _ in range(BATCH)).encode())


def _put(store: Datastore, row_key: UUID) -> Noted:
    begun = time.monotonic()
    try:
        status = store.put_cell(row_key, COLUMN, 1, body_of(row_key)).status.value
    except Unavailable:
        status = "unavailable"
    except StaleEpoch:  # another server leads, and no buffer answered in time either: counted against the bound
        status = "stale_epoch"
    except CellConflict:
        status = "conflict"
    return Noted(row_key, time.monotonic() - begun, status)


def body_of(row_key: UUID) -> str:
    return f"of {row_key}"


def _line(noted: Noted) -> str:
    return f"{noted.row_key} {noted.seconds:.6f} {noted.status}\n"


def noted(path: Path) -> Iterator[Noted]:
    """What was noted so far. The last line may be half written."""
    for line in path.read_text().split("\n")[:-1] if path.exists() else ():
        row_key, seconds, status = line.split()
        yield Noted(UUID(row_key), float(seconds), status)


def count_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def service(config: Mapping[str, Any], path: Path, end: Path) -> BaseProcess:
    return FORK_SERVER.Process(target=put_on, args=(config, str(path), str(end)), daemon=True)
