"""`BodyForms`: how one server keeps bodies. Above its engine there are none but canonical bytes.

A compressed body is a mark that no JSON begins with, the id of its dictionary, and a frame of zstd with a checksum.
A body is compressed where its column is configured so, the server itself has a dictionary for the column, and bytes
are saved. Whatever is compressed is read, also where nothing is configured any more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from schemaless_core import metrics
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.dictionaries import EVERY_COLUMN, ID_BYTES, dictionaries_of
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.engine.frames import Frames, frames_of, require_zstandard
from schemaless_core.errors import DictionaryMissing, InvalidRequest, SchemalessError

logger = logging.getLogger(__name__)

#: JSON begins with a bracket, a quote, a digit, a minus, or one of three letters.
MARK = b"\x01"
#: The same for statements.
MARK_NUMBER = MARK[0]
FRAME_AT = len(MARK) + ID_BYTES
#: Statements look for tombstones by their bytes.
TOMBSTONE = b"null"
#: How long a writer goes on with the dictionaries that it knows of. Each is good for ever, so a newer one has time.
KNOWN_SECONDS = 60.0
#: For the answer of the server, while a put waits, and while a read does.
LOOK_SECONDS, READ_SECONDS = 1.0, 10.0


class BodyForms:
    """Of one server. `find` asks it for its dictionaries, on a connection of its own."""

    def __init__(
        self, node: str, columns: Collection[str], level: int, find: Callable[[Deadline], Iterable[StoredDocument]]
    ) -> None:
        if columns:
            require_zstandard()
        self._node = node
        #: Whether bodies of any column are compressed.
        self.is_on = bool(columns)
        self._is_every = EVERY_COLUMN in columns
        self._columns = frozenset(name.encode() for name in columns)
        self._level = level
        #: What a compressed body must save at least. Tests lower it.
        self.saved_bytes = 1
        self._find = find
        #: When the server was asked last.
        self._looked_at = -math.inf
        self._known: dict[bytes, Frames] = {}
        self._newest: dict[bytes, Frames] = {}

    def kept(self, cells: Sequence[NewCell]) -> Sequence[NewCell]:
        """The cells with their bodies as they are to be stored."""
        return [self.kept_one(cell) for cell in cells] if self._columns else cells

    def kept_one(self, cell: NewCell) -> NewCell:
        """The same of one cell: as it is, or compressed."""
        if not self._columns:
            return cell
        body = self.kept_body(cell.column_name, cell.body)
        return cell if body is cell.body else cell._replace(body=body)

    def kept_body(self, column_name: bytes, body: bytes) -> bytes:
        """A body of this column as it is to be stored."""
        frames = self._frames(column_name)
        if frames is None or body == TOMBSTONE:
            return body
        frame = MARK + frames.dictionary.id + frames.compressed(body)
        return frame if len(body) - len(frame) >= self.saved_bytes else body

    def anew(self, column_name: bytes, stored: bytes) -> bytes:
        """A stored body as a put would store it now. Itself where it is so already, and where it is damaged."""
        body = self.plain(stored)
        if body.startswith(MARK):
            return stored
        frames = self._frames(column_name)
        if frames is not None and stored.startswith(MARK + frames.dictionary.id):
            return stored
        return self.kept_body(column_name, body)

    def plain(self, body: bytes) -> bytes:
        """The canonical bytes of a stored body; a damaged one as it is stored: that is no JSON, and `fsck` names it.

        `DictionaryMissing`: it may be sound, and this server cannot say what it is.
        """
        if not body.startswith(MARK) or len(body) <= FRAME_AT:
            return body
        found = self._frames_by(body[len(MARK) : FRAME_AT]).plain(memoryview(body)[FRAME_AT:])
        return body if found is None else found

    def look_again(self) -> None:
        """Whatever is stored next goes by the dictionaries that the server has then."""
        self._looked_at = -math.inf

    def _frames(self, column_name: bytes) -> Frames | None:
        """With what bodies of a column are compressed now, if they are."""
        if not self._columns or (column_name not in self._columns and not self._is_every):
            return None
        now = time.monotonic()
        if now - self._looked_at > KNOWN_SECONDS:
            self._looked_at = now  # the other threads go on with what is known
            self._look_if_possible()
        return self._newest.get(column_name) or (self._newest.get(EVERY_COLUMN.encode()) if self._newest else None)

    def _frames_by(self, wanted: bytes) -> Frames:
        if wanted not in self._known:
            self._look(READ_SECONDS)
        if wanted not in self._known:
            metrics.dictionary_missed(self._node)
            raise DictionaryMissing(self._node, wanted.hex())
        return self._known[wanted]

    def _look_if_possible(self) -> None:
        """A writer stores what it cannot compress as it is."""
        try:
            self._look(LOOK_SECONDS)
        except InvalidRequest:  # no zstandard: the next writer of the process would not know either
            raise
        except SchemalessError as problem:
            extra = {"event": "bodies.not_looked", "node": self._node, "error": str(problem)}
            logger.warning("a server does not say which dictionaries it has; bodies are stored as before", extra=extra)

    def _look(self, seconds: float) -> None:
        found = [frames_of(each, self._level) for each in dictionaries_of(self._find(Deadline(seconds)))]
        # By number: the highest of a column comes last.
        self._newest = {each.dictionary.column_name.encode(): each for each in found}
        self._known = self._known | {each.dictionary.id: each for each in found}


class _AsStored(BodyForms):
    """For statements that ask whether the stored bytes are still the same."""

    def plain(self, body: bytes) -> bytes:
        return body


#: Of a server that was never asked for a dictionary.
NO_BODIES = BodyForms("", (), 1, lambda _deadline: ())
AS_STORED = _AsStored("", (), 1, lambda _deadline: ())
#: Times that a statement about stored bytes is sent, each with those that another writer has put in their place.
FORMS_MAX = 3
