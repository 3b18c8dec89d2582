"""`ReportSides`: what both backends have under a key, or as the latest of a column, with or without the body.

A backend that does not answer is asked no more: a report of a bad night is made, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.store import CellStore
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.engines.validation.diff.latest import Latest
from tripstore.engines.validation.report.document import Side

#: No body, or none that may be shown.
NOTHING = msgspec.Raw(b"null")

Look = Callable[[CellStore], Cell | None]


class NoSides:
    """Asks no backend: for a list that is looked through before one of its lines is opened."""

    def at(self, key: CellKey) -> None:
        """They were not asked."""

    def latest(self, key: ChildKey) -> None:
        """They were not asked."""


class ReportSides:
    """Of one report."""

    def __init__(self, stores: Mapping[str, CellStore], latest: Latest, *, with_bodies: bool) -> None:
        self._stores = stores
        self._latest = latest
        self._with_bodies = with_bodies
        self._salt = secrets.token_bytes(16)
        #: Backends that did not answer, and why.
        self._silent: dict[str, str] = {}

    def at(self, key: CellKey) -> list[Side]:
        """Both, in the same order every time."""
        return self._both(lambda store: store.get_cell(*key))

    def latest(self, key: ChildKey) -> list[Side]:
        """The same, with whatever version each has as its latest."""
        return self._both(lambda store: self._latest.of(store, [key])[0])

    def _both(self, look: Look) -> list[Side]:
        return [self._side(backend, store, look) for backend, store in self._stores.items()]

    def _side(self, backend: str, store: CellStore, look: Look) -> Side:
        if backend in self._silent:
            return _trouble(backend, self._silent[backend])
        try:
            cell = look(store)
        except HistoryTruncated as error:  # it answers: that it has forgotten this version
            return _trouble(backend, error.message)
        except Unavailable as error:
            self._silent[backend] = error.message
            return _trouble(backend, error.message)
        except SchemalessError as error:
            return _trouble(backend, error.message)
        except msgspec.MsgspecError:
            return _trouble(backend, "its bytes are no JSON")
        if cell is None:
            return Side(
                backend=backend, is_there=False, ref_key=None, bytes=None, digest=None, body=NOTHING, trouble=None
            )
        body = canonical_bytes(cell.body)
        return Side(
            backend=backend,
            is_there=True,
            ref_key=cell.ref_key,
            bytes=len(body),
            digest=blake2b(body, key=self._salt, digest_size=6).hexdigest(),
            body=msgspec.Raw(body) if self._with_bodies else NOTHING,
            trouble=None,
        )


def _trouble(backend: str, reason: str) -> Side:
    return Side(backend=backend, is_there=False, ref_key=None, bytes=None, digest=None, body=NOTHING, trouble=reason)
