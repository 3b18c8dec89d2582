"""The text of the module. It depends on the layout and the indexes alone: no time, no version, no place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemaless_core.definitions.index import IndexDefinition
from tripstore import typed
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.models.names import attribute_name, class_name, singular
from tripstore.models.shapes import ColumnShape, IndexShape, columns_of, indexes_of
from tripstore.models.types import annotation, annotation_of_index, form

#: By which a file is known for one of ours.
MARK = "Written by `tripstore models`"

_HEAD = '''\
"""Typed rows of the datastore {datastore}.

{mark} from the layout and the indexes: change those, and run it again.
A `str` is text, or a value of a Postgres type that Python has none for, as Postgres writes it.
"""

# A file that a formatter changes would not be up to date.
# fmt: off
# ruff: noqa

from __future__ import annotations

'''
_ROW = """

@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class {name}(TypedRow):
    {said}

    column_name: ClassVar[str] = {column}
"""
_ENTRY = """

@dataclass(frozen=True, kw_only=True, slots=True)
class {name}(TypedEntry[{shard}]):
    {said}

    index_name: ClassVar[str] = {index}

"""
#: Whatever a module may import, by what it is imported from.
_IMPORTS = (
    ("dataclasses", ("dataclass",)),
    ("decimal", ("Decimal",)),
    ("typing", ("ClassVar",)),
    ("uuid", ("UUID",)),
)


@dataclass(frozen=True, slots=True)
class ModelClass:
    """One class of the module; of a column or of an index."""

    name: str
    column: str | None
    index: str | None
    text: str


def classes_of(
    datastore: str, layout: Layout | None, indexes: Sequence[IndexDefinition], prefix: str | None = None
) -> list[ModelClass]:
    """The classes, columns first. `prefix`: what rows are called; else as the datastore is, in the singular."""
    one = singular(datastore) if prefix is None else prefix
    made: list[ModelClass] = []
    for column in columns_of(layout, indexes):
        name = class_name(f"{one}_{column.name}", {each.name for each in made})
        made.append(ModelClass(name, column.name, None, _row(name, column)))
    for index in indexes_of(indexes):
        name = class_name(index.name, {each.name for each in made})
        made.append(ModelClass(name, None, index.name, _entry(name, index)))
    return made


def module_of(datastore: str, classes: Sequence[ModelClass]) -> str:
    """The whole module."""
    body = "".join(each.text for each in classes)
    head = _HEAD.format(datastore=datastore, mark=MARK)
    code = "".join(line for line in body.splitlines() if '"""' not in line)
    return head + "\n".join(_imports(set(re.findall(r"\w+", code)))) + "\n" + body


def _imports(used: set[str]) -> Iterator[str]:
    if "dt" in used:
        yield "import datetime as dt"
    for module, names in _IMPORTS:
        if found := [name for name in names if name in used]:
            yield f"from {module} import {', '.join(found)}"
    yield ""
    yield "from tripstore.typed import ("
    yield from (f"    {name}," for name in sorted(used & set(typed.__all__), key=_import_order))
    yield ")"


def _import_order(name: str) -> tuple[int, str]:
    """Constants, classes, functions: as import sorters have it."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _row(name: str, column: ColumnShape) -> str:
    place = "that only indexes name" if column.table is None else f"of the table {column.table}"
    text = _ROW.format(name=name, said=_docstring(f"A cell of {column.name}, {place}."), column=_literal(column.name))
    if column.child_bits is not None:
        text += f"    child_bits: ClassVar[int | None] = {column.child_bits}\n"
    attributes: list[str] = []
    for key in column.keys:
        attribute = attribute_name(key.name, attributes)
        attributes.append(attribute)
        told = [form(key)]
        told += [f"key={_literal(key.name)}"] if attribute != key.name else []
        told += ["keeps_null=True"] if key.keeps_null else []
        text += "\n" * (len(attributes) == 1) + f"    {attribute}: {annotation(key)} = stored({', '.join(told)})\n"
    return text


def _entry(name: str, index: IndexShape) -> str:
    (shard, kind), *_others = index.fields
    said = _docstring(f"An entry of {index.name}, by {shard}.")
    text = _ENTRY.format(name=name, shard=annotation_of_index(kind), said=said, index=_literal(index.name))
    attributes: list[str] = []
    for field, kind in index.fields:
        attribute = attribute_name(field, attributes)
        attributes.append(attribute)
        optional = "" if field == shard else " | None"
        value = f"indexed(key={_literal(field)})" if attribute != field else "None"
        value = "" if field == shard and attribute == field else f" = {value}"
        text += f"    {attribute}: {annotation_of_index(kind)}{optional}{value}\n"
    return text


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _docstring(text: str) -> str:
    """Names of tables may hold anything."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return '"""' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"""'
