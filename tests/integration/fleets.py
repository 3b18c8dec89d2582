"""Work for the processes of a fleet, and a parent to be killed: both are started by tests in processes of their own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schemaless_core.process import spares as spares_module
from schemaless_core.process.child import Work
from schemaless_core.process.fleet import Fleet, Pauses
from schemaless_core.process.seat import Seat
from schemaless_core.process.spares import Spares

#: Before the name of a kind: the parent does a share itself, and its children are forked.
SHARED = "shared-"
QUICK_PAUSES = Pauses(first_seconds=0.05, most_seconds=0.2, settled_seconds=60.0)


@dataclass(frozen=True)
class Waiting:
    """Writes its process id into a folder and waits for its end, of which it writes too."""

    folder: Path

    def __call__(self, seat: Seat) -> None:
        is_over: list[bool] = []
        seat.at_end(lambda: is_over.append(True))
        (self.folder / f"{seat.number}-{os.getpid()}.running").write_text(seat.name)
        while not is_over:
            time.sleep(0.01)  # a file has no event
        (self.folder / f"{seat.number}-{os.getpid()}.ended").write_text(seat.name)


@dataclass(frozen=True)
class Finite:
    """Is done when there is a file `done`; the process with the number 1 says then that it failed."""

    folder: Path

    def __call__(self, seat: Seat) -> None:
        (self.folder / f"{seat.number}-{os.getpid()}.running").write_text(seat.name)
        while not (self.folder / "done").exists():
            time.sleep(0.01)  # a file has no event
        sys.exit(seat.number)


@dataclass(frozen=True)
class Stubborn:
    """Never ends."""

    folder: Path

    def __call__(self, seat: Seat) -> None:
        (self.folder / f"{seat.number}-{os.getpid()}.running").write_text(seat.name)
        time.sleep(600)


@dataclass(frozen=True)
class OneIsStubborn:
    """The process with the number 0 never ends, but says that it was told to; the others wait for their end."""

    folder: Path

    def __call__(self, seat: Seat) -> None:
        seat.at_end((self.folder / f"{seat.number}.told").touch)
        (Stubborn if seat.number == 0 else Waiting)(self.folder)(seat)


def serving(config: str) -> Work:
    """What it imports takes a moment in every process, and the others have no need of it."""
    from tests.integration.fleet_serving import Serving

    return Serving(config)


def main(kind: str, place: str, workers: str) -> None:
    """The parent of a fleet; its exit code says whether all ended in time, and how many failed."""
    kinds: dict[str, Callable[[str], Work]] = {
        "waiting": lambda folder: Waiting(Path(folder)),
        "finite": lambda folder: Finite(Path(folder)),
        "stubborn": lambda folder: Stubborn(Path(folder)),
        "one-stubborn": lambda folder: OneIsStubborn(Path(folder)),
        "serving": serving,
    }
    name = kind.removeprefix(SHARED)
    work, is_finite = kinds[name](place), name == "finite"
    if name == kind:
        fleet = Fleet(work, int(workers), is_finite=is_finite, pauses=QUICK_PAUSES)
        sys.exit(fleet.failed if fleet.run() else 5)
    if "KEEPS_PIPES" in os.environ:
        ours = spares_module._wait_for_work
        spares_module._wait_for_work = lambda reader, others: ours(reader, others[-1:])  # its own alone
    others = int(workers) - 1
    with Spares.forked(others) as spares:
        for pid in map(int, os.environ.get("KILLED_SPARES", "").split()):
            os.kill(spares.pids[pid], signal.SIGKILL)
        fleet = Fleet(work, others, is_finite=is_finite, here=work, spares=spares, pauses=QUICK_PAUSES)
        sys.exit(fleet.failed if fleet.run() else 5)


if __name__ == "__main__":
    main(*sys.argv[1:])
