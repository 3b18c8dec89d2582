"""Conditions on cells of our own, which Postgres holds as canonical bytes.

A body is written in one way only, so a field with its value is one run of bytes in it. The same run may stand deeper in
the body as well: more cells are found than meet the condition, never fewer. Postgres's own JSON is of no use here: it
refuses a body with a NUL in any of its texts, and has other numbers.
"""

from __future__ import annotations

from uuid import UUID

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.definitions.values import IndexFieldType, json_form
from schemaless_core.engine.index_sql import Clause

#: Bodies write a UUID with or without hyphens, in capitals or not. Whatever is not ASCII is escaped by `encode`.
_UUIDS_ALIKE = """pg_catalog.replace(pg_catalog.lower(pg_catalog.encode({body}, 'escape') COLLATE "C"), '-', '')"""
#: Types whose values are written in one way.
_WRITTEN_ALIKE = (IndexFieldType.STRING, IndexFieldType.INT, IndexFieldType.BOOLEAN)
#: What follows a value within its object.
_ENDS = (b",", b"}")


def held(body: str, condition: CheckedCondition) -> Clause:
    """What is true of every body that meets the condition; `body` is its column."""
    name, kind = f'"{condition.field.name}":', condition.field.kind
    if condition.operator == "=" and kind is IndexFieldType.UUID:
        (value,) = condition.values
        assert isinstance(value, UUID)  # checked
        return Clause(f"pg_catalog.strpos({_UUIDS_ALIKE.format(body=body)}, %s) > 0", (f'{name}"{value.hex}"',))
    if condition.operator == "=" and kind in _WRITTEN_ALIKE:
        run = name.encode() + canonical_bytes(json_form(kind, condition.values[0]))
        return Clause(f"(position(%s in {body}) > 0 OR position(%s in {body}) > 0)", tuple(run + end for end in _ENDS))
    return Clause(f"position(%s in {body}) > 0", (name.encode(),))
