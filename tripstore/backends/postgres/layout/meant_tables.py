"""What to say of a table that is not there: which may have been meant, as it stands in a layout and after --table."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tripstore.backends.postgres.layout.layout import TableName

#: More would hide the one that was meant.
NAMED_MAX = 3
LISTED_MAX = 20


def meant_table(name: TableName, known: Sequence[TableName]) -> str:
    """Near misses in any schema; else the tables of its schema, or the schemas that have tables."""
    if near := _near(name, known)[:NAMED_MAX]:
        return f"Did you mean {' or '.join(near)}?"
    siblings = [str(each) for each in known if each.schema == name.schema]
    if siblings:
        return f"Tables in schema {name.schema}: {_listed(siblings)}."
    schemas = dict.fromkeys(each.schema for each in known)
    if not schemas:
        return "There is no table in any schema that this role could see."
    return (
        f"There is no table in schema {name.schema} that this role could see; there are some in {_listed([*schemas])}."
    )


def _near(name: TableName, known: Sequence[TableName]) -> list[str]:
    """First those of the same name in another schema or case."""
    same = [str(each) for each in known if each.name.lower() == name.name.lower()]
    by_text: dict[str, list[str]] = {}
    for each in known:
        by_text.setdefault(str(each).lower(), []).append(str(each))
    close = get_close_matches(str(name).lower(), by_text, n=1)
    return list(dict.fromkeys([*same, *(each for text in close for each in by_text[text])]))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
