"""A company behind a shut gate, as the reverse mirror finds it, and cells that it brings there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid4

from schemaless_core import Cell
from tests.legacy import Legacy
from tests.legacy_backends import Company, status
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState, set_gate

EARLY, GOING = UUID(int=7), UUID(int=8)
CHILD = 1 << 20
SHUT = GateReading(6, GateState.CLOSED)

#: By what a cell of the row `key` does in the legacy tables; the row has BASE 2 (history: 1), NOTES and STATUS 1.
CELLS: dict[str, Callable[[UUID], list[Cell]]] = {
    "a new row": lambda _key: [Cell(uuid4(), "BASE", 1, status("new"))],
    "a new row, later": lambda _key: [Cell(uuid4(), "BASE", 7, status("new"))],
    "versions": lambda key: [Cell(key, "BASE", n, status(n)) for n in (3, 4, 9)],
    "history": lambda key: [Cell(key, "BASE", -5, status("late"))],
    "a fact": lambda key: [Cell(key, "STATUS", 2, {"result": "new"})],
    "a child": lambda key: [
        Cell(key, "NOTES", 3 * CHILD, {"text": "new"}),
        Cell(key, "NOTES", CHILD + 4, {"text": "x"}),
    ],
    "a deleted child": lambda key: [Cell(key, "NOTES", CHILD + 1, None)],
    "a deleted child, never there": lambda key: [Cell(key, "NOTES", 8 * CHILD, None)],
    "a row that goes": lambda _key: [Cell(GOING, "BASE", 2, None)],
    "children before their parent": lambda _key: [
        Cell(EARLY, "NOTES", CHILD, {"text": "early"}),
        Cell(EARLY, "STATUS", 4, {"result": "early"}),
        Cell(EARLY, "BASE", 1, status("parent")),
    ],
    "free": lambda key: [Cell(key, "FREE", 7, {"x": 7})],
    "free, many": lambda key: [Cell(key, "FREE", n, {"x": n}) for n in range(11, 15)],
}

MEDDLERS = {
    "before": ("BEFORE INSERT OR UPDATE", "NEW.status := 'mine'; RETURN NEW;"),
    "after": (
        "AFTER INSERT OR UPDATE",
        "UPDATE trips SET status = 'mine' WHERE id = NEW.id AND status <> 'mine'; RETURN NULL;",
    ),
}


def mirrored_row(company: Company) -> UUID:
    """A row with BASE 1 and 2, NOTES and STATUS 1; then the gate is shut."""
    set_to(company.legacy, GateReading(4, GateState.OPEN))
    key = company.base(1, 2)
    company.store.put_cell(key, "STATUS", 1, {"result": "1"})
    company.store.put_cell(key, "NOTES", CHILD, {"text": "1"})
    set_to(company.legacy, SHUT)
    return key


def set_to(legacy: Legacy, wanted: GateReading) -> None:
    with legacy.ours() as connection:
        set_gate(connection, wanted)


def queued(legacy: Legacy) -> Sequence[object]:
    return legacy.sql("SELECT row_key, column_name, ref_key FROM tripstore.queue ORDER BY 1, 2, 3")


def logged(legacy: Legacy, cells: Sequence[Cell]) -> list[tuple[str, int]]:
    """What the log has of these rows from the mirror, delivered."""
    keys = [str(cell.row_key) for cell in cells]
    query = (
        "SELECT DISTINCT column_name, ref_key FROM tripstore.log WHERE row_key = ANY (%s::uuid[]) "
        "AND origin = 'reverse' AND delivered_at IS NOT NULL ORDER BY 1, 2"
    )
    return [(name, ref_key) for name, ref_key in legacy.sql(query, keys)]


@contextmanager
def triggered(legacy: Legacy, when: str, body: str) -> Iterator[None]:
    """A trigger of the company's on trips."""
    legacy.sql(f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
    legacy.sql(f"CREATE TRIGGER meddle {when} ON trips FOR EACH ROW EXECUTE FUNCTION meddle()")
    try:
        yield
    finally:
        legacy.sql("DROP TRIGGER meddle ON trips; DROP FUNCTION meddle()")
