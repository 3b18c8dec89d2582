"""Repairs by the command, for tests: a migration that is damaged, the jobs of it, and processes that are held."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from schemaless_core import Cell, Json
from schemaless_core.control.jobs.jobs import Jobs, JobState
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.damage import lose
from tests.facades import Migration
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.migration.repair.job import TARGETS_PER_PART

#: How long a command with processes of its own may take to begin or end on a busy machine.
PATIENCE_SECONDS = 150.0


def jobs_of(damaged: Migration) -> Jobs:
    return Jobs(damaged.facade.store.control)


def compared(damaged: Migration, *found: Difference, counts: dict[str, int] | None = None, **spec: Json) -> str:
    """A diff that found these; its id."""
    jobs = jobs_of(damaged)
    job = jobs.create("diff", spec, [None])
    part = jobs.claim(job.id, "test", 60)
    assert part is not None
    findings = [each.finding() for each in found]
    jobs.save(part, "test", checkpoint=1, counts=counts or {}, findings=findings, is_done=True, lease_seconds=60)
    return job.id


def trip(damaged: Migration) -> Cell:
    _id, key = damaged.legacy.trip()
    damaged.carry()
    found = damaged.facade.store.get_cell_latest(key, "BASE")
    assert found is not None
    return found


def let_leases_end(damaged: Migration, job: str) -> None:
    """As if a minute had passed."""
    with damaged.facade.store.control.begin() as connection:
        connection.exec_driver_sql("UPDATE job_part SET until_ms = 0")


def many_parts(damaged: Migration, path: Path) -> tuple[list[Cell], Cell]:
    """A key list of three parts: cells that are lost in each, one that Postgres lacks, and keys without any cell."""
    rows = damaged.legacy.sql(
        "INSERT INTO trips (trip_uuid, status) SELECT gen_random_uuid(), 'm' FROM generate_series(1, 12) "
        "RETURNING trip_uuid::text"
    )
    damaged.carry()
    lost = [damaged.facade.store.get_cell_latest(UUID(key), "BASE") for (key,) in rows]
    cells = [cell for cell in lost if cell is not None]
    for cell in cells:
        lose(damaged.facade.store, cell)
    extra = Cell(uuid4(), "BASE", 1, {"status": "foreign"})
    damaged.facade.store.as_copier().put_cell(*extra.key, extra.body)
    keys = [*(cell.row_key for cell in cells), extra.row_key, *(uuid4() for _ in range(2 * TARGETS_PER_PART))]
    found = (Difference(CellClass.MISSING, key, "BASE", 1, None) for key in keys)
    path.write_bytes(b"".join(msgspec.json.encode(each.document()) + b"\n" for each in found))
    return cells, extra


def is_repaired_once(damaged: Migration, job: str, lost: Sequence[Cell], extra: Cell) -> None:
    """The key list of `many_parts`: all is counted once (I11), all is right, and nothing was done twice."""
    many = 2 * TARGETS_PER_PART + len(lost) + 1
    assert jobs_of(damaged).state(job) is JobState.DONE
    assert jobs_of(damaged).progress(job).counts == {"rows": many, "equal": many}
    assert [damaged.facade.store.get_cell(*cell.key) for cell in lost] == lost
    assert damaged.facade.store.get_row(extra.row_key) == {}
    lines = [(line.action, line.shard, line.row_key, line.added_id) for line in damaged.facade.store.mends.lines(job)]
    assert len(lines) == len(set(lines))


class Held:
    """A repair of the key list in so many processes, each of which waits at a failpoint with a part of its own."""

    def __init__(self, company: Shell, damaged: Migration, folder: Path, processes: int, point: str) -> None:
        failpoints = folder / "failpoints"
        failpoints.mkdir()
        armed, hit = failpoints / point, failpoints / f"{point}.hit"
        armed.write_text("wait")
        arguments = ["repair", "--diff", "keys.jsonl", "--yes", "--processes", str(processes)]
        self.process = company.start(
            *arguments, environment={"TRIPSTORE_FAILPOINTS": str(failpoints), "TMPDIR": str(failpoints.parent)}
        )
        self.said = ""
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()
        for n in range(processes):
            wait_until("one is held", hit.exists, PATIENCE_SECONDS)
            if n < processes - 1:
                hit.unlink()
                armed.write_text("wait")
        self.job = jobs_of(damaged).find("repair", "last").id
        assert jobs_of(damaged).progress(self.job).parts_claimed == processes
        self.children = [pid for pid in _processes() if _parent(pid) == self.process.pid]
        self._go = failpoints / f"{point}.go"

    def interrupt(self) -> None:
        """Ctrl-C, once, to the command alone."""
        self.process.send_signal(signal.SIGINT)

    def wait_until_it_says(self, what: str) -> None:
        wait_until(f"it says {what}", lambda: what in self.said, PATIENCE_SECONDS)

    def release(self) -> None:
        """All that are held, or will be."""
        self._go.touch()

    def ended(self) -> int:
        """Its exit code; with it all its processes have ended, and all was heard that it said."""
        code = self.process.wait(PATIENCE_SECONDS)
        self.wait_until_orphans_end()
        self._hearing.join(PATIENCE_SECONDS)
        assert "Traceback" not in self.said
        return code

    def wait_until_orphans_end(self) -> None:
        wait_until("its processes have ended", lambda: not any(map(is_alive, self.children)), PATIENCE_SECONDS)

    def kill_all(self) -> None:
        """At the end of a test, whatever became of it."""
        for pid in filter(is_alive, [self.process.pid, *self.children]):
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def _hear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line


def is_alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _parent(pid: int) -> int:
    return int((_stat(pid) or ["", "0"])[1])


def _stat(pid: int) -> list[str]:
    """State, parent … of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
