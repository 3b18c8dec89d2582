"""`Timeouts`: how long a call of each trigger may take, as its workers said; commands have no trigger modules."""

from __future__ import annotations

from typing import cast

from schemaless_core.control.documents import Documents
from schemaless_core.errors import DocumentConflict

_PREFIX = "trigger:"


class Timeouts:
    """One document for each trigger, in the control database."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def tell(self, group: str, seconds: float | None) -> None:
        """Say it unless it is known so. Two versions of a trigger side by side: the one that began last has said it."""
        known = self._documents.find(_PREFIX + group)
        body = {"timeout_seconds": None if seconds is None else float(seconds)}
        if known is not None and known.body == body:
            return
        try:
            version = 0 if known is None else known.version
            self._documents.put(
                _PREFIX + group, dict(body), expected_version=version, action="triggers.timeout", detail=body
            )
        except DocumentConflict:
            pass  # another worker began at the same time, and has said it

    def all(self) -> dict[str, float | None]:
        """By group; those of triggers that no worker of this version has served are missing."""
        found = self._documents.all(_PREFIX)
        return {each.name.removeprefix(_PREFIX): cast("float | None", each.body["timeout_seconds"]) for each in found}
