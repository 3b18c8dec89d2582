"""The indexes that queries need and that do not exist: merged, so that few answer all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.rewrite.verdicts import IndexNeed
from tripstore.backends.postgres.layout.layout import Layout


def merged(
    needs: Iterable[IndexNeed], layout: Layout, existing: Sequence[IndexDefinition]
) -> tuple[IndexDefinition, ...]:
    """One index for each shard field, with all fields that are asked for with it."""
    shards: dict[str, dict[str, str]] = {}
    open_needs = [each for each in needs if each.answered_by is None]
    for need in sorted(open_needs, key=lambda each: (len(each.equal), each.fields)):
        fields = dict(need.fields)
        shard = _shard(need, shards)
        shards.setdefault(shard, {shard: fields[shard]}).update(fields)
    taken = {each.name for each in existing}
    return tuple(_definition(shard, fields, layout, taken) for shard, fields in sorted(shards.items()))


def _shard(need: IndexNeed, shards: dict[str, dict[str, str]]) -> str:
    """A field with one value: one that another query has chosen, else one of many values, UUIDs first."""
    names = [name for name, _ in need.equal]
    chosen = [name for name in names if name in shards]
    order = ("UUID", "string", "int", "decimal", "datetime", "boolean")
    return min(chosen) if chosen else min(names, key=lambda name: (order.index(dict(need.equal)[name]), name))


def _definition(shard: str, fields: dict[str, str], layout: Layout, taken: set[str]) -> IndexDefinition:
    rest = sorted(name for name in fields if name != shard)
    name = f"{shard.lower()}_index"[:48]
    while name in taken:
        name = f"{name[:45]}_2"
    document = {
        "table": name,
        "datastore": layout.datastore,
        "column_defs": [
            {
                "column_key": layout.parent.name,
                "fields": [{"field": each, "type": fields[each]} for each in (shard, *rest)],
            }
        ],
    }
    return IndexDefinition.from_document(document, "a proposal", layout.datastore)


def index_yaml(definition: IndexDefinition) -> str:
    """As a file in the folder of indexes has it."""
    lines = [f"table: {definition.name}", f"datastore: {definition.datastore}", "column_defs:"]
    for column in definition.columns:
        lines += [f"  - column_key: {column.name}", "    fields:"]
        lines += [f"      - {{field: {each.name}, type: {each.kind.value}}}" for each in column.fields]
    return "\n".join(lines) + "\n"
