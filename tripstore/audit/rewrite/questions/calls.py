"""The call of tripstore that answers a question, as text: by key, by parent and number, or by an index."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.values import IndexFieldType
from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.questions.questions import AskedCondition, AskedQuestion, ChangedValue
from tripstore.audit.rewrite.reasons import OF_VERB
from tripstore.audit.rewrite.verdicts import IndexNeed, NotCertain, RewriteAssumption
from tripstore.backends.postgres.layout.layout import VERSION_BITS, DeletePolicy, Field, FieldType

#: Types that an index holds with the values and the order that SQL has.
_INDEXED = {
    FieldType.UUID: IndexFieldType.UUID,
    FieldType.STRING: IndexFieldType.STRING,
    FieldType.INT: IndexFieldType.INT,
    FieldType.DECIMAL: IndexFieldType.DECIMAL,
    FieldType.BOOLEAN: IndexFieldType.BOOLEAN,
    FieldType.DATETIME: IndexFieldType.DATETIME,
}
#: Of these the order is the same in both, too.
_ORDERED = frozenset({FieldType.INT, FieldType.DECIMAL, FieldType.DATETIME})

#: What makes the form that a body has of a value that it is compared with.
_COMPARED = {
    FieldType.STRING: "text_value",
    FieldType.INT: "int_value",
    FieldType.BOOLEAN: "bool_value",
    FieldType.UUID: "uuid_text",
}

#: Values that are not the same with each driver: a UUID may be a text, bytes a view of them.
_OF_DRIVERS = frozenset({FieldType.UUID, FieldType.BYTES})


@dataclass
class StoreCall:
    """An expression, and what it assumes."""

    text: str
    assumes: set[RewriteAssumption] = field(default_factory=set)
    need: IndexNeed | None = None
    is_value: bool = False  #: A value of a column, not a row.


@dataclass(frozen=True)
class CallWriter:
    """Writes calls, with the values as they stand in the source."""

    store: str
    source: Callable[[ast.expr], str]
    check_order: Callable[[Sequence[ast.expr]], None]  #: Of values, as the call has them.
    indexes: Sequence[IndexDefinition]
    referenced: Collection[str] = ()  #: Tables that foreign keys of models point to.

    def read(self, asked: AskedQuestion, model: RewriteModel, handle: str | None) -> StoreCall:
        model.check_reads()
        asked, others = self._beside_key(asked, model)
        keys = self._keys(asked, model)
        if keys is not None and (asked.order or asked.limit is not None or asked.end in ("", "all", "count")):
            raise NotCertain("it asks for a list, of one row at most", "ask with one_or_none()")
        call = self.by_keys(keys, model) if keys is not None else self._by_index(asked, model, handle)
        if others:
            call = replace(call, text=f"rewritten.only_if({call.text}, {{{', '.join(self._compared(others, model))}}})")
        if asked.or_raise:
            return replace(call, text=f"rewritten.{asked.or_raise}({call.text})")
        if asked.end == "count":
            return replace(call, text=f"len({call.text})", is_value=True)
        if not asked.columns:
            return call
        if asked.end in ("", "all"):
            return self._values(call, asked.columns[0], model)
        return self._value(call, asked.columns[0], model)

    def changed(
        self, keys: dict[ColumnRole, str], changes: Sequence[ChangedValue], model: RewriteModel, handle: str | None
    ) -> StoreCall:
        """The row of these keys gets values."""
        model.check_writes()
        said, kept = [], []
        for change in changes:
            known = model.attribute(change.name)
            text = (
                known.computed(change.text, change.operator) if change.operator else known.written(change.text, handle)
            )
            field_ = known.mapped()
            said.append(f'"{field_.name}": {text}')
            kept += [field_.name] if field_.keeps_null else []
        target, callee, tail = self._target(
            keys, model, {"id": "change_of_id", "row_key": "change", "child": "change_child_of_id"}
        )
        if model.column.ref_key.kind.value == "fact":
            raise NotCertain(f"rows of {model.column.table} never change by the layout", "append another one")
        null = f", keeps_null=({', '.join(repr(each) for each in kept)},)".replace("'", '"') if kept else ""
        return StoreCall(f"rewritten.{callee}({self.store}, {target}, {{{', '.join(said)}}}{tail}{null})")

    def deleted(self, keys: dict[ColumnRole, str], model: RewriteModel) -> StoreCall:
        """The row of these keys goes. What goes with a row of the parent table, only Postgres knows."""
        self.check_deletion(model)
        target, _, tail = self._target(keys, model, {"child": "delete_child_of_id"})
        return StoreCall(f"rewritten.delete_child_of_id({self.store}, {target}{tail})")

    def check_deletion(self, model: RewriteModel) -> None:
        """Nothing goes with a child row that has versions, unless foreign keys point to its table."""
        model.check_writes()
        if not model.has_versions or model.column.table.name in self.referenced:
            raise NotCertain(*OF_VERB["delete"])
        if model.column.on_delete is not DeletePolicy.TOMBSTONE:
            raise NotCertain(
                f"the layout says that deletions are {model.column.on_delete.value}", "let it stay in Postgres"
            )

    def fetched(self, keys: dict[ColumnRole, str], columns: Sequence[str], model: RewriteModel) -> StoreCall:
        """The row of these keys as the driver gives it, a tuple, or None."""
        model.check_reads()
        call, values = self.by_keys(keys, model), []
        for column in columns:
            attribute = model.physical(column)
            if model.is_number(attribute):
                values.append("row.number")
                continue
            if attribute.certain_field().kind in _OF_DRIVERS:
                raise NotCertain(f"{column} has a form of the driver's own", "ask by a model, or rewrite it by hand")
            text, assumed = attribute.read(f'row.get("{attribute.certain_field().name}")')
            call.assumes.update(assumed)
            values.append(text)
        said = f"rewritten.tuple_of({call.text}, lambda row: ({', '.join(values)},))"
        return replace(call, text=said, is_value=True)

    def fetched_value(self, keys: dict[ColumnRole, str], column: str, model: RewriteModel) -> StoreCall:
        """One value of the row of these keys, as the driver gives it, or None."""
        model.check_reads()
        attribute = model.physical(column)
        if not model.is_number(attribute) and attribute.certain_field().kind in _OF_DRIVERS:
            raise NotCertain(f"{column} has a form of the driver's own", "ask by a model, or rewrite it by hand")
        return self._value(self.by_keys(keys, model), attribute.name, model)

    def last(self, parent: str, default: int | None, model: RewriteModel) -> StoreCall:
        """The last number of the child rows of a row."""
        model.check_reads()
        said = f'{self.store}, {parent}, "{model.column.name}", bits={model.column.child_bits}'
        said += "" if default is None else f", default={default}"
        return StoreCall(f"rewritten.last_number({said})", is_value=True)

    def by_keys(self, keys: dict[ColumnRole, str], model: RewriteModel) -> StoreCall:
        """The row of these keys."""
        target, callee, tail = self._target(
            keys, model, {"id": "latest_of_id", "row_key": "latest", "child": "child_of_id"}
        )
        return StoreCall(f"rewritten.{callee}({self.store}, {target}{tail})")

    def keys(self, asked: AskedQuestion, model: RewriteModel) -> dict[ColumnRole, str]:
        """By what one row is found, or raise `NotCertain`."""
        found = self._keys(asked, model)
        if found is None:
            raise NotCertain(
                "it may change many rows, found by more than their key", "find them by an index, and change each"
            )
        return found

    def _target(
        self, keys: dict[ColumnRole, str], model: RewriteModel, callees: dict[str, str]
    ) -> tuple[str, str, str]:
        """What a call names the row by, which call, and what it says at its end."""
        column = f'"{model.column.name}"'
        if ColumnRole.ID in keys:
            return f"{keys[ColumnRole.ID]}, {column}", callees["id"], ""
        if ColumnRole.ROW_KEY in keys:
            return f"{keys[ColumnRole.ROW_KEY]}, {column}", callees["row_key"], ""
        number = keys[ColumnRole.NUMBER]
        return f"{keys[ColumnRole.PARENT]}, {column}, {number}", callees["child"], f", bits={VERSION_BITS}"

    def _beside_key(
        self, asked: AskedQuestion, model: RewriteModel
    ) -> tuple[AskedQuestion, tuple[AskedCondition, ...]]:
        """The question for a row by its key, and what else the row has to be like: `Trip.id == 7, Trip.status == x`."""
        roles = [model.attribute(each.attribute).role for each in asked.conditions]
        key = {ColumnRole.PARENT, ColumnRole.NUMBER} if model.column.is_child else {ColumnRole.ID, ColumnRole.ROW_KEY}
        known = [each for each, role in zip(asked.conditions, roles, strict=True) if role in key]
        others = [each for each, role in zip(asked.conditions, roles, strict=True) if role is ColumnRole.FIELD]
        is_all = len(known) == (2 if model.column.is_child else 1) and len(known) + len(others) == len(roles)
        if not (is_all and others and all(each.operator == "=" for each in asked.conditions)):
            return asked, ()
        self.check_order([each.values[0] for each in (*known, *others)])
        return replace(asked, conditions=tuple(known)), tuple(others)

    def _compared(self, others: Sequence[AskedCondition], model: RewriteModel) -> Iterator[str]:
        """Fields and the form that their values have in a body."""
        if len({each.attribute for each in others}) < len(others):
            raise NotCertain("it asks twice for one column", "ask once")
        for each in others:
            attribute = model.attribute(each.attribute)
            field_ = attribute.certain_field()
            if each.is_truth and field_.kind is not FieldType.BOOLEAN:
                raise NotCertain(f"{field_.name} is no truth value", "compare it with one")
            if field_.kind not in _COMPARED:
                raise NotCertain(*_of_keys(set(), model))
            value = _number(self.source(each.values[0]), field_.kind, each.values[0])
            yield f'"{field_.name}": rewritten.{_COMPARED[field_.kind]}({value})'

    def _keys(self, asked: AskedQuestion, model: RewriteModel) -> dict[ColumnRole, str] | None:
        """The texts of the key, if the question is for one row and nothing else."""
        if asked.end == "get" and asked.keys:
            keys = [self.source(each) for each in asked.keys]
            if len(keys) == 1 and isinstance(asked.keys[0], ast.Name):  # a key of several parts, under a name
                keys = [f"{keys[0]}[{place}]" for place in range(len(model.primary_key))] if model.is_composed else keys
            if len(keys) != len(model.primary_key):
                raise NotCertain(
                    f"the key has {len(asked.keys)} parts, the model's has {len(model.primary_key)}",
                    "rewrite it by hand",
                )
            pairs = list(zip(model.primary_key, keys, strict=True))
        else:
            ranks = {ColumnRole.PARENT: 0, ColumnRole.NUMBER: 1}
            ordered = sorted(asked.conditions, key=lambda each: ranks.get(model.attribute(each.attribute).role, 0))
            self.check_order([value for each in ordered for value in each.values])
            if any(each.operator != "=" or each.is_truth for each in asked.conditions):
                return None
            pairs = [(each.attribute, self.source(each.values[0])) for each in asked.conditions]
        roles = {model.attribute(name).role: value for name, value in pairs}
        found = set(roles)
        is_row = found in ({ColumnRole.ID}, {ColumnRole.ROW_KEY}) and not model.column.is_child
        if len(roles) == len(pairs) and (
            is_row or (found == {ColumnRole.PARENT, ColumnRole.NUMBER} and model.has_versions)
        ):
            return roles
        if asked.end == "get" or found & {ColumnRole.ID, ColumnRole.ROW_KEY, ColumnRole.PARENT}:
            raise NotCertain(*_of_keys(found, model))
        return None

    def _value(self, call: StoreCall, name: str, model: RewriteModel) -> StoreCall:
        """One value of one row, or None."""
        attribute = model.attribute(name)
        if model.is_number(attribute):
            return replace(call, text=f"rewritten.number_of({call.text})", is_value=True)
        text, assumed = attribute.read(f'rewritten.value_of({call.text}, "{attribute.certain_field().name}")')
        return replace(call, text=text, assumes=call.assumes | assumed, is_value=True)

    def _values(self, call: StoreCall, name: str, model: RewriteModel) -> StoreCall:
        """One value of each row."""
        attribute = model.attribute(name)
        if model.is_number(attribute):
            text, assumed = "row.number", set[RewriteAssumption]()
        else:
            text, assumed = attribute.read(f'row.get("{attribute.certain_field().name}")')
        said = f"[{text} for row in {call.text}]"
        return replace(call, text=said, assumes=call.assumes | assumed, is_value=True)

    def _by_index(self, asked: AskedQuestion, model: RewriteModel, handle: str | None) -> StoreCall:
        if model.column.is_child:
            raise NotCertain(
                f"an index holds the latest of a row's {model.column.name}, and not each",
                "keep what you look for in the row itself",
            )
        if not any(each.operator == "=" for each in asked.conditions):
            raise NotCertain(
                "no column has one value that an index could be asked for", "ask shard by shard: store.scan_rows"
            )
        if asked.end == "one_or_none" and asked.or_raise == "or_404":
            raise NotCertain(".one_or_404() is 404 where there are two rows", "ask for the first")
        if asked.end in ("first", "scalar", "one_or_none") and asked.limit is not None:
            raise NotCertain("it limits what brings one row", "rewrite it by hand")
        if len(asked.order) > 1:
            raise NotCertain("an index has one order", "sort in Python")
        where = [(self._field(each, model), each) for each in asked.conditions]
        order = self._order(asked, model)
        need = self._need([(each, condition.operator) for each, condition in where], order)
        if need.answered_by is None:
            raise NotCertain("no index answers it", "create one, as proposed at the end, and run this again", need=need)
        return self._found(asked, need, where, order, model, handle)

    def _field(self, condition: AskedCondition, model: RewriteModel) -> Field:
        attribute = model.attribute(condition.attribute)
        is_key = attribute.mapped().lookup is not None and condition.operator == "="
        field_ = attribute.mapped() if is_key else attribute.certain_field()
        if condition.is_truth and field_.kind is not FieldType.BOOLEAN:
            raise NotCertain(f"{field_.name} is no truth value", "compare it with one")
        if field_.kind not in _INDEXED:
            raise NotCertain(f"no index holds values of {field_.kind.value}", "put it as another type")
        if condition.operator not in ("=", "in") and field_.kind not in _ORDERED:
            raise NotCertain(
                f"{field_.name} orders by a collation in Postgres, and by bytes in an index", "compare in Python"
            )
        return field_

    def _order(self, asked: AskedQuestion, model: RewriteModel) -> Field | None:
        if not asked.order:
            return None
        attribute = model.attribute(asked.order[0][0])
        field_ = attribute.certain_field()
        if field_.kind not in _ORDERED:
            raise NotCertain(
                f"{field_.name} orders by a collation in Postgres, and by bytes in an index", "sort in Python"
            )
        if not attribute.is_required:
            raise NotCertain(
                f"{field_.name} may be NULL, which Postgres orders last and an index first",
                "say nullable=False, or sort in Python",
            )
        return field_

    def _need(self, where: Sequence[tuple[Field, str]], order: Field | None) -> IndexNeed:
        equal = {each.name: _INDEXED[each.kind].value for each, operator in where if operator == "="}
        every = {each.name: _INDEXED[each.kind].value for each, _ in where}
        if order is not None:
            every[order.name] = _INDEXED[order.kind].value
        answering = [each.name for each in self.indexes if _answers(each, equal, every)]
        return IndexNeed(tuple(equal.items()), tuple(every.items()), min(answering, default=None))

    def _found(
        self,
        asked: AskedQuestion,
        need: IndexNeed,
        where: list[tuple[Field, AskedCondition]],
        order: Field | None,
        model: RewriteModel,
        handle: str | None,
    ) -> StoreCall:
        index = next(each for each in self.indexes if each.name == need.answered_by)
        shard = next(pair for pair in where if pair[0].name == index.shard_field.name and pair[1].operator == "=")
        others = [pair for pair in where if pair[1] is not shard[1]]
        if any(each.lookup is not None for each, _ in others):
            raise NotCertain("two of its conditions are keys of other tables", "ask for the UUIDs first")
        values = [value for _, condition in (shard, *others) for value in condition.values]
        self.check_order(values if asked.limit is None else [*values, asked.limit])
        rest = [_condition(each, condition, self.source) for each, condition in others]
        value = _number(self.source(shard[1].values[0]), shard[0].kind, shard[1].values[0])
        uuid = model.attribute(shard[1].attribute).looked_up(value, handle)
        said = [self.store, f'"{index.name}"', value if uuid is None else f"{uuid[:-1]}, or_else=rewritten.NO_ROW)"]
        said += [f"[{', '.join(rest)}]"] if rest else []
        said.append(f'column_name="{model.column.name}"')
        if order is not None:
            said += [f'order_by="{order.name}"', *(["descending=True"] if asked.order[0][1] else [])]
        said += [f"limit={self.source(asked.limit)}"] if asked.limit is not None else []
        callee = {"first": "found_first", "scalar": "found_first", "one_or_none": "found_one"}.get(asked.end, "found")
        return StoreCall(f"rewritten.{callee}({', '.join(said)})", need=need)


def _number(text: str, kind: FieldType, value: ast.expr) -> str:
    """What an integer column is compared with; of what cannot be a text, as it stands."""
    is_plain = (isinstance(value, ast.Constant) and not isinstance(value.value, str)) or text.endswith(".number")
    return text if is_plain or kind is not FieldType.INT else f"rewritten.whole_number({text})"


def _condition(field_: Field, condition: AskedCondition, source: Callable[[ast.expr], str]) -> str:
    if condition.operator == "in":
        values = source(condition.values[0])
        is_mapped = field_.kind is FieldType.INT
        value = f"list(map(rewritten.whole_number, {values}))" if is_mapped else f"list({values})"
    else:
        values = ", ".join(_number(source(each), field_.kind, each) for each in condition.values)
        value = f"({values})" if condition.operator == "between" else values
    return f'("{field_.name}", "{condition.operator}", {value})'


def _answers(index: IndexDefinition, equal: dict[str, str], every: dict[str, str]) -> bool:
    """Whether an index has the fields, and is sharded by one that has one value. Only fields of one column are sure."""
    first = index.columns[0]
    there = {each.name: each.kind.value for each in first.fields}
    return index.shard_field.name in equal and all(there.get(name) == kind for name, kind in every.items())


def _of_keys(found: set[ColumnRole], model: RewriteModel) -> tuple[str, str]:
    if model.column.ref_key.kind.value == "fact" and found >= {ColumnRole.PARENT}:
        return (
            f"rows of {model.column.table} are facts; which of them count ends with a tombstone",
            "store.get_history(row_key, column)",
        )
    if found == {ColumnRole.PARENT}:
        return (
            f"it asks for all {model.column.name} of a row",
            "store.get_history(row_key, column), and the latest of each number",
        )
    if found == {ColumnRole.OTHER} or found == {ColumnRole.FIELD}:
        return f"the key of {model.column.table} is not mapped", "ask by the id of its row, and its number"
    return "it asks for more than the key", "ask by the key, and compare in Python"
