"""What `schema plan` and `apply` need of both stores to put another layout in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemaless_core.purging.columns import ColumnBook
from tripstore.backends.postgres.wire.connections import rows
from tripstore.cli.legacy.schema import LegacySchema
from tripstore.config import TripstoreConfig
from tripstore.migration.layouts.change import LayoutChange
from tripstore.migration.layouts.columns import kinds_by
from tripstore.migration.layouts.existing import Existing
from tripstore.migration.layouts.history import layouts_in_force
from tripstore.migration.layouts.meaning import changed_meaning
from tripstore.ports.control import RealControlPort
from tripstore.ports.legacy import RealLegacyPort
from tripstore.wiring import build


@contextmanager
def layout_change(config: TripstoreConfig, legacy: LegacySchema) -> Iterator[LegacySchema]:
    """The legacy store, with the change that its layout is; connected to Schemaless up to the end."""
    assert config.legacy is not None
    layout = config.legacy.layout

    def ask(statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return rows(legacy.connection, statement, values)

    facade = build(config)
    try:
        duo = facade.duo
        assert duo is not None
        before = layouts_in_force(ask, config.core.datastore)
        changes = changed_meaning(layout, before)
        change = LayoutChange(layout, changes, Existing(facade.store, ask))
        port, control = duo.ports.legacy, duo.ports.control
        assert isinstance(port, RealLegacyPort)
        assert isinstance(control, RealControlPort)

        def put_in_force() -> None:
            try:
                change.put_in_force(
                    duo.ports, control, config.mirror.max_pause_seconds, in_the_way=lambda: port.in_the_way
                )
                ColumnBook(facade.store.control).record(kinds_by([layout, *before]))
            finally:
                port.close()

        legacy.change_by(change, put_in_force)
        yield legacy
    finally:
        facade.close()
