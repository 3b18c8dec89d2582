"""What a purge does not reach, and what an operator does about it."""

from __future__ import annotations

from collections.abc import Iterator

from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from tripstore.config import TripstoreConfig


def not_reached(config: TripstoreConfig, datastore: Datastore, *, is_of_rows: bool) -> list[str]:
    """A sentence each. Of superseded versions only what still takes room."""
    return list(_of_rows(config, has_dictionaries=_may_have(datastore))) if is_of_rows else [_BACKUPS]


def _may_have(datastore: Datastore) -> bool:
    """Whether there are dictionaries, or a server does not say."""
    try:
        return bool(datastore.dictionaries.all())
    except SchemalessError:
        return True


_BACKUPS = (
    "Files of backups: a restore brings back what no later backup in its folder knows to be purged. Make a full one"
    " (`tripstore backup create FOLDER --full`), then delete those before it."
)


def _of_rows(config: TripstoreConfig, *, has_dictionaries: bool) -> Iterator[str]:
    if config.legacy is not None:
        yield (
            "Rows in Postgres, and what capture recorded of them: delete them there. No mirror brings them back here, "
            "and a diff does not report them."
        )
    yield _BACKUPS
    if has_dictionaries:
        yield (
            "Dictionaries of compressed bodies (`tripstore cell dictionaries`): they hold pieces of bodies that they"
            " were made from. Train new ones and run `tripstore cell compress`; the former ones stay."
        )
    yield "Binary logs of the servers: they go when the servers purge them."
    yield "Files that `tripstore export` wrote, and whatever triggers handed on."
