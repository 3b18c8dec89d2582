"""What capture calls its functions and triggers, and the session variables that it listens to."""

from __future__ import annotations

from hashlib import md5

from tripstore.backends.postgres.codec.lookups import pair_name
from tripstore.backends.postgres.layout.layout import Lookup, quoted
from tripstore.backends.postgres.names import SCHEMA

#: Set with ORIGIN by the facade and the reverse mirror before a DELETE: `<ref key> <column name>` of the tombstone.
TOMBSTONE = "tripstore.tombstone"
#: Set by capture itself while rows are lifted above their tombstones: `<row key> <column> <number> <version>`, `|`, …
LIFTING = "tripstore.lifting"
#: Which row has another key, and a tombstone where it was.
MOVING = "tripstore.moving"

#: Triggers fire in the order of their names. The gate comes before all others. What is logged comes before the
#: company's AFTER triggers, which may change the row again, but after Postgres' own, RI_…: a child row whose parent is
#: going must wait for that, and not for a tombstone. Versions are decided last, when all others have changed NEW: ~
#: sorts after all other ASCII.
FIRST = "0_tripstore_"
LOGGED = "S_tripstore_"
LAST = "~tripstore_"
#: Of the trigger of a walk by blocks, beside capture's: a look at partitions compares the clones of those, and one that
#: comes and goes would be a breach each time.
WALKING = "S_walk_"
#: What a function says of itself that notes which rows move while they are walked by blocks.
WALKS = "tripstore walk"
#: Of the database: calls the look at partitions after each command that may change one.
EVENT_TRIGGER = "tripstore_partitions"
GATE_TRIGGER = f"{FIRST}gate"
GATE_FUNCTION = "gate_slow"
ENTER_FUNCTION = "enter"
WARNS_FUNCTION = "direct_writers_are_warned"

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_SLUG_LENGTH = 32


def slug(name: str) -> str:
    """A name as part of an identifier; different for different names, unchanged for ordinary ones."""
    small = name.lower()
    if len(name) <= _SLUG_LENGTH and set(small) <= _PLAIN and name in (small, name.upper()):
        # BASE and base may both be columns of one layout.
        return small if name != small else f"{small}_"
    plain = "".join(letter if letter in _PLAIN else "_" for letter in small)
    return f"{plain[: _SLUG_LENGTH - 9]}_{md5(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def function_name(part: str, verb: str) -> str:
    """The name of a function, in our schema; `part` is a slug."""
    return f"{part}_{verb}"


def in_schema(name: str) -> str:
    return f"{SCHEMA}.{quoted(name)}"


def pair_slug(lookup: Lookup) -> str:
    return f"pair_{md5(pair_name(lookup).encode(), usedforsecurity=False).hexdigest()[:8]}"


def literal(text: str) -> str:
    """A text as it stands in SQL, whatever standard_conforming_strings says."""
    quotes = text.replace("'", "''")
    return "E'" + quotes.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quotes}'"
