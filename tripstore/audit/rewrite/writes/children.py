"""`ChildWriter`: the calls that put a new child row, and what they need to know of the row that code makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tripstore.audit.meaning.values import Entity, Scope
from tripstore.audit.rewrite.called import is_builtin
from tripstore.audit.rewrite.models.attributes import ColumnRole, ModelAttribute
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.models.relations import check_made, comes_by_itself
from tripstore.audit.rewrite.regions import RewriteContext
from tripstore.audit.rewrite.rows import ListChange
from tripstore.audit.rewrite.statements.inserts import SqlInsert
from tripstore.audit.rewrite.statements.sqltext import reason_of_insert
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.audit.rewrite.writes.keys import DictKeys
from tripstore.backends.postgres.layout.layout import VERSION_BITS, FieldType


@dataclass(frozen=True)
class ChildWriter:
    """Of one function."""

    context: RewriteContext
    scope: Scope
    function: ast.AST
    source: Callable[[ast.expr], str]

    def inserted(self, row: str, change: ListChange, handle: str | None) -> str:
        """What `trip.notes.append(TripNote(…))` becomes."""
        change.children.check_inserts()
        made, child = change.call.args[0], change.children.child
        if not isinstance(made, ast.Call) or self.made(made) != child.entity:
            raise NotCertain("what is put into the list is made elsewhere", "make it there")
        known = self._known(made, child)
        if any(each.role is ColumnRole.PARENT for each in known.values()):
            raise NotCertain("it says the id of its row as well", "let the list say it")
        number, said, tail = self._new(known, child, handle)
        said = f'"{number.name}", {said}, bits={VERSION_BITS}{tail}'
        return f'rewritten.insert_child({self.context.store}, {row}, "{child.column.name}", {self._row(made)}, {said})'

    def added(self, made: ast.Call, child: RewriteModel, handle: str | None) -> str:
        """What `session.add(TripNote(trip_id=7, n=1))` becomes."""
        if not child.column.is_child:
            raise NotCertain(*reason_of_insert())
        known = self._known(made, child)
        parent = next((each for each in known.values() if each.role is ColumnRole.PARENT), None)
        if parent is None:
            raise NotCertain(f"a new row of {child.column.table} has no id of its parent", "say it")
        number, said, tail = self._new(known, child, handle)
        said = f'("{parent.name}", "{number.name}"), {said}, bits={child.column.child_bits}'
        said += f', parent_column="{child.layout.parent.name}"{tail}'
        name = f'"{child.column.name}"'
        return f"rewritten.insert_child_of_id({self.context.store}, {name}, {self._row(made)}, {said})"

    def made(self, node: ast.Call) -> Entity | None:
        """The class whose object a call makes."""
        found = self.context.models.denoting.value(node.func, self.scope)
        return found if isinstance(found, Entity) and found.tables and found.facts is not None else None

    def _known(self, made: ast.Call, child: RewriteModel) -> dict[str, ModelAttribute]:
        if made.args or "#" in self.source(made):
            raise NotCertain("there is a comment, or a value without name, in it", "say the names of all values")
        every = [] if child.entity is None else [child.entity, *self.context.models.parents(child.entity)]
        check_made(child, [each.facts for each in every if each.facts is not None])
        keys = DictKeys(self.context.models.denoting, self.context.defined, self.scope, self.function)
        return {name: child.attribute(name) for name in keys.of_keywords(made)}

    def _new(
        self, known: Mapping[str, ModelAttribute], child: RewriteModel, handle: str | None
    ) -> tuple[ModelAttribute, str, str]:
        """The number, the fields by attribute, and what else a call says of them."""
        number = next((each for each in known.values() if each.role is ColumnRole.NUMBER), None)
        if number is None:
            raise NotCertain(f"a new row of {child.column.table} has no number", "say it")
        fields = _NewFields(child, handle, _document)
        is_key = (ColumnRole.NUMBER, ColumnRole.PARENT)
        every = [each for each in child.attributes.values() if each.name in known and each.role not in is_key]
        said, required = fields.said({each.name: each for each in every})
        tail = f", number_bits={number.bits()}{_names('required', required)}{_names('keeps_null', fields.kept)}"
        return number, said, tail

    def removed(self, row: str, change: ListChange) -> str:
        """What `trip.notes.remove(trip.notes[-1])` becomes."""
        change.children.check_removals()
        taken = change.call.args[0]
        if not isinstance(taken, ast.Subscript):
            raise NotCertain("what is taken from the list comes from elsewhere", f"say {row}.{change.children.name}[…]")
        return f"rewritten.delete_found({self.context.store}, {self.source(taken)})"

    def _row(self, made: ast.Call) -> str:
        """The values by name: `dict(n=1, text="x")`, or the dict alone that a constructor is given."""
        match made.keywords:
            case [ast.keyword(arg=None, value=value)]:
                return self.source(value)
        if not is_builtin("dict", self.scope):
            raise NotCertain("dict means something else in this file", "give that another name")
        source, name = self.source(made), ast.unparse(made.func)
        if not source.startswith(f"{name}("):
            raise NotCertain("the name of the class stands in several pieces", "write it in one")
        return f"dict{source.removeprefix(name)}"


def inserted_by_sql(
    context: RewriteContext,
    model: RewriteModel,
    insert: SqlInsert,
    row: str,
    handle: str | None,
    *,
    has_documents: bool,
) -> str:
    """What `INSERT INTO notes …` becomes: `row` is a dict by column."""
    model.check_writes()
    if not model.column.is_child:
        raise NotCertain(*reason_of_insert())
    known = {column: model.physical(column) for column in insert.columns}
    parent = next((each for each in known.values() if each.role is ColumnRole.PARENT), None)
    number = next((each for each in known.values() if each.role is ColumnRole.NUMBER), None)
    if parent is None or number is None:
        raise NotCertain(f"a new row of {model.column.table} has no id of its parent, or no number", "say both")
    if insert.conflicting and insert.conflicting != {parent.column, number.column}:
        raise NotCertain("when a row is there already, Postgres decides", "ask by the id of its row, and its number")
    if insert.changes and not model.has_versions:
        raise NotCertain(f"rows of {model.column.table} never change by the layout", "append another one")
    fields = _NewFields(model, handle, _document_of_sql if has_documents else _no_document)
    said, required = fields.said({name: each for name, each in known.items() if each not in (parent, number)})
    tail = f', bits={model.column.child_bits}, parent_column="{model.layout.parent.name}", number_bits={number.bits()}'
    tail += _names("required", required) + _names("keeps_null", fields.kept)
    if insert.changes:
        tail += _names("changes", [known[each].mapped().name for each in insert.changes if each in known])
    if any(each not in known for each in insert.changes):
        raise NotCertain("Postgres computes a value", "say it in the row")
    tail += ", unless_there=True" if insert.unless_there else ""
    key = f'("{parent.column}", "{number.column}")'
    return f'rewritten.insert_child_of_id({context.store}, "{model.column.name}", {row}, {key}, {said}{tail})'


def _document(known: ModelAttribute) -> str | None:
    """An attribute of a model: as its type says."""
    return None


def _document_of_sql(known: ModelAttribute) -> str | None:
    """A dict, which the function makes json of."""
    return "rewritten.json_object" if known.mapped().kind is FieldType.JSON else None


def _no_document(known: ModelAttribute) -> str | None:
    check_plain(known)
    return None


def check_plain(known: ModelAttribute) -> None:
    """What SQL is given for json is a text of it, or what the driver makes one of: another value than a body's."""
    if known.mapped().kind is FieldType.JSON:
        raise NotCertain(f"{known.column} gets a text of json, or what the driver makes one of", "put the value itself")


@dataclass(frozen=True)
class _NewFields:
    """The arguments that say which field each value of a new row is of, and which may not be missing."""

    child: RewriteModel
    handle: str | None
    document: Callable[[ModelAttribute], str | None]

    @property
    def kept(self) -> list[str]:
        return [each.name for each in self.child.column.fields if each.keeps_null]

    def said(self, given: Mapping[str, ModelAttribute]) -> tuple[str, list[str]]:
        """The dict of fields by the names of a row; and which of these are required."""
        there = {each.name for each in given.values()}
        for known in self.child.attributes.values():
            if known.role is ColumnRole.FIELD and known.name not in there and self._is_needed(known):
                raise NotCertain(f"the value of {known.column} in a new row comes from Postgres", "say it")
        said = [f'"{name}": ("{known.mapped().name}", {self._made(known)})' for name, known in given.items()]
        return f"{{{', '.join(said)}}}", [name for name, known in given.items() if self._is_needed(known)]

    def _is_needed(self, known: ModelAttribute) -> bool:
        facts = self.child.entity.facts if self.child.entity is not None else None
        return known.is_required or (facts is not None and comes_by_itself(facts, known.name))

    def _made(self, known: ModelAttribute) -> str:
        text = self.document(known)
        if text is not None:
            return text
        text = known.written("value", self.handle)
        is_plain = text.endswith("(value)") and text.count("(") == 1
        if re.search(r"\bvalue\b", self.handle or ""):
            raise NotCertain("the session has the name of what is written", "give it another name")
        return text.removesuffix("(value)") if is_plain else f"lambda value: {text}"


def _names(name: str, values: list[str]) -> str:
    return f", {name}=({''.join(f'{each!r}, ' for each in values).rstrip()})".replace("'", '"') if values else ""
