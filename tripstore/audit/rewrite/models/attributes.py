"""`ModelAttribute`: what an attribute of a model is in the layout, and the one form of its values, if they have one."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from tripstore.audit.meaning.bindings import keyword, last_name
from tripstore.audit.rewrite.verdicts import NotCertain, RewriteAssumption
from tripstore.backends.postgres.layout.layout import Field, FieldType

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
    FieldType.FLOAT: "as_float",
    FieldType.DECIMAL: "as_decimal",
    FieldType.DATETIME: "as_datetime",
    FieldType.DATE: "as_date",
    FieldType.UUID: "as_uuid",
    FieldType.BYTES: "as_bytes",
}
_WRITES = {
    FieldType.STRING: "text_value",
    FieldType.INT: "int_value",
    FieldType.BOOLEAN: "bool_value",
    FieldType.FLOAT: "float_value",
    FieldType.DATETIME: "datetime_text",
    FieldType.DATE: "date_text",
    FieldType.UUID: "uuid_text",
    FieldType.BYTES: "bytes_text",
}
#: Of arrays: what makes each of their values, where it needs to know no more.
_PLAIN_ITEMS = frozenset({FieldType.STRING, FieldType.FLOAT, FieldType.BOOLEAN})
_SUMS = {FieldType.INT: "added_int", FieldType.STRING: "joined_text"}
#: Constants that are values of a kind; of the others only None is.
_CONSTANTS: dict[FieldType, tuple[type, ...]] = {
    FieldType.STRING: (str,),
    FieldType.INT: (int,),
    FieldType.BOOLEAN: (bool,),
    FieldType.FLOAT: (int, float),
    FieldType.DECIMAL: (int,),
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
        field, pair = self.mapped(), self.mapped().lookup
        if pair is not None:
            raise NotCertain(
                f"{self.column} is a key of {pair.table}; bodies hold its UUID, {field.name}",
                f"ask for {pair.table}.{pair.value} first, and use {field.name}",
            )
        kind = field.kind
        if kind is FieldType.ARRAY:
            self._check_array(field)
            return field
        if kind not in _TYPES:
            raise NotCertain(
                f"values of {self.column} are {kind.value}, whose form in Python cannot be told", "rewrite it by hand"
            )
        if self.type is None or last_name(callee(self.type)) not in _TYPES[kind]:
            raise NotCertain(f"the type of {self.column} in its model is not one of {kind.value}", "rewrite it by hand")
        self._check(kind, self.type)
        return self.mapped()

    def _check_array(self, field: Field) -> None:
        """Lists of one dimension, whose values have one form: `ARRAY(Text)`."""
        said = self.type
        is_array = isinstance(said, ast.Call) and last_name(said.func) == "ARRAY" and len(said.args) == 1
        item = said.args[0] if is_array and isinstance(said, ast.Call) and not said.keywords else None
        is_plain = isinstance(item, ast.Name | ast.Attribute) and field.items in _PLAIN_ITEMS
        if item is None or not is_plain or last_name(item) not in _TYPES[field.items or FieldType.JSON]:
            raise NotCertain(
                f"values of {self.column} are lists, of whose values the form cannot be told", "rewrite it by hand"
            )

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

    def read(self, raw: str) -> tuple[str, set[RewriteAssumption]]:
        """The expression for its value, made of what a body holds; and what it assumes."""
        field = self.certain_field()
        assumed = {RewriteAssumption.UTC_SESSIONS} if field.kind is FieldType.DATETIME else set()
        if field.kind is FieldType.ARRAY and field.items is not None:
            item = _READS.get(field.items)
            return f"rewritten.as_list({raw}{'' if item is None else f', rewritten.{item}'})", assumed
        name = _READS.get(field.kind)
        return (raw if name is None else f"rewritten.{name}({raw})"), assumed

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

    def written(self, value: str, handle: str | None) -> str:
        """The expression for what a body holds of a value."""
        uuid = self.looked_up(value, handle)
        if uuid is not None:
            return f"rewritten.uuid_text({uuid})"
        if self.mapped().kind is FieldType.JSON:
            self._check_document()
            return f"rewritten.json_value({value})"
        kind, items = self.certain_field().kind, self.certain_field().items
        if kind is FieldType.ARRAY and items is not None:
            return f"rewritten.list_value({value}, rewritten.{_WRITES[items]})"
        if kind is FieldType.DECIMAL:
            self._is_constant(value, kind)
            return f"rewritten.decimal_text({value}, {self._scale()})"
        if self._is_constant(value, kind):
            return value
        size = {FieldType.STRING: self._number("length", 0), FieldType.INT: self.bits()}.get(kind)
        return f"rewritten.{_WRITES[kind]}({value}{'' if size is None else f', {size}'})"

    def _check_document(self) -> None:
        """None is NULL in it, as in all others: `JSONB(none_as_null=True)`."""
        said = self.type
        flag = keyword(said, "none_as_null") if isinstance(said, ast.Call) else None
        is_json = isinstance(said, ast.Call) and last_name(said.func) in ("JSON", "JSONB") and not said.args
        if not (is_json and isinstance(flag, ast.Constant) and flag.value is True):
            raise NotCertain(f"None is JSON's null in {self.column}, not NULL", "say none_as_null=True in the model")

    def computed(self, value: str, operator: str) -> str:
        """The expression for what a value is added to: a number, or a text."""
        field = self.certain_field()
        if ("||" if field.kind is FieldType.STRING else "+") not in operator:
            raise NotCertain(f"Postgres has no {operator} for {self.column}", "correct it first")
        if field.kind is FieldType.DECIMAL:
            self._is_constant(value, field.kind)
            return f'rewritten.added_decimal("{field.name}", {value}, {self._scale()})'
        if field.kind not in _SUMS:
            raise NotCertain("Postgres computes a value", "read first, compute in Python, then change by the key")
        self._is_constant(value, field.kind)
        size = self._number("length", 0) if field.kind is FieldType.STRING else self.bits()
        return f'rewritten.{_SUMS[field.kind]}("{field.name}", {value}{"" if size is None else f", {size}"})'

    def _is_constant(self, value: str, kind: FieldType) -> bool:
        """Whether it is a constant that a body holds as it stands."""
        try:
            known = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            return False
        fits = known is None or type(known) in _CONSTANTS.get(kind, ())
        length = self._number("length", 0) if kind is FieldType.STRING else None
        if not fits or (length is not None and isinstance(known, str) and len(known) > length):
            raise NotCertain(f"{value} is no value of {self.column}", "say it as Python has it")
        return kind in (FieldType.STRING, FieldType.INT, FieldType.BOOLEAN)

    def _scale(self) -> str:
        scale, precision = self._number("scale", 1), self._number("precision", 0)
        if scale is None:
            raise NotCertain(
                f"the model does not say the scale of {self.column}", "say Numeric(precision, scale) there"
            )
        return str(scale) if precision is None else f"{scale}, {precision}"

    def bits(self) -> int | None:
        """How many an integer has."""
        name = last_name(callee(self.type)).lower() if self.type is not None else ""
        return 16 if name.startswith("small") else 64 if name.startswith("big") else 32

    def _number(self, name: str, place: int) -> int | None:
        """An argument of the type: `Numeric(12, scale=2)`."""
        call = self.type
        if not isinstance(call, ast.Call) or last_name(call.func) in ("Enum", "ENUM"):
            return None
        said = keyword(call, name) or (call.args[place] if len(call.args) > place else None)
        if isinstance(said, ast.Constant) and isinstance(said.value, int):
            return said.value
        if said is None or (isinstance(said, ast.Constant) and said.value is None):
            return None
        raise NotCertain(f"the {name} of {self.column} cannot be told", "say it as a number in the model")


def callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Starred):
        return True  # the labels of a tuple: a class of enum cannot be unpacked into labels
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
