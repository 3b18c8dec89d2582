"""`ColumnBook`: what the columns of a datastore hold, written down for the time when no layout is configured any more.

In a column that holds one thing of a row, each cell supersedes those below it. Where it holds children, it does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.errors import DocumentConflict, InvalidRequest

#: By column: how many of the lowest bits of a ref key are the version of a child; None: it holds one thing of a row.
ColumnKinds = Mapping[str, int | None]

DOCUMENT = "columns"
TRIES = 5


class ColumnBook:
    """Of one datastore, in the control database."""

    def __init__(self, control: ControlDatabase) -> None:
        self._documents = Documents(control)

    def find(self) -> dict[str, int | None]:
        """What was written down; nothing of a column of which no one ever said it."""
        found = self._documents.find(DOCUMENT)
        return {} if found is None else {name: _bits(said) for name, said in found.body.items()}

    def record(self, kinds: ColumnKinds) -> None:
        """Add columns, or change what is known of them. Safe to repeat."""
        for n in range(TRIES):
            found = self._documents.find(DOCUMENT)
            known: dict[str, Json] = {} if found is None else found.body
            body: dict[str, Json] = {**known, **kinds}
            if body == known:
                return
            version = 0 if found is None else found.version
            try:
                self._documents.put(
                    DOCUMENT, body, expected_version=version, action="columns.record", detail={"columns": body}
                )
                return
            except DocumentConflict:
                if n + 1 == TRIES:
                    raise


def refuse_children(columns: Collection[str], kinds: ColumnKinds, versioned: Collection[str]) -> None:
    """Raise unless each of these columns is known to hold versions of one thing, or is said to (`versioned`).

    Of children, the highest ref key supersedes the versions of one alone, and the others' would go with them.
    """
    if children := sorted(name for name in set(columns) if kinds.get(name) is not None):
        raise InvalidRequest(
            f"{', '.join(children)} holds children: its versions do not supersede each other.",
            hint="Leave it out of --columns.",
        )
    if unknown := sorted(set(columns) - kinds.keys() - set(versioned)):
        names = ",".join(unknown)
        raise InvalidRequest(
            f"No known layout has {', '.join(unknown)}: it may hold children, which do not supersede each other.",
            hint=f"If each of its cells replaces those before it in the row, say so: --versioned {names}.",
        )
    if unasked := sorted(set(versioned) - set(columns)):
        raise InvalidRequest(f"{', '.join(unasked)} is not among the columns.", hint="Name it in --columns too.")


def _bits(said: Json) -> int | None:
    assert said is None or isinstance(said, int), "we wrote it"
    return said
