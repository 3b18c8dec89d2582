"""What `schema apply` does in the company's database, in order, and what `doctor` asks of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture import capture_steps, note_gap, read_state, verify
from tripstore.backends.postgres.capture.migrate import is_newest
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.capture.state import IN_FORCE, find_number, register
from tripstore.backends.postgres.capture.unwanted import find_left
from tripstore.backends.postgres.ddl.steps import Progress, SchemaStep
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import rows

_COPY = "Run `tripstore schema apply`, then a backfill: changes may have been missed."


def schema_steps(
    layout: Layout,
    *,
    may_truncate: bool = False,
    warns: bool = False,
    put_in_force: Callable[[], None] | None = None,
) -> list[SchemaStep]:
    """Row keys first: capture needs one in every row. The layout is in force before a backfill may rely on capture.

    `put_in_force`: what does that, on both stores; None: of a database that stands by itself.
    """
    *installing, left, since = capture_steps(layout, may_truncate=may_truncate, warns=warns)
    in_force = [] if put_in_force is None else [InForce(layout, put_in_force)]
    # What the layout before had made stands until no process goes by that one.
    return [*id_steps(layout), *installing, *in_force, left, since]


@dataclass(frozen=True, slots=True)
class InForce:
    """Every process goes by this layout from then on. Its triggers are there before: what it captures is complete."""

    layout: Layout
    put: Callable[[], None]

    @property
    def title(self) -> str:
        return "the layout in force"

    def is_done(self, connection: Connection) -> bool:
        if not is_newest(connection):
            return False
        return [digest for digest, _document, _number in rows(connection, IN_FORCE)] == [self.layout.digest]

    def statements(self) -> Sequence[str]:
        return ["-- at an epoch of its own: gate and shards refuse a process that goes by another layout"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        register(connection, self.layout)
        self.put()
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        """The layout before is put in force by its own `schema apply`."""


def examine_capture(
    connection: Connection, layout: Layout, *, may_truncate: bool = False, warns: bool = False
) -> list[Complaint]:
    """Why capture may have missed changes. A gap that is found is written down, so that no backfill relies on it."""
    look_at_partitions(connection)
    found = verify(connection, layout, may_truncate=may_truncate, warns=warns)
    state, number = read_state(connection), find_number(connection, layout)
    errors = [complaint for complaint in found if complaint.is_error]
    missed = [complaint for complaint in errors if not complaint.misses_nothing]
    # Another layout than the installed one finds differences, not gaps.
    if missed and state.since is not None and state.layout == number:
        note_gap(connection, f"{missed[0].where}: {missed[0].reason}")
    elif state.since is None and state.broken is not None:
        found.append(error("capture", f"was broken ({state.broken})", _COPY))
    elif not errors and (state.since is None or state.layout != number):
        found.append(error("capture", "has not begun for this layout", _COPY))
    return found


def examine_left(connection: Connection, layout: Layout) -> list[Complaint]:
    """What an earlier layout left and this one does not want, once this one was applied: it acts still."""
    return [] if find_number(connection, layout) is None else list(find_left(connection, layout).complaints())
