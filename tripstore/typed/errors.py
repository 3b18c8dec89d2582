"""What a typed class cannot make of a cell."""

from __future__ import annotations

from uuid import UUID

from schemaless_core.errors import Invalid
from tripstore.errors import TripstoreError


class UntypedCell(Invalid, TripstoreError):
    """A cell that is none of this class: of another column, a tombstone, or with a value of another type."""

    def __init__(self, kind: str, column_name: str, row_key: UUID, ref_key: int, reason: str, path: str = "") -> None:
        where = f" at {path}" if path else ""
        super().__init__(
            f"The cell {column_name} {ref_key} of row {row_key} is no {kind}{where}: {reason}.",
            hint="`get_cell` reads it as it is. Run `tripstore models` again if the layout or an index has changed.",
        )
        self.column_name = column_name
        self.row_key = row_key
        self.ref_key = ref_key
        self.reason = reason
        #: Of the culprit in the body.
        self.path = path
