"""`Bounds`: which numbers and versions a row may have, and the refusals of others."""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.capture.functions.function import plain, refuse
from tripstore.backends.postgres.layout.layout import NUMBER_MAX, VERSION_MAX, quoted
from tripstore.backends.postgres.sqlstates import OUT_OF_RANGE


class Bounds:
    """Of one mapped column."""

    def __init__(self, changes: Changes) -> None:
        number = changes.column.ref_key.column
        self._table = plain(str(changes.column.table))
        self.n = quoted(number) if number else None
        self.first = 0 if self.n else 1
        self.last = VERSION_MAX if self.n else (1 << 63) - 1

    def check_number(self) -> str:
        """NEW's, where its ref key holds one."""
        if not self.n:
            return ""
        n = f"NEW.{self.n}"
        refused = refuse(
            OUT_OF_RANGE,
            f"A row of {self._table} has number %, which no ref key can hold.",
            f"Numbers go from 0 to {NUMBER_MAX}.",
            n,
        )
        return f"""\
  IF {n} NOT BETWEEN 0 AND {NUMBER_MAX} THEN
    {refused}
  END IF;
"""

    def check_version(self, new: str) -> str:
        if not self.n:
            return ""
        return f"""\
      IF {new} OPERATOR(pg_catalog.<) 0 OR {new} OPERATOR(pg_catalog.>) {VERSION_MAX} THEN
        {self.out_of_versions(new)}
      END IF;
"""

    def out_of_versions(self, version: str) -> str:
        return refuse(
            OUT_OF_RANGE,
            f"A row of {self._table} is at version %, and there is none after {self.last}.",
            "If it jumped there, `tripstore repair --frozen` gives it the version next to the one before.",
            version,
        )
