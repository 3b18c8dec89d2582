"""The format of a datastore's tables, by its number: which this library knows, and what it says of another.

A library knows its own format and the one before it, so that old and new processes run side by side, one step apart.
`create_schema` lifts a store to the newest; from then on a process that begins and does not know it is refused. One
that runs goes on where the format says that its library may: it adds only what that library leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.errors import UnknownFormat
from schemaless_core.version import VERSION

#: What `create_schema` makes.
FORMAT = 1
KNOWN = frozenset({FORMAT})
#: Libraries whose own format is this or higher may go on with these tables, when they run already.
READABLE_BY = 1
#: The document, on every server, that names the library which made the format.
DOCUMENT = "format"


def check(node: str, found: int, documents: Callable[[], Sequence[StoredDocument]]) -> None:
    """Refuse a store whose format is not known here."""
    if found not in KNOWN:
        said = _said_of(found, documents())
        goes_on = found > FORMAT >= int(said.get("readable_by", found))
        known = " and ".join(map(str, sorted(KNOWN)))
        raise UnknownFormat(node, found, known, said.get("library"), goes_on=goes_on)


def document() -> StoredDocument:
    """Says of the newest format, to older libraries, which one made it, and which may go on with it. Texts only."""
    return StoredDocument(DOCUMENT, FORMAT, canonical_bytes({"library": VERSION, "readable_by": str(READABLE_BY)}))


def _said_of(found: int, documents: Sequence[StoredDocument]) -> dict[str, str]:
    for name, version, body in documents:
        if name == DOCUMENT and version == found:
            return msgspec.json.decode(body, type=dict[str, str])
    return {}
