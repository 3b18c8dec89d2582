"""Dictionaries of zstd: what bodies of a column have in common, so that no body of it has to say it again.

A dictionary never changes, and is known by what it is: its id is the beginning of its own hash. It lies on each server
beside the bodies that need it, in the table of documents, and comes to replicas before them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import msgspec

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.engine.documents import StoredDocument

#: What the names of their documents begin with.
PREFIX = "dictionary:"
ID_BYTES = 4
#: The column of a dictionary for all columns that have none of their own.
EVERY_COLUMN = "*"


@dataclass(frozen=True)
class Dictionary:
    """One of a column; of those that a server has the highest number is in use."""

    column_name: str
    number: int
    data: bytes

    @cached_property
    def id(self) -> bytes:
        """What a body that was compressed with it begins with, behind the mark."""
        return sha256(self.data).digest()[:ID_BYTES]


def document_of(dictionary: Dictionary) -> StoredDocument:
    """It has one version: a copy that is there is never replaced."""
    data = b64encode(dictionary.data).decode()
    body = canonical_bytes({"column": dictionary.column_name, "number": dictionary.number, "data": data})
    return StoredDocument(f"{PREFIX}{dictionary.id.hex()}", 1, body)


def dictionaries_of(documents: Iterable[StoredDocument]) -> list[Dictionary]:
    """Those that documents hold, by column and number."""
    found = [_dictionary(msgspec.json.decode(document.body, type=_Document)) for document in documents]
    return sorted(found, key=lambda each: (each.column_name, each.number, each.id))


class _Document(msgspec.Struct, frozen=True):
    column: str
    number: int
    data: str


def _dictionary(document: _Document) -> Dictionary:
    return Dictionary(document.column, document.number, b64decode(document.data))
