"""What keeps an export from going on."""

from __future__ import annotations

from pathlib import Path

from tripstore.errors import TripstoreError


class ExportRefused(TripstoreError):
    """The folder is no place for this export. Nothing was written."""


class ExportOvertaken(TripstoreError):
    """Another process exports into the same folder. What this one had not committed is in no file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"Another process exports into {folder}.",
            hint="Wait until it has ended. The same command goes on behind what it committed.",
        )
