"""The company's BEFORE triggers: in what order they fire, and which mapped columns they fill."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.backends.postgres.layout.complaints import Complaint, note
from tripstore.backends.postgres.layout.layout import MappedColumn
from tripstore.backends.postgres.layout.live import LiveTable

#: BEFORE triggers fire in the order of their names, and ours have to see what all others made of a row.
LAST_TRIGGER = "~tripstore_"


def check_triggers(column: MappedColumn, table: LiveTable) -> Iterator[Complaint]:
    yield from _check_order(table)
    for field in column.fields:
        trigger, _ = table.fillers(field.column)
        if trigger is not None:
            hint = f"Leave field {field.name} out of the layout: a put that brings another value is refused."
            reason = f"is a field, and trigger {trigger.name} fills it whatever is written"
            yield note(f"{table.name}.{field.column}", reason, hint)


def _check_order(table: LiveTable) -> Iterator[Complaint]:
    for trigger in table.triggers:
        is_late = trigger.name > LAST_TRIGGER and not trigger.name.startswith(LAST_TRIGGER)
        if trigger.is_row and trigger.is_before and (trigger.is_insert or trigger.is_update) and is_late:
            hint = f"Rename it to sort before {LAST_TRIGGER}: what it changes of mapped columns is refused."
            yield note(str(table.name), f"trigger {trigger.name} fires after ours", hint)
