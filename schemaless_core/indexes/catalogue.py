"""`Catalogue`: which versions each index has, and which of them answers queries (the alias), as this process knows it.

The truth is one document per index in the control database, changed by compare-and-set. Each change leaves
copies on all servers, so that a process starts and queries while the control database is down. Whatever is known here
may be stale, and that is harmless: every version is kept up to date until it is dropped, and its tables then refuse.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.errors import DocumentConflict, InvalidConfig, SchemalessError, SchemaMissing, Unavailable
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.looks import SharedLook

logger = logging.getLogger(__name__)

PREFIX = "index:"
#: How old what is known may become before it is asked for anew, in the background.
REFRESH_SECONDS = 3.0
#: One server's copies: a look in the background, which no caller waits for.
LOOK_SECONDS = 2.0
#: Compare-and-set is lost to another process that changes the same index at the same time.
CHANGE_TRIES = 10


class VersionState(StrEnum):
    """How far a version is."""

    CREATING = "creating"  #: Its tables or offsets may be missing; creation goes on where it was.
    BUILDING = "building"  #: Kept up to date, and filled from the beginning of the logs; never answered a query.
    READY = "ready"  #: Is or was behind the alias, and still kept up to date: the way back.
    DROPPING = "dropping"  #: Its tables may be missing; only dropping goes on.


#: The states whose tables are all there: entries are written.
KEPT = (VersionState.BUILDING, VersionState.READY)


@dataclass(frozen=True, slots=True)
class Verified:
    """What the last verification of a version found."""

    at: str
    entries: int
    rows: int
    differences: int
    not_compared: int

    @property
    def is_clean(self) -> bool:
        return self.differences == 0 and self.not_compared == 0


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version, and how far it is."""

    version: IndexVersion
    state: VersionState
    verified: Verified | None = None


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """An index: its versions, and the one that answers queries."""

    name: str
    #: Of the document; 0 before there is one.
    document_version: int = 0
    alias: int | None = None
    #: Numbers are never used twice: a process with a stale one must not write into another version's tables.
    next_number: int = 1
    versions: Mapping[int, VersionRecord] = field(default_factory=dict)

    @property
    def current(self) -> IndexVersion | None:
        """The version behind the alias."""
        return None if self.alias is None else self.versions[self.alias].version

    def with_version(self, record: VersionRecord) -> IndexRecord:
        number = record.version.number
        versions = {**self.versions, number: record}
        return replace(self, versions=versions, next_number=max(self.next_number, number + 1))

    def without(self, numbers: Collection[int]) -> IndexRecord:
        return replace(self, versions={n: record for n, record in self.versions.items() if n not in numbers})

    def given_up(self, numbers: Collection[int]) -> IndexRecord:
        """None of these versions answers, and all are being dropped."""
        its = {n: record for n, record in self.versions.items() if n in numbers}
        dropping = {n: replace(record, state=VersionState.DROPPING) for n, record in its.items()}
        alias = None if self.alias in numbers else self.alias
        return replace(self, alias=alias, versions={**self.versions, **dropping})


class Catalogue:
    """The indexes of a datastore. Refreshes itself in the background; safe to share by threads."""

    def __init__(
        self,
        control: ControlDatabase,
        clusters: Mapping[str, Cluster],
        datastore: str,
        first_look_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = Documents(control)
        self._clusters = clusters
        self._datastore = datastore
        self._first_look_seconds = first_look_seconds
        self._clock = clock
        self._records: dict[str, IndexRecord] = {}
        self.after_fork()

    def after_fork(self) -> None:
        """Threads and locks of the parent are the parent's; what it knew is true."""
        self._changed = threading.Condition()
        self._control_look = SharedLook("control", self._look_at_control, self._changed)
        self._node_looks = [
            SharedLook(guarded.node.name, partial(self._look_at, guarded), self._changed)
            for cluster in self._clusters.values()
            for guarded in cluster.nodes
        ]
        self._is_learned = False
        self._asked_at = float("-inf")

    def indexes(self) -> Mapping[str, IndexRecord]:
        """All indexes as they are known; the first call waits until a source answers, a later one does not wait."""
        if not self._is_learned:
            self.refresh(self._first_look_seconds)
        elif self._clock() - self._asked_at > REFRESH_SECONDS:
            self._asked_at = self._clock()
            self._control_look.request_alone()
        return self._records

    def ask_anew(self) -> None:
        """A caller met a version that is not known here: look at once, in the background."""
        self._asked_at = self._clock()
        self._control_look.request_alone()

    def kept(self) -> list[IndexVersion]:
        """The versions whose entries are written."""
        return [
            record.version
            for index in self.indexes().values()
            for record in index.versions.values()
            if record.state in KEPT
        ]

    def refresh(self, seconds: float | None = None) -> None:
        """Ask anew, and wait for the control database; without it for the servers. `Unavailable` if none answers.

        What is known already stays known when none answers.
        """
        patience = Deadline(self._first_look_seconds if seconds is None else seconds)
        self._asked_at = self._clock()
        with self._changed:
            control = self._control_look.request()
            self._wait(lambda: self._control_look.is_answered(control), patience)
            if self._control_look.is_answered(control) and self._control_look.failure is None:
                self._is_learned = True
                return
            # The control database fails or is silent: wait as long again for the servers, which hold copies.
            answered = self._ask_servers(Deadline(max(LOOK_SECONDS, patience.remaining_seconds())))
        if not answered and not self._is_learned:
            raise Unavailable(
                "It is unknown which indexes there are.", hint="Start the control database or one of the servers."
            )
        self._is_learned = True

    def there(self) -> dict[str, list[int]]:
        """The numbers of all versions by index, as the control database, or a later copy, has them now."""
        self.refresh()
        self.take_over_copies()
        return {name: list(record.versions) for name, record in self.indexes().items() if record.versions}

    def change(
        self, name: str, decide: Callable[[IndexRecord], IndexRecord], *, action: str, detail: Mapping[str, object]
    ) -> IndexRecord:
        """Store what `decide` makes of an index as it is now, and leave copies. It may be asked several times."""
        for _attempt in range(CHANGE_TRIES - 1):
            try:
                return self._change(name, decide, action, detail)
            except DocumentConflict:
                continue
        return self._change(name, decide, action, detail)

    def find(self, name: str) -> IndexRecord:
        """Return an index as it is now; one without versions if there is none.

        As the control database has it, unless a server's copy is of a later version: then the control database was
        restored from an older backup, and what came after that holds.
        """
        return self._newest(self._stored(name))

    def take_over_copies(self) -> list[str]:
        """Give the control database what it has lost since the backup that it was restored from; of which indexes."""
        self._ask_servers(Deadline(LOOK_SECONDS))
        behind = [name for name in self._records if self._newest(stored := self._stored(name)) != stored]
        for name in behind:
            self.change(name, lambda record: record, action="index.taken_over", detail={"index": name})
            extra = {"event": "index.taken_over", "index": name}
            logger.warning("the control database was older than a server's copy", extra=extra)
        return behind

    def _stored(self, name: str) -> IndexRecord:
        """An index as the control database has it."""
        found = self._documents.find(PREFIX + name)
        return IndexRecord(name) if found is None else self._parsed(found.name, found.version, found.body)

    def _newest(self, stored: IndexRecord) -> IndexRecord:
        """An index as the latest document says that is known anywhere. No number that was taken is free again."""
        known = self._records.get(stored.name, stored)
        newest = known if known.document_version > stored.document_version else stored
        return replace(newest, next_number=max(stored.next_number, known.next_number))

    def _change(
        self, name: str, decide: Callable[[IndexRecord], IndexRecord], action: str, detail: Mapping[str, object]
    ) -> IndexRecord:
        self._ask_servers(Deadline(LOOK_SECONDS))
        stored = self._stored(name)
        before = self._newest(stored)
        after = decide(before)
        if after == before == stored:
            return before
        body, expected, version = _body(after), stored.document_version, before.document_version + 1
        put = self._documents.put
        written = put(PREFIX + name, body, expected_version=expected, version=version, action=action, detail=detail)
        after = replace(after, document_version=written.version)
        self._accept([after])
        self._leave_copies(StoredDocument(written.name, written.version, canonical_bytes(body)))
        return after

    def _ask_servers(self, patience: Deadline) -> int:
        """Ask all servers for their copies; how many have answered in time."""
        with self._changed:
            looks = [(look, look.request()) for look in self._node_looks]
            self._wait(lambda: all(look.is_answered(request) for look, request in looks), patience)
            return sum(look.is_answered(request) and look.failure is None for look, request in looks)

    def _leave_copies(self, document: StoredDocument) -> None:
        """For processes that start while the control database is down. A server that misses one has an older copy."""
        for cluster in self._clusters.values():
            try:
                cluster.write(lambda node: node.put_document(document, Deadline(LOOK_SECONDS)))
            except SchemalessError as error:
                extra = {"event": "index.copy_failed", "cluster": cluster.name, "document": document.name}
                logger.warning("a server has no copy of the catalogue: %s", error, extra=extra)

    def _look_at_control(self) -> None:
        found = self._documents.all(PREFIX)
        self._accept([self._parsed(document.name, document.version, document.body) for document in found])

    def _look_at(self, guarded: GuardedNode) -> None:
        try:
            found = guarded.ask(lambda node: node.find_documents(PREFIX, Deadline(LOOK_SECONDS)))
        except SchemaMissing:
            return  # it answers: there is nothing
        bodies = [(document, msgspec.json.decode(document.body)) for document in found]
        self._accept([self._parsed(document.name, document.version, body) for document, body in bodies])

    def _accept(self, records: Iterable[IndexRecord]) -> None:
        """The highest version of a document is the newest, whichever source it is from."""
        with self._changed:
            known = dict(self._records)
            for record in records:
                if record.name not in known or record.document_version > known[record.name].document_version:
                    known[record.name] = record
            self._records = known

    def _wait(self, is_enough: Callable[[], bool], patience: Deadline) -> None:
        while not is_enough() and not patience.is_over:
            self._changed.wait(max(patience.remaining_seconds(), 0.001))

    def _parsed(self, name: str, version: int, body: Mapping[str, Any]) -> IndexRecord:
        return _record(name.removeprefix(PREFIX), version, body, self._datastore)


def _body(record: IndexRecord) -> dict[str, Json]:
    versions: dict[str, Json] = {
        str(number): {
            "definition": each.version.definition.to_document(),
            "state": each.state.value,
            "verified": None if each.verified is None else msgspec.to_builtins(each.verified),
        }
        for number, each in record.versions.items()
    }
    return {"alias": record.alias, "next_number": record.next_number, "versions": versions}


def _record(name: str, document_version: int, body: Mapping[str, Any], datastore: str) -> IndexRecord:
    try:
        versions = {
            int(number): VersionRecord(
                IndexVersion(IndexDefinition.from_document(each["definition"], name, datastore), int(number)),
                VersionState(each["state"]),
                None if each["verified"] is None else Verified(**each["verified"]),
            )
            for number, each in body["versions"].items()
        }
        return IndexRecord(name, document_version, body["alias"], body["next_number"], versions)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidConfig(
            f"{PREFIX}{name}",
            "is no document of an index that this version understands",
            hint="Use the version of this library that wrote it, or a later one.",
        ) from error
