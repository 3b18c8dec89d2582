"""A `Proposal` as the YAML of a layout: what was decided as keys, what was not as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from tripstore.backends.postgres.layout.layout import Field, FieldType
from tripstore.backends.postgres.proposals.proposal import Proposal, ProposedColumn, ProposedField

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = frozenset({"null", "true", "false", "yes", "no", "on", "off"})

_HEAD = """\
# How tables of Postgres hold the columns of cells. Proposed by `tripstore init --from`: look at every line.
# All keys: docs/reference/layout.md. Whether it fits the live tables: `tripstore schema plan`.
"""


def render(proposal: Proposal) -> str:
    """The text of the file; it loads unless no column could be proposed."""
    lines = [_HEAD.rstrip(), *(f"# {remark}" for remark in proposal.remarks), ""]
    lines.append(f"datastore: {_scalar(proposal.datastore)}")
    row_key = {"table": str(proposal.table), "id": proposal.id, "uuid": proposal.uuid}
    lines += ["# The table whose rows are the rows of the datastore, its id, and the UUID that is the row key."]
    lines += [f"row_key: {_inline(row_key)}", "", "columns:"]
    for column in proposal.columns:
        lines += list(_column(column))
    return "\n".join(lines) + "\n"


def undecided(proposal: Proposal) -> list[str]:
    """Everything that a person should look at first."""
    found = list(proposal.remarks)
    for column in proposal.columns:
        found += [f"{column.table}: {remark}" for remark in column.remarks]
        found += [f"{column.table}: to take it, run {statement};" for statement in column.statements]
        found += [f"{column.table}.{field.column}: {field.remark}" for field in column.fields if field.remark]
    return found


def _column(column: ProposedColumn) -> Iterator[str]:
    # Without a ref key it would not load: it stands there as a comment to be completed.
    mark = "" if column.ref_key is not None else "# "
    yield from (f"  # {remark[0].upper()}{remark[1:]}." for remark in column.remarks)
    yield from (f"  #   {statement};" for statement in column.statements)
    yield f"  {mark}{_scalar(column.name)}:"
    yield f"  {mark}  table: {_scalar(str(column.table))}"
    if column.parent is not None:
        parent = {"column": column.parent} | ({"uuid": column.uuid} if column.uuid else {})
        yield f"  {mark}  parent: {_inline(parent)}"
    if column.ref_key is None:
        yield f"  {mark}  ref_key: {{column: …, version: …}}"
    else:
        source = {"column": column.ref_key.column, "version": column.ref_key.version}
        yield f"  {mark}  ref_key: {_inline({key: name for key, name in source.items() if name})}"
    mapped = [field for field in column.fields if field.field is not None]
    if mapped:
        yield f"  {mark}  fields:"
        width = max(len(_scalar(field.field.name)) for field in mapped if field.field) + 1
        yield from (f"  {mark}    {line}" for field in column.fields for line in _field(field, width))
        off = "" if column.has_extra else "# "
        yield f"  {mark}  {off}extra: {_scalar(column.extra)}    # a json column for keys of bodies that no field holds"
    else:
        yield f"  {mark}  extra: {_scalar(column.extra)}"
    yield ""


def _field(proposed: ProposedField, width: int) -> Iterator[str]:
    if proposed.field is None:
        yield f"# {_scalar(proposed.column)}: {proposed.remark}."
        return
    remark = f"    # {proposed.remark}" if proposed.remark else ""
    yield f"{_scalar(proposed.field.name) + ':':<{width}} {_inline(_keys(proposed.field))}{remark}"


def _keys(field: Field) -> dict[str, object]:
    keys: dict[str, object] = {"column": field.column, "type": field.kind.value}
    if field.lookup is not None:
        lookup = field.lookup
        keys["lookup"] = {"table": str(lookup.table), "key": lookup.key, "value": lookup.value}
    if field.kind is FieldType.ARRAY:
        keys["items"] = (field.items or FieldType.STRING).value
    return keys


def _inline(mapping: Mapping[str, object]) -> str:
    pairs = (
        f"{key}: {_inline(value) if isinstance(value, Mapping) else _scalar(str(value))}"
        for key, value in mapping.items()
    )
    return "{" + ", ".join(pairs) + "}"


def _scalar(text: str) -> str:
    """A text as YAML; in quotes where it would be something else."""
    is_plain = all(_PLAIN.fullmatch(part) for part in text.split(".")) and text.lower() not in _TAKEN
    return text if is_plain else json.dumps(text, ensure_ascii=False)
