"""`RewriteModels`: the models of the tables of a layout, as their classes describe them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import Assigned, Imported, keyword, last_name
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import AuditedFunction, Entity, Module, Scope
from tripstore.audit.orms.models import Models
from tripstore.audit.rewrite.models.attributes import ColumnRole, ModelAttribute, callee
from tripstore.audit.rewrite.models.hooks import Listening, heard, hooks
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.backends.postgres.layout.layout import Field, Layout, MappedColumn, RefKeyKind

#: What makes attributes, whatever else a module calls so: `Column = db.Column`.
_PLAIN_CALLS = frozenset({"Column", "mapped_column", "relationship"})


@dataclass(frozen=True)
class RewriteModel:
    """A table of the layout, with what its model says."""

    layout: Layout
    column: MappedColumn
    entity: Entity | None
    attributes: dict[str, ModelAttribute]
    primary_key: tuple[str, ...]
    hooks: tuple[str, ...]  #: What happens besides when an object is loaded.
    write_hooks: tuple[str, ...]  #: The same when it is changed.

    def attribute(self, name: str) -> ModelAttribute:
        if name not in self.attributes:
            raise NotCertain(f"{name} is no column that the model of {self.column.table} shows", "rewrite it by hand")
        return self.attributes[name]

    def physical(self, column: str) -> ModelAttribute:
        found = next((each for each in self.attributes.values() if each.column == column), None)
        if found is None:
            raise NotCertain(
                f"no model in this code says the type of {self.column.table}.{column}", "rewrite it by hand"
            )
        return found

    def check_reads(self) -> None:
        if self.hooks:
            raise NotCertain(f"the model has {', '.join(self.hooks)}", "rewrite what that does by hand")

    def check_writes(self) -> None:
        self.check_reads()
        if self.write_hooks:
            raise NotCertain(f"the model has {', '.join(self.write_hooks)}", "rewrite what that does by hand")

    @property
    def is_composed(self) -> bool:
        """Whether its primary key has more than one column."""
        return len(self.primary_key) > 1

    def is_number(self, attribute: ModelAttribute) -> bool:
        """Whether it is what a body has as its number: the id of a row, or the number of a child row."""
        is_child_number = attribute.role is ColumnRole.NUMBER and self.has_versions
        return attribute.role is ColumnRole.ID or is_child_number

    @property
    def has_versions(self) -> bool:
        """Whether it is a child row that changes."""
        return self.column.ref_key.kind is RefKeyKind.CHILD


class RewriteModels:
    """The models of all tables of a layout, read from the trees of their files."""

    def __init__(
        self, models: Models, layout: Layout, tree: Callable[[str], ast.Module], listens: Collection[Listening] = ()
    ) -> None:
        """`listens` are what code hears events of: `listen(Trip, "load", …)`, and options that change all queries."""
        self._models = models
        self._layout = layout
        self._tree = tree
        self._known: dict[str, RewriteModel] = {}
        self._columns = {(each.table.schema, each.table.name): each for each in layout.columns.values()}
        self.listens = listens

    def column_of(self, schema: str | None, name: str) -> MappedColumn:
        found = self._columns.get((schema or "public", name))
        if found is None:
            raise NotCertain(f"{name} is no table of the layout", "name it in the layout")
        return found

    def of_entity(self, entity: Entity) -> RewriteModel:
        if len(entity.tables) != 1:
            raise NotCertain(f"{entity.name} maps {len(entity.tables)} tables", "rewrite it by hand")
        if entity.facts is None or entity.orm not in (Orm.SQLALCHEMY, Orm.FLASK, Orm.SQLMODEL, None):
            raise NotCertain(f"{entity.name} is no class of SQLAlchemy", "rewrite it by hand")
        column = self.column_of(entity.tables[0].schema, entity.tables[0].name)
        key = f"{entity.file}:{entity.line}"
        if key not in self._known:
            self._known[key] = self._read(entity, column)
        return self._known[key]

    def of_table(self, schema: str | None, name: str, entities: list[Entity]) -> RewriteModel:
        """Of a table that SQL names: the one model that maps it says the types."""
        self.column_of(schema, name)
        mine = [each for each in entities if each.tables and each.facts is not None and each.tables[0].name == name]
        if len({(each.file, each.line) for each in mine}) != 1:
            raise NotCertain(f"{len(mine)} models say the types of {name}", "rewrite it by hand")
        return self.of_entity(mine[0])

    def _read(self, entity: Entity, column: MappedColumn) -> RewriteModel:
        node = self._class(entity)
        if node is None:
            raise NotCertain(f"the class {entity.name} cannot be read", "rewrite it by hand")
        is_mapped = any(_maps_annotations(each) for each in (node, *map(self._class, self._models.parents(entity))))
        bases = list(self._bases(entity))
        attributes: dict[str, ModelAttribute] = {}
        keys: dict[str, bool] = {}  #: with whether a base has it
        for each, body in (*((base, self._class(base)) for base in reversed(bases)), (entity, node)):
            for statement in body.body if body is not None else ():
                name = _assigned(statement)
                made = self._attribute(statement, column, self._models.scope(each.file), is_mapped=is_mapped)
                if name is not None:  # what a class says goes before what its bases say
                    attributes.pop(name, None)
                    keys.pop(name, None)
                if made is not None:
                    attributes[made.name] = made
                    call = statement.value if isinstance(statement, ast.AnnAssign | ast.Assign) else None
                    if isinstance(call, ast.Call) and _is_true(keyword(call, "primary_key")):
                        keys[made.name] = each is not entity
        if len(keys) > 1 and any(keys.values()):
            keys.clear()  # in which order they stand, the base does not say
        names = [each.name for each in (entity, *bases)]
        on_load = (
            *hooks(node, of_writes=False),
            *self._inherited(bases, of_writes=False),
            *heard(self.listens, names, of_writes=False),
        )
        on_change = (
            *hooks(node, of_writes=True),
            *self._inherited(bases, of_writes=True),
            *(name for each in (entity, *bases) for name in self._made_elsewhere(each)),
            *heard(self.listens, names, of_writes=True),
        )
        return RewriteModel(self._layout, column, entity, attributes, tuple(keys), on_load, on_change)

    def _bases(self, entity: Entity) -> Iterator[Entity]:
        """All classes of the code base that it derives from, the nearest first."""
        waiting, seen = self._models.parents(entity), set[tuple[str, int]]()
        while waiting:
            each = waiting.pop(0)
            if (each.file, each.line) not in seen:
                seen.add((each.file, each.line))
                yield each
                waiting += self._models.parents(each)

    def _inherited(self, bases: Iterable[Entity], *, of_writes: bool) -> Iterator[str]:
        """What bases bring that is more than columns."""
        for base in bases:
            if base.tables and not of_writes:
                yield f"the base {base.name}, a model as well"
            node = self._class(base)
            if node is not None:
                yield from hooks(node, of_writes=of_writes)

    def _made_elsewhere(self, entity: Entity) -> Iterator[str]:
        """Attributes whose column a function of the company's makes, or a name says; what it does, that knows."""
        node, scope = self._class(entity), self._models.scope(entity.file)
        for statement in node.body if node is not None else ():
            name = _assigned(statement)
            value = getattr(statement, "value", None)
            said = callee(value) if isinstance(value, ast.Call) else _said_by_name(statement)
            if name is None or not isinstance(said, ast.Name):
                continue
            bound = scope.bindings.names.get(said.id, [])
            found = self._models.denoting.value(said, scope)
            is_ours = isinstance(found, AuditedFunction) or any(isinstance(each, Assigned) for each in bound)
            is_type = isinstance(found, Module | Entity) and value is None
            if said.id not in _PLAIN_CALLS and (is_ours or (value is None and bound and not is_type)):
                yield f"{name}, a column that {said.id} makes"

    def _class(self, entity: Entity) -> ast.ClassDef | None:
        return next(
            (
                each
                for each in ast.walk(self._tree(entity.file))
                if isinstance(each, ast.ClassDef) and each.lineno == entity.line and each.name == entity.name
            ),
            None,
        )

    def _attribute(
        self, statement: ast.stmt, column: MappedColumn, scope: Scope, *, is_mapped: bool
    ) -> ModelAttribute | None:
        """What a statement of the class makes. `is_mapped`: what an annotation means, the base says."""
        annotation, value = None, None
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, annotation, value = statement.target.id, statement.annotation, statement.value
        elif (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            name, value = statement.targets[0].id, statement.value
        else:
            return None
        if not (isinstance(value, ast.Call) and last_name(value.func) in ("Column", "mapped_column")):
            return None
        arguments = list(value.args)
        physical = name
        first = arguments[0] if arguments else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            physical = first.value
            arguments = arguments[1:]
        annotated = None if is_mapped else _plain(annotation)
        said = arguments[0] if arguments else (keyword(value, "type_") or annotated)
        if said is not None and last_name(callee(said)) == "ForeignKey":
            said = annotated
        said = self._followed(said, scope) if said is not None else None
        role, field = self._role(column, physical)
        is_required = (
            _is_true(keyword(value, "primary_key"))
            or _is_false(keyword(value, "nullable"))
            or (keyword(value, "nullable") is None and annotation is not None and _plain(annotation) is not None)
        )
        return ModelAttribute(name, physical, role, field, said, is_required)

    def _role(self, column: MappedColumn, physical: str) -> tuple[ColumnRole, Field | None]:
        field = next((each for each in column.fields if each.column == physical), None)
        if physical == column.uuid:
            return ColumnRole.ROW_KEY, None
        if column.parent is None and physical == self._layout.row_key.id:
            return ColumnRole.ID, None
        if physical == column.parent:
            return ColumnRole.PARENT, None
        if physical == column.ref_key.column:
            return ColumnRole.NUMBER, field
        return (ColumnRole.FIELD, field) if field is not None else (ColumnRole.OTHER, None)

    def _followed(self, node: ast.expr, scope: Scope, steps: int = 5) -> ast.expr | None:
        """A type that has a name of the company's, `Money = Numeric(12, 2)`, by what it stands for.

        None: a class of the company's, whatever its name is.
        """
        if (inner := _of_domain(node)) is not None:
            return self._followed(inner, scope, steps)
        found = scope.bindings.names.get(node.id, []) if isinstance(node, ast.Name) else []
        if len(found) != 1 or steps == 0:
            return node if self._is_of_sqlalchemy(callee(node), scope) else None
        match found[0]:
            case Assigned(value=value, is_element=False, is_annotation=False):
                return self._followed(value, scope, steps - 1)
            case Imported(module=module, level=level, name=str(name)):
                find = self._models.modules
                file = find.find_relative(module, level, scope.file) if level else find.find(module, scope.file)
                if file is not None:
                    return self._followed(ast.Name(name), self._models.scope(file), steps - 1)
        return node if self._is_of_sqlalchemy(node, scope) else None

    def _is_of_sqlalchemy(self, node: ast.expr, scope: Scope) -> bool:
        """Whether nothing says that a name is that of another type."""
        match self._models.denoting.value(node, scope):
            case Entity(facts=facts):
                return facts is None
            case Module(dotted=dotted, file=file):
                return file is None and dotted.partition(".")[0] in ("sqlalchemy", "sqlmodel", "flask_sqlalchemy")
        return True


def _assigned(statement: ast.stmt) -> str | None:
    """The attribute that a statement of a class makes."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case ast.FunctionDef(name=name):
            return name
    return None


def _said_by_name(statement: ast.stmt) -> ast.expr | None:
    """`timestamp` of `changed_at: Mapped[timestamp]`"""
    return _plain(statement.annotation) if isinstance(statement, ast.AnnAssign) else None


def _of_domain(node: ast.expr) -> ast.expr | None:
    """`Text()` of `DOMAIN("currency_code", Text(), check=…)`: what a domain checks, Postgres checks."""
    if not (isinstance(node, ast.Call) and last_name(node.func) == "DOMAIN" and len(node.args) == 2):
        return None
    is_plain = {word.arg for word in node.keywords} <= {"check", "create_type", "constraint_name", "schema"}
    return node.args[1] if is_plain else None


def _maps_annotations(node: ast.ClassDef | None) -> bool:
    """Whether a class says which types annotations mean: `type_annotation_map`."""
    return node is not None and any(
        (isinstance(each, ast.Name) and each.id == "type_annotation_map")
        or (isinstance(each, ast.keyword) and each.arg == "type_annotation_map")
        for each in ast.walk(node)
    )


def _plain(annotation: ast.expr | None) -> ast.expr | None:
    """`str` of `Mapped[str]`; nothing of `Mapped[str | None]`, which may be NULL."""
    if not (isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Mapped"):
        return None
    return annotation.slice if isinstance(annotation.slice, ast.Name | ast.Attribute) else None


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
