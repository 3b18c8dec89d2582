"""Every SQLSTATE that capture and the gate raise. No other software uses class TS."""

from __future__ import annotations

#: The gate is shut: the other store is the authority, or is about to be.
GATE_SHUT = "TS001"
#: The id, UUID, parent or number of an existing row was changed.
KEY_CHANGED = "TS002"
#: A row that is declared a fact was changed.
FACT_CHANGED = "TS003"
#: A row was deleted that must not be: the layout forbids it, or it is a fact and its parent is still there.
DELETE_REFUSED = "TS004"
#: A mapped table was truncated.
TRUNCATE_REFUSED = "TS005"
#: A number or version is too large, or negative, for a ref key.
OUT_OF_RANGE = "TS006"
#: A row was inserted at or below its tombstone: a put starts again, a service's fact needs a higher number.
BELOW_TOMBSTONE = "TS007"
#: A child row carries a UUID that is not its parent's.
WRONG_PARENT = "TS008"
#: A looked-up pair was changed, or its key was given to another value.
PAIR_CHANGED = "TS009"
#: The version did not rise with the fields: a facade's mistake, or a trigger that runs after capture's.
VERSION_STANDS = "TS010"
#: A mapped column has another name now, or none.
COLUMN_GONE = "TS011"

#: Postgres' own, for what services know already: a missing parent, a key that is taken, and a snapshot that is too old.
NO_PARENT = "23503"
UNIQUE_VIOLATION = "23505"
SERIALIZATION_FAILURE = "40001"
