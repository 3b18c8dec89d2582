"""`RuleBook`: the rules of the company's tables, as this process goes by them while Schemaless is the authority.

Postgres has them. A process asks it at its first put and every half a minute, and goes by what it saw while Postgres is
down. For one that begins then, the process that saw something new left a copy in the control database and on each
server. What a company has changed since is seen late; so no put is refused by rules older than a second while Postgres
answers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.deadline import Deadline
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.errors import SchemalessError
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.looks import SharedLook
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.rules.table_rules import Document, TableRules

logger = logging.getLogger(__name__)

PREFIX = "rules:"
REFRESH_SECONDS = 30.0
#: Rules by which a put is refused are not older, unless Postgres is silent.
REFUSING_SECONDS = 1.0
#: How long a call waits for the first look, how long another one for one that is to refuse it.
FIRST_SECONDS = 2.0
AGAIN_SECONDS = 0.5
#: After a first look that Postgres did not answer.
PATIENCE_SECONDS = 5.0
LOOK_SECONDS = 1.0


class RuleBook:
    """Of one process and layout. Threads share it."""

    def __init__(
        self,
        layout: Layout,
        read: Callable[[Deadline], Document],
        control: ControlDatabase,
        clusters: Mapping[str, Cluster],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = PREFIX + layout.digest
        self._layout = layout
        self._read = read
        self._documents = Documents(control)
        self._clusters = clusters
        self._clock = clock
        self._rules: TableRules | None = None
        #: Of the rules: what they were made of.
        self.document: Document | None = None
        #: When Postgres said so; a copy is of no time.
        self._seen_at = -math.inf
        self._asked_at = -math.inf
        self._copied: bytes | None = None
        self.after_fork()

    def after_fork(self) -> None:
        """Threads and locks of the parent are the parent's; what it knew is true."""
        self._changed = threading.Condition()
        self._look = SharedLook("table-rules", self.learn, self._changed)

    def find(self) -> TableRules | None:
        """The rules as they are known; None: there is no copy, and Postgres is silent."""
        rules = self._rules
        now = self._clock()
        if rules is None:
            return self._first(now)
        if now - self._asked_at > REFRESH_SECONDS:
            self._asked_at = now
            self._look.request_alone()
        return rules

    def find_now(self) -> TableRules | None:
        """The rules of now, or of a second ago: for a put that is to be refused by them."""
        if self._clock() - max(self._seen_at, self._asked_at) > REFUSING_SECONDS:
            self._wait(AGAIN_SECONDS)
        return self._rules

    def _first(self, now: float) -> TableRules | None:
        if now - self._asked_at > PATIENCE_SECONDS:
            self._wait(FIRST_SECONDS)
        return self._rules

    def _wait(self, seconds: float) -> None:
        patience = Deadline(seconds)
        with self._changed:
            request = self._look.request()
            asked_at = self._clock()
            while not (self._look.is_answered(request) or self._seen_at >= asked_at or patience.is_over):
                self._changed.wait(max(patience.remaining_seconds(), 0.001))
        self._asked_at = self._clock()

    def learn(self) -> None:
        """Ask Postgres; a process that does not hear from it goes by a copy, if nothing better is known."""
        began = self._clock()
        try:
            document = self._read(Deadline(LOOK_SECONDS))
        except SchemalessError as error:
            logger.info("Postgres does not say its rules: %s", error.message, extra={"event": "rules.not_read"})
            if self._rules is None:
                self._learn_from_copies()
            return
        if document != self.document:
            self._rules, self.document = TableRules(self._layout, document), document
        with self._changed:
            self._seen_at = began
            self._changed.notify_all()
        self._leave_copies(document)

    def _learn_from_copies(self) -> None:
        """Take the newest copy that the control database or a server has."""
        copies = [self._copy_of_control(), *(self._copy_of(cluster.primary) for cluster in self._clusters.values())]
        newest = max((copy for copy in copies if copy), key=lambda copy: copy[0], default=None)
        if newest is not None:
            self.document = newest[1]
            self._rules = TableRules(self._layout, newest[1])

    def _copy_of_control(self) -> tuple[int, Any] | None:
        try:
            found = self._documents.find(self._name)
        except SchemalessError:
            return None
        return None if found is None else (found.version, found.body)

    def _copy_of(self, guarded: GuardedNode) -> tuple[int, Any] | None:
        try:
            found = guarded.ask(lambda node: node.find_documents(self._name, Deadline(LOOK_SECONDS)))
        except SchemalessError:
            return None
        return (found[0].version, msgspec.json.decode(found[0].body)) if found else None

    def _leave_copies(self, document: Document) -> None:
        """For processes that begin while Postgres is down. One that loses against another has read the same rules."""
        body = canonical_bytes(document)
        if body == self._copied:
            return
        try:
            found = self._documents.find(self._name)
            if found is None or found.body != document:
                version = 0 if found is None else found.version
                detail = {"layout": self._layout.digest}
                found = self._documents.put(
                    self._name, document, expected_version=version, action="facade.rules", detail=detail
                )
            copy = StoredDocument(found.name, found.version, body)
            for cluster in self._clusters.values():
                cluster.write(lambda node: node.put_document(copy, Deadline(LOOK_SECONDS)))
        except SchemalessError as error:
            extra = {"event": "rules.not_copied", "reason": error.message}
            logger.warning("the rules of the tables have no new copy", extra=extra)
            return
        self._copied = body
