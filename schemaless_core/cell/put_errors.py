"""The errors that carry cells: what stands where a put wanted to write, and which cells of a batch were not stored."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell.answers import PutResult
from schemaless_core.cell.cell import Cell
from schemaless_core.errors import Conflict, SchemalessError


class CellConflict(Conflict):
    """Another body is stored under this key, or the column's latest cell is not the expected one."""

    def __init__(
        self, attempted: Cell, stored: Cell | None, *, expected: int | None = None, is_damaged: bool = False
    ) -> None:
        key = f"({attempted.row_key}, {attempted.column_name}, {attempted.ref_key})"
        if is_damaged:
            what = f"{key} meets bytes that are no JSON"
        elif stored is not None and stored.key == attempted.key:
            what = f"{key} already holds another body"
        else:
            found = "no cell" if stored is None else f"ref key {stored.ref_key}"
            wanted = "no cell" if expected is None else f"ref key {expected}"
            what = f"{key} was to follow {wanted}, but the column's latest is {found}"
        hint = "Read the stored cell, then write your change under a higher ref key."
        if stored is None:
            hint = "The column is empty: expect None, if the change does not build on a cell that you saw elsewhere."
        super().__init__(f"{what}.", hint="`tripstore repair` mends what a diff finds." if is_damaged else hint)
        self.attempted = attempted
        self.stored = stored
        self.expected = expected
        #: Whether what stands there cannot be read: `stored` is None then.
        self.is_damaged = is_damaged


class BatchFailed(SchemalessError):
    """Some cells of a batch were not stored; `results` has one result or error per cell, in order."""

    def __init__(self, results: Sequence[PutResult | SchemalessError]) -> None:
        failures = [result for result in results if isinstance(result, SchemalessError)]
        first = f" The first: {failures[0]}" if failures else ""
        super().__init__(
            f"{len(failures)} of {len(results)} cells were not stored.{first}",
            hint="`results` says it of each cell; what was unavailable may be put again.",
        )
        self.results = list(results)
