"""The format of a datastore's tables, by its number: which this library knows, and what it says of another.

A library knows its own format and the one before it, so that old and new processes run side by side, one step apart.
`create_schema` lifts a store to the newest; from then on a process that begins and does not know it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from schemaless_core.canonical import canonical_bytes
from schemaless_core.engine.base import StoredDocument
from schemaless_core.errors import UnknownFormat
from schemaless_core.version import VERSION

#: What `create_schema` makes.
FORMAT = 1
KNOWN = frozenset({FORMAT})
#: The document, on every server, that names the library which made the format.
DOCUMENT = "format"


def check(node: str, found: int, documents: Callable[[], Sequence[StoredDocument]]) -> None:
    """Refuse a store whose format is not known here."""
    if found not in KNOWN:
        raise UnknownFormat(node, found, " and ".join(map(str, sorted(KNOWN))), _library_of(found, documents()))


def document() -> StoredDocument:
    """Says which library made the newest format, to older ones."""
    return StoredDocument(DOCUMENT, FORMAT, canonical_bytes({"library": VERSION}))


def _library_of(found: int, documents: Sequence[StoredDocument]) -> str | None:
    for name, version, body in documents:
        if name == DOCUMENT and version == found:
            return str(msgspec.json.decode(body, type=dict[str, str])["library"])
    return None
