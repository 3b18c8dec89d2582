"""Looked-up pairs never change: rows that were captured long ago are still rendered by them.

A pair may be deleted when no row points to it any more. Changes that did are perhaps not delivered yet, so it is
remembered in `tripstore.pair`, for ever; and its key is never given to another value, neither by an INSERT nor by an
UPDATE that makes a pair of a row that was none.
"""

from __future__ import annotations

from dataclasses import replace

from tripstore.backends.postgres.capture.functions.function import PINNED, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.capture.names import LAST, LOGGED, literal, pair_slug
from tripstore.backends.postgres.codec.lookups import pair_name
from tripstore.backends.postgres.layout.layout import Lookup, quoted
from tripstore.backends.postgres.sqlstates import PAIR_CHANGED

Made = tuple[Function, RowTrigger]


class LookupPairs:
    """One lookup of a layout, on the table that holds the pairs."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.part = pair_slug(lookup)
        self._key, self._value = quoted(lookup.key), quoted(lookup.value)
        self._name = literal(pair_name(lookup))
        self._what = f"{plain(lookup.key)} and {plain(lookup.value)} of {plain(str(lookup.table))}"

    def made(self) -> list[Made]:
        return [self.update(), self.inserted(), self.updated(), self.deleted()]

    def update(self) -> Made:
        """A value may be given to a row that had none: then there was no pair yet."""
        refused = refuse(
            PAIR_CHANGED,
            f"{self._what} are a pair that never changes.",
            "Cells hold the one for the other. Delete the row and insert another.",
        )
        pair = f"ROW({{0}}.{self._key}, {{0}}.{self._value})::pg_catalog.record"
        moved = f"{pair.format('OLD')} OPERATOR(pg_catalog.*<>) {pair.format('NEW')}"
        when = f"{moved} AND {self._is_pair('OLD')}"
        return self._made("update", f"\nBEGIN\n  {refused}\nEND\n", "BEFORE", "UPDATE", when)

    def inserted(self) -> Made:
        refused = refuse(
            PAIR_CHANGED,
            f"{plain(self._lookup.key)} % of {plain(str(self._lookup.table))} was that of another row.",
            "Cells hold the deleted row's value for it: take a new one.",
            f"NEW.{self._key}",
        )
        # A snapshot may be older than the deletion: the index knows, and raises 40001. Nothing is left behind.
        body = f"""
BEGIN
  IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    {self._remember("NEW")}
    IF FOUND THEN
      DELETE FROM tripstore.pair p WHERE p.lookup = {self._name} AND p.key = NEW.{self._key}::text;
    END IF;
  END IF;
  IF EXISTS (SELECT FROM tripstore.pair p
    WHERE p.lookup = {self._name} AND p.key = NEW.{self._key}::text AND p.value <> NEW.{self._value}::text) THEN
    {refused}
  END IF;
  RETURN NULL;
END
"""
        return self._made("inserted", body, "AFTER", "INSERT", self._is_pair("NEW"))

    def updated(self) -> Made:
        """No list of columns: a trigger of the company's may give the value where the UPDATE does not name it."""
        function, inserted = self.inserted()
        name = f"{LOGGED}{self.part}_updated"
        when = f"NOT ({self._is_pair('OLD')}) AND {self._is_pair('NEW')}"
        return function, replace(inserted, name=name, event="UPDATE", when=when, needs=name, refuses=True)

    def deleted(self) -> Made:
        body = f"\nBEGIN\n  {self._remember('OLD')}\n  RETURN NULL;\nEND\n"
        return self._made("deleted", body, "AFTER", "DELETE", self._is_pair("OLD"))

    def remember_all(self) -> str:
        """For a truncation that is allowed: all pairs of the table that the trigger stands on."""
        start = f"INSERT INTO tripstore.pair (lookup, key, value) SELECT {self._pair('r')} FROM ONLY "
        rest = f" r WHERE {self._is_pair('r')} ON CONFLICT DO NOTHING"
        return f"  EXECUTE {literal(start)} || TG_RELID::regclass || {literal(rest)};\n"

    def _remember(self, row: str) -> str:
        return f"INSERT INTO tripstore.pair (lookup, key, value) VALUES ({self._pair(row)}) ON CONFLICT DO NOTHING;"

    def _pair(self, row: str) -> str:
        return f"{self._name}, {row}.{self._key}::text, {row}.{self._value}::text"

    def _is_pair(self, row: str) -> str:
        return f"{row}.{self._key} IS NOT NULL AND {row}.{self._value} IS NOT NULL"

    def _made(self, verb: str, body: str, time: str, event: str, when: str | None = None) -> Made:
        name = f"{self.part}_{verb}"
        order = LAST if time == "BEFORE" else LOGGED
        return Function(name, body, PINNED), RowTrigger(f"{order}{name}", time, event, name, when)
