"""`Denoting`: what an expression stands for. Names, imports and attributes are followed; rows are in `rows`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from tripstore.audit.meaning.attributes import Attributes
from tripstore.audit.meaning.bindings import Assigned, Binding, ClassFacts, Imported, Returning, last_name
from tripstore.audit.meaning.modules import Modules
from tripstore.audit.meaning.orm import Orm, starred
from tripstore.audit.meaning.rows import Relations, RowsOf
from tripstore.audit.meaning.values import AuditedFunction, Entity, ModelRows, Module, OrmRoot, Scope, Text, Value
from tripstore.audit.names import LegacyTables

#: Attributes that say the name of a table.
_NAMES = frozenset({"__tablename__", "name", "fullname"})
#: Names that define each other round many circles are given up.
_STEPS_MAX = 10_000
#: Texts of a thousand summands name no table.
_DEPTH_MAX = 100
_SAME = frozenset({"__table__", "alias"})


class Classes(Relations, Protocol):
    """What stands for legacy tables: its own names are found out by `Denoting`, which asks it back."""

    modules: Modules
    tables: LegacyTables

    def scope(self, file: str) -> Scope: ...

    def entity(self, facts: ClassFacts, scope: Scope) -> Entity: ...

    def table_object(self, call: ast.Call, scope: Scope) -> Entity | None: ...

    def made(self, call: ast.Call, callee: str, scope: Scope) -> Entity | OrmRoot | None: ...

    def imported(self, dotted: str) -> Entity | ModelRows | None: ...

    def is_manager(self, entity: Entity, attribute: str) -> bool: ...

    def parents(self, entity: Entity) -> list[Entity]: ...


class Denoting:
    """Looks expressions up. Whatever it cannot know is None, and never a guess."""

    def __init__(self, models: Classes) -> None:
        self._models = models
        self._rows = RowsOf(self, models)
        self._attributes = Attributes(self, models)
        self._known: dict[tuple[Scope, str], Value | None] = {}
        self._asked: set[tuple[Scope, str]] = set()
        self._circles = 0
        self._steps = 0
        self._depth = 0

    def forget(self) -> None:
        self._known.clear()
        self._rows.forget()
        self._attributes.forget()

    @property
    def is_settled(self) -> bool:
        return not self._asked

    def value(self, node: ast.expr, scope: Scope) -> Value | None:
        if self._depth > _DEPTH_MAX:
            return None
        self._depth += 1
        try:
            return self._value(node, scope)
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, scope: Scope) -> Value | None:
        match node:
            case ast.Name(id=name):
                return self.named(name, scope)
            case ast.Constant(value=str(text)):
                return Text(text)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Subscript(value=ast.Attribute(attr="tables"), slice=key) if isinstance(
                named := self.value(key, scope), Text
            ):
                return self._table(named.text, node, scope)  # metadata.tables["trips"], metadata.tables[NAME]
            case ast.Call():
                return self._call(node, scope)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(left, right, scope)
            case _:
                return self._rows.of(node, scope)

    def annotated(self, annotation: ast.expr, scope: Scope) -> ModelRows | None:
        """The objects that an annotation such as `list[Trip]` speaks of."""
        return self._rows.annotated(annotation, scope)

    def answered(self, function: AuditedFunction) -> ModelRows | None:
        """The objects that a function returns, whatever it is given."""
        return self._rows.answer(function)

    def kept(self, entity: Entity) -> Iterator[ModelRows]:
        """The objects that those of a class keep in their attributes."""
        return self._attributes.every(entity)

    def callee(self, call: ast.Call, scope: Scope) -> str:
        """The last part of the name of what is called, under which it was defined: `pg_insert` may be `insert`."""
        if isinstance(call.func, ast.Name):
            found = self.named(call.func.id, scope)
            if isinstance(found, Module) and found.file is None:
                return found.last
        return last_name(call.func)

    def named(self, name: str, scope: Scope) -> Value | None:
        for around in scope.outwards():
            if around.first is not None and around.first[0] == name:
                return around.first[1]
            if name in around.bindings.outer and around.parent is not None:
                continue
            if name in around.bindings.names:
                return self._bound(name, around)
            if around.parent is None:
                found = self._starred(name, around)
                return found if found is not None else self._starred_outside(name, around)
        return None

    def _bound(self, name: str, scope: Scope) -> Value | None:
        key = (scope, name)
        if key in self._known:
            return self._known[key]
        self._steps = self._steps + 1 if self._asked else 0
        if key in self._asked or self._steps > _STEPS_MAX:
            self._circles += 1
            return None  # defined by itself, as in query = query.filter(…): its other bindings say it
        circles = self._circles
        self._asked.add(key)
        try:
            found = self._best([self._binding(each, scope) for each in scope.bindings.names[name]])
        finally:
            self._asked.discard(key)
        # What was found out half-way round a circle may be wrong.
        if not self._asked or circles == self._circles:
            self._known[key] = found
        return found

    def _best(self, found: list[Value | None]) -> Value | None:
        """Of several: a model if it may be one; rows of all."""
        known = [value for value in found if value is not None]
        entities = [value for value in known if isinstance(value, Entity)]
        rows = [value for value in known if isinstance(value, ModelRows)]
        if entities:
            return next((entity for entity in entities if entity.tables), entities[0])
        if rows:
            return ModelRows(
                frozenset().union(*(each.entities for each in rows)), any(each.is_statement for each in rows)
            )
        return known[0] if known else None

    def _binding(self, binding: Binding, scope: Scope) -> Value | None:
        match binding:
            case Imported():
                return self._imported(binding, scope)
            case ClassFacts():
                return self._models.entity(binding, scope)
            case Returning(function=function):
                return AuditedFunction(function, scope)
            case Assigned(value=node, is_annotation=True):
                rows = self._rows.annotated(node, scope)
                return rows if rows is not None else self._literal(node)
            case Assigned(value=node, is_element=True):
                return self._rows.elements(node, scope)
            case Assigned(value=node):
                return self.value(node, scope)
            case _:
                return None

    def _literal(self, annotation: ast.expr) -> Text | None:
        """`table: Literal["trips", "notes"]` may be each of these texts: the one that is looked for is what counts."""
        if not (isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Literal"):
            return None
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        return next((Text(text) for text in texts if self._models.tables.find(None, text) is not None), None)

    def _imported(self, imported: Imported, scope: Scope) -> Value | None:
        modules, dotted = self._models.modules, imported.module
        if imported.name is None:
            return Module(dotted, scope.file, modules.find(dotted, scope.file))
        inner = f"{dotted}.{imported.name}" if dotted else imported.name
        if imported.level:
            file = modules.find_relative(dotted, imported.level, scope.file)
            submodule = modules.find_relative(inner, imported.level, scope.file)
        else:
            file = modules.find(dotted, scope.file)
            submodule = modules.find(inner, scope.file)
        found = self._member(file, imported.name)
        if found is None and (submodule is not None or file is None):
            return self._elsewhere(inner, scope.file, submodule)
        if found is None and file is not None and not self._has(file, imported.name):
            return self._starred_outside(imported.name, self._models.scope(file))
        return found

    def _has(self, file: str, name: str) -> bool:
        return name in self._models.scope(file).bindings.names

    def _elsewhere(self, dotted: str, importer: str, file: str | None) -> Value:
        """A module, or what a library has under the name."""
        known = self._models.imported(dotted) if file is None else None
        return known if known is not None else Module(dotted, importer, file)

    def _member(self, file: str | None, name: str) -> Value | None:
        if file is None:
            return None
        scope = self._models.scope(file)
        return self._bound(name, scope) if name in scope.bindings.names else self._starred(name, scope)

    def _starred(self, name: str, scope: Scope) -> Value | None:
        """A name that `from module import *` may have brought."""
        key = (scope, f"* {name}")
        if key in self._asked:
            return None  # modules that import everything from each other
        self._asked.add(key)
        try:
            for star in scope.bindings.stars:
                if (found := self._member(self._star_file(star, scope), name)) is not None:
                    return found
        finally:
            self._asked.discard(key)
        return None

    def _starred_outside(self, name: str, scope: Scope, seen: frozenset[str] = frozenset()) -> Value | None:
        """A name that a star of an ORM, which the code base does not define, may have brought, here or further in."""
        for star in scope.bindings.stars:
            file = self._star_file(star, scope)
            dotted = starred(star.module, name) if file is None and not star.level else None
            found = self._elsewhere(dotted, scope.file, None) if dotted is not None else None
            if file is not None and file not in seen:
                found = self._starred_outside(name, self._models.scope(file), seen | {scope.file})
            if found is not None:
                return found
        return None

    def _star_file(self, star: Imported, scope: Scope) -> str | None:
        if star.level:
            return self._models.modules.find_relative(star.module, star.level, scope.file)
        return self._models.modules.find(star.module, scope.file)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value | None:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "classes":
            return self._table(node.attr, node, scope)  # automap: Base.classes.trips
        if node.attr in ("db_table", "table_name") and isinstance(node.value, ast.Attribute):
            return self._meta_name(node.value, scope)
        base = self.value(node.value, scope)
        match base:
            case Module():
                return self._inside(base, node.attr)
            case Entity():
                return self._of_entity(base, node.attr, scope)
            case OrmRoot() if node.attr == "Model":
                return base
            case ModelRows(is_statement=False):
                related = self._rows.related(base, node.attr)
                return related if related is not None else self._attributes.of(base, node.attr)
            case Text() if node.attr == "value":
                return base  # a member of an enum
            case _:
                return None

    def _of_entity(self, entity: Entity, attribute: str, scope: Scope) -> Value | None:
        if attribute in _SAME:
            return entity if entity.tables else None
        if attribute in _NAMES and entity.tables and (attribute == "__tablename__" or entity.facts is None):
            return Text(entity.tables[0].name)
        if entity.facts is not None and attribute in entity.facts.constants:
            return self.value(entity.facts.constants[attribute], scope)
        if entity.orm is Orm.DJANGO and self._models.is_manager(entity, attribute):
            return ModelRows(frozenset({entity}), is_statement=True)
        return self._attributes.method(entity, attribute, entity)

    def _meta_name(self, meta: ast.Attribute, scope: Scope) -> Text | None:
        """`Trip._meta.db_table`"""
        model = self.value(meta.value, scope) if meta.attr == "_meta" else None
        if isinstance(model, ModelRows):
            model = next(iter(model.entities)) if len(model.entities) == 1 else None
        return Text(model.tables[0].name) if isinstance(model, Entity) and model.tables else None

    def _inside(self, module: Module, name: str) -> Value | None:
        found = self._member(module.file, name)
        if found is not None:
            return found
        dotted = f"{module.dotted}.{name}"
        return self._elsewhere(dotted, module.importer, self._models.modules.find(dotted, module.importer))

    def _call(self, node: ast.Call, scope: Scope) -> Value | None:
        callee = self.callee(node, scope)
        if callee in ("Table", "table"):
            return self._models.table_object(node, scope)
        if (made := self._models.made(node, callee, scope)) is not None:
            return made
        if callee == "aliased" and node.args:
            return self.value(node.args[0], scope)
        if callee == "alias" and isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, scope)
            if isinstance(base, Entity):
                return base
        return self._rows.of(node, scope)

    def _table(self, name: str, node: ast.expr, scope: Scope) -> Entity | None:
        schema, _, last = name.rpartition(".")
        table = self._models.tables.find(schema or None, last)
        return None if table is None else Entity(scope.file, node.lineno, str(table), (table,))

    def _sum(self, left: ast.expr, right: ast.expr, scope: Scope) -> Text | None:
        first, second = self.value(left, scope), self.value(right, scope)
        return Text(first.text + second.text) if isinstance(first, Text) and isinstance(second, Text) else None
