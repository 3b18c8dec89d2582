"""Work for the processes of a fleet, and a parent to be killed: both are started by tests in processes of their own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schemaless_core.triggers.fleet import Fleet, Pauses, Work
from schemaless_core.triggers.seat import Seat

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
        "serving": serving,
    }
    work = kinds[kind](place)
    fleet = Fleet(work, int(workers), is_finite=kind == "finite", pauses=QUICK_PAUSES)
    sys.exit(fleet.failed if fleet.run() else 5)


if __name__ == "__main__":
    main(*sys.argv[1:])
