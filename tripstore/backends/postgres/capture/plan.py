"""`TableCapture`: all functions and triggers of one table, as they should be. Plans only; `install` runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import md5

from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.capture.functions.facts import FactRows
from tripstore.backends.postgres.capture.functions.former import in_written_order
from tripstore.backends.postgres.capture.functions.function import Function
from tripstore.backends.postgres.capture.functions.gate import gate_trigger
from tripstore.backends.postgres.capture.functions.pairs import LookupPairs
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger, enable_always
from tripstore.backends.postgres.capture.functions.truncation import truncation
from tripstore.backends.postgres.capture.functions.versions import VersionedRows
from tripstore.backends.postgres.capture.names import GATE_FUNCTION, GATE_TRIGGER, literal
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.layout.layout import Layout, RefKeyKind, TableName, quoted
from tripstore.backends.postgres.names import SCHEMA

Made = tuple[Function, RowTrigger | None]
#: Our own cells: free columns, and what the company's tables cannot hold.
CELLS = TableName(SCHEMA, "cell")
#: A test breaks what was made, to show that it matters.
Saboteur = Callable[[list[Made]], list[Made]]


@dataclass(frozen=True, slots=True)
class WantedTrigger:
    """A trigger on one table or partition. Its comment tells one text from another: Postgres writes them anew."""

    name: str
    table: TableName
    create: str
    function: str
    #: The text of the same trigger on the whole table: the event trigger copies it to new partitions, with its comment.
    of_whole: str
    #: Texts that say the same.
    former: tuple[str, ...] = ()
    #: The trigger without which nothing reaches it.
    needs: str | None = None
    #: It captures nothing.
    refuses: bool = False

    @property
    def comment(self) -> str:
        return _comment(self.of_whole)

    @property
    def former_comments(self) -> set[str]:
        """What earlier versions wrote: on a partition its own text, and another order. As good, and left as it is."""
        return {_comment(text) for text in (self.create, *self.former)}

    @property
    def statements(self) -> list[str]:
        return [
            self.create,
            enable_always(self.name, self.table),
            f"COMMENT ON TRIGGER {quoted(self.name)} ON {self.table.sql} IS {literal(self.comment)}",
        ]


def _comment(text: str) -> str:
    return f"tripstore {md5(text.encode(), usedforsecurity=False).hexdigest()}"


@dataclass(frozen=True, slots=True)
class TableCapture:
    """What belongs on one table."""

    shape: Shape
    functions: tuple[Function, ...]
    #: Row triggers stand on the table, Postgres clones them to partitions; those of statements are on every partition.
    triggers: tuple[WantedTrigger, ...]
    #: Whether its rows are cells; else others point to them.
    is_mapped: bool = True

    @property
    def comment(self) -> str:
        return table_comment(self.shape)

    @property
    def statements(self) -> list[str]:
        found = []
        for function in self.functions:
            found += [*function.statements, f"COMMENT ON FUNCTION {function.sql} IS {literal(self.comment)}"]
        return found + [statement for trigger in self.triggers for statement in trigger.statements]


def table_comment(shape: Shape) -> str:
    """Of each function: a table that takes the place of another has its name, not its OID."""
    return f"tripstore: of {shape.table}, {shape.oid}"


def plan_table(
    layout: Layout, shape: Shape, number: int, *, may_truncate: bool, saboteur: Saboteur | None = None
) -> TableCapture:
    """A mapped table; it may hold looked-up pairs as well."""
    changes = _changes(layout, shape, number, may_truncate)
    made = _made(changes)
    former = _made(_changes(in_written_order(layout), shape, number, may_truncate))
    made = [
        (replace(function, former_body=before.body), trigger)
        for (function, trigger), (before, _) in zip(made, former, strict=True)
    ]
    pairs = [LookupPairs(lookup) for lookup in layout.lookups if lookup.table == shape.table]
    made += [each for pair in pairs for each in pair.made()]
    if saboteur is not None:
        made = saboteur(made)
    texts = {trigger.name: (trigger.create(shape.table),) for _, trigger in former if trigger is not None}
    triggers = [
        _wanted(trigger, shape.table, shape, *texts.get(trigger.name, ())) for _, trigger in made if trigger is not None
    ]
    functions = list({function.name: function for function, _ in made}.values())
    truncate, statement = truncation(shape.table, changes, pairs, is_allowed=may_truncate)
    functions.append(truncate)
    triggers += [_wanted(statement, node.table, shape) for node in shape.nodes]
    if changes:
        triggers += _gates(layout, shape)
    return TableCapture(shape, tuple(functions), tuple(triggers), bool(changes))


def plan_cells(layout: Layout, shape: Shape) -> TableCapture:
    """Our own cells: they are not captured, but they are behind the gate."""
    return TableCapture(shape, (), tuple(_gates(layout, shape)))


def _changes(layout: Layout, shape: Shape, number: int, may_truncate: bool) -> list[Changes]:
    return [
        Changes(layout, column, shape, number, may_truncate=may_truncate)
        for column in layout.columns.values()
        if column.table == shape.table
    ]


def _made(changes: Sequence[Changes]) -> list[Made]:
    return [each for change in changes for each in _kind(change).made()]


def _kind(changes: Changes) -> FactRows | VersionedRows:
    return FactRows(changes) if changes.column.ref_key.kind is RefKeyKind.FACT else VersionedRows(changes)


def _wanted(trigger: RowTrigger, table: TableName, shape: Shape, *former: str) -> WantedTrigger:
    of_whole = trigger.create(shape.table)
    return WantedTrigger(
        trigger.name,
        table,
        trigger.create(table),
        trigger.function,
        of_whole,
        former,
        trigger.needs,
        trigger.refuses,
    )


def _gates(layout: Layout, shape: Shape) -> Sequence[WantedTrigger]:
    of_whole = gate_trigger(shape.table, layout.datastore)
    return [
        WantedTrigger(GATE_TRIGGER, node.table, gate_trigger(node.table, layout.datastore), GATE_FUNCTION, of_whole)
        for node in shape.nodes
    ]
