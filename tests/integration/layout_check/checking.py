"""A layout held against a company's tables, with what was changed in either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.layouts import company_database, document
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.layout.complaints import Complaint
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

Change = Callable[[dict[str, Any]], object]


def checked(servers: LocalServers, flavour: Flavour, statements: str = "", *changes: Change) -> list[Complaint]:
    """What is said of the company's tables after these statements, by a layout with these changes."""
    changed = document()
    for change in changes:
        change(changed)
    url = company_database(servers, flavour)
    with connected(url, "test", search_path="public") as connection:
        if statements:
            rows(connection, statements)
    with connected(url, "test") as connection:
        return check_layout(connection, load_layout(changed))


def errors(complaints: list[Complaint]) -> list[str]:
    assert all(complaint.hint for complaint in complaints)
    return [str(complaint) for complaint in complaints if complaint.is_error]


def on_columns(name: str, key: str, value: object) -> Change:
    def change(layout: dict[str, Any]) -> None:
        layout["columns"][name][key] = value

    return change


def on_field(name: str, **keys: object) -> Change:
    def change(layout: dict[str, Any]) -> None:
        layout["columns"]["BASE"]["fields"][name] = keys

    return change
