"""`RewriteModels`: what the attributes of a model are in the layout, and whether their values have one certain form in bodies."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from tripstore.audit.meaning.bindings import Assigned, Imported, keyword, last_name
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import Entity, Scope
from tripstore.audit.orms.models import Models
from tripstore.audit.rewrite.verdicts import NotCertain, RewriteAssumption
from tripstore.backends.postgres.layout.layout import Field, FieldType, Layout, MappedColumn, RefKeyKind

#: Of mappers that read or write more than the columns that are assigned.
_MAPPER_ARGUMENTS = frozenset(
    {
        "polymorphic_on",
        "polymorphic_identity",
        "version_id_col",
        "eager_defaults",
        "include_properties",
        "exclude_properties",
    }
)
_READ_HOOKS = frozenset({"reconstructor", "listens_for"})
_WRITE_HOOKS = frozenset({"validates"})
#: SQLAlchemy's types by what they become in bodies.
_TYPES: dict[FieldType, frozenset[str]] = {
    FieldType.STRING: frozenset({"String", "Text", "Unicode", "UnicodeText", "VARCHAR", "TEXT", "Enum", "ENUM", "str"}),
    FieldType.INT: frozenset({"Integer", "BigInteger", "SmallInteger", "INTEGER", "BIGINT", "SMALLINT", "int"}),
    FieldType.DECIMAL: frozenset({"Numeric", "NUMERIC", "DECIMAL"}),
    FieldType.BOOLEAN: frozenset({"Boolean", "BOOLEAN", "bool"}),
    FieldType.FLOAT: frozenset({"Double", "DOUBLE", "DOUBLE_PRECISION"}),
    FieldType.DATETIME: frozenset({"DateTime", "TIMESTAMP"}),
    FieldType.DATE: frozenset({"Date", "DATE"}),
    FieldType.UUID: frozenset({"Uuid", "UUID"}),
    FieldType.BYTES: frozenset({"LargeBinary", "BYTEA"}),
}
#: What makes the driver's value of a body's, and a body's of a value.
_READS = {
    FieldType.DECIMAL: "as_decimal",
    FieldType.DATETIME: "as_datetime",
    FieldType.DATE: "as_date",
    FieldType.UUID: "as_uuid",
    FieldType.BYTES: "as_bytes",
}
_WRITES = {
    FieldType.DATETIME: "datetime_text",
    FieldType.DATE: "date_text",
    FieldType.UUID: "uuid_text",
    FieldType.BYTES: "bytes_text",
}


class ColumnRole(Enum):
    """What a physical column is in the layout."""

    FIELD = "field"
    ID = "id"  #: of a row
    PARENT = "parent"  #: of a child row: the id of its row
    NUMBER = "number"  #: of a child row
    ROW_KEY = "row key"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ModelAttribute:
    """An attribute of a model, or a column that SQL names: its role, and of a field the form of its values."""

    name: str
    column: str
    role: ColumnRole
    field: Field | None
    type: ast.expr | None  #: As the model says it; unknown where SQL names a column and there is no model.
    is_required: bool  #: NOT NULL, as the model says.

    def mapped(self) -> Field:
        """The field, whatever its values are like."""
        if self.role is not ColumnRole.FIELD or self.field is None:
            raise NotCertain(
                f"{self.column} is not mapped to a field", "map it in the layout, or let it stay in Postgres"
            )
        return self.field

    def certain_field(self) -> Field:
        """The field, if each of its values has one form in Python."""
        if self.mapped().lookup is not None:
            pair = self.mapped().lookup
            assert pair is not None and self.field is not None  # as was just asked
            raise NotCertain(
                f"{self.column} is a key of {pair.table}; bodies hold its UUID, {self.field.name}",
                f"ask for {pair.table}.{pair.value} first, and use {self.field.name}",
            )
        kind = self.mapped().kind
        if kind not in _TYPES:
            raise NotCertain(
                f"values of {self.column} are {kind.value}, whose form in Python cannot be told", "rewrite it by hand"
            )
        if self.type is None or last_name(_callee(self.type)) not in _TYPES[kind]:
            raise NotCertain(f"the type of {self.column} in its model is not one of {kind.value}", "rewrite it by hand")
        self._check(kind, self.type)
        return self.mapped()

    def _check(self, kind: FieldType, said: ast.expr) -> None:
        """Types whose arguments decide what the driver gives."""
        call = said if isinstance(said, ast.Call) else ast.Call(said, [], [])
        flag = {FieldType.DATETIME: "timezone", FieldType.DECIMAL: "asdecimal", FieldType.UUID: "as_uuid"}.get(kind)
        value = keyword(call, flag) if flag else None
        is_true = isinstance(value, ast.Constant) and value.value is True
        if kind is FieldType.DATETIME and not is_true:
            raise NotCertain(
                f"{self.column} has no timezone=True: whether its values are aware cannot be told",
                "say so in the model",
            )
        if (value is not None and not is_true) or (
            kind is FieldType.UUID and last_name(call.func) == "UUID" and not is_true
        ):
            raise NotCertain(f"the model asks for {self.column} in another form ({flag})", "rewrite it by hand")
        if last_name(call.func) in ("Enum", "ENUM") and any(not _is_text(each) for each in call.args):
            raise NotCertain(f"{self.column} may be an enum of Python's", "compare its values by hand")
        if kind is FieldType.STRING and keyword(call, "collation") is not None:
            raise NotCertain(f"{self.column} has a collation of its own", "compare its values by hand")

    def read(self, body: str) -> tuple[str, set[str], set[RewriteAssumption]]:
        """The expression for its value of a body, the names that it needs, and what it assumes."""
        field = self.certain_field()
        text = f'{body}.get("{field.name}")'
        assumed = {RewriteAssumption.UTC_SESSIONS} if field.kind is FieldType.DATETIME else set()
        name = _READS.get(field.kind)
        return (text, set(), assumed) if name is None else (f"rewritten.{name}({text})", {name}, assumed)

    def looked_up(self, value: str, handle: str | None) -> str | None:
        """The expression for the UUID that a key of another table stands for; None: it is no such key."""
        pair = self.mapped().lookup
        if pair is None:
            return None
        if handle is None:
            raise NotCertain(
                f"{self.column} is a key of {pair.table}, and there is no session to ask it of",
                f"ask for {pair.table}.{pair.value} first",
            )
        return f'rewritten.looked_up({handle}, "{pair.table}", "{pair.key}", "{pair.value}", {value})'

    def written(self, value: str, handle: str | None) -> tuple[str, set[str]]:
        """The expression for what a body holds of a value."""
        uuid = self.looked_up(value, handle)
        if uuid is not None:
            return f"rewritten.uuid_text({uuid})", {"looked_up", "uuid_text"}
        field = self.certain_field()
        if field.kind is FieldType.DECIMAL:
            return f"rewritten.decimal_text({value}, {self._scale()})", {"decimal_text"}
        name = _WRITES.get(field.kind)
        return (value, set()) if name is None else (f"rewritten.{name}({value})", {name})

    def _scale(self) -> int:
        call = self.type
        scale = (
            (keyword(call, "scale") or (call.args[1] if len(call.args) > 1 else None))
            if isinstance(call, ast.Call)
            else None
        )
        if not (isinstance(scale, ast.Constant) and isinstance(scale.value, int)):
            raise NotCertain(
                f"the model does not say the scale of {self.column}", "say Numeric(precision, scale) there"
            )
        return scale.value


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
    def has_versions(self) -> bool:
        """Whether it is a child row that changes."""
        return self.column.ref_key.kind is RefKeyKind.CHILD


class RewriteModels:
    """The models of all tables of a layout, read from the trees of their files."""

    def __init__(
        self, models: Models, layout: Layout, tree: Callable[[str], ast.Module], listens: Collection[str] = ()
    ) -> None:
        """`listens` are what code hears events of: `listen(Trip, "load", …)`, and options that change all queries."""
        self._models = models
        self._layout = layout
        self._tree = tree
        self._known: dict[str, RewriteModel] = {}
        self._columns = {(each.table.schema, each.table.name): each for each in layout.columns.values()}
        self._listens = listens

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
        scope = self._models.scope(entity.file)
        attributes: dict[str, ModelAttribute] = {}
        keys: list[str] = []
        for statement in node.body:
            made = self._attribute(statement, column, scope)
            if made is not None:
                attributes[made.name] = made
                call = statement.value if isinstance(statement, ast.AnnAssign | ast.Assign) else None
                if isinstance(call, ast.Call) and _is_true(keyword(call, "primary_key")):
                    keys.append(made.name)
        hooks = (*self._hooks(node, of_writes=False), *self._inherited(entity), *self._heard(entity.name))
        return RewriteModel(
            self._layout, column, entity, attributes, tuple(keys), hooks, self._hooks(node, of_writes=True)
        )

    def _inherited(self, entity: Entity) -> Iterator[str]:
        """What bases bring that is more than columns."""
        for parent in self._models.parents(entity):
            if parent.tables:
                yield f"the base {parent.name}, a model as well"
            node = self._class(parent)
            if node is not None:
                yield from self._hooks(node, of_writes=False)

    def _heard(self, name: str) -> Iterator[str]:
        for each in self._listens:
            if each.rpartition(".")[2].lower() in (
                name.lower(),
                "session",
                "mapper",
                "base",
                "scoped_session",
                "sessionmaker",
                "query_class",
                "with_loader_criteria",
            ):
                yield f"events of {each}"

    def _class(self, entity: Entity) -> ast.ClassDef | None:
        return next(
            (
                each
                for each in ast.walk(self._tree(entity.file))
                if isinstance(each, ast.ClassDef) and each.lineno == entity.line and each.name == entity.name
            ),
            None,
        )

    def _attribute(self, statement: ast.stmt, column: MappedColumn, scope: Scope) -> ModelAttribute | None:
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
        said = self._followed(arguments[0], scope) if arguments else (keyword(value, "type_") or _plain(annotation))
        if said is not None and last_name(_callee(said)) == "ForeignKey":
            said = _plain(annotation)
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

    def _followed(self, node: ast.expr, scope: Scope, steps: int = 5) -> ast.expr:
        """A type that has a name of the company's, `Money = Numeric(12, 2)`, by what it stands for."""
        if not isinstance(node, ast.Name) or steps == 0:
            return node
        found = scope.bindings.names.get(node.id, [])
        if len(found) != 1:
            return node
        match found[0]:
            case Assigned(value=value, is_element=False, is_annotation=False):
                return self._followed(value, scope, steps - 1)
            case Imported(module=module, level=level, name=str(name)):
                find = self._models.modules
                file = find.find_relative(module, level, scope.file) if level else find.find(module, scope.file)
                if file is not None:
                    return self._followed(ast.Name(name), self._models.scope(file), steps - 1)
        return node

    def _hooks(self, node: ast.ClassDef, *, of_writes: bool) -> tuple[str, ...]:
        """What the class does besides when its objects are loaded, or when they are changed."""
        found: list[str] = []
        for each in ast.walk(node):
            if isinstance(each, ast.FunctionDef) and of_writes:
                found += [name for part in each.decorator_list if (name := last_name(_callee(part))) in _WRITE_HOOKS]
            elif isinstance(each, ast.FunctionDef):
                found += [name for part in each.decorator_list if (name := last_name(_callee(part))) in _READ_HOOKS]
            elif isinstance(each, ast.Constant) and each.value in _MAPPER_ARGUMENTS and not of_writes:
                found.append(str(each.value))
            elif isinstance(each, ast.keyword) and of_writes and each.arg in ("onupdate", "server_onupdate"):
                found.append(str(each.arg))
            elif isinstance(each, ast.Name) and each.id == "query_class" and not of_writes:
                found.append(each.id)
        return tuple(dict.fromkeys(found))


def _plain(annotation: ast.expr | None) -> ast.expr | None:
    """`str` of `Mapped[str]`; nothing of `Mapped[str | None]`, which may be NULL."""
    if not (isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Mapped"):
        return None
    return annotation.slice if isinstance(annotation.slice, ast.Name | ast.Attribute) else None


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Starred):
        return True  # the labels of a tuple: a class of enum cannot be unpacked into labels
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
