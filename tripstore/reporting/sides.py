"""`Sides`: what both backends have under a key, with or without the body.

A backend that does not answer is asked no more: a report of a bad night is made, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from schemaless_core.canonical import canonical_bytes
from schemaless_core.cell import Cell, CellKey
from schemaless_core.errors import SchemalessError, Unavailable
from validation.report.document import Side

#: No body, or none that may be shown.
NOTHING = msgspec.Raw(b"null")

Look = Callable[[CellKey], Cell | None]


class Sides:
    """Of one report."""

    def __init__(self, looks: Mapping[str, Look], *, with_bodies: bool) -> None:
        self._looks = looks
        self._with_bodies = with_bodies
        self._salt = secrets.token_bytes(16)
        #: Backends that did not answer, and why.
        self._silent: dict[str, str] = {}

    def at(self, key: CellKey) -> list[Side]:
        """Both, in the same order every time."""
        return [self._side(backend, look, key) for backend, look in self._looks.items()]

    def _side(self, backend: str, look: Look, key: CellKey) -> Side:
        if backend in self._silent:
            return _trouble(backend, self._silent[backend])
        try:
            cell = look(key)
        except Unavailable as error:
            self._silent[backend] = error.message
            return _trouble(backend, error.message)
        except SchemalessError as error:
            return _trouble(backend, error.message)
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
