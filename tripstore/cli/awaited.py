"""`Awaited`: the worker that a command needs although it does its own work; said at once and in its progress."""

from __future__ import annotations

from typing import Protocol

import click

from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.leases.pulse import Pulse
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.errors import TripstoreError
from tripstore.facade.facade import Facade


class Awaited(Protocol):
    """Looked at again and again while a command works."""

    def look(self) -> str:
        """Return what to add to a line of progress: empty, or `; waits: …`. The first time, a sentence is printed."""
        ...


class AwaitsNothing:
    """Of a command that needs no worker."""

    def look(self) -> str:
        return ""


class AwaitsWorker:
    """`tripstore worker run` must serve a group, or the command waits for what that group carries."""

    def __init__(self, datastore: Datastore, group: str, sentence: str) -> None:
        self._pulse = Pulse(datastore.triggers.coordinator, group, datastore.config.triggers.lease_seconds)
        self._sentence = sentence
        self._is_told = False

    def look(self) -> str:
        try:
            is_missing = self._pulse.is_missing()
        except SchemalessError:
            return ""  # The control database is down for a moment: the command itself says so, if it matters.
        if not is_missing:
            return ""
        if not self._is_told:
            click.echo(f"No worker is running: {self._sentence} `tripstore worker run` starts one.", err=True)
            self._is_told = True
        return "; waits: no worker is running"


def awaited_mirror(facade: Facade, sentence: str) -> Awaited:
    """A worker that carries the authority's changes to the mirror, in a phase in which they are carried."""
    assert facade.duo is not None
    try:
        phase = facade.flags.find().phase(facade.duo.ports.control.authority())
    except (SchemalessError, TripstoreError):
        return AwaitsNothing()  # a gate or the command itself says what does not answer
    if not phase.route.is_mirrored:
        return AwaitsNothing()
    return AwaitsWorker(facade.store, REVERSE_GROUP, sentence)


def awaited_index(datastore: Datastore, name: str, number: int) -> Awaited:
    """A worker that keeps a version of an index: a command waits until the version has caught up."""
    version = datastore.indexes.catalogue.find(name).versions.get(number)
    if version is None:
        return AwaitsNothing()
    return AwaitsWorker(datastore, version.version.group_name, "the index does not catch up with its cells.")
