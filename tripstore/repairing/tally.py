"""`Tally`: what one process of a repair did, in a file that its command reads when all processes have ended.

It is written with each part that is saved, by renaming: a process that is killed leaves what it had said before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from validation.repair import Action

_ENDING = ".json"


class Tally:
    """Of one process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._actions = Counter[Action]()

    @classmethod
    def of_process(cls, folder: Path, name: str) -> Tally:
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
