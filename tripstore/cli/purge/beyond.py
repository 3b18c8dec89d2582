"""What a purge does not reach, and what an operator does about it."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.config import TripstoreConfig


def not_reached(config: TripstoreConfig, *, is_of_rows: bool) -> list[str]:
    """A sentence each. Of superseded versions only what still takes room."""
    return list(_of_rows(config)) if is_of_rows else [_BACKUPS]


_BACKUPS = (
    "Files of backups: a restore brings back what no later backup in its folder knows to be purged. Make a full one"
    " (`tripstore backup create FOLDER --full`), then delete those before it."
)


def _of_rows(config: TripstoreConfig) -> Iterator[str]:
    if config.legacy is not None:
        yield (
            "Rows in Postgres, and what capture recorded of them: delete them there. No mirror brings them back here, "
            "and a diff does not report them."
        )
    yield _BACKUPS
    yield "Binary logs of the servers: they go when the servers purge them."
    yield "Files that `tripstore export` wrote, and whatever triggers handed on."
