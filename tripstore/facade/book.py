"""`Book`: one document of the control database, read and changed as a whole, with a line of the audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.errors import DocumentConflict

ATTEMPTS = 5


class BookPage(Protocol):
    """What stands in a book, as one version of it. Of two that say the same one may be older."""

    def to_document(self) -> dict[str, Json]: ...

    @classmethod
    def from_document(cls, document: Mapping[str, Any], version: int) -> Self: ...

    @property
    def version(self) -> int: ...


PageType = TypeVar("PageType", bound=BookPage)


class Book(Generic[PageType]):
    """Of one datastore. `empty`: what it says while it was never written."""

    def __init__(self, control: ControlDatabase, document: str, empty: PageType) -> None:
        self._documents = Documents(control)
        self._document = document
        self._empty = empty

    def find(self) -> PageType:
        """What it says now."""
        found = self._documents.find(self._document)
        return self._empty if found is None else self._empty.from_document(found.body, found.version)

    def change(self, change: Callable[[PageType], PageType], action: str, why: str = "") -> PageType:
        """Change what is there by then, and say so in the audit log; a change that changes nothing is none."""
        for attempt in range(ATTEMPTS):
            found = self.find()
            wanted = change(found)
            if wanted == found:
                return found
            detail = {"from": found.to_document(), "to": wanted.to_document(), "why": why}
            try:
                document = self._documents.put(
                    self._document, wanted.to_document(), expected_version=found.version, action=action, detail=detail
                )
            except DocumentConflict:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return wanted.from_document(document.body, document.version)
        raise AssertionError("unreachable")
