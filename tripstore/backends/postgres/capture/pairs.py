"""Looked-up pairs never change: rows that were captured long ago are still rendered by them.

A pair may be deleted when nobody points to it any more. Changes that did are perhaps not delivered yet, so it is
remembered in `tripstore.pair`, for ever; and its key is never given to another value.
"""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions import PINNED, Function, plain, refuse
from tripstore.backends.postgres.capture.names import LAST, LOGGED, literal, pair_name, pair_slug
from tripstore.backends.postgres.capture.sqlstates import PAIR_CHANGED
from tripstore.backends.postgres.capture.triggers import Trigger
from tripstore.backends.postgres.layout.layout import Lookup, quoted

Made = tuple[Function, Trigger]


class Pairs:
    """One lookup of a layout, on the table that holds the pairs."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._part = pair_slug(lookup)
        self._key, self._value = quoted(lookup.key), quoted(lookup.value)
        self._name = literal(pair_name(lookup))
        self._what = f"{plain(lookup.key)} and {plain(lookup.value)} of {plain(str(lookup.table))}"

    def made(self) -> list[Made]:
        return [self.update(), self.inserted(), self.deleted()]

    def update(self) -> Made:
        """A value may be given to a row that had none: then there was no pair yet."""
        refused = refuse(
            PAIR_CHANGED,
            f"{self._what} are a pair that never changes.",
            "Cells hold the one for the other. Delete the row and insert another.",
        )
        pair = f"ROW({{0}}.{self._key}, {{0}}.{self._value})::pg_catalog.record"
        moved = f"{pair.format('OLD')} OPERATOR(pg_catalog.*<>) {pair.format('NEW')}"
        when = f"{moved} AND OLD.{self._key} IS NOT NULL AND OLD.{self._value} IS NOT NULL"
        return self._made("update", f"\nBEGIN\n  {refused}\nEND\n", "BEFORE", "UPDATE", when)

    def inserted(self) -> Made:
        refused = refuse(
            PAIR_CHANGED,
            f"{plain(self._lookup.key)} % of {plain(str(self._lookup.table))} was that of another row.",
            "Cells hold the deleted row's value for it: take a new one.",
            f"NEW.{self._key}",
        )
        body = f"""
BEGIN
  IF EXISTS (SELECT FROM tripstore.pair p
    WHERE p.lookup = {self._name} AND p.key = NEW.{self._key}::text AND p.value <> NEW.{self._value}::text) THEN
    {refused}
  END IF;
  RETURN NULL;
END
"""
        return self._made("inserted", body, "AFTER", "INSERT")

    def deleted(self) -> Made:
        body = f"""
BEGIN
  INSERT INTO tripstore.pair (lookup, key, value)
  VALUES ({self._name}, OLD.{self._key}::text, OLD.{self._value}::text) ON CONFLICT DO NOTHING;
  RETURN NULL;
END
"""
        when = f"OLD.{self._key} IS NOT NULL AND OLD.{self._value} IS NOT NULL"
        return self._made("deleted", body, "AFTER", "DELETE", when)

    def _made(self, verb: str, body: str, time: str, event: str, when: str | None = None) -> Made:
        name = f"{self._part}_{verb}"
        order = LAST if time == "BEFORE" else LOGGED
        return Function(name, body, PINNED), Trigger(f"{order}{name}", time, event, name, when)
