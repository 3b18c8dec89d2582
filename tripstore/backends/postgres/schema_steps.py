"""What `schema apply` does in the company's database, in order, and what `doctor` asks of it afterwards."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812

from tripstore.backends.postgres.capture import capture_steps, note_gap, read_state, verify
from tripstore.backends.postgres.capture.partitions import look_at_partitions
from tripstore.backends.postgres.capture.state import find_number
from tripstore.backends.postgres.ddl.steps import Step
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.layout.layout import Layout

_COPY = "Run `tripstore schema apply`, then a backfill: changes may have been missed."


def schema_steps(layout: Layout, *, may_truncate: bool = False, warns: bool = False) -> list[Step]:
    """Row keys first: capture needs one in every row."""
    return [*id_steps(layout), *capture_steps(layout, may_truncate=may_truncate, warns=warns)]


def examine_capture(
    connection: Connection, layout: Layout, *, may_truncate: bool = False, warns: bool = False
) -> list[Complaint]:
    """Why capture may have missed changes. A gap that is found is written down, so that no backfill relies on it."""
    look_at_partitions(connection)
    found = verify(connection, layout, may_truncate=may_truncate, warns=warns)
    state, number = read_state(connection), find_number(connection, layout)
    errors = [complaint for complaint in found if complaint.is_error]
    # Another layout than the installed one finds differences, not gaps.
    if errors and state.since is not None and state.layout == number:
        note_gap(connection, f"{errors[0].where}: {errors[0].reason}")
    elif state.since is None and state.broken is not None:
        found.append(error("capture", f"was broken ({state.broken})", _COPY))
    elif not errors and (state.since is None or state.layout != number):
        found.append(error("capture", "has not begun for this layout", _COPY))
    return found
