"""`RepairTally`: what one process of a repair did, in a file that its command reads when all processes have ended.

`tally_folder` is where a command has these files.

It is written with each part that is saved, by renaming: a process that is killed leaves what it had said before.
"""

from __future__ import annotations

import fcntl
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import msgspec

from tripstore.engines.validation.repair import Action

_ENDING = ".json"
_PREFIX, _LOCK = "tripstore-repair-", "lock"


@contextmanager
def tally_folder() -> Iterator[Path]:
    """A folder for the tallies of one command. Folders that killed commands left go first.

    Each holds a file that its command and the processes forked by it have locked: the kernel lets go of the lock when
    the last of them is dead. A folder without that file is left alone: its command may be about to make it.
    """
    for lock in Path(gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        _remove_if_dead(lock)
    with TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        with (folder / "new").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            (folder / "new").rename(folder / _LOCK)  # locked before it can be found
            yield folder


def _remove_if_dead(lock: Path) -> None:
    """Another user's folder, or one that another command removes just now, is passed over."""
    with suppress(OSError), lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.parent, ignore_errors=True)


class RepairTally:
    """Of one process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._actions = Counter[Action]()

    @classmethod
    def of_process(cls, folder: Path, name: str) -> RepairTally:
        return cls(folder / f"{name}{_ENDING}")

    def add(self, actions: Mapping[Action, int]) -> None:
        """Count what was done for a part that is saved."""
        self._actions.update(actions)
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._actions))
        new.replace(self._file)

    @staticmethod
    def total(folder: Path) -> Counter[Action]:
        """Of all processes."""
        total = Counter[Action]()
        for file in folder.glob(f"*{_ENDING}"):
            total.update(msgspec.json.decode(file.read_bytes(), type=dict[Action, int]))
        return total
